"""The committed metadata of a node: the image, what changed since the listeners were told, and the listeners."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from kraftlog import host
from kraftlog._kraftlog import RecordBatch
from kraftlog.controller import MetadataDelta, MetadataImage
from kraftlog.controller.image_changes import ImageChange
from kraftlog.controller.image_difference import image_difference
from kraftlog.controller.steps import Steps
from kraftlog.raft.core import RaftCore
from kraftlog.runtime.metadata.metadata_metrics import MetadataMetrics
from kraftlog.runtime.metadata.replay import load_snapshot, prepare_batch, replay_batch
from kraftlog.storage.metadata_log import MetadataLog
from kraftlog.storage.snapshot_file import Snapshot
from kraftlog.types import SnapshotId
from kraftlog.wire.records import encode_metadata_record

__all__ = ["MetadataListener", "MetadataPublisher"]

MetadataListener = Callable[[MetadataImage, MetadataDelta], None]


class MetadataPublisher:
    """Replays what is committed and tells the listeners.

    Args:
        metrics: Told what was loaded and what changed.

    Attributes:
        image: What is committed.
    """

    def __init__(self, metrics: MetadataMetrics) -> None:
        self.image = MetadataImage()
        self._metrics = metrics
        self._listeners: list[MetadataListener] = []
        self._delta = MetadataDelta()
        self._apply_start_ns = 0

    def add_listener(self, listener: MetadataListener) -> None:
        """Call ``listener(image, delta)`` after each commit that changed something, before its futures complete."""
        self._listeners.append(listener)

    def apply_changes(self, changes: Sequence[ImageChange], *, last_offset: int, epoch: int, timestamp_ms: int) -> None:
        """Put what this node proposed into the image; it ends at ``last_offset`` (inclusive)."""
        self._apply_start_ns = self._apply_start_ns or host.monotonic_ns()
        for change in changes:
            self.image.replay(change, self._delta, offset=last_offset)
        self.image.offset, self.image.epoch = last_offset, epoch
        self.image.timestamp_ms = max(self.image.timestamp_ms, timestamp_ms)

    def apply_batch(self, log: MetadataLog, batch: RecordBatch) -> Steps[None]:
        """Put a batch of the log into the image at once, in the last step."""
        self._apply_start_ns = self._apply_start_ns or host.monotonic_ns()
        changes = yield from prepare_batch(batch, self.image.offset)
        replay_batch(log, batch, changes, self.image, self._delta)

    def publish(self, raft: RaftCore) -> None:
        """Tell the listeners what changed since the last time.

        Raises:
            Exception: Whatever a listener raised.
        """
        delta, self._delta = self._delta, MetadataDelta()
        if not delta.is_empty:
            self._metrics.on_changed(self.image, delta, raft)
            self._tell_listeners(delta)

    def end_of_batch(self) -> None:
        """What was committed together is applied and its futures have completed."""
        if self._apply_start_ns:
            self._metrics.on_batch(self._apply_start_ns)
            self._apply_start_ns = 0

    def load_snapshot(self, snapshot_id: SnapshotId, snapshot: Snapshot) -> None:
        """Replace the image; listeners are told the difference."""
        old, self.image = self.image, MetadataImage()
        load_snapshot(self.image, snapshot_id, snapshot)
        self._metrics.on_snapshot_loaded(self.image)
        if self._listeners:
            delta = image_difference(old, self.image)
            if not delta.is_empty:
                self._tell_listeners(delta)

    def take_state(self) -> Callable[[], Iterable[bytes]] | None:
        """What encodes the records of a checkpoint on any thread, unless a transaction of metadata is open."""
        if self.image.is_in_transaction:
            return None
        image = self.image.copy()
        return lambda: (encode_metadata_record(record, version) for record, version in image.to_records())

    def _tell_listeners(self, delta: MetadataDelta) -> None:
        try:
            for listener in self._listeners:
                listener(self.image, delta)
        except Exception:
            self._metrics.on_apply_error()
            raise
