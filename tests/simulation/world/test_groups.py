"""Groups whose members come and go while nodes fail, in virtual time."""

from __future__ import annotations

import asyncio
import itertools

import pytest

from kraftlog.client.async_consumer import AsyncConsumer
from kraftlog.client.async_producer import AsyncProducer
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.testing import InvariantViolationError
from kraftlog.testing.world.cluster import Cluster
from kraftlog.testing.world.history import GroupHistory, ShareHistory
from kraftlog.testing.world.swarm import ClusterScenario, draw, run

from .group_workload import groups
from .pipeline_workload import pipelines
from .share_workload import shares

FAULTS = """
at 6000 kill node=leader2 for_ms=500
at 8000 power_off node=leader0 data=torn names=suffix for_ms=500
at 12000 isolate node=leader1 for_ms=3000
at 16000 jump_clock node=leader3 by_ms=-3600000
at 17000 isolate node=controller for_ms=2000
end 20000
"""
SETTINGS = """
set default.replication.factor=3
set min.insync.replicas=2
set num.partitions=4
set offsets.topic.replication.factor=3
"""


# The protocol, how members commit and how long they stay are drawn from the seed.
@pytest.mark.slow
@pytest.mark.parametrize(
    ("seed", "drawn"),
    [
        (18, "enable.auto.commit=false, auto.commit.interval.ms=3000, group.protocol=consumer"),
        (
            25,
            "group.protocol=consumer, group.remote.assignor=range",
        ),
        (9, "group.protocol=classic, partition.assignment.strategy=range"),
        (28, "group.protocol=classic, partition.assignment.strategy=cooperative-sticky"),
    ],
)
def test_a_group_skips_nothing_and_catches_up(seed, drawn):
    outcome = run(ClusterScenario.parse(f"world seed={seed} controllers=3 brokers=3{SETTINGS}{FAULTS}"), groups)
    assert outcome.error is None, outcome.error
    story = "\n".join(outcome.story)
    assert drawn in story
    assert "none was skipped" in story


@pytest.mark.parametrize(
    ("workload", "end"),
    [(pipelines, "have their results, each exactly once"), (shares, "none again after its acceptance was stored")],
)
@pytest.mark.slow
def test_transactions_and_share_groups_keep_what_they_promise(workload, end):
    settings = SETTINGS + "".join(
        f"set {name}.replication.factor=3\nset {name}.min.isr=2\nset {name}.num.partitions=3\n"
        for name in ("transaction.state.log", "share.coordinator.state.topic")
    )
    outcome = run(ClusterScenario.parse(f"world seed=3 controllers=3 brokers=3{settings}{FAULTS}"), workload)
    assert outcome.error is None, outcome.error
    assert end in "\n".join(outcome.story)


@pytest.mark.slow
def test_a_share_group_catches_up_in_small_segments():
    """Members die all the time until the faults end, and leave 700 records of one partition, in segments of 300 ms."""
    outcome = run(draw(5300030), shares)
    assert outcome.error is None, outcome.error


@pytest.mark.parametrize("protocol", ["consumer", "classic"])
def test_a_session_outlives_a_wall_clock_that_is_set_forward_and_back(protocol):
    """A member died while the clock was a day ahead; once it had been set back, its session went on for a day."""

    async def read(cluster, group_id, found):
        settings = {"group.id": group_id, "group.protocol": protocol, "auto.offset.reset": "earliest"}
        async with AsyncConsumer({"bootstrap.servers": cluster.bootstrap_servers, **settings}) as consumer:
            consumer.subscribe(["records"])
            while True:
                found += await consumer.poll_records(1)

    async def write(cluster):
        async with AsyncProducer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
            await producer.send_and_wait("records", b"a record")

    with Cluster(1, controllers=1, brokers=1, properties={"offsets.topic.replication.factor": "1"}) as cluster:
        cluster.run(write(cluster))
        first, second = [], []
        cluster.jump_clock("broker-2", 86_400_000)
        cluster.begin(read(cluster, "group", first), client="first")
        cluster.run_until(lambda: first, within_ms=20_000)
        cluster.client("first").stop()
        cluster.jump_clock("broker-2", -86_400_000)
        cluster.run(write(cluster))
        cluster.begin(read(cluster, "group", second), client="second")
        cluster.run_until(lambda: second, within_ms=120_000)


