"""Histories of proposals and reads of ``kraftlog.Quorum`` in real processes under faults are linearizable."""

from __future__ import annotations

import asyncio
import itertools
import os
import random
import signal
import time
from collections import Counter
from dataclasses import replace

import pytest

from linearizability.cluster import Cluster, MemberGoneError
from linearizability.history import Operation, is_linearizable, step, verdict

SECONDS = float(os.environ.get("KRAFTLOG_LINEARIZABILITY_SECONDS", "8"))
SEED = int(os.environ.get("KRAFTLOG_LINEARIZABILITY_SEED", "1"))
CLIENT_COUNT = 6
KEYS_PER_ROUND = 3
ROUND_S = 1.5  # then other keys, so that no register has more operations than can be searched


class Clients:
    """Clients that call one after the other, each of whichever replica it likes, and what they saw."""

    def __init__(self, cluster, rng):
        self.cluster = cluster
        self.operations = []
        self.outcomes = Counter()
        self._rng = rng
        self._values = itertools.count(1)
        self._begun = time.monotonic()
        self._seen = {}

    def _key(self):
        number = int((time.monotonic() - self._begun) / ROUND_S)
        return f"r{number}-{self._rng.randrange(KEYS_PER_ROUND)}"

    async def run(self, end):
        while time.monotonic() < end:
            member = self.cluster.members[self._rng.choice(list(self.cluster.members))]
            key = self._key()
            do = self._rng.choice(("read", "read", "write", "cas"))
            value = None if do == "read" else str(next(self._values))
            expected = self._seen.get(key) if do == "cas" else None
            begun_ns = time.monotonic_ns()
            ended_ns, result = None, None
            try:
                answer = await member.ask(do=do, key=key, value=value, expected=expected, timeout_s=2.0)
            except MemberGoneError:
                answer = {"error": "gone", "may_be_committed": True}
                await asyncio.sleep(0.05)
            if "error" not in answer:
                ended_ns, result = time.monotonic_ns(), answer["result"]
                self._seen[key] = result if do == "read" else value
            self.outcomes[f"{do} {'done' if ended_ns else 'unknown' if answer['may_be_committed'] else 'failed'}"] += 1
            if ended_ns or (do != "read" and answer["may_be_committed"]):
                self.operations.append(Operation(key, do, value, expected, result, begun_ns, ended_ns))
            await asyncio.sleep(self._rng.random() * 0.02)


class Faults:
    """One fault after the other; each ends before the next one begins."""

    def __init__(self, cluster, rng):
        self.cluster = cluster
        self.counts = Counter()
        self._rng = rng

    async def _victim(self):
        if self._rng.random() < 0.6:
            try:
                return (await self.cluster.leader(timeout_s=1.0))[0]
            except TimeoutError:
                pass
        return self._rng.choice(list(self.cluster.members.values()))

    async def run(self, end):
        kinds = [self.kill, self.pause, self.cut_off, self.deafen, self.fill_disk]
        for number in itertools.count():
            if time.monotonic() > end:
                return
            if number % len(kinds) == 0:
                self._rng.shuffle(kinds)
            kind = kinds[number % len(kinds)]
            await kind(await self._victim())
            self.counts[kind.__name__] += 1
            await asyncio.sleep(0.2 + self._rng.random() * 0.5)

    async def kill(self, victim):
        await victim.kill()
        await asyncio.sleep(self._rng.random() * 0.5)
        await victim.start()

    async def pause(self, victim):
        victim.signal(signal.SIGSTOP)
        await asyncio.sleep(0.2 + self._rng.random())
        victim.signal(signal.SIGCONT)

    async def _cut(self, ways):
        self.cluster.network.cut |= ways
        await asyncio.sleep(0.5 + self._rng.random())
        self.cluster.network.cut -= ways

    async def cut_off(self, victim):
        """It hears the others, they do not hear it."""
        await self._cut({(victim.node_id, member) for member in self.cluster.members if member != victim.node_id})

    async def deafen(self, victim):
        """It is heard, and hears nothing."""
        await self._cut({(member, victim.node_id) for member in self.cluster.members if member != victim.node_id})

    async def fill_disk(self, victim):
        victim.fill_disk()
        await asyncio.sleep(0.3 + self._rng.random() * 0.5)
        await victim.kill()  # a replica whose disk is full stops by itself, one that had nothing to write did not
        await victim.start()


