"""Requests for unclean elections, seen at the sockets of brokers and controllers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kraftlog.testing.world.frame_stream import Exchanges
from kraftlog.wire.frame import decode_request
from kraftlog.wire.messages.elect_leaders import ElectLeadersRequest

if TYPE_CHECKING:
    from kraftlog.testing.world.network import SimulatedSocket
    from kraftlog.testing.world.partition_change_checker import PartitionChangeChecker

__all__ = ["ElectionRequests"]

_UNCLEAN: Final = 1  # election type


class ElectionRequests:
    """Tells the checker of partitions when an operator asks for an unclean election.

    Args:
        changes: The checker.
    """

    def __init__(self, changes: PartitionChangeChecker) -> None:
        self._changes = changes
        self._exchanges = Exchanges(frozenset({ElectLeadersRequest.API_KEY}))

    def arrived(self, sock: SimulatedSocket, data: bytes) -> None:
        """Bytes have reached a server's socket."""
        for frame in self._exchanges.arrived(sock, data):
            request: Any = decode_request(frame)[1]
            if request.election_type == _UNCLEAN:
                self._changes.note_unclean_request()

    def sent(self, sock: SimulatedSocket, data: bytes) -> None:
        """Nothing: only requests are looked at."""
