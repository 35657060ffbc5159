"""Whether a broker's process lives, as its listeners show."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

from kraftlog.errors import KraftlogError

if TYPE_CHECKING:
    from kraftlog.controller.cluster_image import ListenerEndpoint

__all__ = ["Finding", "probe_broker"]

_PLAINTEXT: Final = 0
# ApiVersions v0 with correlation id 0 and the client id "probe": every broker of every version answers it.
_API_VERSIONS: Final = bytes.fromhex("0000000f 0012 0000 00000000 0005") + b"probe"
_PROBE_TIMEOUT_S: Final = 0.5


class Finding(Enum):
    """What the listeners of a broker show."""

    ALIVE = auto()
    GONE = auto()
    UNKNOWN = auto()


async def probe_broker(end_points: Iterable[ListenerEndpoint]) -> Finding:
    """Look at all listeners of a broker, one after the other; takes at most half a second for each.

    Returns:
        GONE if every listener refuses the connection, or accepts and ends it without an answer; ALIVE if one answers;
        else UNKNOWN.
    """
    findings = {await _probe_listener(end_point) for end_point in end_points}
    if findings == {Finding.GONE}:
        return Finding.GONE
    return Finding.ALIVE if Finding.ALIVE in findings else Finding.UNKNOWN


async def _probe_listener(end_point: ListenerEndpoint) -> Finding:
    """Look at one listener: whether it takes connections, and on one without security also whether it answers."""
    writer = None
    try:
        async with asyncio.timeout(_PROBE_TIMEOUT_S):
            reader, writer = await asyncio.open_connection(end_point.host, end_point.port)
            if end_point.security_protocol != _PLAINTEXT:
                # A handshake would need this node's credentials; a later attempt may be refused.
                return Finding.UNKNOWN
            writer.write(_API_VERSIONS)
            return Finding.ALIVE if await reader.read(1) else Finding.GONE
    except (ConnectionRefusedError, ConnectionResetError, BrokenPipeError):
        return Finding.GONE
    except (OSError, TimeoutError, KraftlogError):
        return Finding.UNKNOWN
    finally:
        if writer is not None:
            writer.transport.abort()
