"""The server-side assignors; exact results were produced with Kafka 4.3.1's own classes."""

from __future__ import annotations

import pytest

from kraftlog.coordinator.group.assignors import ASSIGNORS, GroupSpec, MemberSpec
from kraftlog.types import Uuid

Parts = dict[str, list[int]]


def topic(name: str) -> Uuid:
    """An id that sorts and hashes by its last byte."""
    return Uuid(bytes(15) + bytes([sum(name.encode()) % 256]))


def assign(
    assignor: str,
    topics: dict[str, int],
    members: dict[str, tuple[list[str], Parts]],
    instances: dict[str, str] | None = None,
) -> dict[str, Parts]:
    names = {topic(name): name for name in topics}
    specs = {
        member_id: MemberSpec(
            topics=[topic(name) for name in subscribed],
            assigned={topic(name): parts for name, parts in assigned.items()},
            instance_id=(instances or {}).get(member_id),
        )
        for member_id, (subscribed, assigned) in members.items()
    }
    group = GroupSpec(
        members=specs,
        partition_counts={topic(name): count for name, count in topics.items()},
        is_homogeneous=len({tuple(subscribed) for subscribed, _ in members.values()}) == 1,
    )
    targets = ASSIGNORS[assignor](group)
    return {
        member_id: {names[t]: sorted(parts) for t, parts in target.items()} for member_id, target in targets.items()
    }


def subscribed(*names: str) -> tuple[list[str], Parts]:
    return list(names), {}


@pytest.mark.parametrize(
    ("topics", "members", "instances", "expected"),
    [
        (
            {"t": 7},
            {"A": subscribed("t"), "B": subscribed("t"), "C": subscribed("t")},
            {},
            {"A": {"t": [0, 1, 2]}, "B": {"t": [3, 4]}, "C": {"t": [5, 6]}},
        ),
        (
            {"t": 7},
            {"A": subscribed("t"), "B": subscribed("t"), "C": subscribed("t")},
            {"C": "i"},
            {"C": {"t": [0, 1, 2]}, "A": {"t": [3, 4]}, "B": {"t": [5, 6]}},
        ),
        (
            {"t1": 3, "t2": 3},
            {"A": subscribed("t1", "t2"), "B": subscribed("t1", "t2")},
            {},
            {"A": {"t1": [0, 1], "t2": [0, 1]}, "B": {"t1": [2], "t2": [2]}},
        ),
        (
            {"t": 3},
            {name: subscribed("t") for name in "ABCDE"},
            {},
            {"A": {"t": [0]}, "B": {"t": [1]}, "C": {"t": [2]}, "D": {}, "E": {}},
        ),
        (
            {"t1": 3, "t2": 3, "t7": 7},
            {"A": subscribed("t1", "t2"), "B": subscribed("t2"), "C": subscribed("t2", "t7")},
            {},
            {"A": {"t1": [0, 1, 2], "t2": [0]}, "B": {"t2": [1]}, "C": {"t2": [2], "t7": [0, 1, 2, 3, 4, 5, 6]}},
        ),
    ],
)
def test_range_gives_contiguous_ranges_in_the_order_of_members(
    topics: dict[str, int],
    members: dict[str, tuple[list[str], Parts]],
    instances: dict[str, str],
    expected: dict[str, Parts],
) -> None:
    """NGRP-58, NGRP-59, NGRP-60, NGRP-61, NGRP-62, NGRP-63."""
    assert assign("range", topics, members, instances) == expected
    moved = {name: (subscription, {"t2": [0]}) for name, (subscription, _) in members.items()}
    assert assign("range", topics, moved, instances) == expected


@pytest.mark.parametrize(
    ("partition_count", "assigned", "expected"),
    [
        (7, {"A": [], "B": [], "C": []}, {"A": [0, 1], "B": [2, 3], "C": [4, 5, 6]}),
        (5, {"A": [0, 1], "B": [2, 3, 4], "C": []}, {"A": [0, 1], "B": [2, 3], "C": [4]}),
        (5, {"B": [2, 3], "C": [4]}, {"B": [2, 3], "C": [0, 1, 4]}),
        (7, {"B": [2, 3], "C": [0, 1, 4]}, {"B": [2, 3, 5], "C": [0, 1, 4, 6]}),
        (7, {"A": [0, 1, 2, 3], "B": [4, 5, 6]}, {"A": [0, 1, 2, 3], "B": [4, 5, 6]}),
    ],
)
def test_uniform_keeps_what_the_quota_allows(
    partition_count: int, assigned: dict[str, list[int]], expected: dict[str, list[int]]
) -> None:
    """NGRP-64, NGRP-65, NGRP-66, NGRP-67, NGRP-68."""
    members = {name: (["t"], {"t": parts} if parts else {}) for name, parts in assigned.items()}
    assert assign("uniform", {"t": partition_count}, members) == {name: {"t": p} for name, p in expected.items()}


@pytest.mark.parametrize(
    ("topics", "members", "expected"),
    [
        (
            {"t1": 3, "t2": 3, "t7": 7},
            {"A": subscribed("t1", "t2"), "B": subscribed("t2"), "C": subscribed("t2", "t7")},
            {"A": {"t1": [0, 1, 2]}, "B": {"t2": [0, 1, 2]}, "C": {"t7": [0, 1, 2, 3, 4, 5, 6]}},
        ),
        (
            {"u": 4, "v": 1},
            {"A": subscribed("u"), "B": subscribed("u", "v")},
            {"A": {"u": [0, 2]}, "B": {"u": [1, 3], "v": [0]}},
        ),
        (
            {"u": 6, "v": 1},
            {"A": (["u"], {}), "B": (["u", "v"], {"u": [0, 1, 2, 3, 4, 5], "v": [0]})},
            {"A": {"u": [3, 4, 5]}, "B": {"u": [0, 1, 2], "v": [0]}},
        ),
    ],
)
def test_uniform_with_different_subscriptions_is_as_even_as_they_allow(
    topics: dict[str, int], members: dict[str, tuple[list[str], Parts]], expected: dict[str, Parts]
) -> None:
    """NGRP-69, NGRP-70, NGRP-71."""
    assert assign("uniform", topics, members) == expected


def test_no_subscription_means_no_partitions() -> None:
    """NGRP-19."""
    for assignor in ASSIGNORS:
        assert all(not parts for parts in assign(assignor, {}, {"A": subscribed(), "B": subscribed()}).values())
