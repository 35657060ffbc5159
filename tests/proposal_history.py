"""Drawn histories of one replica of a ``kraftlog.Quorum``: proposals, leaderships that are lost, snapshots, deadlines.

``QuorumReplica`` and ``ReplicatedLog`` are the product's; the consensus core, its driver and the log are models. Other
replicas are the rest of the cluster: they lead, commit, and cut off what they do not have.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Iterator, Sequence
from concurrent.futures import Executor, Future
from dataclasses import dataclass
from random import Random
from types import SimpleNamespace
from typing import Any

from kraftlog.errors import DeadlineError, ErrorCode, KafkaError, OutcomeUnknownError, StateMachineError
from kraftlog.quorum.proposals import Proposal
from kraftlog.quorum.replica import QuorumReplica
from kraftlog.quorum.state_machine import StateMachine
from kraftlog.runtime.raft.checkpoint_load import CheckpointLoads
from kraftlog.runtime.raft.replicated_log import APPLY_BYTES_PER_TURN, ReplicatedLog
from kraftlog.storage.snapshot_file import Snapshot
from kraftlog.testing.log_invariants import InvariantViolationError
from kraftlog.types import Epoch, EpochEndOffset, NodeId, Offset, SnapshotId
from virtual_loop import VirtualLoop

STEPS = 250
SELF, OTHER = NodeId(1), NodeId(2)
_BATCH_BYTES_MAX = 150_000
_LONG_S = 1e9
_NO_LIMIT = 1 << 60


def violated(rule: str, reason: str) -> InvariantViolationError:
    return InvariantViolationError(rule, reason, [])


@dataclass(slots=True, eq=False)
class Batch:
    """What a log has: as much of a ``RecordBatch`` as the product looks at."""

    base_offset: int
    partition_leader_epoch: int
    commands: Sequence[bytes]
    size_bytes: int
    is_control: bool = False
    max_timestamp: int = 0

    @property
    def last_offset(self) -> int:
        return self.base_offset + (1 if self.is_control else len(self.commands)) - 1

    def values(self, start_offset: int) -> list[bytes]:
        return list(self.commands[max(0, start_offset - self.base_offset) :])


def end_of(log: list[Batch], start: int = 0) -> int:
    return log[-1].last_offset + 1 if log else start


class Machine(StateMachine):
    """Keeps every command, and compares it with what was committed."""

    def __init__(self, world: ProposalHistory) -> None:
        self.world = world
        self.commands: list[bytes] = []

    def apply(self, batch: Any) -> list[int]:
        world = self.world
        for offset, command in batch:
            if world.chosen.get(offset) != command:
                raise violated(
                    "INV-08", f"{command!r} is applied at {offset}, committed is {world.chosen.get(offset)!r}"
                )
        self.commands += batch.commands
        world.turn_bytes += batch.size_bytes
        if world.turn_bytes - batch.size_bytes > APPLY_BYTES_PER_TURN + _BATCH_BYTES_MAX:
            raise violated("fair turns", f"{world.turn_bytes} bytes are applied in one turn")
        expected = [world.chosen[offset] for offset in sorted(world.chosen) if offset <= batch.last_offset]
        if self.commands != expected:
            raise violated("INV-08", f"{self.commands} are applied, committed are {expected}")
        return [len(command) for command in batch.commands]

    def snapshot(self) -> None:
        return None

    def restore(self, records: Sequence[bytes]) -> None:
        self.commands = list(records)

    def on_leader_change(self, leader_id: int | None, epoch: int) -> None:
        if leader_id != SELF:
            return
        before = [batch for batch in self.world.own if batch.partition_leader_epoch < epoch and not batch.is_control]
        if before and self.world.log.applied_end_offset <= before[-1].last_offset:
            raise violated("LSTN-12", f"leads epoch {epoch} before {before[-1]} is applied")


class Core:
    """The consensus core, which is a part of the world."""

    def __init__(self, world: ProposalHistory) -> None:
        self._world = self.log = world

    def __getattr__(self, name: str) -> Any:
        return getattr(self._world, name)


class LateExecutor(Executor):
    """A thread that loads a snapshot some time after it was asked to."""

    def __init__(self, rng: Random) -> None:
        self._rng = rng

    def submit(self, work: Any, /, *arguments: Any, **_: Any) -> Any:
        done: Future[Any] = Future()

        def run() -> None:
            try:
                done.set_result(work(*arguments))
            except Exception as error:  # noqa: BLE001  as an executor does
                done.set_exception(error)

        asyncio.get_running_loop().call_later(self._rng.choice((0.0, 0.005, 0.05)), run)
        return done


class ModelLog(ReplicatedLog[Any]):
    """The product's log over a model of what is below it."""

    def __init__(self, machine: QuorumReplica, world: ProposalHistory) -> None:
        self._loop = asyncio.get_running_loop()
        self._machine = machine
        self._wall_ms = lambda: int(world.loop.now_s * 1000)
        self.failure = None
        self.pending = deque()
        self.is_open = True
        self._offset_waiters = []
        self._unclaimed_epoch = None
        self._epoch_start_offset = Offset(0)
        self._moved = asyncio.Event()
        self._rounds = deque()
        self._unbegun_rounds = set()
        self.log = world  # type: ignore[assignment]
        self.snapshots = SimpleNamespace(  # type: ignore[assignment]
            bytes_since_last=0,
            high_watermark=0,
            is_due=False,
            is_busy=False,
            on_loaded=lambda: None,
            writer=LateExecutor(world.rng),
        )
        self.driver = world  # type: ignore[assignment]
        self.raft = Core(world)  # type: ignore[assignment]
        self.applied_end_offset = Offset(0)
        self._committed_end_offset = 0
        self._is_apply_scheduled = False
        self._begun = None
        self._apply_delay_s = 0.0
        self._applied_epoch, self._applied_timestamp_ms = Epoch(0), 0
        self._work_at_start = None
        self.loads = CheckpointLoads(self.snapshots.writer, tell=world.tell, on_loaded=self._on_loaded)


