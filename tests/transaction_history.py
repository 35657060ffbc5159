"""Drawn histories of one shard of the transaction coordinator, and the partitions that transactions write to.

Two clients share each transactional id, so that one of them is often a zombie. Appends are held and fail, answers are
lost, the coordinator moves, markers arrive one by one, time-outs and expiration come. What a client is told, what the
shard's records say and which records become visible have to agree.
"""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Any

from kraftlog.coordinator.effects import AppendRecords, CoordinatorRecord, Emit, Respond
from kraftlog.coordinator.transaction.config import TransactionConfig
from kraftlog.coordinator.transaction.end_rules import EndRequest
from kraftlog.coordinator.transaction.markers import MarkersDue
from kraftlog.coordinator.transaction.transaction import (
    COMPLETE_STATES,
    LAST_EPOCH,
    PREPARE_STATES,
    Transaction,
    TransactionState,
)
from kraftlog.coordinator.transaction.transaction_shard import TransactionShard
from kraftlog.errors import ErrorCode
from kraftlog.testing.log_invariants import InvariantViolationError
from kraftlog.types import TopicPartition
from kraftlog.wire.messages.init_producer_id import InitProducerIdRequest

STEPS = 400
IDS = ("x", "y")
PARTITIONS = [TopicPartition("t", number) for number in range(3)]
TIMEOUT_MS = 60_000
EXPIRATION_MS = 7_200_000
RETRIED = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.NOT_COORDINATOR,
}


@dataclass(slots=True)
class Client:
    """A producer with a transactional id."""

    transactional_id: str
    producer: tuple[int, int] | None = None
    is_fenced: bool = False
    is_waiting: bool = False
    number: int = 0
    added: set[TopicPartition] = field(default_factory=set)
    outcome: bool | None = None


@dataclass(slots=True)
class Partition:
    """The transactional records of a partition that have no marker yet, and what fences producers."""

    epochs: dict[int, int] = field(default_factory=dict)
    coordinators: dict[int, int] = field(default_factory=dict)
    # Producer, transactional id, number of the client's transaction.
    opened: list[tuple[tuple[int, int], str, int]] = field(default_factory=list)


def violated(rule: str, reason: str) -> InvariantViolationError:
    return InvariantViolationError(rule, reason, [])


