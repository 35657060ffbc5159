"""Histories of registers, and whether they are linearizable (Wing and Gong, with Lowe's memory of what was tried)."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import asdict, dataclass
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


def _is_register_linearizable(operations):
    """Search for an order: always one of those that began before the first of the open ones ended."""
    operations = [operation for operation in operations if operation.ended_ns is not None or operation.do != "read"]
    operations.sort(key=lambda one: one.begun_ns)
    ends = [float("inf") if operation.ended_ns is None else operation.ended_ns for operation in operations]
    certain = sum(1 << index for index, operation in enumerate(operations) if operation.ended_ns is not None)
    tried = set()
    stack = [(0, None)]
    while stack:
        done, state = stack.pop()
        if done & certain == certain:
            return True
        if (done, state) in tried:
            continue
        tried.add((done, state))
        first_end = min(end for index, end in enumerate(ends) if not done >> index & 1)
        for index, operation in enumerate(operations):
            if operation.begun_ns > first_end:
                break
            if not done >> index & 1:
                fits, after = step(state, operation)
                if fits:
                    stack.append((done | 1 << index, after))
    return False


def dump(operations, path):
    """Write a history for the checker in Go."""
    path.write_text(json.dumps([asdict(operation) for operation in operations]))
