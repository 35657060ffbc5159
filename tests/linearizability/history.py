"""Histories of registers, and whether they are linearizable (Wing and Gong, with Lowe's memory of what was tried)."""

from __future__ import annotations

import json
import subprocess
from collections import defaultdict
from dataclasses import asdict, dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Operation:
    """One call and its answer.

    Args:
        key: The register.
        do: read, write or cas.
        value: What to write.
        expected: Of a cas.
        result: What came back; None also for a read of nothing.
        begun_ns: When it was called.
        ended_ns: When the answer came; None when it may have happened at any time since, or never.
    """

    key: str
    do: str
    value: Any
    expected: Any
    result: Any
    begun_ns: int
    ended_ns: int | None


def step(state, operation):
    """Whether the operation fits a register that holds ``state``, and what it holds then."""
    if operation.do == "read":
        return operation.result == state, state
    if operation.do == "write":
        return True, operation.value
    succeeds = state == operation.expected
    if operation.ended_ns is not None and operation.result != succeeds:
        return False, state
    return True, operation.value if succeeds else state


def is_linearizable(operations):
    """Whether one order explains all operations, each register on its own."""
    by_key = defaultdict(list)
    for operation in operations:
        by_key[operation.key].append(operation)
    return all(_is_register_linearizable(found) for found in by_key.values())


class _Unmentioned:
    """Stands for every value that no read returned and no comparison expected: none can be told from another."""


def _without_equal_values(operations):
    """The same history, in which the values that nothing can tell apart are one value."""
    mentioned = {operation.result for operation in operations if operation.do == "read"}
    mentioned |= {operation.expected for operation in operations if operation.do == "cas"}
    return [
        operation if operation.value in mentioned else replace(operation, value=_Unmentioned)
        for operation in operations
    ]


def _is_register_linearizable(operations):
    """Search for an order: always one of those that began before the first of the open ones ended."""
    operations = [operation for operation in operations if operation.ended_ns is not None or operation.do != "read"]
    search = _Search(sorted(_without_equal_values(operations), key=lambda one: one.begun_ns))
    tried = set()
    stack = [(0, None)]
    while stack:
        done, state = stack.pop()
        if done & search.answered == search.answered:
            return True
        if (done, state) not in tried:
            tried.add((done, state))
            stack.extend(search.next(done, state))
    return False


class _Search:
    """What may follow what, for the operations of one register in the order in which they began.

    A set of operations is an integer, one bit for each. Four rules keep the search small where many calls have no
    answer:

    - An answered read or comparison that fits and changes nothing is taken at once: later it could only be in the way.
    - A call without an answer that would change nothing is not taken.
    - Of those without an answer that would do the same, the first that began goes first.
    - A value is not left while an answered operation needs it and nothing can write it again.
    """

    def __init__(self, operations):
        self.operations = operations
        self.ends = [float("inf") if operation.ended_ns is None else operation.ended_ns for operation in operations]
        self.answered = 0
        self.needing, self.writing = defaultdict(int), defaultdict(int)
        for index, operation in enumerate(operations):
            bit = 1 << index
            if operation.do != "read":
                self.writing[operation.value] |= bit
            if operation.ended_ns is not None:
                self.answered |= bit
                if operation.do == "read":
                    self.needing[operation.result] |= bit
                elif operation.do == "cas" and operation.result:
                    self.needing[operation.expected] |= bit

    def next(self, done, state):
        """Pairs of the operations done and of what the register then holds."""
        open_ones = [index for index in range(len(self.operations)) if not done >> index & 1]
        first_end = min(self.ends[index] for index in open_ones)
        found, unanswered = [], set()
        for index in open_ones:
            operation = self.operations[index]
            if operation.begun_ns > first_end:
                break
            fits, after = step(state, operation)
            if not fits:
                continue
            then = done | 1 << index
            if operation.ended_ns is None:
                effect = (operation.do, operation.value, operation.expected)
                if after == state or effect in unanswered:
                    continue
                unanswered.add(effect)
            elif after == state and operation.do != "write":
                return [(then, state)]
            if after == state or not self.needing[state] & ~then or self.writing[state] & ~then:
                found.append((then, after))
        return found


def dump(operations, path):
    """Write a history for the checker in Go."""
    path.write_text(json.dumps([asdict(operation) for operation in operations]))


def verdict(operations, porcupine, path):
    """What both checkers say, which has to be the same; porcupine may give up where many calls have no answer."""
    dump(operations, path)
    ours = is_linearizable(operations)
    if porcupine is not None:
        done = subprocess.run([porcupine, path], capture_output=True, text=True, timeout=100, check=False)
        assert done.stdout.strip() in {"Ok", "Illegal", "Unknown"}, done.stderr
        if done.stdout.strip() == "Unknown":
            print("porcupine gave up")
        else:
            assert ours == (done.stdout.strip() == "Ok"), f"history.py says {ours}, porcupine says {done.stdout}"
    return ours
