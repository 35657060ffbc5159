"""One replicated partition without sockets, loops and threads: real replicas over disks in memory, a real controller.

The caller decides when a broker learns of metadata, fetches, crashes and starts again, so that every order of events is
possible. Logs, high watermarks and in-sync sets are those of the product; what decides is ``ControllerCore``,
``ReplicaFetcher``, ``IsrChanges`` and the native partition. After each event ``check`` looks at the invariants of
docs/behaviours, area 29.
"""

from __future__ import annotations

import itertools
from collections import Counter
from typing import Any

from kraftlog._kraftlog import encode_batch, read_batches
from kraftlog.errors import KafkaError
from kraftlog.runtime.replica.topic_config import TopicConfigs
from kraftlog.storage.memory_path import add_disk, remove_disk
from kraftlog.wire.messages.alter_partition import AlterPartitionRequest
from kraftlog.wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from kraftlog.wire.messages.elect_leaders import ElectLeadersRequest
from metadata_fixture import cluster_of
from replication_broker import BACKOFF_MS, Broker, violated


class Model:
    """A controller, ``count`` brokers, and one topic of one partition with the first ``factor`` brokers as replicas."""

    def __init__(self, count: int = 4, factor: int = 3, *, min_isr: int = 2, is_unclean: bool = False) -> None:
        self.now_ms = 1_700_000_000_000
        self.min_isr, self.is_unclean = min_isr, is_unclean
        self.config = TopicConfigs({"segment.bytes": "1048576"}).get({})
        self.cluster = cluster_of(count)
        configs = {"min.insync.replicas": str(min_isr), "unclean.leader.election.enable": str(is_unclean).lower()}
        self.cluster.create("t", assignments=[(0, list(range(1, factor + 1)))], configs=configs)
        self.counts: Counter[str] = Counter()
        self.states: list[Any] = []
        self.brokers = {broker_id: Broker(self, broker_id) for broker_id in range(1, count + 1)}
        self.cut_links: set[frozenset[int]] = set()
        self._numbers = itertools.count(1)
        self._tokens = itertools.count(1)
        # Offset to value and epoch of all that any replica ever showed below its high watermark.
        self.committed: dict[int, tuple[int, int]] = {}
        self.acknowledged: dict[int, int] = {}
        self.lost_data: set[int] = set()
        self.was_unclean = False
        self._seen: dict[int, tuple[Any, ...]] = {}
        self._leaders: dict[int, int] = {}
        self._latest = -1
        self.log_starts: dict[int, int] = {}
        self.note()

    def close(self) -> None:
        for broker in self.brokers.values():
            broker.partition = broker.log = None
            remove_disk(broker.disk_name)

    def wipe(self, broker: Broker) -> None:
        """The replica was deleted."""
        remove_disk(broker.disk_name)
        broker.disk = add_disk(broker.disk_name)
        broker.checkpoint = broker.start_checkpoint = 0
        self._seen.pop(broker.broker_id, None)
        self.log_starts.pop(broker.broker_id, None)

    # -- the controller ------------------------------------------------------------------------------------------

    @property
    def image(self) -> Any:
        return self.cluster.partition("t")

    @property
    def leader(self) -> Broker | None:
        """Whom the committed metadata names, once it knows."""
        found = self.brokers.get(self.image.leader)
        is_current = found is not None and found.is_leader and found.partition.leader_epoch == self.image.leader_epoch
        return found if is_current else None

    def note(self) -> None:
        """The metadata changed: remember the state for brokers that hear of it later."""
        brokers = [
            (broker.broker_id, broker.epoch, broker.in_controlled_shutdown)
            for broker in self.cluster.image.cluster.brokers.values()
            if not broker.fenced
        ]
        state = (self.image, brokers)
        if not self.states or self.states[-1] != state:
            before = self.states[-1][0] if self.states else None
            self.states.append(state)
            if before is not None and before.leader_epoch != self.image.leader_epoch:
                self.count_election(before)

    def count_election(self, before: Any) -> None:
        image = self.image
        if not image.has_leader:
            return
        if image.leader_recovery_state:
            self.counts["unclean election"] += 1
            self.was_unclean = True
        elif image.leader in before.isr:
            self.counts["clean election"] += 1
        else:
            self.counts["election by ELR"] += 1

    def tell(self, *broker_ids: int) -> None:
        """Brokers, or all of them, hear of the newest state."""
        for broker_id in broker_ids or self.brokers:
            self.brokers[broker_id].follow(len(self.states) - 1)

    def fence(self, broker_id: int) -> None:
        """Its session is over."""
        self.cluster.heartbeat(broker_id, want_fence=True)
        self.note()

    def unfence(self, broker_id: int) -> None:
        broker = self.cluster.image.cluster.brokers[broker_id]
        if broker.epoch == self.brokers[broker_id].broker_epoch and self.brokers[broker_id].is_running:
            self.cluster.heartbeat(broker_id)
            if self.is_unclean:
                self.cluster.run(self.cluster.core.elect_unclean_leaders())
            self.note()

    def crash(self, broker_id: int, *, loses_data: bool = False) -> None:
        """kill -9, or a power failure that takes everything which was not flushed."""
        broker = self.brokers[broker_id]
        if not broker.is_running:
            return
        broker.close(is_crash=True)
        broker.is_running = False
        broker.metadata = -1
        self._seen.pop(broker_id, None)
        if loses_data:
            self.wipe(broker)
            self.lost_data.add(broker_id)
            self.counts["lost disk"] += 1

    def start(self, broker_id: int) -> None:
        """A new incarnation registers; the unclean stop takes it out of ISR and ELR."""
        broker = self.brokers[broker_id]
        if broker.is_running:
            return
        broker.incarnation += 1
        self.cluster.heartbeat(broker_id, want_fence=True)
        registration = self.cluster.registration(broker_id, incarnation=broker.incarnation)
        # So late that the session of the earlier process is over.
        registered = self.cluster.run(self.cluster.core.register_broker(registration, 1 << 40))
        broker.broker_epoch = registered.broker_epoch
        broker.is_running = True
        self.note()
        self.tell(broker_id)
        self.cluster.heartbeat(broker_id)
        self.note()

    def reassign(self, replicas: list[int] | None) -> int:
        partition = AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=0, replicas=replicas)
        topic = AlterPartitionReassignmentsRequest.ReassignableTopic(name="t", partitions=[partition])
        request = AlterPartitionReassignmentsRequest(topics=[topic])
        before, members = self.image, set(self.image.isr)
        code: int = self.cluster.ask(request).responses[0].partitions[0].error_code
        # Nobody else was left in sync, and the option is on: the first replica is, whatever it has (CPRT-83).
        if self.is_unclean and not set(self.image.isr) <= members:
            self.was_unclean = True
        if not code:
            self.counts["reassignment" if replicas is not None else "cancelled reassignment"] += 1
        self.note()
        self.check_members(before, least=1)
        return code

    def elect(self, kind: int = 0) -> None:
        topics = [ElectLeadersRequest.TopicPartitions(topic="t", partitions=[0])]
        self.cluster.ask(ElectLeadersRequest(election_type=kind, topic_partitions=topics))
        self.note()

    def reaches(self, one: Broker, other: Broker) -> bool:
        return frozenset((one.broker_id, other.broker_id)) not in self.cut_links

    # -- in-sync sets --------------------------------------------------------------------------------------------

    def shrink(self, broker_id: int) -> None:
        """The recurring look for members that fell behind."""
        broker = self.brokers[broker_id]
        if broker.is_leader:
            proposal = broker.partition.propose_shrink(self.now_ms)
            if proposal is not None:
                broker.proposed_to(proposal)

    def propose(self, broker_id: int, *, is_answer_lost: bool = False) -> None:
        """Send the proposal in flight, as ``IsrChanges`` does, and take the answer."""
        broker = self.brokers[broker_id]
        for number, proposal in list(broker.proposals.items()):
            if not broker.partition.is_proposal_pending(number):
                del broker.proposals[number]
                continue
            key = (self.cluster.image.topics.by_name("t").topic_id, 0)
            sent = (broker, proposal, len(proposal[3]) > len(broker.partition.isr))
            before = self.image
            try:
                response = self.cluster.ask(broker.isr_changes._request({key: sent}))
            except KafkaError as error:
                self.counts[f"AlterPartition {error.code}"] += 1
                return
            (answer,) = response.topics[0].partitions
            self.note()
            self.check_members(before)
            if answer.error_code:
                self.counts[f"AlterPartition {answer.error_code}"] += 1
            else:
                self.counts["expand" if sent[2] else "shrink"] += 1
            if is_answer_lost:
                self.counts["lost answer"] += 1
            elif broker.isr_changes._decide(sent, answer):
                del broker.proposals[number]
            broker.take_acks()

    async def request(self, message: AlterPartitionRequest, **_: Any) -> None:
        """``IsrChanges`` sends nothing by itself here."""
        raise AssertionError(message)

    # -- clients -------------------------------------------------------------------------------------------------

    def produce(self, broker_id: int, acks: int = -1) -> int | None:
        """Append a record with a number of its own; its offset, or None where the broker refuses."""
        broker = self.brokers[broker_id]
        if not broker.is_leader:
            return None
        value = next(self._numbers)
        records = encode_batch([(self.now_ms, None, str(value).encode(), [])])
        try:
            appended = broker.partition.append(records, acks=acks, now_ms=self.now_ms)
        except KafkaError:
            return None
        offset: int = appended.last_offset
        self.counts["append of a zombie"] += broker is not self.leader
        if acks == -1:
            token = next(self._tokens)
            broker.acks[token] = (offset, value)
            code = broker.partition.wait_for_ack(offset + 1, leader_epoch=appended.leader_epoch, token=token)
            if code is not None:
                broker.acks.pop(token)
                self.acked(broker, offset, value, code)
            broker.take_acks()
        return offset

    def acked(self, broker: Broker, offset: int, value: int, code: int) -> None:
        """A producer hears of its record."""
        if code:
            self.counts[f"ack {code}"] += 1
            return
        self.counts["ack"] += 1
        leader = self.leader
        # The members of a zombie may all have the record since before; the new leader, one of them, has it then, too.
        if leader not in {None, broker} and not self.was_unclean and not self.has(leader, offset, value):
            violated("RINV-25", f"{broker} acknowledged offset {offset}, which {leader} does not have")
        holders = {
            other.broker_id
            for other in self.brokers.values()
            if other.broker_id in broker.model.lost_data
            or not other.is_running
            or self.values(other).get(offset, (0, 0))[0] == value
            # It had the record until the replica was moved away, of which the leader has not heard.
            or any(other.broker_id not in image.replicas for image, _ in self.states[broker.metadata + 1 :])
        }
        # The answer may be taken when it leads no more, and has no members.
        members = set(broker.partition.isr) if broker.is_leader else {broker.broker_id}
        is_held = len(holders) >= self.min_isr and members and members <= holders
        # A leader who has not heard of an unclean one counts on what its followers had before they were cut.
        if not is_held and not self.was_unclean:
            violated("RINV-02", f"{broker}: offset {offset} acknowledged, {sorted(members)} in sync, {sorted(holders)}")
        self.acknowledged[offset] = value

    def has(self, broker: Broker, offset: int, value: int) -> bool:
        """Whether a record is in a log, or was deleted from it."""
        return offset < broker.log.log_start_offset or self.values(broker).get(offset, (0, 0))[0] == value

    def values(self, broker: Broker) -> dict[int, tuple[int, int]]:
        """Value and epoch of each offset in a broker's log."""
        if broker.log is None:
            return {}
        start, end = broker.log.log_start_offset, broker.log.log_end_offset
        found: dict[int, tuple[int, int]] = {}
        while start < end:
            for batch in read_batches(broker.log.read(start, max_bytes=1 << 20, end_offset=end).read()):
                for offset, _, _, value, _ in batch.records():
                    found[offset] = (int(value), batch.partition_leader_epoch)
                start = batch.last_offset + 1
        return found

    # -- invariants ----------------------------------------------------------------------------------------------

    def check_cut(self, broker: Broker, before: dict[int, tuple[int, int]], end: int) -> None:
        """RINV-17: what was committed is not cut off."""
        if self.was_unclean:
            return
        for offset, found in before.items():
            if offset >= end and self.committed.get(offset) == found:
                violated("RINV-17", f"{broker} was cut to {end}, and had the committed record {found} at {offset}")

    def check_members(self, before: Any, *, least: int | None = None) -> None:
        """RINV-32, RINV-33: a change of the replicas leaves enough of them with all that was acknowledged.

        Args:
            before: The partition before it.
            least: So many; None for the least in-sync replicas. A move that is given up takes the new ones with it.
        """
        gone = set(before.replicas) - set(self.image.replicas)
        if not gone or self.was_unclean or self.lost_data or not self.acknowledged:
            return
        needed = set(self.acknowledged.items())
        alive = [self.brokers[replica] for replica in self.image.replicas if self.brokers[replica].is_running]
        starts = max((broker.log.log_start_offset for broker in alive if broker.log is not None), default=0)
        needed = {item for item in needed if item[0] >= starts}
        holders = [
            broker
            for broker in alive
            if needed <= {(offset, found[0]) for offset, found in self.values(broker).items()}
        ]
        dead = len(self.image.replicas) - len(alive)
        needed_count = min(self.min_isr, len(alive)) if least is None else least - dead
        if len(holders) < needed_count:
            reason = f"{sorted(gone)} left, only {[str(broker) for broker in holders]} have what was acknowledged"
            violated("RINV-33", reason)

    def check(self) -> None:
        """All that can be said after one event."""
        image = self.image
        for broker in self.brokers.values():
            if broker.partition is not None:
                self._check_replica(broker)
        leader = self.leader
        if leader is None or self.was_unclean:
            return
        if not set(image.isr) <= leader.maximal():
            violated("RINV-24", f"the controller has {image.isr}, the leader {leader.maximal()}")
        if image.leader_epoch not in self._leaders:
            self._leaders[image.leader_epoch] = leader.broker_id
            held = self.values(leader)
            for offset, found in self.committed.items():
                if offset >= leader.log.log_start_offset and held.get(offset) != found:
                    identifier = "RINV-03" if self.lost_data else "RINV-23"
                    violated(identifier, f"{leader} leads without {found} at {offset}, it has {held.get(offset)}")
        if leader.partition.is_high_watermark_settled:
            latest = leader.partition.high_watermark
            if latest < self._latest:
                violated("RINV-12", f"{leader} says {latest}, {self._latest} was said before")
            self._latest = latest
        for member in image.elr:
            broker = self.brokers[member]
            if broker.log is not None and member not in self.lost_data:
                held = self.values(broker)
                for offset, found in self.committed.items():
                    if offset >= broker.log.log_start_offset and held.get(offset) != found:
                        violated("RINV-24", f"{broker} is an eligible leader without {found} at {offset}")

    def _check_replica(self, broker: Broker) -> None:
        partition, log = broker.partition, broker.log
        state = (
            partition.high_watermark, partition.leader_epoch, partition.is_leader, log.log_start_offset,
            log.log_end_offset,
        )  # fmt: skip
        before = self._seen.get(broker.broker_id)
        if state == before:
            return
        self._seen[broker.broker_id] = state
        high_watermark, epoch, is_leader, start, end = state
        if not start <= high_watermark <= end:
            violated("RINV-07", f"{broker}: {state}")
        if before is not None and is_leader and before[2] and epoch == before[1] and high_watermark < before[0]:
            violated("RINV-07", f"{broker}: the high watermark fell from {before[0]} to {high_watermark}")
        if start < self.log_starts.get(broker.broker_id, 0):
            violated("RINV-19", f"{broker}: the log start fell to {start}")
        self.log_starts[broker.broker_id] = start
        held = self.values(broker)
        epochs = [found[1] for found in held.values()]
        if epochs != sorted(epochs):
            violated("RINV-16", f"{broker}: epochs {epochs}")
        if self.was_unclean:
            return
        for offset, found in held.items():
            if offset >= high_watermark:
                break
            known = self.committed.setdefault(offset, found)
            if known != found:
                identifier = "RINV-11" if self.acknowledged.get(offset) != known[0] else "RINV-01"
                violated(identifier, f"{broker} has {found} at {offset}, {known} was committed there")

    # -- the end -------------------------------------------------------------------------------------------------

    def recover(self, rounds: int = 40) -> None:
        """Take every fault back; then all replicas are in sync and alike, in a bounded number of rounds.

        One round is a fetch of each follower and one request to the controller.
        """
        self.cut_links.clear()
        for broker_id, broker in self.brokers.items():
            if not broker.is_running:
                self.start(broker_id)
            self.unfence(broker_id)
            if broker.asking is not None:
                broker.asking.handle_failure(self.now_ms)
                broker.asking = None
        if not self.image.has_leader:
            self.elect(1)
        self.tell()
        for _ in range(rounds):
            self.now_ms += BACKOFF_MS
            for broker_id in self.brokers:
                self.brokers[broker_id].fetch()
                self.propose(broker_id)
            self.tell()
            self.check()
        self.check_quiet()

    def check_quiet(self) -> None:
        """RINV-18, RINV-35, RINV-36, and RINV-30 after an unclean election."""
        image, leader = self.image, self.leader
        if leader is None or set(image.isr) != set(image.replicas) or image.is_reassigning:
            violated("RINV-35", f"not all replicas are in sync: {image}")
            return
        members = [self.brokers[member] for member in image.replicas]
        pending = [number for broker in members for number in broker.proposals]
        failed = [broker for broker in members if broker.fetcher is not None and broker.fetcher.failed_count]
        if failed or any(leader.partition.is_proposal_pending(number) for number in pending):
            violated("RINV-35", f"failed: {failed}, pending: {pending}")
        ends = {broker.broker_id: (broker.log.log_end_offset, broker.partition.high_watermark) for broker in members}
        if len(set(ends.values())) > 1 or any(end != high_watermark for end, high_watermark in ends.values()):
            violated("RINV-36", f"ends and high watermarks: {ends}")
        start = max(broker.log.log_start_offset for broker in members)
        contents = {broker.broker_id: self.bytes_from(broker, start) for broker in members}
        if len(set(contents.values())) > 1:
            violated("RINV-30" if self.was_unclean else "RINV-18", "the logs differ")
        caches = {broker.broker_id: self.epochs_from(broker, start) for broker in members}
        if len({str(cache) for cache in caches.values()}) > 1:
            violated("RINV-18", f"the epoch caches differ: {caches}")
        if not self.was_unclean:
            held = self.values(leader)
            for offset, value in self.acknowledged.items():
                if offset >= start and held.get(offset, (None, 0))[0] != value:
                    violated("RINV-01", f"{value} was acknowledged at {offset}, {held.get(offset)} is there")

    @staticmethod
    def bytes_from(broker: Broker, start: int) -> bytes:
        data, end = b"", broker.log.log_end_offset
        while start < end:
            piece = broker.log.read(start, max_bytes=1 << 20, end_offset=end).read()
            data += piece
            start = max(batch.last_offset for batch in read_batches(piece)) + 1
        return data

    @staticmethod
    def epochs_from(broker: Broker, start: int) -> list[tuple[int, int]]:
        """The epochs that have records from ``start`` on, with where they begin."""
        entries = broker.log.epoch_entries()
        ends = [*(begin for _, begin in entries[1:]), broker.log.log_end_offset][: len(entries)]
        pairs = zip(entries, ends, strict=True)
        return [(epoch, max(begin, start)) for (epoch, begin), end in pairs if end > max(begin, start)]
