"""What connections to other nodes count, all those together that share it."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Traffic"]


@dataclass(slots=True)
class Traffic:
    """Counters that only grow.

    Attributes:
        opened, closed: Connections.
        requests: Sent, those without an answer too.
        answers: Received.
        sent_bytes, received_bytes: Of the protocol, without TLS.
    """

    opened: int = 0
    closed: int = 0
    requests: int = 0
    answers: int = 0
    sent_bytes: int = 0
    received_bytes: int = 0

    def counters(self) -> tuple[int, ...]:
        """All of them, in this order."""
        return (self.opened, self.closed, self.requests, self.answers, self.sent_bytes, self.received_bytes)
