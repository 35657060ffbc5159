"""The ``kraftlog`` command: finds the subcommand's module and runs it."""

from __future__ import annotations

import argparse
import logging
import os
import sys
from collections.abc import Sequence
from contextlib import suppress
from importlib import import_module

from kraftlog.errors import KraftlogError
from kraftlog.version import VERSION

__all__ = ["main"]

# Subcommand -> (module, one line of help). A module has add_arguments(parser) and run(args) -> exit status; one that
# stands for a tool of Kafka and reads its arguments itself has main(arguments) -> exit status instead.
COMMANDS: dict[str, tuple[str, str]] = {
    "cluster": ("kraftlog.cli.cluster", "start several nodes on this machine and watch leaders, ISRs and controller"),
    "consume": ("kraftlog.cli.consume", "print records of a live cluster, or write them to a Parquet file"),
    "dev": ("kraftlog.cli.dev", "start a single node on this machine, ready for clients"),
    "demo": ("kraftlog.cli.demo", "a durable node, a client and an Arrow scan, with what they took"),
    "dump-log": ("kraftlog.cli.dump_log", "print the batches and records of log files"),
    "features": ("kraftlog.cli.features", "show feature levels of a cluster, raise and lower them"),
    "groups": ("kraftlog.cli.groups", "list, describe, delete groups; reset their offsets"),
    "log": ("kraftlog.cli.log", "verify log directories, salvage damaged ones"),
    "metadata-quorum": ("kraftlog.cli.metadata_quorum", "describe the metadata quorum, add and remove voters"),
    "perf": ("kraftlog.cli.perf", "measure how fast clients produce to a cluster and fetch from it"),
    "produce": ("kraftlog.cli.produce", "send lines or the rows of a Parquet file to a topic"),
    "server-start": ("kraftlog.cli.server_start", "start a node from a server.properties file"),
    "storage": ("kraftlog.cli.storage", "format log directories and look at them"),
    "transactions": ("kraftlog.cli.transactions", "list transactions, find and abort hanging ones"),
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        arguments: Without the program's name; those of the process when absent.

    Returns:
        The exit status: 0 when all went well, 1 when it failed with a message, 2 for wrong usage.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    parser = argparse.ArgumentParser(
        prog="kraftlog", description="An embeddable, Kafka-wire-compatible replicated log."
    )
    parser.add_argument("--version", action="version", version=f"kraftlog {VERSION}")
    commands = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for name, (module, summary) in COMMANDS.items():
        command = commands.add_parser(name, help=summary, description=summary)
        # Only the asked-for module is imported: the others may need extras.
        if name in given[:1]:
            loaded = import_module(module)
            if not hasattr(loaded, "run"):
                return int(loaded.main(given[1:]))
            loaded.add_arguments(command)
            command.set_defaults(run=loaded.run)
    parsed = parser.parse_args(given)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s")
    try:
        return int(parsed.run(parsed))
    except KraftlogError as error:
        print(f"kraftlog {parsed.command}: {error}", file=sys.stderr)
        return 1
    except BrokenPipeError:
        # What is still in the buffer has no reader: without this, Python complains about it when it ends.
        with suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        text = error.strerror or str(error)
        where = "" if error.filename is None else f"{error.filename}: "
        print(f"kraftlog {parsed.command}: {where}{text}", file=sys.stderr)
        return 1


if __name__ == "__main__":
    sys.exit(main())