async def take_history(home, seconds):
    rng = random.Random(SEED)
    async with Cluster(home) as cluster:
        await cluster.leader()
        clients, faults = Clients(cluster, rng), Faults(cluster, rng)
        end = time.monotonic() + seconds
        await asyncio.gather(faults.run(end), *(clients.run(end) for _ in range(CLIENT_COUNT)))
    print(f"{len(clients.operations)} operations {dict(clients.outcomes)}, faults {dict(faults.counts)}")
    return clients.operations, faults.counts


@pytest.mark.timeout(max(300, SECONDS * 3))
@pytest.mark.slow
def test_history_under_faults_is_linearizable(tmp_path, porcupine):
    operations, faults = asyncio.run(take_history(tmp_path, SECONDS))
    assert verdict(operations, porcupine, tmp_path / "history.json"), f"see {tmp_path / 'history.json'}"
    done = [operation for operation in operations if operation.ended_ns]
    assert len(done) > 2 * SECONDS
    if SECONDS >= 60:
        assert len(faults) == 5


async def read_where_the_leader_is_not_heard(home, arguments):
    """A write, and a read by a follower that the leader cannot reach; calls without an answer are left out."""
    async with Cluster(home, arguments=arguments) as cluster:
        leader, _ = await cluster.leader()
        follower = next(member for member in cluster.members.values() if member is not leader)
        cluster.network.cut.add((leader.node_id, follower.node_id))
        history = []
        for member, do, value in ((leader, "write", "1"), (follower, "read", None)):
            begun_ns = time.monotonic_ns()
            try:
                answer = await member.ask(do=do, key="k", value=value, timeout_s=5.0)
            except MemberGoneError:
                continue  # it waits for what it knows that it lacks
            if "error" not in answer:
                history.append(operation(do, value, answer["result"], begun_ns, time.monotonic_ns()))
        return history


@pytest.mark.slow
@pytest.mark.parametrize(("arguments", "expected"), [((), True), (("stale",), False)], ids=["barrier", "no barrier"])
def test_read_without_a_barrier_is_not_linearizable(tmp_path, porcupine, arguments, expected):
    history = asyncio.run(read_where_the_leader_is_not_heard(tmp_path, arguments))
    assert history[0].do == "write"
    assert verdict(history, porcupine, tmp_path / "history.json") is expected


def operation(do, value, result, begun_ns, ended_ns, *, expected=None, key="k"):
    return Operation(key, do, value, expected, result, begun_ns, ended_ns)


HISTORIES = {
    "nothing": (True, []),
    "a read of what was written": (True, [operation("write", "1", True, 0, 1), operation("read", None, "1", 2, 3)]),
    "a stale read": (False, [operation("write", "1", True, 0, 1), operation("read", None, None, 2, 3)]),
    "a read beside the write": (True, [operation("write", "1", True, 0, 9), operation("read", None, None, 2, 3)]),
    "a read that goes back": (
        False,
        [
            operation("write", "1", True, 0, 9),
            operation("read", None, "1", 2, 3),
            operation("read", None, None, 4, 5),
        ],
    ),
    "a write without an answer that is seen late": (
        True,
        [
            operation("write", "1", None, 0, None),
            operation("read", None, None, 2, 3),
            operation("read", None, "1", 4, 5),
        ],
    ),
    "a write without an answer that is seen and forgotten": (
        False,
        [
            operation("write", "1", None, 0, None),
            operation("read", None, "1", 2, 3),
            operation("read", None, None, 4, 5),
        ],
    ),
    "two of the same comparison succeed": (
        False,
        [operation("cas", "1", True, 0, 1), operation("cas", "2", True, 2, 3)],
    ),
    "a comparison that fails": (True, [operation("cas", "1", True, 0, 1), operation("cas", "2", False, 2, 3)]),
    "registers of their own": (
        True,
        [operation("write", "1", True, 0, 1), operation("read", None, None, 2, 3, key="other")],
    ),
}


