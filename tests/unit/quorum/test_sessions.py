"""A command of a session is applied once on every replica, and its result is remembered (Raft thesis 6.3)."""

from __future__ import annotations

import asyncio
import random

import pytest

from kraftlog.errors import CorruptRecordError, DeadlineError, NotLeaderError
from kraftlog.quorum import session_machine
from kraftlog.quorum.session_client import AsyncSession
from kraftlog.quorum.session_machine import (
    SessionAnswer,
    SessionCommand,
    SessionMachine,
    encode_call,
    encode_close,
    encode_open,
    session_command,
)
from kraftlog.quorum.state_machine import CommittedBatch, StateMachine

EXPIRED = SessionAnswer(is_expired=True)


class Journal(StateMachine):
    """Keeps every command with its offset; returns how many there are."""

    def __init__(self):
        self.commands = []
        self.batches = []
        self.told = []

    def apply(self, batch):
        self.batches.append(batch)
        results = []
        for offset, command in batch:
            self.commands.append((offset, command))
            results.append(len(self.commands))
        return results

    def snapshot(self):
        return [b"%d %b" % pair for pair in self.commands]

    def restore(self, records):
        self.commands = [(int(offset), command) for offset, _, command in (each.partition(b" ") for each in records)]

    def on_leader_change(self, leader_id, epoch):
        self.told.append((leader_id, epoch))

    def on_stop(self, error):
        self.told.append(error)


class Log:
    """Gives a machine batches of commands, offset by offset."""

    def __init__(self, machine=None):
        self.machine = SessionMachine(Journal()) if machine is None else machine
        self.end_offset, self.now_ms = 0, 1_000

    def append(self, *commands):
        batch = CommittedBatch(
            base_offset=self.end_offset, epoch=1, timestamp_ms=self.now_ms, size_bytes=1, commands=commands
        )
        self.end_offset += len(commands)
        return self.machine.apply(batch)

    def open(self, timeout_ms=60_000):
        (answer,) = self.append(encode_open(timeout_ms))
        return answer.value

    def call(self, session_id, sequence, command, first_unanswered=0):
        (answer,) = self.append(encode_call(session_id, sequence, first_unanswered, command))
        return answer

    @property
    def applied(self):
        return [command for _, command in self.machine.machine.commands]


def restored(machine):
    """A replica that begins with a checkpoint of this one."""
    other = SessionMachine(Journal())
    state = machine.snapshot()
    other.restore(list(state() if callable(state) else state))
    return other


def test_a_command_that_comes_again_is_applied_once_and_has_its_first_result():
    log = Log()
    session = log.open()
    assert session == 0
    assert log.call(session, 0, b"a") == SessionAnswer(1)
    assert log.call(session, 1, b"b") == SessionAnswer(2)
    assert log.call(session, 0, b"a") == SessionAnswer(1)
    log.machine = restored(log.machine)
    assert log.call(session, 1, b"b") == SessionAnswer(2)
    assert log.applied == [b"a", b"b"]
    assert log.machine.machine.commands == [(1, b"a"), (2, b"b")]


def test_the_same_command_twice_in_one_batch_is_applied_once():
    log = Log()
    session = log.open()
    again = encode_call(session, 0, 0, b"a")
    results = log.append(again, b"plain", again, encode_call(session, 1, 0, b"b"), again)
    assert results == [SessionAnswer(1), 2, SessionAnswer(1), SessionAnswer(3), SessionAnswer(1)]
    assert log.machine.machine.commands == [(1, b"a"), (2, b"plain"), (4, b"b")]


def test_commands_without_a_session_reach_the_machine_as_they_are():
    log = Log()
    assert log.append(b"a", b"b") == [1, 2]
    (batch,) = log.machine.machine.batches
    assert (batch.base_offset, batch.commands, batch.size_bytes) == (0, (b"a", b"b"), 1)
    assert log.append(b"\xffKLSESS\x01 and no more") == [None]
    assert log.applied == [b"a", b"b"]


