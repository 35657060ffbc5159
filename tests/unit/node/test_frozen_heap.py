from __future__ import annotations

import gc

import pytest

from kraftlog.node.frozen_heap import NEW_OBJECTS, PARTITIONS_PER_FREEZE, FrozenHeap


@pytest.fixture(autouse=True)
def nothing_stays_frozen():
    yield
    gc.unfreeze()


def is_collected(value):
    return any(found is value for found in gc.get_objects())


def test_heap_is_frozen_at_the_start_and_with_each_thousand_partitions():
    partitions = []
    heap = FrozenHeap(partitions)
    heap.begin()
    assert gc.get_freeze_count() > 0
    grown = []
    for number in range(2 * PARTITIONS_PER_FREEZE):
        partitions.append([number])
        heap.follow(None)
        if not is_collected(partitions[0]) and not grown:
            grown.append(number + 1)
    assert grown == [PARTITIONS_PER_FREEZE]
    assert not is_collected(partitions[PARTITIONS_PER_FREEZE])
    heap.end()
    assert gc.get_freeze_count() == 0


def test_young_collections_are_rare_while_the_node_runs():
    before = gc.get_threshold()
    heap = FrozenHeap([])
    heap.begin()
    assert gc.get_threshold() == (NEW_OBJECTS, *before[1:])
    heap.end()
    assert gc.get_threshold() == before


def test_partitions_that_replace_deleted_ones_are_frozen_too():
    partitions = [[] for _ in range(PARTITIONS_PER_FREEZE)]
    heap = FrozenHeap(partitions)
    heap.begin()
    while partitions:
        partitions.pop()
        heap.follow(None)
    for _ in range(PARTITIONS_PER_FREEZE):
        partitions.append([])
        heap.follow(None)
    assert not is_collected(partitions[0])
