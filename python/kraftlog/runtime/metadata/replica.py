"""This node's replica of ``__cluster_metadata``: its log and snapshots, its place in the quorum, what the log tells.

When the high watermark passes records they go into the committed image, the listeners are told, and only then do the
futures of the operations that wrote them complete. A new leader first applies everything before its epoch: the active
controller begins from a complete image.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence

from kraftlog._kraftlog import RecordBatch
from kraftlog.controller.steps import Steps
from kraftlog.errors import ErrorCode, KafkaError, KraftlogError, NodeClosedError
from kraftlog.raft.core import RaftCore
from kraftlog.raft.voter_set import Endpoint
from kraftlog.runtime.metadata.active_controller import ActiveController, CommittedAnswer
from kraftlog.runtime.metadata.metadata_metrics import MetadataMetrics
from kraftlog.runtime.metadata.publisher import MetadataPublisher
from kraftlog.runtime.metadata.quorum_info import QuorumInfo, describe
from kraftlog.runtime.metadata.settings import MetadataSettings
from kraftlog.runtime.raft.log_machine import Proposed
from kraftlog.runtime.raft.replicated_log import ReplicatedLog
from kraftlog.storage.snapshot_file import Snapshot
from kraftlog.transport.peer_security import SecurityOf
from kraftlog.types import Epoch, NodeId, Offset, SnapshotId
from kraftlog.vocabulary import CLUSTER_METADATA_DIRECTORY
from kraftlog.wire.struct import Message

__all__ = ["MetadataReplica"]

logger = logging.getLogger(__name__)


class MetadataReplica:
    """One replica of the metadata log; all methods are called on the running loop it was made on.

    Args:
        settings: Of the quorum.
        publisher: Gets what is committed.
        controller: Told when this node leads and what becomes of its proposals.
        metrics: Told of progress.
        wall_ms: Unix clock.
        security: What connections to a listener of that name need; gives None where it is PLAINTEXT.

    Attributes:
        log: The replicated log, once ``is_opened``.
        is_opened: Whether ``start`` has opened the log; ``stop`` has to close it then, even if the start failed.
        failure: What made the log unwritable, None while it works.
        failed: Set together with ``failure``: the process should end.
    """

    log: ReplicatedLog[CommittedAnswer]

    def __init__(
        self,
        settings: MetadataSettings,
        publisher: MetadataPublisher,
        controller: ActiveController,
        metrics: MetadataMetrics,
        *,
        wall_ms: Callable[[], int],
        security: SecurityOf,
    ) -> None:
        self._settings = settings
        self._publisher = publisher
        self._controller = controller
        self._metrics = metrics
        self._wall_ms = wall_ms
        self._security = security
        self._leader_listeners: list[Callable[[], None]] = []
        self.is_opened = False
        self._is_open = False
        self._is_stopping = False
        self.failure: BaseException | None = None
        self.failed = asyncio.Event()

    # What it is

    @property
    def is_leader(self) -> bool:
        """Whether this replica leads."""
        return self._is_open and self.log.raft.is_leader

    @property
    def is_sole_voter(self) -> bool:
        """Whether this node alone is the quorum."""
        return self.raft.voters.is_only_voter(self.raft.config.local_key)

    @property
    def leader_endpoints(self) -> tuple[Endpoint, ...]:
        """Where the active controller listens, as far as known."""
        return self.raft.leader_endpoints

    @property
    def leader_epoch(self) -> int:
        """The current epoch."""
        return self.raft.epoch

    @property
    def leader_id(self) -> int:
        """The leader, -1 when unknown."""
        return -1 if self.raft.leader_id is None else self.raft.leader_id

    @property
    def high_watermark(self) -> int:
        """Exclusive end of what is committed, -1 when unknown."""
        return -1 if self.raft.high_watermark is None else self.raft.high_watermark

    @property
    def raft(self) -> RaftCore:
        """The consensus core; to be read."""
        return self.log.raft

    def describe_quorum(self) -> QuorumInfo:
        """The quorum as this node sees it."""
        return describe(self.raft, now_ms=self.log.driver.now_ms(), wall_ms=self._wall_ms())

    def add_leader_listener(self, listener: Callable[[], None]) -> None:
        """Call ``listener()`` whenever the leader became known, or unknown."""
        self._leader_listeners.append(listener)

    def handle_request(self, request: Message, *, version: int, listener_name: str) -> asyncio.Future[Message]:
        """Answer another replica, or an operator who adds and removes voters.

        Raises:
            KafkaError: The request is not about the metadata partition, or the node is stopping.
        """
        if not self._is_open or self.failure is not None:
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE)
        return self.log.driver.handle_request(request, version=version, listener_name=listener_name)

    # Life

    def start(self) -> None:
        """Open the log and take part. A sole voter leads when this returns.

        Raises:
            LogError: The directory cannot be read or written.
            CorruptRecordError: A record cannot be replayed.
        """
        settings = self._settings
        self.log = ReplicatedLog(
            self,
            directory=settings.metadata_log_dir / CLUSTER_METADATA_DIRECTORY,
            log_config=settings.log,
            clean_shutdown=settings.was_clean_shutdown,
            static_voters=settings.static_voters,
            snapshot_max_bytes=settings.snapshot_max_bytes,
            snapshot_max_interval_ms=settings.snapshot_max_interval_ms,
            wall_ms=self._wall_ms,
            name="kraftlog-metadata",
        )
        self.is_opened = True
        self.log.on_checkpoint = self._metrics.on_snapshot_written
        self._controller.open(self.log)
        self.log.start(settings.raft, metrics=self._metrics.raft, security=self._security)
        self._is_open = True
        self._controller.start_timers()
        self._note_progress()

    async def stop(self) -> None:
        """Finish what was proposed, resign, close the log."""
        self._is_stopping = True
        self._controller.refuse(NodeClosedError("the node was stopped"))
        await self.log.stop(self._close)

    def _close(self) -> None:
        self._is_open = False
        self._fail_waiting(NodeClosedError("the node was stopped"))

    def _fail_waiting(self, error: KraftlogError) -> None:
        self.log.fail_offset_waiters(error)
        self._controller.fail(error)

    # What the log tells

    def on_control_appended(self, last_offset: Offset, epoch: Epoch) -> None:
        """Control records were appended between those of operations."""
        if self._controller.on_control_appended(last_offset, epoch):
            self._note_progress()

    def on_leader_changed(
        self, leader_id: NodeId | None, epoch: Epoch, lost: Sequence[Proposed[CommittedAnswer]]
    ) -> None:
        """The active controller ends, or begins once ``on_leading`` is called."""
        for listener in self._leader_listeners:
            listener()
        self._controller.suspend()
        self._metrics.on_leader_changed(leader_id)
        self._note_progress()
        if leader_id == self._settings.node_id:
            logger.info("leading the metadata quorum in epoch %d", epoch)
            return
        if leader_id is not None:
            logger.info("the leader of epoch %d is %d", epoch, leader_id)
        elif not self._is_stopping:  # a replica that resigned in order to stop does not look for a leader
            logger.info("the leader of epoch %d is unknown", epoch)
        self._controller.end(lost)

    def apply_proposed(self, proposed: Proposed[CommittedAnswer]) -> None:
        """Put an operation's records into the image."""
        self._publisher.apply_changes(
            proposed.payload.changes,
            last_offset=proposed.last_offset,
            epoch=proposed.epoch,
            timestamp_ms=proposed.timestamp_ms,
        )

    def apply_batch(self, batch: RecordBatch) -> Steps[None]:
        """Put a batch of the log into the image at once, in the last step."""
        return self._publisher.apply_batch(self.log.log, batch)

    def on_applied(self, done: Sequence[Proposed[CommittedAnswer]]) -> None:
        """Tell the listeners what changed, then complete futures."""
        try:
            self._publisher.publish(self.raft)
        except Exception as error:
            # They are committed, but this node can say nothing any more.
            lost = NodeClosedError(f"what was committed cannot be acted on: {error}")
            self._controller.fail_answers(done, lost)
            raise
        self._controller.complete(done)
        self._note_progress()
        self._publisher.end_of_batch()

    def on_leading(self, _epoch: Epoch) -> None:
        """The image has everything from before this node's epoch: be the active controller."""
        self._controller.begin()
        self._note_progress()

    def load_snapshot(self, snapshot_id: SnapshotId, snapshot: Snapshot) -> None:
        """Replace the image; listeners are told the difference."""
        self._publisher.load_snapshot(snapshot_id, snapshot)

    def take_state(self) -> Callable[[], Iterable[bytes]] | None:
        """What encodes the records of a checkpoint on any thread, unless a transaction of metadata is open."""
        return self._publisher.take_state()

    def on_failure(self, error: BaseException) -> None:
        """The log or its directory failed: nothing is retried, everything that waits is told."""
        self.failure = error
        self.failed.set()
        self._metrics.on_failure(error)
        is_known = isinstance(error, OSError | KraftlogError)
        logger.critical(
            "the metadata log failed and takes no more writes: %s", error, exc_info=None if is_known else error
        )
        self._fail_waiting(NodeClosedError(f"the metadata log failed: {error}"))

    def _note_progress(self) -> None:
        self._metrics.on_applied(self._publisher.image, self.raft, active_end_offset=self._controller.next_offset)
