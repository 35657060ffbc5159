"""Listeners: the endpoint lists of ``listeners`` and ``advertised.listeners`` and the protocol map."""

from __future__ import annotations

from dataclasses import dataclass

from kraftlog.errors import KraftlogError

__all__ = ["ConfigError", "EndPoint", "parse_end_points", "parse_protocol_map"]

DEFAULT_BIND_HOST = "127.0.0.1"


class ConfigError(KraftlogError):
    """A configuration a node cannot start with; the text names the key, its value and what is wrong with it."""


@dataclass(frozen=True, slots=True)
class EndPoint:
    """One ``NAME://host:port``; names are upper case (listener names compare that way), an empty host means unset."""

    listener_name: str
    host: str
    port: int

    @property
    def address(self) -> str:
        """``host:port``, an IPv6 host in brackets."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}"

    def __str__(self) -> str:
        return f"{self.listener_name}://{self.address}"


def parse_end_points(key: str, value: str) -> tuple[EndPoint, ...]:
    """Read a comma separated list of ``NAME://host:port``.

    Raises:
        ConfigError: An entry is not of that form, or two listeners share a name or (unless it is 0) a port.
    """
    end_points: list[EndPoint] = []
    for entry in value.split(","):
        text = entry.strip()
        if not text:
            continue
        name, separator, address = text.partition("://")
        host, colon, port_text = address.rpartition(":")
        if not separator or not colon or not name or not port_text.lstrip("-").isdigit():
            msg = f"{key}={value}: cannot read {text!r}; each entry has the form NAME://host:port"
            raise ConfigError(msg)
        port = int(port_text)
        if not 0 <= port <= 65535:
            msg = f"{key}={value}: port {port} of {text!r} is outside 0..65535"
            raise ConfigError(msg)
        if host.startswith("[") and host.endswith("]"):
            host = host[1:-1]
        end_points.append(EndPoint(name.upper(), host, port))
    names = [end_point.listener_name for end_point in end_points]
    if len(set(names)) != len(names):
        msg = f"{key}={value}: each listener must have a different name"
        raise ConfigError(msg)
    return tuple(end_points)


def parse_protocol_map(key: str, value: str) -> dict[str, str]:
    """Read ``NAME:PROTOCOL,...`` into upper-case names and protocols.

    Raises:
        ConfigError: An entry is not of that form.
    """
    protocols: dict[str, str] = {}
    for entry in value.split(","):
        text = entry.strip()
        if not text:
            continue
        name, separator, protocol = text.rpartition(":")
        if not separator or not name or not protocol:
            msg = f"{key}={value}: cannot read {text!r}; each entry has the form LISTENER:PROTOCOL"
            raise ConfigError(msg)
        protocols[name.strip().upper()] = protocol.strip().upper()
    return protocols