@pytest.mark.parametrize(("expected", "operations"), HISTORIES.values(), ids=HISTORIES)
def test_checkers_know_what_is_linearizable(tmp_path, porcupine, expected, operations):
    assert verdict(operations, porcupine, tmp_path / "history.json") is expected


def unanswered(count, *, last_result):
    """Many calls without an answer around a few reads."""
    calls = [operation("write", f"w{n}", None, n, None) for n in range(count)]
    calls += [operation("cas", f"c{n}", None, n, None, expected="w1") for n in range(count)]
    reads = [operation("read", None, f"w{n}", 1000 + 2 * n, 1001 + 2 * n) for n in range(0, count, 2)]
    return [*calls, *reads, operation("read", None, last_result, 9000, 9001)]


@pytest.mark.timeout(30)
@pytest.mark.parametrize(("last_result", "expected"), [("w1", True), ("c3", True), ("w0", False), ("no one's", False)])
def test_many_calls_without_an_answer_are_searched_soon(last_result, expected):
    """A search that tries them in every order does not end."""
    assert is_linearizable(unanswered(40, last_result=last_result)) is expected


def drawn_history(rng, *, is_spoiled):
    """Calls of three clients on a register that answers, each at some instant between its begin and its end."""
    calls, ready, seen = [], [0, 0, 0], None
    for number in range(rng.randrange(1, 9)):
        client = rng.randrange(len(ready))
        begun = ready[client] + rng.randrange(4)
        end = begun + 1 + rng.randrange(6)
        ready[client] = end + 1
        do = rng.choice(("read", "write", "cas"))
        calls.append((rng.uniform(begun, end), do, str(number), begun, end))
    history, state = [], None
    for _, do, value, begun, end in sorted(calls):
        expected = rng.choice((seen, state)) if do == "cas" else None
        call = operation(do, None if do == "read" else value, None, begun, end, expected=expected)
        result = state if do == "read" else state == expected if do == "cas" else True
        _, state = step(state, replace(call, result=result))
        seen = state if rng.random() < 0.5 else seen
        if do != "read" and rng.random() < 0.3:
            call = replace(call, ended_ns=None)
        history.append(replace(call, result=None if call.ended_ns is None else result))
    if is_spoiled:
        reads = [index for index, call in enumerate(history) if call.do == "read"]
        for index in reads:
            history[index] = replace(history[index], result=rng.choice((None, *(str(n) for n in range(9)))))
    return history


def is_linearizable_by_trying_all(history):
    """Every order of every choice of the calls without an answer."""
    answered = [call for call in history if call.ended_ns is not None]
    open_ones = [call for call in history if call.ended_ns is None]

    def explained(left, state):
        if not any(call.ended_ns is not None for call in left):
            return True
        first_end = min(call.ended_ns for call in left if call.ended_ns is not None)
        for index, call in enumerate(left):
            if call.begun_ns <= first_end:
                fits, after = step(state, call)
                if fits and explained(left[:index] + left[index + 1 :], after):
                    return True
        return False

    return explained(answered + open_ones, None)


@pytest.mark.parametrize("is_spoiled", [False, True])
def test_the_short_search_agrees_with_trying_every_order(is_spoiled):
    rng = random.Random(7)
    verdicts = Counter()
    for _ in range(3000):
        history = drawn_history(rng, is_spoiled=is_spoiled)
        expected = is_linearizable_by_trying_all(history)
        assert is_linearizable(history) is expected, history
        verdicts[expected] += 1
    assert verdicts[True] > 500
    assert (verdicts[False] > 500) is is_spoiled
