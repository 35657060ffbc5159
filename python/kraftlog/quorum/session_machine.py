"""The replicated side of sessions: a command is applied once, however often it is proposed (Raft thesis 6.3)."""

from __future__ import annotations

import heapq
import json
import struct
from collections import OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import chain, islice
from typing import Final, TypeAlias

from kraftlog.errors import CorruptRecordError
from kraftlog.quorum.state_machine import CommittedBatch, StateMachine

__all__ = [
    "MAX_SESSIONS",
    "SessionAnswer",
    "SessionCommand",
    "SessionMachine",
    "encode_call",
    "encode_close",
    "encode_open",
    "session_command",
]

MAX_SESSIONS: Final = 10_000
"""Of one quorum; when one more is opened, the one that was not used for longest is forgotten."""

# At the beginning of commands of a session, and of the records that a checkpoint has of sessions.
_MAGIC: Final = b"\xffKLSESS\x01"
_OPEN, _CALL, _CLOSE = 0, 1, 2
# magic, kind, session id or time-out in ms, sequence number, first sequence number without an answer
_HEADER: Final = struct.Struct(">8sbqqq")
# magic, time of the last batch, number of sessions
_TABLE: Final = struct.Struct(">8sqi")
# magic, id, time of the last use, time-out, first sequence number without an answer, number of results
_SESSION: Final = struct.Struct(">8sqqqqi")
# sequence number, kind of the result, its length
_RESULT: Final = struct.Struct(">qbi")
_NONE, _BYTES, _JSON = 0, 1, 2

Result: TypeAlias = "bytes | str | int | float | bool | None"


def encode_open(timeout_ms: int) -> bytes:
    """The command that opens a session; its offset is the session's id.

    Args:
        timeout_ms: After so long without a command it may be forgotten.
    """
    return _HEADER.pack(_MAGIC, _OPEN, timeout_ms, 0, 0)


def encode_call(session_id: int, sequence: int, first_unanswered: int, command: bytes) -> bytes:
    """A command of a session.

    Args:
        session_id: Of the session.
        sequence: Its number in the session; a command that is proposed again keeps it.
        first_unanswered: The client has the results of all numbers below and asks for none of them again.
        command: Of the user.
    """
    return _HEADER.pack(_MAGIC, _CALL, session_id, sequence, first_unanswered) + command


def encode_close(session_id: int) -> bytes:
    """The command that ends a session."""
    return _HEADER.pack(_MAGIC, _CLOSE, session_id, 0, 0)


@dataclass(frozen=True, slots=True)
class SessionCommand:
    """A command of a session, as it is in the log: what was proposed again is there again, with the same numbers.

    Args:
        session_id: Of the session.
        sequence: Its number in the session.
        command: Of the user.
    """

    session_id: int
    sequence: int
    command: bytes


def session_command(command: bytes) -> SessionCommand | None:
    """What a command of the log is in its session; None for one that was proposed without a session.

    For those who follow the log by :meth:`AsyncQuorum.committed` and not a :class:`SessionMachine`, which gets each
    once. What opens and closes sessions has no command of a user, and is None, too.
    """
    if not command.startswith(_MAGIC) or len(command) < _HEADER.size:
        return None
    _, kind, session_id, sequence, _ = _HEADER.unpack_from(command)
    return SessionCommand(session_id, sequence, command[_HEADER.size :]) if kind == _CALL else None


@dataclass(frozen=True, slots=True)
class SessionAnswer:
    """What became of a command of a session.

    Args:
        value: The session's id, or what the state machine returned.
        is_expired: Whether there is no such session; the command was not applied now.
    """

    value: object = None
    is_expired: bool = False


_PENDING: Final = SessionAnswer()
_EXPIRED: Final = SessionAnswer(is_expired=True)


@dataclass(slots=True)
class _Session:
    """What is known of one session: results that its client may still ask for."""

    last_ms: int
    timeout_ms: int
    first_unanswered: int = 0
    answers: dict[int, SessionAnswer] = field(default_factory=dict)

    @property
    def end_ms(self) -> int:
        return self.last_ms + self.timeout_ms

    def note_answered(self, first_unanswered: int) -> None:
        if first_unanswered > self.first_unanswered:
            self.first_unanswered = first_unanswered
            self.answers = {
                sequence: answer for sequence, answer in self.answers.items() if sequence >= first_unanswered
            }


