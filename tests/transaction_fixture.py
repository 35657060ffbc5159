"""The transaction shard under a hand-driven clock: answers by token, appends confirmed, failed or held by the test."""

from __future__ import annotations

from typing import Any

from kraftlog.coordinator.effects import AppendRecords, CoordinatorRecord, Emit, Respond
from kraftlog.coordinator.transaction.config import TransactionConfig
from kraftlog.coordinator.transaction.end_rules import EndRequest
from kraftlog.coordinator.transaction.markers import MarkersDue
from kraftlog.coordinator.transaction.transaction import Transaction, TransactionState
from kraftlog.coordinator.transaction.transaction_shard import TransactionShard
from kraftlog.types import TopicPartition
from kraftlog.wire.messages.init_producer_id import InitProducerIdRequest

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
S = TransactionState


class Harness:
    """A shard, a clock, and everything that it answered, wrote or wants to be sent."""

    def __init__(self, *, version: int = 2, **config: Any) -> None:
        self.version = version
        self.next_producer_id: int | None = 1000
        self.shard = TransactionShard(
            TransactionConfig(**config),
            take_producer_id=self._take_producer_id,
            transaction_version=lambda: self.version,
        )
        self.now_ms = 1_000_000
        self.answers: dict[int, Any] = {}
        self.log: list[CoordinatorRecord] = []
        self.appends: list[AppendRecords] = []
        self.markers: list[MarkersDue] = []
        self.held: list[AppendRecords] | None = None
        self.append_error = 0
        self._token = 0
        self.shard.finish_loading(self.now_ms)

    def _take_producer_id(self) -> int | None:
        if self.next_producer_id is None:
            return None
        self.next_producer_id += 1
        return self.next_producer_id - 1

    def run(self) -> None:
        while effects := self.shard.take_effects():
            for effect in effects:
                if isinstance(effect, Respond):
                    assert effect.token not in self.answers, "answered twice"
                    self.answers[effect.token] = effect.response  # type: ignore[index]
                elif isinstance(effect, Emit):
                    assert isinstance(effect.event, MarkersDue)
                    self.markers.append(effect.event)
                elif self.held is not None:
                    self.held.append(effect)
                else:
                    self._appended(effect, self.append_error)

    def _appended(self, append: AppendRecords, error_code: int) -> None:
        self.appends.append(append)
        if not error_code:
            self.log.extend(append.records)
        self.shard.on_appended(append.append_id, error_code)

    def release(self, error_code: int = 0) -> None:
        held, self.held = self.held or [], None
        for append in held:
            self._appended(append, error_code)
        self.run()

    def advance(self, ms: int) -> None:
        self.now_ms += ms
        self.shard.handle_timeout(self.now_ms)
        self.run()

    def _ask(self, call: Any) -> Any:
        self._token += 1
        call(self._token)
        self.run()
        return self.answers.get(self._token)

    def init(self, transactional_id: str = "x", *, given: tuple[int, int] = (-1, -1), **fields: Any) -> Any:
        """(error code, producer id, epoch); None while there is no answer."""
        request = InitProducerIdRequest(
            transactional_id=transactional_id,
            transaction_timeout_ms=fields.pop("timeout_ms", 60_000),
            producer_id=given[0],
            producer_epoch=given[1],
            **fields,
        )
        answer = self._ask(lambda token: self.shard.init_producer_id(token, request, self.now_ms))
        return None if answer is None else (answer.error_code, answer.producer_id, answer.producer_epoch)

    def add(self, producer: tuple[int, int], *partitions: TopicPartition, v: int = 2, key: str = "x") -> Any:
        return self._ask(
            lambda token: self.shard.add_partitions(
                token, key, producer, frozenset(partitions or (T0,)), self.now_ms, client_version=v
            )
        )

    def end(self, producer: tuple[int, int], *, commit: bool = True, v: int = 2, key: str = "x") -> Any:
        """(error code, producer id, epoch); None while there is no answer."""
        request = EndRequest(producer[0], producer[1], commit, v)
        answer = self._ask(lambda token: self.shard.end_transaction(token, key, request, self.now_ms))
        return None if answer is None else (answer.error_code, answer.producer_id, answer.producer_epoch)

    def finish(self) -> None:
        """Report the markers that are due as written."""
        markers, self.markers = self.markers, []
        for due in markers:
            self.shard.on_markers_written(due, self.now_ms)
        self.run()

    @property
    def transaction(self) -> Transaction:
        found = self.shard.get("x")
        assert found is not None
        return found

    def put(self, state: TransactionState, producer: tuple[int, int] = (5, 3), **fields: Any) -> Harness:
        """Load the id in this state."""
        defaults: dict[str, Any] = {
            "timeout_ms": 60_000,
            "update_ms": self.now_ms,
            "client_version": 2,
            "start_ms": self.now_ms,
            "partitions": frozenset({T0}) if state in (S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT) else frozenset(),
        }
        loaded = Transaction(
            transactional_id="x",
            producer_id=producer[0],
            producer_epoch=producer[1],
            state=state,
            **(defaults | fields),
        )
        self.shard.replay(loaded.to_record(2), now_ms=self.now_ms)
        return self

    def reload(self) -> Harness:
        """A new shard that replays what this one wrote."""
        other = Harness(version=self.version)
        other.now_ms = self.now_ms
        for record in self.log:
            other.shard.replay(record, now_ms=self.now_ms)
        other.shard.finish_loading(self.now_ms)
        other.run()
        return other
