"""Arguments that the commands of a client share."""

from __future__ import annotations

import argparse
from pathlib import Path

from kraftlog.errors import KraftlogError
from kraftlog.storage.properties import parse_properties

__all__ = ["add_client_arguments", "client_properties"]


def add_client_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare where the cluster is and how to talk to it."""
    parser.add_argument("--bootstrap-server", metavar="HOST:PORT,...", required=True, help="brokers of the cluster")
    parser.add_argument("--command-config", metavar="FILE", help="a file of settings, such as security.protocol")
    parser.add_argument(
        "--property", action="append", default=[], metavar="KEY=VALUE", help="one setting; may be given several times"
    )


def client_properties(args: argparse.Namespace) -> dict[str, str]:
    """The settings that those arguments give.

    Raises:
        KraftlogError: The file cannot be read, or a property has no ``=``.
    """
    properties: dict[str, str] = {}
    if args.command_config is not None:
        try:
            properties = dict(parse_properties(Path(args.command_config).read_text("latin-1")))
        except OSError as error:
            raise KraftlogError(f"{args.command_config}: {error.strerror}") from error
    for text in args.property:
        key, equals, value = text.partition("=")
        if not equals:
            raise KraftlogError(f"--property {text}: the form is KEY=VALUE")
        properties[key.strip()] = value.strip()
    properties["bootstrap.servers"] = args.bootstrap_server
    return properties