class SessionMachine(StateMachine):
    """Gives another state machine each command of a session once, and remembers what it returned.

    Every replica of the quorum has to use it. Commands that are proposed without a session reach the machine as they
    are. A checkpoint holds the sessions before the records of the machine; one of the machine alone can be restored,
    so that sessions can be introduced later.

    Sessions end after their own time-out by the timestamps of batches, which are the same on all replicas: a wall clock
    that jumps ahead may end them early, after which their clients get :class:`kraftlog.errors.SessionExpiredError`.

    Args:
        machine: Applies what is new. What it returns for a command of a session is None, bytes, or what JSON knows as a
            scalar (str, int, float, bool): checkpoints hold it.

    Source: Ongaro, "Consensus: Bridging Theory and Practice", section 6.3.
    """

    def __init__(self, machine: StateMachine) -> None:
        self.machine = machine
        self._sessions: OrderedDict[int, _Session] = OrderedDict()
        self._ends: list[tuple[int, int]] = []
        self._now_ms = 0

    @property
    def session_count(self) -> int:
        """Sessions that have not ended."""
        return len(self._sessions)

    # StateMachine

    def apply(self, batch: CommittedBatch) -> Sequence[object] | None:
        """Apply what is new of a batch.

        Raises:
            TypeError: The machine returned for a command of a session what no checkpoint can hold.
        """
        self._pass_time(batch.timestamp_ms)
        if not any(command.startswith(_MAGIC) for command in batch.commands):
            return self.machine.apply(batch)
        return _Pass(self, batch).run()

    def snapshot(self) -> Iterable[bytes] | Callable[[], Iterable[bytes]] | None:
        """The sessions, then the state of the machine."""
        state = self.machine.snapshot()
        if state is None:
            return None
        table = self._encode_table()
        if callable(state):
            take = state
            return lambda: chain(table, take())
        return chain(table, state)

    def restore(self, records: Sequence[bytes]) -> None:
        """Take the sessions and the state of a checkpoint.

        Raises:
            CorruptRecordError: What it says of sessions cannot be read.
        """
        self.load(iter(records))()

    def load(self, records: Iterator[bytes]) -> Callable[[], None]:
        """Prepare the sessions and the state of a checkpoint.

        Raises:
            CorruptRecordError: What it says of sessions cannot be read.
        """
        table = _Table.read(records)
        put_in_place = self.machine.load(table.others)

        def finish() -> None:
            self._now_ms, self._sessions = table.now_ms, table.sessions
            self._ends = [(session.end_ms, session_id) for session_id, session in table.sessions.items()]
            heapq.heapify(self._ends)
            put_in_place()

        return finish

    def on_leader_change(self, leader_id: int | None, epoch: int) -> None:
        """Tell the machine."""
        self.machine.on_leader_change(leader_id, epoch)

    def on_stop(self, error: BaseException | None) -> None:
        """Tell the machine."""
        self.machine.on_stop(error)

    # Sessions

    def _pass_time(self, timestamp_ms: int) -> None:
        self._now_ms = max(self._now_ms, timestamp_ms)
        while self._ends and self._ends[0][0] <= self._now_ms:
            session_id = heapq.heappop(self._ends)[1]
            session = self._sessions.get(session_id)
            if session is not None and session.end_ms <= self._now_ms:
                del self._sessions[session_id]
            elif session is not None:
                heapq.heappush(self._ends, (session.end_ms, session_id))

    def open(self, session_id: int, timeout_ms: int) -> SessionAnswer:
        """Begin a session; called by ``apply``."""
        while len(self._sessions) >= MAX_SESSIONS:
            self._sessions.popitem(last=False)
        session = self._sessions[session_id] = _Session(self._now_ms, max(1, timeout_ms))
        heapq.heappush(self._ends, (session.end_ms, session_id))
        return SessionAnswer(session_id)

    def use(self, session_id: int) -> _Session | None:
        """A session, which is used now; None if there is none. Called by ``apply``."""
        session = self._sessions.get(session_id)
        if session is not None:
            session.last_ms = self._now_ms
            self._sessions.move_to_end(session_id)
        return session

    def end(self, session_id: int) -> SessionAnswer:
        """Forget a session; called by ``apply``."""
        return _EXPIRED if self._sessions.pop(session_id, None) is None else SessionAnswer()

    def _encode_table(self) -> list[bytes]:
        records = [_TABLE.pack(_MAGIC, self._now_ms, len(self._sessions))]
        for session_id, session in self._sessions.items():
            parts = [
                _SESSION.pack(
                    _MAGIC,
                    session_id,
                    session.last_ms,
                    session.timeout_ms,
                    session.first_unanswered,
                    len(session.answers),
                )
            ]
            for sequence, answer in session.answers.items():
                kind, data = _encode_result(answer.value)
                parts += [_RESULT.pack(sequence, kind, len(data)), data]
            records.append(b"".join(parts))
        return records