class TransactionHistory:
    """One history; ``play`` runs it.

    Args:
        seed: Of all chance.
    """

    def __init__(self, seed: int) -> None:
        self.rng = Random(f"{seed}/transactions")
        self.version = self.rng.choice((0, 1, 2, 2))
        self.now_ms = 1_000_000
        self.counts: Counter[str] = Counter()
        self.clients = [Client(transactional_id) for transactional_id in IDS for _ in range(2)]
        self.partitions = {name: Partition() for name in PARTITIONS}
        self.log: list[CoordinatorRecord] = []
        self.durable: dict[str, Transaction] = {}
        self.told: dict[int, bool] = {}
        self.seen: dict[int, bool] = {}
        self.given: dict[tuple[int, int], Client] = {}
        self.generation = 0
        self._producer_ids = itertools.count(1000)
        self._numbers = itertools.count(1)
        self._tokens = itertools.count(1)
        for transactional_id in IDS:
            if self.rng.random() < 0.4:
                self._keep(self._nearly_exhausted(transactional_id).to_record(self.version))
        self._load()

    def _nearly_exhausted(self, transactional_id: str) -> Transaction:
        return Transaction(
            transactional_id=transactional_id,
            producer_id=next(self._producer_ids),
            producer_epoch=LAST_EPOCH - self.rng.randrange(4),
            timeout_ms=TIMEOUT_MS,
            update_ms=self.now_ms,
        )

    # -- the coordinator -----------------------------------------------------------------------------------------

    def _load(self) -> None:
        """A new coordinator reads the log; clients that wait for the one before get no answer."""
        self.generation += 1
        self.waiting: dict[object, Callable[[Any], None]] = {}
        self.appends: list[AppendRecords] = []
        self.due: list[tuple[MarkersDue, set[TopicPartition], int]] = []
        self.reported: list[MarkersDue] = []
        for client in self.clients:
            client.is_waiting = False
        config = TransactionConfig(expiration_ms=EXPIRATION_MS)
        self.shard = TransactionShard(
            config, take_producer_id=self._take_producer_id, transaction_version=lambda: self.version
        )
        for record in self.log:
            self.shard.replay(record, now_ms=self.now_ms)
        self.shard.finish_loading(self.now_ms)

    def _take_producer_id(self) -> int | None:
        return None if self.rng.random() < 0.05 else next(self._producer_ids)

    def run(self) -> None:
        while effects := self.shard.take_effects():
            for effect in effects:
                if isinstance(effect, Respond):
                    self.waiting.pop(effect.token)(effect.response)
                elif isinstance(effect, Emit):
                    assert isinstance(effect.event, MarkersDue)
                    self.due.append((effect.event, set(effect.event.partitions), self.generation))
                else:
                    self._check_alone(effect)
                    self.appends.append(effect)

    def _check_alone(self, append: AppendRecords) -> None:
        written = {record.key.transactional_id for held in self.appends for record in held.records}
        for record in append.records:
            if record.key.transactional_id in written:
                raise violated(
                    "one change at a time", f"{record.key.transactional_id} has a change that is not written"
                )

    def _keep(self, record: CoordinatorRecord) -> None:
        """A record of the coordinator is committed."""
        self.log.append(record)
        transactional_id = record.key.transactional_id
        before = self.durable.pop(transactional_id, None)
        if record.value is None:
            if before is not None and before.update_ms + EXPIRATION_MS > self.now_ms:
                raise violated("expiration", f"{transactional_id} is forgotten {self.now_ms - before.update_ms} ms old")
            self.counts["expired"] += 1
            for client in self.clients:
                # Nothing is known of successors any more; Kafka too lets any earlier producer begin anew.
                client.is_fenced &= client.transactional_id != transactional_id
            return
        now = self.durable[transactional_id] = Transaction.from_value(transactional_id, record.value)
        if before is not None and now.state in COMPLETE_STATES and before.state in PREPARE_STATES:
            self.counts["completed"] += 1
            self._check_closed(transactional_id, f"transaction of {transactional_id} is complete")

    def _check_closed(self, transactional_id: str, when: str) -> None:
        for name, partition in self.partitions.items():
            for producer, found, number in partition.opened:
                if found == transactional_id:
                    raise violated("completion", f"{when}, {name} has an open record of {producer}, {number}")

    def settle(self, error_code: int = 0) -> None:
        """The oldest append is committed, or fails."""
        if self.appends:
            append = self.appends.pop(0)
            if not error_code:
                for record in append.records:
                    self._keep(record)
            self.shard.on_appended(append.append_id, error_code)
            self.run()

    def move(self) -> None:
        """Another broker becomes the coordinator: the first of what was being appended is committed, the rest lost."""
        for append in self.appends[: self.rng.randrange(len(self.appends) + 1)]:
            for record in append.records:
                self._keep(record)
        late = [markers for markers in self.due if self.rng.random() < 0.5]
        self._load()
        # Markers of the coordinator before are still on their way; nobody hears of their arrival.
        self.due.extend(late)
        self.run()

    def advance(self, duration_ms: int) -> None:
        self.now_ms += duration_ms
        self.shard.handle_timeout(self.now_ms)
        self.run()

    def write_markers(self) -> None:
        """A marker arrives at one partition, or at last the coordinator hears that all have."""
        if not self.due:
            return
        index = self.rng.randrange(len(self.due))
        markers, left, generation = self.due[index]
        if left:
            name = self.rng.choice(sorted(left, key=str))
            left.remove(name)
            self._mark(self.partitions[name], name, markers, generation)
            return
        del self.due[index]
        if generation == self.generation:
            self.reported.append(markers)
            self.shard.on_markers_written(markers, self.now_ms)
            self.run()

    def report_again(self) -> None:
        """A report comes twice; with an epoch per transaction the second one is known as old."""
        if self.reported and self.version == 2:
            self.shard.on_markers_written(self.rng.choice(self.reported), self.now_ms)
            self.run()

    def _mark(self, partition: Partition, name: TopicPartition, markers: MarkersDue, generation: int) -> None:
        producer_id, epoch = markers.producer_id, markers.producer_epoch
        if generation < partition.coordinators.get(producer_id, 0) or epoch < partition.epochs.get(producer_id, -1):
            return
        partition.coordinators[producer_id], partition.epochs[producer_id] = generation, epoch
        kept = []
        for record in partition.opened:
            (found_id, _), _, number = record
            if found_id != producer_id:
                kept.append(record)
            elif self.seen.setdefault(number, markers.is_commit) != markers.is_commit:
                raise violated("atomicity", f"{name}: transaction {number} is committed in a part")
            elif self.told.get(number, markers.is_commit) != markers.is_commit:
                raise violated("outcome", f"{name}: transaction {number} gets the marker of another outcome")
        partition.opened = kept

    # -- clients -------------------------------------------------------------------------------------------------

    def ask(self, client: Client, call: Callable[[object], None], then: Callable[[Any], None]) -> None:
        token, client.is_waiting = next(self._tokens), True

        def answered(response: Any) -> None:
            client.is_waiting = False
            then(response)

        self.waiting[token] = answered
        call(token)
        self.run()

    def init(self, client: Client) -> None:
        producer_id, epoch = client.producer if client.producer is not None and self.rng.random() < 0.2 else (-1, -1)
        request = InitProducerIdRequest(
            transactional_id=client.transactional_id,
            transaction_timeout_ms=TIMEOUT_MS,
            producer_id=producer_id,
            producer_epoch=epoch,
        )
        was_fenced = client.is_fenced and producer_id >= 0

        def then(response: Any) -> None:
            if response.error_code:
                if response.error_code not in RETRIED:
                    client.producer = None
                return
            self._check_fenced(client, "InitProducerId", was_fenced=was_fenced)
            self._give(client, (response.producer_id, response.producer_epoch), is_new=producer_id < 0)
            self._check_closed(client.transactional_id, "a producer is initialized")
            for other in self.clients:
                if other is not client and other.transactional_id == client.transactional_id:
                    other.is_fenced = True
            client.is_fenced = False
            self._begin(client)
            self.counts["initialized"] += 1

        self.ask(client, lambda token: self.shard.init_producer_id(token, request, self.now_ms), then)

    def _give(self, client: Client, producer: tuple[int, int], *, is_new: bool) -> None:
        if not 0 <= producer[1] <= LAST_EPOCH:
            raise violated("epochs", f"{client.transactional_id}: {producer} is given to a client")
        owner = self.given.setdefault(producer, client)
        if owner is not client or (is_new and client.producer == producer):
            raise violated("one owner", f"{client.transactional_id}: {producer} is given twice")
        client.producer = producer

    def _begin(self, client: Client) -> None:
        client.number, client.outcome = next(self._numbers), None
        client.added.clear()

    def _check_fenced(self, client: Client, what: str, *, was_fenced: bool) -> None:
        if was_fenced:
            self.counts["zombie"] += 1
            raise violated("fencing", f"{what} of {client.producer}, which has a successor, is accepted")

    def add(self, client: Client) -> None:
        if client.producer is None or client.outcome is not None:
            return
        wanted = frozenset(self.rng.sample(PARTITIONS, self.rng.randrange(1, 3)))
        producer, was_fenced = client.producer, client.is_fenced

        def then(error_code: int) -> None:
            if not error_code:
                self._check_fenced(client, "AddPartitionsToTxn", was_fenced=was_fenced)
                client.added |= wanted
            elif error_code not in RETRIED:
                self.counts["refused"] += 1
                client.producer = None

        version = 2 if self.version == 2 else 0
        self.ask(
            client,
            lambda token: self.shard.add_partitions(
                token, client.transactional_id, producer, wanted, self.now_ms, client_version=version
            ),
            then,
        )

    def write(self, client: Client) -> None:
        """A record to any partition: brokers take it only when the coordinator verifies it."""
        if client.producer is None or client.outcome is not None:
            return
        name = self.rng.choice(PARTITIONS)
        partition = self.partitions[name]
        verified = self.shard.verify_partitions(client.transactional_id, client.producer, [name])[name]
        if verified or client.producer[1] < partition.epochs.get(client.producer[0], -1):
            return
        self._check_fenced(client, "a record", was_fenced=client.is_fenced)
        partition.epochs[client.producer[0]] = client.producer[1]
        partition.opened.append((client.producer, client.transactional_id, client.number))
        self.counts["written"] += 1

    def end(self, client: Client) -> None:
        if client.producer is None or not client.added:
            return
        if client.outcome is None:
            client.outcome = self.rng.random() < 0.6
        version = 2 if self.version == 2 else 0
        request = EndRequest(*client.producer, client.outcome, version)
        was_fenced, number, outcome = client.is_fenced, client.number, client.outcome

        def then(response: Any) -> None:
            if not response.error_code:
                self._check_fenced(client, "EndTxn", was_fenced=was_fenced)
                if self.seen.get(number, outcome) != outcome:
                    raise violated("outcome", f"transaction {number} has got the markers of another outcome")
                self.told[number] = outcome
                if version == 2:
                    self._give(client, (response.producer_id, response.producer_epoch), is_new=False)
                self._begin(client)
                self.counts["committed" if outcome else "aborted"] += 1
            elif response.error_code not in RETRIED:
                client.producer = None

        self.ask(
            client,
            lambda token: self.shard.end_transaction(token, client.transactional_id, request, self.now_ms),
            then,
        )

    # -- the history ---------------------------------------------------------------------------------------------

    def step(self) -> None:
        client = self.rng.choice(self.clients)
        rng = self.rng
        match rng.choices(range(11), (10, 18, 20, 18, 30, 2, 30, 2, 6, 1, 3))[0]:
            case 0 if not client.is_waiting and (client.producer is None or rng.random() < 0.2):
                self.init(client)
            case 1 if not client.is_waiting:
                self.add(client)
            case 2 if not client.is_waiting:
                self.write(client)
            case 3 if not client.is_waiting:
                self.end(client)
            case 4:
                self.settle()
            case 5:
                self.settle(ErrorCode.COORDINATOR_NOT_AVAILABLE)
            case 6:
                self.write_markers()
            case 7:
                self.move()
            case 8:
                self.advance(rng.choice((1, 200, 11_000)))
            case 9:
                self.advance(rng.choice((TIMEOUT_MS, 3_600_000, EXPIRATION_MS)))
            case 10:
                self.report_again()

    def check(self) -> None:
        """What is in force is what is committed."""
        for transactional_id, written in self.durable.items():
            found = self.shard.get(transactional_id)
            if found is None or _essence(found) != _essence(written):
                raise violated("in force", f"{transactional_id}: {found} is in force, {written} is written")

    def recover(self) -> None:
        """Nothing fails any more: every transaction comes to its end."""
        for _ in range(40):
            while self.appends or self.due:
                self.settle()
                self.write_markers()
            self.advance(11_000)
        for transactional_id in IDS:
            self._check_closed(transactional_id, "nothing is under way")
            found = self.shard.get(transactional_id)
            if found is not None and found.state in PREPARE_STATES | {TransactionState.ONGOING}:
                raise violated("completion", f"{transactional_id} stays {found.state.text}")

    def play(self) -> Counter[str]:
        """Run the history.

        Raises:
            InvariantViolationError: A rule is broken.
        """
        self.run()
        for _ in range(STEPS):
            self.step()
            self.check()
        self.recover()
        return self.counts


def _essence(transaction: Transaction) -> tuple[object, ...]:
    return transaction.producer_id, transaction.producer_epoch, transaction.state, transaction.partitions
