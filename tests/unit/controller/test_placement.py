"""Placement over racks: as the rules of Kafka's StripedReplicaPlacer have it, for any random numbers."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from kraftlog.controller.cluster_image import BrokerImage
from kraftlog.controller.placement import place_replicas
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.types import Uuid


def broker(broker_id, rack=None, *, fenced=False, **changes):
    return BrokerImage(
        broker_id=broker_id,
        epoch=1,
        incarnation_id=Uuid(b"i" * 16),
        end_points=(),
        features={},
        rack=rack,
        fenced=fenced,
        **changes,
    )


def place(brokers, count, factor, seed=0):
    return list(place_replicas(brokers, partition_count=count, replication_factor=factor, rng=Random(seed)))


THREE_RACKS = [broker(3 * rack + number, "ABC"[rack]) for rack in range(3) for number in range(3)]


@pytest.mark.spec("CPRT-89", "CPRT-90")
@pytest.mark.parametrize("seed", range(20))
def test_each_partition_has_a_replica_in_each_rack_and_load_is_even(seed):
    placements = place(THREE_RACKS, 9, 3, seed)
    for replicas in placements:
        assert {broker_id // 3 for broker_id in replicas} == {0, 1, 2}
    assert Counter(sum(placements, ())) == dict.fromkeys(range(9), 3)
    racks = [replicas[0] // 3 for replicas in placements]
    assert [(rack - racks[0]) % 3 for rack in racks] == [0, 1, 2] * 3  # the first rack moves by one


@pytest.mark.spec("CPRT-89")
@pytest.mark.parametrize("seed", range(20))
def test_unfenced_brokers_come_first_and_none_twice(seed):
    brokers = [broker(0, "A", fenced=True), broker(1, "A"), broker(2, "B", fenced=True), broker(3, "C")]
    for replicas in place(brokers, 12, 4, seed):
        assert replicas[0] in {1, 3}
        assert sorted(replicas) == [0, 1, 2, 3]
    in_one_rack = [broker(0, fenced=True), broker(1), broker(2), broker(3, fenced=True)]
    for replicas in place(in_one_rack, 12, 3, seed):
        assert set(replicas[:2]) == {1, 2}


@pytest.mark.spec("CPRT-89")
def test_single_unfenced_broker_leads_everything():
    assert place([broker(0, fenced=True), broker(1)], 3, 2) == [(1, 0)] * 3


def test_walk_follows_kafkas_example_where_it_begins_at_the_first_broker():
    class AtFirst(Random):
        def randrange(self, start, stop=None, step=1):
            return 0

    placements = list(place_replicas(THREE_RACKS, partition_count=3, replication_factor=3, rng=AtFirst()))
    assert placements == [(0, 3, 6), (4, 7, 1), (8, 2, 5)]


@pytest.mark.spec("CPRT-88")
@pytest.mark.parametrize(
    ("brokers", "factor", "words"),
    [
        ([broker(0), broker(1, fenced=True)], 3, "only 2 broker(s)"),
        ([broker(0, fenced=True)], 1, "currently fenced"),
        ([], 1, "currently fenced"),
        ([broker(0)], 0, "must be positive"),
        ([broker(0), broker(1, in_controlled_shutdown=True)], 2, "only 1 broker(s)"),
        ([broker(0), broker(1, log_dirs=(Uuid.ZERO,), cordoned_log_dirs=(Uuid.ZERO,))], 2, "only 1 broker(s)"),
    ],
)
def test_what_cannot_be_placed_is_refused(brokers, factor, words):
    with pytest.raises(KafkaError, match=words.replace("(", r"\(").replace(")", r"\)")) as caught:
        place(brokers, 1, factor)
    assert caught.value.code == ErrorCode.INVALID_REPLICATION_FACTOR