class _Table:
    """The sessions of a checkpoint, and the records behind them."""

    def __init__(self, others: Iterator[bytes]) -> None:
        self.now_ms = 0
        self.sessions: OrderedDict[int, _Session] = OrderedDict()
        self.others = others

    @classmethod
    def read(cls, records: Iterator[bytes]) -> _Table:
        """Take the records of sessions from the beginning of a checkpoint; it may have none.

        Raises:
            CorruptRecordError: They cannot be read.
        """
        first = next(records, None)
        if first is None or not first.startswith(_MAGIC):
            return cls(records if first is None else chain([first], records))
        table = cls(records)
        try:
            count: int
            _, table.now_ms, count = _TABLE.unpack(first)
            kept = list(islice(records, count))
            if len(kept) != count:
                _fail(f"it names {count} sessions and has {len(kept)}")
            for record in kept:
                table._take(record)
        except (struct.error, ValueError) as error:
            raise CorruptRecordError(f"the sessions of a checkpoint cannot be read: {error}") from error
        return table

    def _take(self, record: bytes) -> None:
        magic, session_id, last_ms, timeout_ms, first_unanswered, count = _SESSION.unpack_from(record)
        if magic != _MAGIC:
            _fail("a session is missing")
        session = _Session(last_ms, timeout_ms, first_unanswered)
        position = _SESSION.size
        for _ in range(count):
            sequence, kind, size = _RESULT.unpack_from(record, position)
            position += _RESULT.size
            if not 0 <= size <= len(record) - position:
                _fail(f"a result of {size} bytes")
            session.answers[sequence] = SessionAnswer(_decode_result(kind, record[position : position + size]))
            position += size
        self.sessions[session_id] = session


class _Pass:
    """One batch on its way through the sessions: runs of new commands go to the machine as batches of their own."""

    def __init__(self, sessions: SessionMachine, batch: CommittedBatch) -> None:
        self._sessions = sessions
        self._batch = batch
        self._results: list[object] = [None] * len(batch)
        # Of the commands that the machine gets next: the first one's index, and whom each belongs to.
        self._start = 0
        self._commands: list[bytes] = []
        self._owners: list[tuple[_Session, int] | None] = []

    def run(self) -> list[object]:
        for index, command in enumerate(self._batch.commands):
            if not command.startswith(_MAGIC):
                self._take(index, command, None)
                continue
            if len(command) < _HEADER.size:
                continue  # made by nobody's client: it does nothing, on every replica
            _, kind, number, sequence, first_unanswered = _HEADER.unpack_from(command)
            if kind == _CALL:
                self._call(index, number, sequence, first_unanswered, command[_HEADER.size :])
                continue
            self._flush()
            if kind == _OPEN:
                self._results[index] = self._sessions.open(self._batch.base_offset + index, number)
            elif kind == _CLOSE:
                self._results[index] = self._sessions.end(number)
        self._flush()
        return self._results

    def _call(self, index: int, session_id: int, sequence: int, first_unanswered: int, command: bytes) -> None:
        session = self._sessions.use(session_id)
        if session is None:
            self._results[index] = _EXPIRED
            return
        session.note_answered(first_unanswered)
        if sequence < session.first_unanswered:
            self._results[index] = SessionAnswer()  # its client has the result
            return
        if session.answers.get(sequence) is _PENDING:
            self._flush()  # the same command twice in one batch
        known = session.answers.get(sequence)
        if known is not None:
            self._results[index] = known
            return
        session.answers[sequence] = _PENDING
        self._take(index, command, (session, sequence))

    def _take(self, index: int, command: bytes, owner: tuple[_Session, int] | None) -> None:
        if index != self._start + len(self._commands):
            self._flush()
            self._start = index
        self._commands.append(command)
        self._owners.append(owner)

    def _flush(self) -> None:
        if not self._commands:
            return
        batch = self._batch
        results = self._sessions.machine.apply(
            CommittedBatch(
                base_offset=batch.base_offset + self._start,
                epoch=batch.epoch,
                timestamp_ms=batch.timestamp_ms,
                size_bytes=sum(map(len, self._commands)),
                commands=tuple(self._commands),
            )
        )
        if results is not None and len(results) != len(self._commands):
            msg = f"apply returned {len(results)} results for {len(self._commands)} commands"
            raise ValueError(msg)
        for place, owner in enumerate(self._owners):
            result = None if results is None else results[place]
            if owner is None:
                self._results[self._start + place] = result
                continue
            session, sequence = owner
            _encode_result(result)  # a checkpoint has to hold it, on every replica
            self._results[self._start + place] = SessionAnswer(result)
            # A later command of the batch may have said that nobody asks for this one: then it is kept nowhere,
            # wherever batches end.
            if sequence >= session.first_unanswered:
                session.answers[sequence] = SessionAnswer(result)
        self._start += len(self._commands)
        self._commands, self._owners = [], []


def _encode_result(result: object) -> tuple[int, bytes]:
    if result is None:
        return _NONE, b""
    if isinstance(result, bytes):
        return _BYTES, result
    if isinstance(result, str | int | float):
        return _JSON, json.dumps(result).encode()
    msg = f"the result of a command of a session is None, bytes, str, int, float or bool, not {type(result).__name__}"
    raise TypeError(msg)


def _decode_result(kind: int, data: bytes) -> Result:
    if kind == _BYTES:
        return data
    if kind == _JSON:
        found: Result = json.loads(data)
        return found
    if kind != _NONE or data:
        _fail(f"a result of kind {kind}")
    return None


def _fail(reason: str) -> None:
    raise CorruptRecordError(f"the sessions of a checkpoint cannot be read: {reason}")