def test_what_follows_the_log_can_tell_commands_of_sessions():
    assert session_command(encode_call(3, 4, 1, b"a")) == SessionCommand(3, 4, b"a")
    for other in (b"a", encode_open(1), encode_close(1), encode_open(1)[:-1]):
        assert session_command(other) is None


def test_results_are_kept_until_the_client_has_them():
    log = Log()
    session = log.open()
    for sequence in range(5):
        log.call(session, sequence, b"%d" % sequence, first_unanswered=max(0, sequence - 1))
    assert log.call(session, 3, b"3", first_unanswered=3) == SessionAnswer(4)
    assert log.call(session, 2, b"2", first_unanswered=3) == SessionAnswer(None), "its client has the result"
    assert log.applied == [b"0", b"1", b"2", b"3", b"4"]


def test_what_is_kept_does_not_depend_on_how_a_batch_is_cut():
    """The client gave up the first command, and says so with the second one."""
    whole, cut = Log(), Log()
    session = whole.open()
    cut.open()
    commands = [encode_call(session, 0, 0, b"a"), encode_call(session, 1, 1, b"b")]
    together = whole.append(*commands)
    assert together == [answer for command in commands for answer in cut.append(command)]
    assert list(whole.machine.snapshot()) == list(cut.machine.snapshot())


def test_a_session_that_is_not_used_ends():
    log = Log()
    first, second = log.open(timeout_ms=1_000), log.open(timeout_ms=5_000)
    log.now_ms += 900
    assert log.call(first, 0, b"a") == SessionAnswer(1)
    log.now_ms += 900
    assert log.call(first, 1, b"b") == SessionAnswer(2), "it was used"
    log.machine = restored(log.machine)
    log.now_ms += 1_000
    assert log.call(first, 1, b"b") == EXPIRED
    assert log.call(second, 0, b"c") == SessionAnswer(3)
    assert log.append(encode_close(second)) == [SessionAnswer()]
    assert log.append(encode_close(second)) == [EXPIRED]
    assert log.call(second, 0, b"c") == EXPIRED
    assert log.machine.session_count == 0
    assert log.applied == [b"a", b"b", b"c"]


def test_a_clock_that_goes_back_ends_no_session_and_keeps_none_for_longer():
    log = Log()
    session = log.open(timeout_ms=1_000)
    log.now_ms -= 100_000
    assert log.call(session, 0, b"a") == SessionAnswer(1)
    log.now_ms += 100_900
    assert log.call(session, 1, b"b") == SessionAnswer(2)


def test_the_session_that_was_not_used_for_longest_makes_room(monkeypatch):
    monkeypatch.setattr(session_machine, "MAX_SESSIONS", 2)
    log = Log()
    first, second = log.open(), log.open()
    log.call(first, 0, b"a")
    third = log.open()
    assert log.call(second, 0, b"b") == EXPIRED
    assert [log.call(each, 1, b"c").value for each in (first, third)] == [2, 3]


def test_a_checkpoint_without_sessions_is_restored():
    plain = Journal()
    plain.commands = [(0, b"a")]
    machine = SessionMachine(Journal())
    machine.restore(plain.snapshot())
    assert (machine.machine.commands, machine.session_count) == ([(0, b"a")], 0)


@pytest.mark.parametrize("result", [None, b"bytes", "text", 5, 2.5, True])
def test_results_outlast_a_checkpoint(result):
    machine = SessionMachine(Journal())
    machine.machine.apply = lambda batch: [result] * len(batch)
    log = Log(machine)
    session = log.open()
    log.call(session, 0, b"a")
    log.machine = restored(machine)
    found = log.call(session, 0, b"a").value
    assert (found, type(found)) == (result, type(result))


def test_a_result_that_no_checkpoint_can_hold_is_refused_at_once():
    machine = SessionMachine(Journal())
    machine.machine.apply = lambda batch: [object()] * len(batch)
    log = Log(machine)
    log.append(b"without a session")
    session = log.open()
    with pytest.raises(TypeError, match="result of a command"):
        log.call(session, 0, b"a")


