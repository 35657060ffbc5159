"""One replica of a user's state machine: proposals in, committed commands out."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TypeVar

from kraftlog.errors import (
    ErrorCode,
    KafkaError,
    KraftlogError,
    NodeClosedError,
    NotLeaderError,
    OutcomeUnknownError,
    StateMachineError,
)
from kraftlog.ordered_set import OrderedSet
from kraftlog.quorum.proposals import COMMAND_OVERHEAD_BYTES, Applied, Deadlines, Group, Proposal, Watched, commands_of
from kraftlog.quorum.state_machine import CommittedBatch, StateMachine
from kraftlog.runtime.raft.log_machine import Proposed
from kraftlog.runtime.raft.replicated_log import ReplicatedLog

if TYPE_CHECKING:
    from kraftlog._kraftlog import RecordBatch
    from kraftlog.runtime.raft.checkpoint_load import CheckpointLoad, LoadWork
    from kraftlog.runtime.raft.checkpoints import StateValues
    from kraftlog.storage.snapshot_file import Snapshot
    from kraftlog.types import Epoch, NodeId, Offset, SnapshotId

__all__ = ["BATCH_OVERHEAD_BYTES", "QuorumReplica"]

logger = logging.getLogger(__name__)

T = TypeVar("T")

BATCH_OVERHEAD_BYTES = 64


class QuorumReplica:
    """The ``LogMachine`` that hands commands to a ``StateMachine``; all on one loop.

    Proposals of one turn of the loop become one batch. Those that would take what is proposed and not applied above
    ``max_pending_bytes`` stay queued, and so do their callers wait.

    Args:
        machine: The user's.
        max_pending_bytes: Bound on what is proposed and not applied.

    Attributes:
        log: Set by the owner before anything is called.
        watched: Proposals of which the place in the log is known, but not whether they stay.
        forwarding: Proposals that the leader has been, or is about to be, handed.
        leader_changed: Set and cleared whenever leader or epoch changed.
    """

    log: ReplicatedLog[Group]

    def __init__(self, machine: StateMachine, *, max_pending_bytes: int) -> None:
        self._loop = asyncio.get_running_loop()
        self._machine = machine
        self.max_pending_bytes = max_pending_bytes
        self._queue: deque[Proposal] = deque()
        self._pending_bytes = 0
        self._is_turn_scheduled = False
        self._is_stopping = False
        self._told_stop = False
        self._is_claimed = False
        self._holding_count = 0
        self.watched = Watched()
        self.forwarding: OrderedSet[Proposal] = OrderedSet()
        self.deadlines = Deadlines(self._loop, self._live)
        self.leader_changed = asyncio.Event()
        self.failed = asyncio.Event()

    # Proposals

    def submit(self, commands: Sequence[bytes], deadline_s: float, *, is_forwarded: bool = False) -> Proposal:
        """Propose here, as leader; the proposal's future tells what became of it.

        Where this replica does not lead when the proposal's turn comes, the future fails with NotLeaderError.

        Raises:
            KafkaError: MESSAGE_TOO_LARGE: the commands do not fit into one batch.
        """
        proposal = self.new_proposal(commands, deadline_s)
        proposal.is_forwarded = is_forwarded
        self._queue.append(proposal)
        self.deadlines.note(deadline_s)
        self.schedule_turn()
        return proposal

    def new_proposal(self, commands: Sequence[bytes], deadline_s: float) -> Proposal:
        """A proposal that is not on its way yet.

        Raises:
            KafkaError: MESSAGE_TOO_LARGE: the commands do not fit into one batch.
        """
        count = len(commands)
        size_bytes = (len(commands[0]) if count == 1 else sum(map(len, commands))) + COMMAND_OVERHEAD_BYTES * count
        if size_bytes > self.batch_limit_bytes:
            reason = f"{count} commands of {size_bytes} bytes do not fit into {self.batch_limit_bytes}"
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE, reason)
        return Proposal(commands, size_bytes, deadline_s, self._loop.create_future())

    @property
    def batch_limit_bytes(self) -> int:
        """Most bytes of commands, with what is around each, in one batch."""
        return self.log.log.config.max_batch_bytes - BATCH_OVERHEAD_BYTES

    def schedule_turn(self) -> None:
        """Propose what is queued at the end of this turn of the loop."""
        if not self._is_turn_scheduled:
            self._is_turn_scheduled = True
            self._loop.call_soon(self._turn)

    def _turn(self) -> None:
        self._is_turn_scheduled = False
        if not self._queue:
            return
        if self._holding_count and self.log.is_leader and not self._is_stopping:
            return
        if self.log.is_leader and not self._is_stopping:
            self.log.driver.tell(self._propose_queued)
        if self._queue and (self._is_stopping or not self.log.is_leader):
            self._refuse_queued()

    @contextmanager
    def holding_back(self) -> Iterator[None]:
        """Keep what is proposed meanwhile queued; it is proposed, or refused, afterwards."""
        self._holding_count += 1
        try:
            yield
        finally:
            self._holding_count -= 1
            if self._queue:
                self.schedule_turn()

    def _propose_queued(self) -> None:
        limit_bytes = self.batch_limit_bytes
        queue = self._queue
        group = Group()
        while queue:
            proposal = queue[0]
            if proposal.future.done():
                queue.popleft()  # its deadline passed, or nobody waits
                continue
            held_bytes = self._pending_bytes + group.size_bytes
            if held_bytes and held_bytes + proposal.size_bytes > self.max_pending_bytes:
                break
            if group.size_bytes + proposal.size_bytes > limit_bytes:
                if not self._propose(group):
                    return
                group = Group()
            group.add(queue.popleft())
        if group.proposals:
            self._propose(group)

    def _propose(self, group: Group) -> bool:
        try:
            proposed = self.log.propose(
                group.commands, size_bytes=group.size_bytes + BATCH_OVERHEAD_BYTES, payload=group
            )
        except KafkaError:
            # It has just seen that it no longer leads; none of it was appended.
            for proposal in group.proposals:
                proposal.fail(self.not_leader())
            return False
        self._pending_bytes += group.size_bytes
        for base_offset, proposal in group.each(proposed.base_offset):
            proposal.is_proposed = True
            if proposal.is_forwarded:
                proposal.finish(Applied(base_offset, len(proposal.commands), proposed.epoch))
        return True

    def _refuse_queued(self) -> None:
        queue, self._queue = self._queue, deque()
        for proposal in queue:
            if self.log.failure is not None or self._is_stopping:
                proposal.fail(self.closed_error())
            else:
                proposal.fail(self.not_leader())

    def not_leader(self) -> NotLeaderError:
        """Where the leader is, as an error."""
        raft = self.log.raft
        endpoint = next(iter(raft.leader_endpoints), None)
        return NotLeaderError(raft.leader_id, None if endpoint is None else f"{endpoint.host}:{endpoint.port}")

    def closed_error(self) -> KraftlogError:
        """Why nothing is done any more."""
        failure = self.log.failure
        if failure is None:
            return NodeClosedError("the quorum was closed")
        if isinstance(failure, StateMachineError):
            return failure
        return NodeClosedError(f"the replica failed: {failure}")

    def _live(self) -> Iterable[Proposal]:
        yield from self._queue
        for batch in self.log.pending:
            yield from batch.payload.proposals
        yield from self.watched.proposals()
        yield from self.forwarding

    # What the log tells

    def load_snapshot(self, snapshot_id: SnapshotId, snapshot: Snapshot) -> LoadWork:
        """What gives the machine a state."""

        def load(progress: CheckpointLoad) -> Callable[[], None]:
            try:
                put_in_place = self._call(lambda: self._machine.load(progress.counted(snapshot.each_value())))
            except StateMachineError:
                if progress.error is not None:
                    raise progress.error from None  # the machine only passed it on
                raise

            def finish() -> None:
                self._call(put_in_place)
                self.watched.on_snapshot(snapshot_id.end_offset)

            return finish

        return load

    def apply_proposed(self, proposed: Proposed[Group]) -> None:
        """Give the machine what this replica proposed itself, as it was proposed."""
        group = proposed.payload
        group.applied = self._apply(
            CommittedBatch(
                base_offset=proposed.base_offset,
                epoch=proposed.epoch,
                timestamp_ms=proposed.timestamp_ms,
                size_bytes=proposed.size_bytes,
                commands=group.commands,
            )
        )

    def apply_batch(self, batch: RecordBatch) -> None:
        """Give the machine a batch of the log; control records are the quorum's own."""
        count = batch.last_offset - batch.base_offset + 1
        if batch.is_control:
            self.watched.on_applied(Applied(batch.base_offset, count, batch.partition_leader_epoch))
            return
        # A batch that holds the end of what was applied already is given out from there on.
        values = commands_of(batch, self.log.applied_end_offset)
        self._apply(
            CommittedBatch(
                base_offset=batch.last_offset - len(values) + 1,
                epoch=batch.partition_leader_epoch,
                timestamp_ms=batch.max_timestamp,
                size_bytes=batch.size_bytes,
                commands=values,
            )
        )

    def _apply(self, batch: CommittedBatch) -> Applied:
        results = self._call(lambda: self._machine.apply(batch))
        if results is not None and len(results) != len(batch):
            raise StateMachineError(f"apply returned {len(results)} results for {len(batch)} commands")
        applied = Applied(batch.base_offset, len(batch), batch.epoch, results)
        self.watched.on_applied(applied)
        return applied

    def on_applied(self, done: Sequence[Proposed[Group]]) -> None:
        """Tell those whose commands are applied; there is room for others."""
        for proposed in done:
            group = proposed.payload
            applied = group.applied
            self._pending_bytes -= group.size_bytes
            if applied is None:
                continue
            epoch, results, start = applied.epoch, applied.results, 0
            for proposal in group.proposals:  # the hottest loop of a leader: nothing is called that need not be
                count = len(proposal.commands)
                if not proposal.future.done():
                    own = None if results is None else results[start : start + count]
                    proposal.future.set_result(Applied(proposed.base_offset + start, count, epoch, own))
                start += count
        if done and self._queue:
            self.schedule_turn()

    def take_state(self) -> StateValues | None:
        """The machine's state."""
        return self._call(self._machine.snapshot)

    def on_control_appended(self, last_offset: Offset, epoch: Epoch) -> None:
        """Nothing: commands do not depend on it."""

    def on_leading(self, epoch: Epoch) -> None:
        """This replica leads and knows everything from before."""
        self._is_claimed = True
        self._tell_leader(self.log.raft.config.local_key.node_id, epoch)

    def on_leader_changed(self, leader_id: NodeId | None, epoch: Epoch, lost: Sequence[Proposed[Group]]) -> None:
        """Proposals of an earlier leadership are watched: the log tells what became of them."""
        self._is_claimed = False
        self._pending_bytes = 0
        for proposed in lost:
            for base_offset, proposal in proposed.payload.each(proposed.base_offset):
                if not proposal.future.done():
                    self.watched.watch(proposal, base_offset, proposed.epoch, self.log.applied_end_offset)
        if leader_id != self.log.raft.config.local_key.node_id:
            self._tell_leader(leader_id, epoch)
        else:
            self.wake()

    def _tell_leader(self, leader_id: NodeId | None, epoch: Epoch) -> None:
        if leader_id is not None:
            logger.info("the leader of epoch %d is %d", epoch, leader_id)
        elif not self._is_stopping:  # a replica that resigned in order to stop does not look for a leader
            logger.info("the leader of epoch %d is unknown", epoch)
        self._call(lambda: self._machine.on_leader_change(leader_id, epoch))
        self.wake()

    def wake(self) -> None:
        """Have everything that waits for a leader look again."""
        self.leader_changed.set()
        self.leader_changed.clear()
        if self._queue:
            self.schedule_turn()

    @property
    def is_claimed(self) -> bool:
        """Whether this replica leads and everything from before its epoch is applied."""
        return self._is_claimed and self.log.is_leader

    def on_failure(self, error: BaseException) -> None:
        """The log or the machine failed."""
        logger.critical("replica %s stops: %s", self.log.raft.config.local_key.node_id, error)
        self._end(error)
        self.failed.set()

    def _call(self, call: Callable[[], T]) -> T:
        try:
            return call()
        except Exception as error:
            reason = f"the state machine raised {type(error).__name__}: {error}"
            raise StateMachineError(reason, may_be_committed=True) from error

    # The end

    def tell_stop(self, error: BaseException | None) -> None:
        """Tell the machine, once, that the replica begins to stop (LSTN-18); what comes now is refused."""
        if error is None:
            self._turn()  # what is queued came before
        self._is_stopping = True
        if not self._told_stop:
            self._told_stop = True
            self._call(lambda: self._machine.on_stop(error))
        if self._queue:
            self._refuse_queued()

    def _end(self, error: BaseException | None) -> None:
        try:
            self.tell_stop(error)
        except StateMachineError:
            logger.exception("on_stop failed")
        unknown = OutcomeUnknownError(f"the replica stopped before this was known: {error or 'it was closed'}")
        for batch in self.log.pending:
            for proposal in batch.payload.proposals:
                proposal.fail(unknown)
        for proposal in self.forwarding:
            proposal.fail(unknown if proposal.is_proposed else self.closed_error())
        self.watched.fail_all(lambda _: unknown)
        self.log.fail_offset_waiters(self.closed_error())
        self.deadlines.close()
        self.wake()

    def close(self) -> None:
        """Nothing is going to be committed here any more."""
        self._end(self.log.failure)
