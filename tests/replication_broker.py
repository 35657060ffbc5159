"""One broker of ``replication_model``: its replica over a disk in memory, and the fetcher that follows a leader."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING, Any

from kraftlog._kraftlog import FlushPool, Inbox, Log, append_fetched
from kraftlog._kraftlog import Partition as NativePartition
from kraftlog.errors import ErrorCode
from kraftlog.partition.replica_fetcher import Answer, FetchStart, Next, NextStep, ReplicaFetcher, truncation_offset
from kraftlog.runtime.replica.isr_changes import IsrChanges
from kraftlog.storage.memory_path import MEMORY_ROOT, MemoryPath, add_disk
from kraftlog.testing.log_invariants import InvariantViolationError

if TYPE_CHECKING:
    from replication_model import Model

LAG_MS = 30_000
BACKOFF_MS = 1000
KEY: Any = (b"t" * 16, 0)
_NAMES = itertools.count()


def violated(identifier: str, reason: str) -> None:
    raise InvariantViolationError(identifier, reason)


class Broker:
    """A broker and its replica; ``partition`` is None while it does not run or has no replica."""

    def __init__(self, model: Model, broker_id: int) -> None:
        self.model, self.broker_id = model, broker_id
        self.disk_name = f"replication-model-{next(_NAMES)}"
        self.disk = add_disk(self.disk_name)
        self.path = MemoryPath(MEMORY_ROOT, self.disk_name) / "t-0"
        self.incarnation = 0
        self.broker_epoch = model.cluster.image.cluster.brokers[broker_id].epoch
        self.is_running = True
        # The newest state that this broker was told of; a position in the model's list.
        self.metadata = -1
        self.partition: Any = None
        self.log: Any = None
        self.fetcher: ReplicaFetcher | None = None
        self.fetched_from = -1
        # Whose request is under way: a fetcher has one at a time.
        self.asking: ReplicaFetcher | None = None
        self.checkpoint = 0
        self.start_checkpoint = 0
        self.acks: dict[int, tuple[int, int]] = {}
        # Those to be sent, and the members of the newest one.
        self.proposals: dict[int, Any] = {}
        self.proposed: list[tuple[int, list[int]]] = []
        self.isr_changes = IsrChanges(broker_id, lambda: self.broker_epoch, model)

    @property
    def is_leader(self) -> bool:
        return self.partition is not None and self.partition.is_leader

    @property
    def replica(self) -> Any:
        """What ``IsrChanges`` sees of a partition."""
        return self.partition

    def __str__(self) -> str:
        return f"t-0 on broker {self.broker_id}"

    def open(self) -> None:
        self.inbox = Inbox()
        self.log = Log.open(
            self.path,
            config=self.model.config.log_config,
            recovery_point=0,
            log_start_offset=self.start_checkpoint,
            clean_shutdown=False,
            now_ms=self.model.now_ms,
        )
        self.partition = NativePartition(
            topic="t",
            topic_id=b"t" * 16,
            index=0,
            log=self.log,
            node_id=self.broker_id,
            flush_on_ack=False,
            min_insync_replicas=self.model.min_isr,
            high_watermark=max(min(self.checkpoint, self.log.log_end_offset), self.log.log_start_offset),
            flushed_offset=self.log.log_end_offset,
            pool=FlushPool.stepped("model"),
            inbox=self.inbox,
            number=1,
        )
        self.partition.update_lag_max_ms(LAG_MS)

    def close(self, *, is_crash: bool) -> None:
        if self.partition is not None:
            self.checkpoint = self.partition.high_watermark
            self.start_checkpoint = self.log.log_start_offset
            self.partition.withdraw()
            self.take_acks()
            if not is_crash:
                self.log.close()
        self.partition = self.log = self.fetcher = None
        self.fetched_from = -1
        self.acks.clear()
        self.proposals.clear()
        self.proposed = []

    def proposed_to(self, proposal: Any) -> None:
        """Another in-sync set for the controller."""
        self.proposals[proposal[0]] = proposal
        self.proposed = [(proposal[0], [member for member, _ in proposal[3]])]

    def maximal(self) -> set[int]:
        """The in-sync replicas, with the one that is about to join until the answer or the metadata comes."""
        joining = [
            member
            for number, members in self.proposed
            if self.partition.is_proposal_pending(number)
            for member in members
        ]
        return {*self.partition.isr, *joining}

    def take_acks(self) -> None:
        acked, *_ = self.inbox.take()
        for token, code in acked:
            offset, value = self.acks.pop(token)
            self.model.acked(self, offset, value, code)

    def follow(self, position: int) -> None:
        """Apply one state of the metadata, perhaps many changes after the last one."""
        if position <= self.metadata or not self.is_running:
            return
        epochs = {state.leader_epoch for state, _ in self.model.states[max(self.metadata, 0) + 1 : position + 1]}
        self.model.counts["several epochs at once"] += len(epochs) > 1
        self.metadata = position
        image, brokers = self.model.states[position]
        if self.broker_id not in image.replicas:
            if self.partition is not None:
                self.close(is_crash=False)
                self.model.wipe(self)
            return
        if self.partition is None:
            self.open()
        before = (self.partition.leader_id, self.partition.leader_epoch)
        start = None
        # As ``Partition.handle_assignment``.
        if (image.leader_epoch, image.partition_epoch) != (before[1], self.partition.partition_epoch):
            start = self.partition.assign(
                leader_id=image.leader,
                leader_epoch=image.leader_epoch,
                partition_epoch=image.partition_epoch,
                replicas=list(image.replicas),
                isr=list(image.isr),
                now_ms=self.model.now_ms,
            )
        self.partition.update_live_brokers([broker for broker in brokers if broker[0] != self.broker_id])
        if start is not None:
            self.partition.write_epoch_start(*start)
        self.take_acks()
        if image.leader in {self.broker_id, -1}:
            self.fetcher, self.fetched_from = None, -1
        elif before != (image.leader, image.leader_epoch) or self.fetcher is None:
            self.fetcher, self.fetched_from = ReplicaFetcher(BACKOFF_MS), image.leader
            latest = self.log.latest_epoch
            step = self.fetcher.add(
                FetchStart(
                    key=KEY,
                    leader_epoch=image.leader_epoch,
                    log_end_offset=self.log.log_end_offset,
                    log_start_offset=self.log.log_start_offset,
                    high_watermark=self.partition.high_watermark,
                    last_epoch=-1 if latest is None else latest,
                )
            )
            self.carry_out(step, None)

    # -- following -----------------------------------------------------------------------------------------------

    def ask(self) -> Any:
        """Send a fetch and have it answered; the answer is applied by ``take``, now or later."""
        fetcher, leader = self.fetcher, self.model.brokers.get(self.fetched_from)
        if fetcher is None or self.partition is None or self.asking is fetcher:
            return None
        fetch_round = fetcher.next_round(self.model.now_ms)
        if fetch_round is None:
            return None
        self.model.counts["requests"] += 1
        if leader is None or not leader.is_running or not self.model.reaches(self, leader):
            fetcher.handle_failure(self.model.now_ms)
            return None
        self.asking = fetcher
        # Without a session each request names the partition.
        (asked,) = fetch_round.partitions
        if leader.partition is None:
            return (fetcher, asked, Answer(key=KEY, error_code=6, high_watermark=-1), b"", 0)
        code, diverging, high_watermark, log_start, log_end, proposal = leader.partition.follower_fetch(
            replica_id=self.broker_id,
            broker_epoch=self.broker_epoch,
            current_leader_epoch=asked.leader_epoch,
            fetch_offset=asked.fetch_offset,
            last_fetched_epoch=asked.last_fetched_epoch,
            log_start_offset=asked.log_start_offset,
            now_ms=self.model.now_ms,
            is_arrival=True,
        )
        leader.take_acks()
        if proposal is not None:
            leader.proposed_to(proposal)
        records = b""
        if not code and diverging is None and asked.fetch_offset < log_end:
            records = leader.log.read(asked.fetch_offset, max_bytes=300, end_offset=log_end).read()
        answer = Answer(key=KEY, error_code=code, high_watermark=high_watermark, diverging_epoch=diverging)
        self.model.counts["divergence"] += diverging is not None
        return (fetcher, asked, answer, records, log_start)

    def take(self, answered: Any) -> None:
        """An answer arrived; that of a fetcher which was removed meanwhile is appended nowhere, as its epoch is old."""
        if answered is None or self.partition is None:
            return
        fetcher, _, answer, records, log_start = answered
        if self.asking is fetcher:
            self.asking = None
        self.model.counts["epoch changed under a fetch"] += fetcher is not self.fetcher
        for step in fetcher.handle_answer(0, [answer], self.model.now_ms):
            self.carry_out(step, (records, answer.high_watermark, log_start), fetcher)

    def fetch(self) -> None:
        self.take(self.ask())

    def carry_out(self, step: Next | None, answered: Any, fetcher: ReplicaFetcher | None = None) -> None:
        fetcher = self.fetcher if fetcher is None else fetcher
        assert fetcher is not None
        while step is not None:
            match step.step:
                case NextStep.APPEND:
                    records, high_watermark, log_start = answered
                    entry = (self.partition, records, step.offset, step.leader_epoch, high_watermark, log_start)
                    ((kind, end, start, epoch, *_, error),) = append_fetched(
                        [entry], now_ms=self.model.now_ms, flush=False
                    )
                    if kind == "":
                        fetcher.on_appended(
                            KEY, step.leader_epoch, log_end_offset=end, log_start_offset=start, last_epoch=epoch
                        )
                    elif kind != "superseded":
                        violated("RINV-35", f"{self}: {kind} {error}")
                    return
                case NextStep.ASK_END | NextStep.ASK_START:
                    step = self.ask_offsets(step, fetcher)
                case _:
                    self.cut(step, fetcher)
                    return

    def ask_offsets(self, step: Next, fetcher: ReplicaFetcher) -> Next | None:
        leader = self.model.brokers.get(self.fetched_from)
        code, offset = int(ErrorCode.NOT_LEADER_OR_FOLLOWER), -1
        if leader is not None and leader.partition is not None and self.model.reaches(self, leader):
            code = leader.partition.check_leader_epoch(step.leader_epoch)
            is_end = step.step is NextStep.ASK_END
            offset = leader.log.log_end_offset if is_end else leader.log.log_start_offset
        self.model.counts["out of range"] += 1
        handle = fetcher.handle_leader_end if step.step is NextStep.ASK_END else fetcher.handle_leader_start
        return handle(
            KEY,
            step.leader_epoch,
            error_code=code,
            offset=offset,
            log_end_offset=self.log.log_end_offset,
            now_ms=self.model.now_ms,
        )

    def cut(self, step: Next, fetcher: ReplicaFetcher) -> None:
        offset, end = step.offset, self.log.log_end_offset
        if step.step is NextStep.DIVERGED:
            offset = truncation_offset(
                diverging_epoch=step.epoch,
                leader_end=step.offset,
                own_end=self.log.end_offset_for_epoch(step.epoch),
                log_end_offset=end,
                fetch_offset=end,
            )
        self.model.counts["below own high watermark"] += offset < self.partition.high_watermark
        before = self.model.values(self)
        call = self.partition.truncate_as_follower
        if step.step is NextStep.RESTART:
            call = self.partition.restart_as_follower
        done = call(
            offset, leader_epoch=step.leader_epoch, now_ms=self.model.now_ms, keep_recovery_point=lambda _: None
        )
        if done is None:
            return
        if done[0] <= self.model.log_starts.get(self.broker_id, 0):
            # The log was begun anew at a lower offset, which is no fall of its start (RFET-39, RFET-50).
            self.model.log_starts[self.broker_id] = done[0]
        if step.step is not NextStep.RESTART:
            self.model.check_cut(self, before, done[0])
        fetcher.on_cut(KEY, step.leader_epoch, log_end_offset=done[0], last_epoch=done[1])