def test_a_skipped_record_is_noticed():
    history = GroupHistory()
    for offset in (0, 1, 3):
        history.processed("records", 0, offset)
    history.committed("records", 0, 2)
    places = [(0, offset) for offset in range(4)] + [(1, 0)]
    history.check("records", places)
    history.committed("records", 0, 4)
    history.committed("records", 0, 1)
    with pytest.raises(InvariantViolationError) as raised:
        history.check("records", places)
    assert raised.value.identifier == "offsets"
    assert "records-0: 4 was committed, no member processed the record at 2" in str(raised.value)


def test_a_record_of_a_share_group_that_comes_back_or_never_comes_is_noticed():
    history = ShareHistory()
    history.delivered(0, 5, 1)
    assert history.missing({(0, 5), (0, 6)}, 10) == {(0, 5), (0, 6)}
    history.accepting(0, 5)
    history.delivered(0, 5, 2)  # nobody heard that the acceptance is stored
    history.accepted(0, 5)
    history.delivered(0, 6, 9)
    assert history.missing({(0, 5), (0, 6)}, 10) == set()
    history.delivered(0, 5, 3, asked_after=0)  # it was on its way while the record was accepted
    with pytest.raises(InvariantViolationError) as raised:
        history.delivered(0, 5, 3, asked_after=history.accepted_count)
    assert raised.value.identifier == "share state"


def test_a_member_whose_instance_id_is_still_held_asks_at_the_pace_of_retry_backoff():
    """Groups 4000026: a client that polled again after each error asked the coordinator 4 000 times per second."""
    with Cluster(7, controllers=1, brokers=0, combined=1) as cluster:
        settings = {
            "bootstrap.servers": cluster.bootstrap_servers,
            "group.id": "workers",
            "group.protocol": "consumer",
            "group.instance.id": "one",
            "retry.backoff.ms": "250",
        }
        refused_s = []
        joined = []

        async def member(name):
            consumer = AsyncConsumer({**settings, "client.id": name})
            await consumer.start()
            consumer.subscribe(["numbers"])
            while not consumer.assignment:
                try:
                    await consumer.poll_records(5)
                except KafkaError as error:
                    assert error.code == ErrorCode.UNRELEASED_INSTANCE_ID
                    refused_s.append(cluster.world.now_ms / 1e3)
            joined.append(name)
            await asyncio.sleep(1e9)

        async def produce():
            async with AsyncProducer({"bootstrap.servers": cluster.bootstrap_servers}) as producer:
                await producer.send("numbers", b"1")

        cluster.run(produce())
        for name in ("first", "second"):
            cluster.begin(member(name), client=name)
            cluster.run_until(lambda: name in joined, within_ms=120_000)  # noqa: B023  called in the loop
            cluster.client(name).stop()
    waited_s = [later - before for before, later in itertools.pairwise(refused_s)]
    assert len(waited_s) > 20
    assert all(0.25 <= each < 1 for each in waited_s), waited_s


@pytest.mark.parametrize("assignor", ["range", "cooperative-sticky"])
def test_a_static_leader_finds_the_partitions_that_came_while_it_was_away(assignor):
    """Groups 4200025 and 4300019: it goes on with the assignment it had (KIP-814), which did not have them."""
    with Cluster(7, controllers=1, brokers=0, combined=1, properties={"num.partitions": "2"}) as cluster:
        servers = {"bootstrap.servers": cluster.bootstrap_servers}
        settings = {
            **servers,
            "group.id": "workers",
            "group.protocol": "classic",
            "partition.assignment.strategy": assignor,
            "session.timeout.ms": "60000",
        }
        assigned = {}

        async def member(name):
            consumer = AsyncConsumer({**settings, "group.instance.id": name})
            await consumer.start()
            consumer.subscribe(["numbers"])
            while True:
                await consumer.poll_records(0.1)
                assigned[name] = {name.partition for name in consumer.assignment}

        async def produce():
            async with AsyncProducer(servers) as producer:
                await producer.send("numbers", b"1")

        def are_assigned(count):
            return sorted(number for numbers in assigned.values() for number in numbers) == list(range(count))

        cluster.run(produce())
        for name in ("leader", "other"):
            cluster.begin(member(name), client=name)
            cluster.run_until(lambda: name in assigned and are_assigned(2), within_ms=60_000)  # noqa: B023
        cluster.run_until(lambda: all(assigned.values()), within_ms=60_000)
        cluster.client("leader").stop()
        del assigned["leader"]
        cluster.grow_topic("numbers", 4)
        cluster.run_until(lambda: not cluster.is_changing, within_ms=30_000)
        cluster.begin(member("leader"), client="its next process")
        cluster.run_until(lambda: are_assigned(4), within_ms=30_000)