@pytest.mark.parametrize("what", ["short", "long", "missing", "kind", "length", "other"])
def test_a_checkpoint_whose_sessions_are_damaged_is_refused(what):
    log = Log()
    log.call(log.open(), 0, b"a")
    table, session, *state = list(log.machine.snapshot())
    damaged = {
        "short": [table[:-1], session, *state],
        "long": [table + b"x", session, *state],
        "missing": [table],
        "kind": [table, session[:-6] + b"\x09" + session[-5:], *state],
        "length": [table, session[:-5] + b"\x7f\xff\xff\xff" + session[-1:], *state],
        "other": [table, b"x" * len(session), *state],
    }[what]
    with pytest.raises(CorruptRecordError, match="sessions of a checkpoint"):
        SessionMachine(Journal()).restore(damaged)


def test_a_state_that_another_thread_writes_comes_with_the_sessions_of_its_moment():
    log = Log()
    session = log.open()
    log.call(session, 0, b"a")
    state = log.machine.machine.snapshot()
    log.machine.machine.snapshot = lambda: lambda: state
    taken = log.machine.snapshot()
    log.call(session, 1, b"b")
    other = Log(SessionMachine(Journal()))
    other.machine.restore(list(taken()))
    assert other.applied == [b"a"]
    assert other.call(session, 1, b"b") == SessionAnswer(2)
    log.machine.machine.snapshot = lambda: None
    assert log.machine.snapshot() is None


def test_the_machine_is_told_of_leaders_and_of_the_end():
    machine = SessionMachine(Journal())
    machine.on_leader_change(1, 2)
    machine.on_stop(None)
    assert machine.machine.told == [(1, 2), None]


@pytest.mark.parametrize("seed", range(40))
def test_replicas_agree_however_batches_are_cut_and_checkpoints_are_loaded(seed):
    """A client sends each command until it has the result; the log has some of them several times."""
    rng = random.Random(seed)
    log, others = Log(), [Log(), Log()]
    results, expected, waiting, sequence = {}, [], {}, 0
    session = log.open(timeout_ms=1_000_000)
    for other in others:
        other.open(timeout_ms=1_000_000)
    for _ in range(60):
        commands = []
        for _ in range(rng.randrange(1, 6)):
            if waiting and rng.random() < 0.5:
                number = rng.choice(sorted(waiting))
            else:
                number, sequence = sequence, sequence + 1
                waiting[number] = b"%d" % number
            first = min(waiting)
            commands.append((number, encode_call(session, number, first, waiting[number])))
        answers = log.append(*(encoded for _, encoded in commands))
        for (number, _), answer in zip(commands, answers, strict=True):
            assert results.setdefault(number, answer.value) == answer.value
        for other in others:
            found, rest = [], [encoded for _, encoded in commands]
            while rest:
                count = rng.randrange(1, len(rest) + 1)
                found += other.append(*rest[:count])
                rest = rest[count:]
            assert found == answers
            if not rng.randrange(5):
                other.machine = restored(other.machine)
        for number in [number for number in waiting if number in results and rng.random() < 0.3]:
            del waiting[number]
            expected.append(number)
    assert sorted(log.applied) == sorted({b"%d" % number for number in results})
    for other in others:
        assert other.machine.machine.commands == log.machine.machine.commands
        assert list(other.machine.snapshot()) == list(log.machine.snapshot())


@pytest.mark.parametrize(
    ("failures", "may_be_committed"),
    [
        ([NotLeaderError(2, "127.0.0.1:7002")], False),
        ([DeadlineError("no answer", may_be_committed=True), NotLeaderError(None, None)], True),
    ],
)
def test_a_session_whose_time_is_over_says_why_its_last_attempt_failed(failures, may_be_committed):
    class Failing:
        timeout_s = 0.3

        def __init__(self):
            self.left = list(failures)

        async def call(self, commands, *, timeout_s):
            raise self.left.pop(0) if len(self.left) > 1 else self.left[0]

    async def run():
        with pytest.raises(DeadlineError, match=r"at last: .*lead") as raised:
            await AsyncSession(Failing(), 7).call([b"a"])
        assert raised.value.__cause__ is failures[-1]
        assert raised.value.may_be_committed is may_be_committed

    asyncio.run(run())