class ProposalHistory:
    """One history; ``play`` runs it.

    Args:
        seed: Of all chance.
    """

    def __init__(self, seed: int) -> None:
        self.rng = rng = Random(f"{seed}/proposals")
        self.counts: Counter[str] = Counter()
        self.loop = VirtualLoop()
        # The cluster: the log of the leader of its epoch, and the end of what is committed.
        self.cluster: list[Batch] = []
        self.cluster_start = 0
        self.cluster_leader: NodeId = OTHER
        self.cluster_epoch = 0
        self.committed = 0
        self.chosen: dict[int, bytes] = {}
        self.snapshot_ends: list[int] = [0]
        # This replica.
        self.own: list[Batch] = []
        self.own_start = 0
        self.epoch = Epoch(0)
        self.leader_id: NodeId | None = None
        self.turn_bytes = 0
        self.serial = 0
        # Where each command was appended, and every proposal with what it waits for.
        self.places: dict[bytes, int] = {}
        self.proposals: list[Proposal] = []
        # First commands of those whose callers were told that nothing was, or stays, appended.
        self.refused: list[bytes] = []
        self.forwarded: list[tuple[int, Proposal, int, int]] = []
        self.waits: list[tuple[int, asyncio.Future[None]]] = []
        names = ("submit", "forward", "answer", "others", "elect", "learn", "fetch", "commit", "time", "turn", "wait")
        self.weights = {name: rng.choice((1, 3, 8)) for name in names}
        self.weights["elect"] = rng.choice((0.5, 1, 3))
        self.snapshot_rate = rng.choice((0.0, 0.05, 0.3))
        self.is_short = rng.choice((0.0, 0.1, 0.5))
        self.sizes = rng.choice(((50, 200), (1_000, _BATCH_BYTES_MAX)))
        self.loop.run_until_complete(self._begin())

    async def _begin(self) -> None:
        self.machine = Machine(self)
        self.replica = QuorumReplica(self.machine, max_pending_bytes=self.rng.choice((200, 500, 1 << 20)))
        self.replica.log = self.log = ModelLog(self.replica, self)

    # -- what the product asks of the log, the driver and the core ----------------------------------------------

    @property
    def config(self) -> Any:
        return SimpleNamespace(max_batch_bytes=1 << 20, local_key=SimpleNamespace(node_id=SELF))

    leader_endpoints = ()

    def batches(self, start: int, end: int, *, read_bytes: int) -> Iterator[Batch]:
        del read_bytes
        return iter([batch for batch in self.own if start <= batch.last_offset < end])

    @staticmethod
    def tell(event: Any) -> None:
        event()

    def fail(self, error: BaseException) -> None:
        self.loop.error = self.loop.error or error

    def now_ms(self) -> int:
        return int(self.loop.now_s * 1000)

    @property
    def is_leader(self) -> bool:
        return self.leader_id == SELF

    def end_offset_for_epoch(self, epoch: int) -> EpochEndOffset:
        ends = [batch.last_offset + 1 for batch in self.own if batch.partition_leader_epoch <= epoch]
        return EpochEndOffset(Epoch(epoch), Offset(ends[-1] if ends else self.own_start))

    def propose(self, values: Sequence[bytes], now_ms: int, *, size_bytes: int) -> Offset:
        del now_ms
        if not self.is_leader:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        batch = Batch(end_of(self.own, self.own_start), self.epoch, tuple(values), size_bytes)
        self.own.append(batch)
        for offset, command in enumerate(values, batch.base_offset):
            if command in self.places:
                raise violated("INV-12", f"{command!r} is appended twice")
            self.places[command] = offset
        return Offset(batch.last_offset)

    # -- events ---------------------------------------------------------------------------------------------------

    def commands(self) -> list[bytes]:
        self.serial += 1
        return [b"%d.%d" % (self.serial, index) for index in range(self.rng.randint(1, 3))]

    def deadline_s(self) -> float:
        is_short = self.rng.random() < self.is_short
        return self.loop.now_s + (self.rng.uniform(0.01, 5.0) if is_short else _LONG_S)

    def submit(self) -> None:
        for _ in range(self.rng.randint(1, 4)):
            self.proposals.append(self.replica.submit(self.commands(), self.deadline_s()))

    def forward(self) -> None:
        """The leader takes proposals of this replica; its answer comes later, or never."""
        if self.cluster_leader != OTHER:
            return
        proposal = self.replica.new_proposal(self.commands(), self.deadline_s())
        token = self.replica.watched.begin(self.log.applied_end_offset)
        proposal.is_proposed = True
        base_offset = end_of(self.cluster, self.cluster_start)
        self.cluster.append(Batch(base_offset, self.cluster_epoch, tuple(proposal.commands), self.size()))
        for offset, command in enumerate(proposal.commands, base_offset):
            self.places[command] = offset
        self.forwarded.append((token, proposal, base_offset, self.cluster_epoch))
        self.proposals.append(proposal)
        self.counts["forwarded"] += 1

    def answer(self) -> None:
        if not self.forwarded:
            return
        token, proposal, base_offset, epoch = self.forwarded.pop(self.rng.randrange(len(self.forwarded)))
        self.replica.watched.watch(proposal, base_offset, epoch, self.log.applied_end_offset)
        self.replica.watched.end(token)

    def size(self) -> int:
        return self.rng.randint(*self.sizes)

    def others(self) -> None:
        """The other leader appends what its own clients want."""
        if self.cluster_leader != OTHER:
            return
        for _ in range(self.rng.randint(1, 5)):
            base_offset = end_of(self.cluster, self.cluster_start)
            self.cluster.append(Batch(base_offset, self.cluster_epoch, tuple(self.commands()), self.size()))

    def is_up_to_date(self) -> bool:
        """Whether this replica has all that is committed: it can be elected."""
        if end_of(self.own, self.own_start) < self.committed:
            return False
        known = {id(batch) for batch in self.own}
        return all(id(batch) in known for batch in self.cluster if self.own_start <= batch.base_offset < self.committed)

    def elect(self) -> None:
        """Another leadership; what the new leader does not have of the last one's log is cut off."""
        leader = self.rng.choice((SELF, OTHER)) if self.is_up_to_date() else OTHER
        self.cluster_epoch += 1
        if leader == SELF:
            self.cluster, self.cluster_start = self.own, self.own_start
        else:
            kept = [batch for batch in self.cluster if batch.base_offset < self.committed]
            tail = [batch for batch in self.cluster if batch.base_offset >= self.committed]
            self.cluster = [*kept, *tail[: self.rng.randint(0, len(tail))]]
        self.cluster_leader = leader
        control = Batch(end_of(self.cluster, self.cluster_start), self.cluster_epoch, (), 100, is_control=True)
        self.cluster.append(control)
        self.counts["led" if leader == SELF else "followed"] += 1
        if leader == SELF or self.rng.random() < 0.3:
            self.learn()

    def learn(self) -> None:
        """This replica is told of the newest epoch, or that it lost its leadership and no more."""
        if self.epoch == self.cluster_epoch and self.leader_id is not None:
            return
        is_known = self.cluster_leader == SELF or self.rng.random() < 0.7
        if not is_known and self.leader_id is None and self.epoch == self.cluster_epoch:
            return
        self.epoch = Epoch(self.cluster_epoch)
        self.leader_id = self.cluster_leader if is_known else None
        self.turn_bytes = -_NO_LIMIT  # what is committed of its own proposals is applied at once
        self.log.on_leader_changed(self.leader_id, self.epoch)
        self.turn_bytes = 0

    def fetch(self) -> None:
        """As a follower: cut what the leader does not have, take some batches, learn what is committed."""
        if self.cluster_leader == SELF or self.leader_id != OTHER or self.epoch != self.cluster_epoch:
            return
        known = {id(batch) for batch in self.cluster}
        while self.own and id(self.own[-1]) not in known:
            self.own.pop()
            self.counts["cut"] += 1
        end = end_of(self.own, self.own_start)
        ends = [batch.last_offset + 1 for batch in self.cluster if end < batch.last_offset + 1 <= self.committed]
        if ends and self.rng.random() < self.snapshot_rate:
            self.load(self.rng.choice(ends))
            return
        new = [batch for batch in self.cluster if batch.base_offset >= end]
        self.own += new[: self.rng.randint(1, 6)]
        self.tell_committed()

    def load(self, end: int) -> None:
        """The leader's log does not reach back: a snapshot takes the place of this one's."""
        epoch = next(batch.partition_leader_epoch for batch in self.cluster if batch.last_offset + 1 == end)
        self.own, self.own_start = [], end
        self.snapshot_ends.append(end)
        self.counts["loaded"] += 1
        values = [self.chosen[offset] for offset in sorted(self.chosen) if offset < end]
        self.log.on_snapshot_loaded(SnapshotId(Offset(end), Epoch(epoch)), Snapshot(values=values))

    def tell_committed(self) -> None:
        known = {id(batch) for batch in self.cluster}
        if any(id(batch) not in known for batch in self.own):
            return  # a follower is told with an answer to its fetch, before which it cuts its log
        high_watermark = min(self.committed, end_of(self.own, self.own_start))
        if high_watermark > self.log._committed_end_offset:
            self.turn_bytes = 0
            self.log.on_committed(Offset(high_watermark))

    def commit(self) -> None:
        """A majority has more; only records of the leader's own epoch count (Raft, 5.4.2)."""
        ends = [
            batch.last_offset + 1
            for batch in self.cluster
            if batch.partition_leader_epoch == self.cluster_epoch and batch.last_offset >= self.committed
        ]
        if not ends:
            return
        end = self.rng.choice(ends)
        for batch in self.cluster:
            if self.committed <= batch.base_offset < end:
                self.chosen |= dict(enumerate(batch.commands, batch.base_offset))
        self.committed = end
        if self.leader_id == SELF and self.epoch == self.cluster_epoch and self.rng.random() < 0.8:
            self.tell_committed()

    def time(self) -> None:
        self.turn(self.rng.choice((0.001, 0.1, 2.0)))

    def turn(self, after_s: float = 0.0) -> None:
        self.turn_bytes = 0
        self.loop.turn(after_s)

    def wait(self) -> None:
        """Somebody waits until an offset is applied."""
        offset = self.log.applied_end_offset + self.rng.randint(-1, 4)
        task = self.loop.create_task(self.log.wait_for_offset(offset))
        self.waits.append((offset, task))

    # -- rules ----------------------------------------------------------------------------------------------------

    def check(self) -> None:
        for offset, task in self.waits:
            if task.done() and self.log.applied_end_offset <= offset:
                raise violated("CONN-28", f"who waits for {offset} is told at {self.log.applied_end_offset}")
        self.waits = [wait for wait in self.waits if not wait[1].done()]
        for proposal in self.proposals:
            if proposal.future.done():
                self.judge(proposal)
        self.proposals = [proposal for proposal in self.proposals if not proposal.future.done()]

    def judge(self, proposal: Proposal) -> None:
        """What a caller is told is true."""
        first, error = proposal.commands[0], proposal.future.exception()
        place = self.places.get(first)
        if error is None:
            applied = proposal.future.result()
            found = [self.chosen.get(applied.base_offset + index) for index in range(len(proposal.commands))]
            if found != list(proposal.commands):
                raise violated("INV-12", f"{proposal.commands} are applied at {applied.base_offset}, there is {found}")
            self.counts["applied"] += 1
            return
        self.counts[type(error).__name__] += 1
        if isinstance(error, OutcomeUnknownError):
            if place is None or place >= max(self.snapshot_ends):
                raise violated("no guess", f"{first!r} at {place}: {error}; snapshots end at {self.snapshot_ends}")
        elif isinstance(error, DeadlineError):
            says_so = error.may_be_committed and "may be committed" in str(error)
            if place is not None and not says_so:
                raise violated("INV-12", f"{first!r} is appended at {place}, and its caller is told that it is not")
        else:
            self.refused.append(first)

    def play(self) -> Counter[str]:
        """Run the history, then let all be committed: every caller has to be told.

        Returns:
            How often what happened.

        Raises:
            InvariantViolationError: A rule is broken.
        """
        names, weights = list(self.weights), list(self.weights.values())
        try:
            for name in self.rng.choices(names, weights, k=STEPS):
                if name in {"turn", "time"}:
                    getattr(self, name)()
                else:
                    with self.loop.running():
                        getattr(self, name)()
                self.check()
            self.finish()
        except StateMachineError as error:
            raise error.__cause__ or error from None  # what the machine found
        finally:
            self.loop.end()
        return self.counts

    def finish(self) -> None:
        """The leader commits more than was ever appended, and this replica applies it."""
        with self.loop.running():
            while self.forwarded:
                self.answer()
            self.elect()
        most = max(self.places.values(), default=0)
        for _ in range(200):
            with self.loop.running():
                self.learn()
                if self.cluster_leader == OTHER and end_of(self.cluster, self.cluster_start) <= most + 1:
                    self.others()
                elif self.cluster_leader == SELF and end_of(self.cluster) <= most + 1:
                    self.submit()
                    most = max([most, *self.places.values()])
                self.fetch()
                self.commit()
                self.tell_committed()
            self.turn(0.01)
            self.check()
            if not self.proposals and self.log.applied_end_offset == end_of(self.cluster, self.cluster_start):
                break
        if self.proposals:
            raise violated("no stuck caller", f"{self.proposals[0]} waits, all is committed")
        committed = set(self.chosen.values())
        told_wrong = [command for command in self.refused if command in committed]
        if told_wrong:
            raise violated("INV-12", f"{told_wrong} are committed, and their callers were told that they are not")
