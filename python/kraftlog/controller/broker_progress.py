"""How far brokers are in the metadata log, as their heartbeats say: known to the active controller alone (KIP-631)."""

from __future__ import annotations

from typing import Final

from kraftlog.controller.cluster_image import ClusterImage

__all__ = ["BrokerProgress"]

_UNKNOWN: Final = -1
_NO_BROKER: Final = 2**63 - 1


class BrokerProgress:
    """Metadata offsets of brokers, and which of them are in a controlled shutdown that this controller began."""

    def __init__(self) -> None:
        self._metadata_offsets: dict[int, int] = {}
        self._shutdown_offsets: dict[int, int] = {}

    def report(self, broker_id: int, metadata_offset: int) -> None:
        """A heartbeat says which record (inclusive) the broker applied last."""
        self._metadata_offsets[broker_id] = metadata_offset

    def begin_shutdown(self, broker_id: int, last_offset: int) -> None:
        """The broker's leaderships were given away by records up to ``last_offset`` (inclusive); only once counts."""
        self._shutdown_offsets.setdefault(broker_id, last_offset)

    def end_shutdown(self, broker_id: int) -> None:
        """The broker is fenced."""
        self._shutdown_offsets.pop(broker_id, None)

    def forget(self, broker_id: int) -> None:
        """Another incarnation of the broker registered, or it was unregistered."""
        self._metadata_offsets.pop(broker_id, None)
        self._shutdown_offsets.pop(broker_id, None)

    def is_shutting_down(self, broker_id: int) -> bool:
        """Whether the broker is in a controlled shutdown."""
        return broker_id in self._shutdown_offsets

    def can_shut_down(self, broker_id: int, cluster: ClusterImage) -> bool:
        """Whether every broker that goes on knows where the leaderships of this one went."""
        offsets = (
            self._metadata_offsets.get(other.broker_id, _UNKNOWN)
            for other in cluster.brokers.values()
            if not other.fenced and other.broker_id not in self._shutdown_offsets
        )
        return self._shutdown_offsets[broker_id] <= min(offsets, default=_NO_BROKER)
