from __future__ import annotations

import dataclasses
import random

import pytest

from kraftlog.controller.delta import MetadataDelta
from kraftlog.controller.image import MetadataImage
from kraftlog.controller.image_changes import ImageChanges
from kraftlog.controller.partition_values import PartitionValues
from kraftlog.errors import CorruptRecordError
from kraftlog.runtime.metadata.cluster_counts import ClusterCounter
from kraftlog.types import Uuid
from kraftlog.wire.messages.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from quorum_fixture import content

TOPICS = [Uuid(bytes([number + 1] * 16)) for number in range(3)]


def partition(topic_id, index, rng):
    replicas = tuple(rng.sample(range(4), 3))
    return PartitionRecord(
        partition_id=index,
        topic_id=topic_id,
        replicas=replicas,
        isr=replicas[: rng.randint(1, 3)],
        leader=rng.choice((-1, *replicas)),
        directories=(Uuid.ZERO,) * 3,
    )


def history(rng):
    """Records in an order that an image accepts, with partitions written twice and runs of topics that alternate."""
    known = {}
    for _ in range(rng.randint(1, 60)):
        topic_id = rng.choice(TOPICS)
        if topic_id not in known:
            known[topic_id] = set()
            yield TopicRecord(name=f"t{TOPICS.index(topic_id)}", topic_id=topic_id)
            continue
        match rng.randrange(8):
            case 0:
                yield RemoveTopicRecord(topic_id=topic_id)
                del known[topic_id]
            case 1 if known[topic_id]:
                index = rng.choice(sorted(known[topic_id]))
                yield PartitionChangeRecord(partition_id=index, topic_id=topic_id, leader=rng.randrange(4))
            case 2:
                yield ConfigRecord(resource_type=2, resource_name="t0", name="a", value="b")
            case _:
                for index in range(first := rng.randrange(4), first + rng.randint(1, 5)):
                    known[topic_id].add(index)
                    yield partition(topic_id, index, rng)


def replayed(records, frame=()):
    image, delta = MetadataImage(), MetadataDelta()
    for record in (*frame[:1], *records, *frame[1:]):
        image.replay(record, delta)
    return image, delta


@pytest.mark.parametrize("seed", range(200))
@pytest.mark.parametrize("frame", [(), (BeginTransactionRecord(), EndTransactionRecord())])
def test_prepared_changes_make_the_image_and_the_delta_that_the_records_make(seed, frame):
    """CPRT-101."""
    records = list(history(random.Random(seed)))
    prepared = ImageChanges()
    begun = [record for record in records if prepared.add(record)]
    assert len(begun) == len(prepared.changes)
    (image, delta), (expected_image, expected_delta) = replayed(prepared.changes, frame), replayed(records, frame)
    assert content(image) == content(expected_image)
    assert dataclasses.asdict(delta) == dataclasses.asdict(expected_delta)


@pytest.mark.parametrize("seed", range(50))
def test_counts_follow_the_deltas_to_what_a_whole_image_has(seed):
    rng = random.Random(seed)
    records = list(history(rng))
    image = MetadataImage()
    counter = ClusterCounter(image)
    while records:
        size = rng.randint(1, 10)
        prepared, delta = ImageChanges(), MetadataDelta()
        for record in records[:size]:
            prepared.add(record)
        for change in prepared.changes:
            image.replay(change, delta)
        counter.apply(image, delta)
        assert counter.counts == ClusterCounter(image).counts
        del records[:size]


def test_equal_partitions_are_one_value():
    prepared = ImageChanges()
    prepared.add(TopicRecord(name="t", topic_id=TOPICS[0]))
    for index in range(100):
        prepared.add(partition(TOPICS[0], index, random.Random(index % 2)))
    image = replayed(prepared.changes)[0]
    assert len({id(value) for value in image.topics.by_name("t").partitions.values()}) == 2


def test_partitions_of_an_aborted_transaction_are_not_in_the_image():
    prepared = ImageChanges()
    prepared.add(TopicRecord(name="t", topic_id=TOPICS[0]))
    prepared.add(partition(TOPICS[0], 0, random.Random(1)))
    image, delta = replayed(prepared.changes, (BeginTransactionRecord(), AbortTransactionRecord()))
    assert image.is_empty
    assert delta.is_empty


def test_partitions_of_an_unknown_topic_are_refused():
    prepared = ImageChanges()
    prepared.add(partition(TOPICS[0], 7, random.Random(1)))
    assert isinstance(prepared.changes[0], PartitionValues)
    with pytest.raises(CorruptRecordError, match="partition 7 names topic id"):
        replayed(prepared.changes)
