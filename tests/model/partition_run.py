"""Runs of one replicated partition without a network: real logs, replicas, fetchers and controller, in a drawn order.

Everything that decides is the product's: ``_kraftlog.Partition`` over a log on a disk in memory, ``ReplicaFetcher``,
``ControllerCore``. What carries requests, answers and metadata is here, so that all of it may be late, lost or doubled.
Each step is noted as an action of ``Partition.tla``.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from typing import Any

from kraftlog._kraftlog import FlushPool, Inbox, Log, LogConfig, MemoryDisk, Partition, append_fetched, encode_batch
from kraftlog.partition.replica_fetcher import Answer, FetchStart, NextStep, ReplicaFetcher, truncation_offset
from kraftlog.runtime.replica import isr_changes
from kraftlog.types import Uuid
from kraftlog.wire.messages.alter_partition import AlterPartitionRequest
from kraftlog.wire.messages.elect_leaders import ElectLeadersRequest
from metadata_fixture import cluster_of

__all__ = ["PartitionRun", "RunSettings"]

BROKERS = (1, 2, 3)
TOPIC = "t"
LAG_MAX_MS = 40
SESSIONS_ENDED_MS = 10**9
NOW_MS = 1_700_000_000_000

_disk_numbers = count(1)


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """The settings of the topic and the brokers."""

    min_isr: int = 2
    flush_on_ack: bool = False
    unclean: bool = False


@dataclass(slots=True)
class _Change:
    """An AlterPartition request."""

    number: int
    request: Any
    is_decided: bool = False
    answer: Any = None


@dataclass(slots=True)
class _Version:
    """What the metadata said at one moment: the partition, and the brokers that are not fenced."""

    partition: Any
    live: list[tuple[int, int, bool]]


class _Broker:
    """A broker with one replica."""

    def __init__(self, run: PartitionRun, broker_id: int) -> None:
        self.run = run
        self.id = broker_id
        self.disk = MemoryDisk(f"/kraftlog-memory-disk/partition-run-{next(_disk_numbers)}")
        self.path = self.disk.root / "t-0"
        self.life = 1
        self.state = "up"
        self.learned = 0
        self.is_known = False
        self.high_watermark = 0
        self.open(is_clean=True)

    def open(self, *, is_clean: bool) -> None:
        """Open the log as after a crash, and make a replica that has learned nothing.

        The checkpoint of the high watermark may be of long ago, unless the process ended cleanly.
        """
        self.pool = FlushPool.stepped("flush")
        self.inbox = Inbox()
        self.log = Log.open(self.path, config=LogConfig(), now_ms=NOW_MS)
        settings = self.run.settings
        if settings.flush_on_ack:
            self.log.flush()
        newest = min(self.high_watermark, self.log.log_end_offset)
        self.high_watermark = newest if is_clean else self.run.rng.choice((0, newest))
        self.replica = Partition(
            topic=TOPIC,
            topic_id=bytes(self.run.topic_id),
            index=0,
            log=self.log,
            node_id=self.id,
            flush_on_ack=settings.flush_on_ack,
            min_insync_replicas=self.run.broker_min_isr,
            high_watermark=self.high_watermark,
            flushed_offset=min(self.log.recovery_point, self.log.log_end_offset),
            pool=self.pool,
            inbox=self.inbox,
            number=1,
        )
        self.replica.update_lag_max_ms(LAG_MAX_MS)
        self.fetcher: ReplicaFetcher | None = None
        self.change: _Change | None = None
        self.request: object | None = None
        self.is_known = False

    @property
    def is_leader(self) -> bool:
        return self.state == "up" and self.is_known and self.replica.is_leader

    @property
    def last_epoch(self) -> int:
        """Epoch of the last record; an epoch without records is none of the specification."""
        end = self.log.log_end_offset
        return max((epoch for epoch, start in self.log.epoch_entries() if start < end), default=0)

    def seen(self) -> tuple[Any, ...]:
        """The replica as the specification has it."""
        end, last = self.log.log_end_offset, self.last_epoch
        if not self.is_known:
            return (), frozenset(), end, last, self.high_watermark
        replica = self.replica
        known = (_or_none(replica.leader_id), replica.leader_epoch, replica.partition_epoch)
        return known, frozenset(replica.isr), end, last, replica.high_watermark


def _or_none(broker_id: int) -> int | None:
    return None if broker_id < 0 else broker_id


@dataclass(eq=False)
class PartitionRun:
    """One run. ``steps`` has (broker, action, arguments, what the replica is, what the metadata is) of each step."""

    seed: int
    settings: RunSettings = field(default_factory=RunSettings)

    def __post_init__(self) -> None:
        self.rng = random.Random(self.seed)
        self.now_ms = 0
        self.steps: list[tuple[int, str, tuple[Any, ...], Any, Any]] = []
        self.cluster = cluster_of(len(BROKERS))
        configs = {
            "min.insync.replicas": str(self.settings.min_isr),
            "unclean.leader.election.enable": str(self.settings.unclean).lower(),
        }
        self.cluster.create(TOPIC, assignments=[(0, list(BROKERS))], configs=configs)
        self.topic_id: Uuid = self.cluster.image.topics.by_name(TOPIC).topic_id
        self.first = self.partition
        self.versions = [self._version()]
        self.brokers = {broker_id: _Broker(self, broker_id) for broker_id in BROKERS}
        self.fetches: list[Any] = []
        self.answers: list[Any] = []
        self.work: list[Any] = []

    def close(self) -> None:
        """Forget the disks."""
        for broker in self.brokers.values():
            broker.disk.close()

    @property
    def partition(self) -> Any:
        return self.cluster.partition(TOPIC)

    def _version(self) -> _Version:
        brokers = self.cluster.image.cluster.brokers.values()
        live = [
            (broker.broker_id, broker.epoch, broker.in_controlled_shutdown) for broker in brokers if not broker.fenced
        ]
        return _Version(self.partition, live)

    def seen_meta(self, partition: Any = None) -> tuple[Any, ...]:
        """The metadata as the specification has it."""
        found = self.partition if partition is None else partition
        sets = (frozenset(found.isr), frozenset(found.elr), frozenset(found.last_known_elr))
        active = frozenset(broker_id for broker_id in BROKERS if self.cluster.image.cluster.is_active(broker_id))
        return _or_none(found.leader), found.leader_epoch, found.partition_epoch, *sets, active

    def note(self, broker: _Broker, action: str, *arguments: Any, has_meta: bool = False) -> None:
        """Note a step that has just been taken."""
        self.steps.append((broker.id, action, arguments, broker.seen(), self.seen_meta() if has_meta else ()))

    # What may happen

    def take(self, step_count: int) -> None:
        """Take at least so many steps."""
        kinds = {
            self.learn: 40, self.append: 40, self.fetch: 150, self.deliver_fetch: 150, self.deliver_answer: 150,
            self.work_on: 150, self.flush: 40, self.shrink: 40, self.send_change: 60, self.answer_change: 60,
            self.unfence: 30, self.fence: 2, self.elect: 20, self.end_process: 2, self.register: 30, self.pass_time: 3,
            self.look_at_brokers: 20,
        }  # fmt: skip
        actions, weights = list(kinds), list(kinds.values())
        while len(self.steps) < step_count:
            self.now_ms += 1
            self.rng.choices(actions, weights)[0](self.rng.choice(list(self.brokers.values())))

    def pass_time(self, _: _Broker) -> None:
        self.now_ms += self.rng.randrange(LAG_MAX_MS)

    # Metadata

    def _controlled(self, broker: _Broker, action: str) -> None:
        if self.partition is not self.versions[-1].partition:
            self.versions.append(self._version())
        self.note(broker, action, has_meta=True)

    def fence(self, broker: _Broker) -> None:
        if self.cluster.image.cluster.is_active(broker.id):
            epoch = self.cluster.image.cluster.brokers[broker.id].epoch
            self.cluster.run(self.cluster.core.fence_dead_broker(broker.id, epoch))
            self._controlled(broker, "Fence")

    def unfence(self, broker: _Broker) -> None:
        if broker.state == "up" and not self.cluster.image.cluster.is_active(broker.id):
            self.cluster.heartbeat(broker.id)
            self._controlled(broker, "Unfence")

    def elect(self, _: _Broker) -> None:
        wanted = ElectLeadersRequest.TopicPartitions(topic=TOPIC, partitions=[0])
        before = self.partition
        self.cluster.ask(ElectLeadersRequest(election_type=0, topic_partitions=[wanted], timeout_ms=1))
        if self.partition is not before:
            self._controlled(self.brokers[self.partition.leader], "Elect")

    def register(self, broker: _Broker) -> None:
        if broker.state == "up":
            return
        cluster = self.cluster
        before = cluster.image.cluster.brokers[broker.id].epoch
        registration = cluster.registration(
            broker.id, incarnation=broker.life, previous=before if broker.state == "stopped" else -1
        )
        cluster.run(cluster.core.register_broker(registration, SESSIONS_ENDED_MS))
        broker.life += 1
        broker.state = "up"
        self._controlled(broker, "Register")
        broker.learned = len(self.versions) - 1

    def learn(self, broker: _Broker) -> None:
        """The next version or a later one, as one delta may carry several."""
        first = broker.learned + (1 if broker.is_known else 0)
        if broker.state != "up" or first >= len(self.versions):
            return
        number = self.rng.choice((first, len(self.versions) - 1))
        self.assign(broker, number)
        self.note(broker, "Learn", number + 1)
        self.look_at_brokers(broker)

    def assign(self, broker: _Broker, number: int) -> None:
        """Give a broker a version of the metadata, and start its fetcher."""
        wanted = self.versions[number].partition
        before = broker.replica.leader_epoch if broker.is_known else None
        broker.learned, broker.is_known = number, True
        start = broker.replica.assign(
            leader_id=wanted.leader,
            leader_epoch=wanted.leader_epoch,
            partition_epoch=wanted.partition_epoch,
            replicas=wanted.replicas,
            isr=wanted.isr,
            now_ms=self.now_ms,
        )
        if start is not None:
            broker.replica.write_epoch_start(*start)
        if wanted.leader in {broker.id, -1}:
            broker.fetcher = None
        elif before != wanted.leader_epoch or broker.fetcher is None:
            broker.fetcher = ReplicaFetcher(backoff_ms=1)
            log = broker.log
            step = broker.fetcher.add(
                FetchStart(
                    key=(self.topic_id, 0),
                    leader_epoch=wanted.leader_epoch,
                    log_end_offset=log.log_end_offset,
                    log_start_offset=log.log_start_offset,
                    high_watermark=broker.replica.high_watermark,
                    last_epoch=-1 if log.latest_epoch is None else log.latest_epoch,
                    is_acknowledgeable=self.is_acknowledgeable(broker),
                )
            )
            if step is not None:
                assert step.step is NextStep.FLUSH, "every log has epochs, or is empty"
                self.work.append(partial(self._flush_first, broker, broker.life, broker.fetcher, step))

    def _flush_first(self, broker: _Broker, life: int, fetcher: Any, step: Any) -> None:
        if broker.state != "up" or broker.life != life:
            return
        self.flush(broker)
        log = broker.log
        fetcher.on_cut(step.key, step.leader_epoch, log_end_offset=log.log_end_offset, last_epoch=log.latest_epoch or 0)

    def look_at_brokers(self, broker: _Broker) -> None:
        """The leader hears which brokers are live, as of what it has learned or later."""
        if broker.is_leader:
            before = broker.replica.high_watermark
            version = self.versions[self.rng.randrange(broker.learned, len(self.versions))]
            broker.replica.update_live_brokers([live for live in version.live if live[0] != broker.id])
            if broker.replica.high_watermark != before:
                self.note(broker, "LookAgain")

    # A leader

    def append(self, broker: _Broker) -> None:
        if broker.is_leader:
            size = self.rng.randrange(1, 4)
            records = encode_batch([(NOW_MS, None, b"v", [])] * size, base_offset=0, partition_leader_epoch=0)
            broker.replica.append(records, acks=1, now_ms=NOW_MS)
            self.note(broker, "AppendRecords", size)

    def flush(self, broker: _Broker) -> None:
        if broker.state != "up" or not broker.is_known or not self.settings.flush_on_ack:
            return
        before = broker.replica.flushed_offset
        broker.replica.request_flush()
        while broker.pool.run_next(0):
            pass
        if broker.replica.flushed_offset > before:
            self.note(broker, "Flush", broker.replica.flushed_offset)

    def shrink(self, broker: _Broker) -> None:
        if broker.is_leader:
            proposal = broker.replica.propose_shrink(self.now_ms)
            if proposal is not None:
                self.propose(broker, proposal)
                self.note(broker, "ProposeShrink", frozenset(member for member, _ in proposal[3]))

    def propose(self, broker: _Broker, proposal: Any) -> None:
        """What a leader proposes, as a request (``IsrChanges``)."""
        number, leader_epoch, partition_epoch, members = proposal
        epoch = self.cluster.image.cluster.brokers[broker.id].epoch
        states = [
            AlterPartitionRequest.BrokerState(
                broker_id=member, broker_epoch=epoch if member == broker.id else member_epoch
            )
            for member, member_epoch in members
        ]
        wanted = AlterPartitionRequest.PartitionData(
            partition_index=0, leader_epoch=leader_epoch, partition_epoch=partition_epoch, new_isr_with_epochs=states
        )
        topic = AlterPartitionRequest.TopicData(topic_id=self.topic_id, partitions=[wanted])
        broker.change = _Change(number, AlterPartitionRequest(broker_id=broker.id, broker_epoch=epoch, topics=[topic]))

    def send_change(self, broker: _Broker) -> None:
        """The controller decides; the sender may be dead or have forgotten it."""
        change = broker.change
        if change is None or change.answer is not None:
            return
        epoch = self.cluster.image.cluster.brokers[broker.id].epoch
        if change.request.broker_epoch == epoch:
            change.answer = self.cluster.ask(change.request).topics[0].partitions[0]
        else:
            broker.change = None
        if not change.is_decided:
            change.is_decided = True
            self._controlled(broker, "AlterPartition")

    def answer_change(self, broker: _Broker) -> None:
        """The controller's answer arrives, or is lost and the request sent again."""
        change = broker.change
        if change is None or change.answer is None:
            return
        answer, change.answer = change.answer, None
        if self.rng.random() < 0.2 and broker.is_leader and broker.replica.is_proposal_pending(change.number):
            if answer.error_code in isr_changes._REFUSED:
                change.is_decided = False
                self.note(broker, "AskAgain")
            return
        broker.change = None
        if not broker.is_leader or not broker.replica.is_proposal_pending(change.number):
            return
        if answer.error_code == 0:
            if broker.replica.isr_committed(
                change.number,
                leader_epoch=answer.leader_epoch,
                partition_epoch=answer.partition_epoch,
                isr=list(answer.isr),
            ):
                self.note(broker, "TakeAnswer")
        elif answer.error_code in isr_changes._REFUSED:
            broker.replica.isr_refused(change.number)
            self.note(broker, "TakeAnswer")
        else:
            assert answer.error_code in isr_changes._SUPERSEDED, answer

    # Fetches

    def fetch(self, broker: _Broker) -> None:
        """A follower asks; what it asked for before may still arrive."""
        if broker.fetcher is None or broker.state != "up":
            return
        fetcher = broker.fetcher
        if any(work.args[2] is fetcher for work in self.work):
            return  # the next fetch comes after what this one brought is in the log
        if broker.request is not None:
            if self.rng.random() < 0.8:
                return
            fetcher.handle_failure(self.now_ms)  # no answer in time: the request may still arrive
        asked = fetcher.next_round(self.now_ms)
        if asked is None or not asked.partitions:
            return
        (position,) = asked.partitions
        broker.request = object()  # an answer to an earlier one comes over a connection that is closed
        sender = (broker, broker.life, broker.request)
        self.fetches.append((sender, self._broker_epoch(broker), fetcher, position, broker.last_epoch))
        self.note(broker, "SendFetch")

    def _broker_epoch(self, broker: _Broker) -> int:
        return self.cluster.image.cluster.brokers[broker.id].epoch

    def deliver_fetch(self, leader: _Broker) -> None:
        """A fetch arrives, now and then twice."""
        found = [
            fetch for fetch in self.fetches if leader.state == "up" and leader.is_known and fetch[0][0] is not leader
        ]
        if not found:
            return
        fetch = self.rng.choice(found)
        if self.rng.random() < 0.9:
            self.fetches.remove(fetch)
        sender, broker_epoch, fetcher, position, last_epoch = fetch
        follower, life, _ = sender
        code, diverging, high_watermark, log_start, log_end, proposal = leader.replica.follower_fetch(
            replica_id=follower.id,
            broker_epoch=broker_epoch,
            current_leader_epoch=self.claimed_epoch(position.leader_epoch),
            fetch_offset=position.fetch_offset,
            last_fetched_epoch=position.last_fetched_epoch,
            log_start_offset=position.log_start_offset,
            now_ms=self.now_ms,
            is_arrival=True,
        )
        records = b""
        if code == 0 and diverging is None:
            if proposal is not None:
                self.propose(leader, proposal)
            fetch_of = (follower.id, life, position.leader_epoch, position.fetch_offset, last_epoch)
            self.note(leader, "TakeFetch", *fetch_of, proposal is not None)
            if position.fetch_offset < log_end:
                size = self.rng.choice((1, 1 << 20))
                records = leader.log.read(position.fetch_offset, max_bytes=size, end_offset=log_end).read()
        answer = Answer(
            key=(self.topic_id, 0), error_code=code, high_watermark=high_watermark, diverging_epoch=diverging
        )
        self.answers.append((sender, fetcher, answer, records, log_start))

    def deliver_answer(self, _: _Broker) -> None:
        if not self.answers:
            return
        answered = self.answers.pop(self.rng.randrange(len(self.answers)))
        (follower, life, request), fetcher, answer, records, log_start = answered
        if follower.state != "up" or follower.request is not request or follower.fetcher is not fetcher:
            return
        follower.request = None
        for step in fetcher.handle_answer(0, [answer], self.now_ms):
            arguments = (follower, life, fetcher, step, records, answer.high_watermark, log_start)
            self.work.append(partial(self._append if step.step is NextStep.APPEND else self._cut, *arguments))

    def work_on(self, _: _Broker) -> None:
        """A thread appends or truncates, perhaps when the broker has learned of another leader already."""
        if self.work:
            self.work.pop(0)()

    def _append(
        self, follower: _Broker, life: int, fetcher: Any, step: Any, records: bytes, high_watermark: int, log_start: int
    ) -> None:
        if follower.state != "up" or follower.life != life:
            return
        fetched = [(follower.replica, records, step.offset, step.leader_epoch, high_watermark, log_start)]
        flushed = follower.replica.flushed_offset
        ((kind, end, start, last_epoch, _, _, error),) = append_fetched(
            fetched, now_ms=NOW_MS, flush=self.settings.flush_on_ack
        )
        if kind != "":
            assert kind == "superseded", (kind, error)
            return
        self.note(follower, "Fetched", end, follower.replica.high_watermark)
        if follower.replica.flushed_offset > flushed:
            self.note(follower, "Flush", follower.replica.flushed_offset)
        fetcher.on_appended(
            step.key, step.leader_epoch, log_end_offset=end, log_start_offset=start, last_epoch=last_epoch
        )

    def _cut(self, follower: _Broker, life: int, fetcher: Any, step: Any, *_: Any) -> None:
        if follower.state != "up" or follower.life != life:
            return
        assert step.step is NextStep.DIVERGED, step
        before = follower.log.log_end_offset
        found = follower.log.end_offset_for_epoch(step.epoch) if step.epoch >= 0 else (-1, -1)
        offset = truncation_offset(
            diverging_epoch=step.epoch,
            leader_end=step.offset,
            own_end=found,
            log_end_offset=before,
            fetch_offset=before,
        )
        offset = self.cut_at(follower, offset)
        done = follower.replica.truncate_as_follower(
            offset, leader_epoch=step.leader_epoch, now_ms=NOW_MS, keep_recovery_point=lambda _: None
        )
        if done is None:
            return
        if done[0] != before:
            self.note(follower, "Truncate", done[0])
        fetcher.on_cut(step.key, step.leader_epoch, log_end_offset=done[0], last_epoch=done[1])

    # Decisions of the shell; broken runs decide otherwise

    @property
    def broker_min_isr(self) -> int:
        """min.insync.replicas as the brokers have it."""
        return self.settings.min_isr

    def cut_at(self, _: _Broker, offset: int) -> int:
        """Where a follower truncates."""
        return offset

    def claimed_epoch(self, leader_epoch: int) -> int:
        """The leader epoch that a fetch names."""
        return leader_epoch

    def is_acknowledgeable(self, broker: _Broker) -> bool:
        """Whether a follower's first fetch may name the end of its log."""
        return not self.settings.flush_on_ack or broker.replica.flushed_offset >= broker.log.log_end_offset

    # Ends of processes

    def end_process(self, broker: _Broker) -> None:
        if broker.state != "up":
            return
        if broker.is_known:
            broker.high_watermark = broker.replica.high_watermark
        broker.replica.withdraw()
        broker.pool.stop()
        is_clean = self.rng.random() < 0.3
        if is_clean:
            broker.log.flush()
            broker.log.close()
        broker.disk.crash("nothing" if is_clean else self.rng.choice(("everything", "suffix")), "nothing", seed=0)
        change = broker.change
        broker.open(is_clean=is_clean)
        broker.change = change  # the request is out
        broker.state = "stopped" if is_clean else "crashed"
        if is_clean:
            self.note(broker, "Stop")
        else:
            self.note(broker, "Crash", broker.log.log_end_offset, broker.high_watermark)
