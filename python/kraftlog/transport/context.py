"""What a handler is told about the request besides the message itself."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from kraftlog.transport.connection import Connection

__all__ = ["RequestContext"]


@dataclass(slots=True)
class RequestContext:
    """Who asks, where it came in and in which version.

    ``connection`` lives as long as the socket: a handler may keep state of the peer on it, such as the client
    software name ApiVersions brought.
    """

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    listener_name: str
    principal: str
    client_host: str
    connection: Connection
    is_controller_listener: bool
