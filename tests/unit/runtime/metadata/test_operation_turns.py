"""Operations that write thousands of records take turns of the loop, and remain one event for everybody else."""

from __future__ import annotations

import asyncio
import threading

import pytest

from kraftlog.controller import ControllerResult, MetadataImage
from kraftlog.errors import ErrorCode, KafkaError, NodeClosedError
from kraftlog.raft.effects import PersistElectionState
from kraftlog.runtime.metadata import active_controller, publisher
from kraftlog.runtime.metadata.record_batches import prepare
from kraftlog.runtime.raft import replicated_log
from kraftlog.wire.messages.create_partitions import CreatePartitionsRequest
from kraftlog.wire.messages.create_topics import CreateTopicsRequest
from kraftlog.wire.messages.delete_topics import DeleteTopicsRequest
from kraftlog.wire.messages.metadata_records import NoOpRecord
from kraftlog.wire.records import encode_metadata_record
from quorum_fixture import (
    content,
    create_topic,
    format_directory,
    heartbeat,
    quorum_over,
    register_broker,
    started,
)

PARTITIONS = 1000
OTHER = 2


@pytest.fixture
def path(tmp_path, monkeypatch):
    monkeypatch.setattr(active_controller, "TURN_NS", 0)  # one step per turn
    format_directory(tmp_path / "data")
    return tmp_path / "data"


class Turns:
    """Counts the turns of the loop, and looks at something in each."""

    def __init__(self, look):
        self.seen = []
        self._look = look
        self._is_over = False
        asyncio.get_running_loop().call_soon(self._turn)

    def _turn(self):
        if not self._is_over:
            self.seen.append(self._look())
            asyncio.get_running_loop().call_soon(self._turn)

    def end(self):
        self._is_over = True


def partition_count(quorum, name="many"):
    topic = quorum.image.topics.by_name(name)
    return 0 if topic is None else len(topic.partitions)


async def begun(quorum):
    """A creation of which some steps have run."""
    creation = create_topic(quorum, "many", PARTITIONS)
    for _ in range(20):
        await asyncio.sleep(0)
    assert not creation.done()
    return creation


def test_creation_takes_many_turns_and_is_seen_whole(path):
    async def run():
        quorum = await started(path)
        await register_broker(quorum)
        turns = Turns(lambda: partition_count(quorum))
        response = await create_topic(quorum, "many", PARTITIONS)
        assert response.topics[0].num_partitions == partition_count(quorum) == PARTITIONS
        assert len(turns.seen) > 3 * PARTITIONS / 32
        assert set(turns.seen) <= {0, PARTITIONS}
        grown = CreatePartitionsRequest.CreatePartitionsTopic(name="many", count=2 * PARTITIONS, assignments=None)
        turns.seen.clear()
        await quorum.submit_request(CreatePartitionsRequest(topics=[grown]))
        assert len(turns.seen) > 3 * PARTITIONS / 32
        assert set(turns.seen) <= {PARTITIONS, 2 * PARTITIONS}
        turns.end()
        image = quorum.image
        await quorum.stop()
        again = await started(path)
        assert content(again.image)[0] == content(image)[0]
        await again.stop()

    asyncio.run(run())


def test_batch_of_the_log_is_replayed_in_turns_and_seen_whole(path, monkeypatch):
    monkeypatch.setattr(replicated_log, "TURN_NS", 0)

    async def run():
        quorum = await started(path)
        await register_broker(quorum)
        await create_topic(quorum, "many", PARTITIONS)
        image = quorum.image
        await quorum.stop()
        again = quorum_over(path)
        turns = Turns(lambda: partition_count(again))
        await again.start()
        turns.end()
        assert len(turns.seen) > PARTITIONS / 32
        assert set(turns.seen) <= {0, PARTITIONS}
        assert content(again.image)[0] == content(image)[0]
        assert again.image.offset == again.replica.log.applied_end_offset - 1
        await again.stop()

    asyncio.run(run())


def test_checkpoint_is_encoded_off_the_loop_from_the_image_of_its_moment(path, monkeypatch):
    threads = []

    def encode(record, version):
        threads.append(threading.get_ident())
        return encode_metadata_record(record, version)

    async def run():
        quorum = await started(path)
        await register_broker(quorum)
        await create_topic(quorum, "many", 3)
        monkeypatch.setattr(publisher, "encode_metadata_record", encode)
        image = quorum.image.copy()
        encoded = quorum.publisher.take_state()
        await create_topic(quorum, "later", 3)
        values = await asyncio.to_thread(lambda: list(encoded()))
        assert threading.get_ident() not in threads
        assert values == [encode_metadata_record(record, version) for record, version in image.to_records()]
        await quorum.stop()

    asyncio.run(run())


def test_deletion_of_many_topics_takes_turns(path):
    async def run():
        quorum = await started(path)
        await register_broker(quorum)
        names = [f"t{number}" for number in range(200)]
        await asyncio.gather(*(create_topic(quorum, name) for name in names))
        turns = Turns(lambda: len(quorum.image.topics))
        await quorum.submit_request(DeleteTopicsRequest(topic_names=names))
        turns.end()
        assert len(turns.seen) > 3 * len(names) / 32
        assert set(turns.seen) <= {200, 0}
        await quorum.stop()

    asyncio.run(run())


def test_operations_behind_a_long_one_wait_for_it_and_see_what_it_wrote(path):
    async def run():
        quorum = await started(path)
        await register_broker(quorum)
        order = []
        futures = [create_topic(quorum, "many", PARTITIONS), create_topic(quorum, "many"), create_topic(quorum, "b")]
        for index, future in enumerate(futures):
            future.add_done_callback(lambda _, index=index: order.append(index))
        codes = [answer.topics[0].error_code for answer in await asyncio.gather(*futures)]
        assert codes == [ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS, ErrorCode.NONE]
        assert order == [0, 1, 2]
        await quorum.stop()

    asyncio.run(run())


def test_operation_that_loses_the_leadership_half_way_writes_nothing(path):
    async def run():
        quorum = await started(path)
        await register_broker(quorum)
        creation = await begun(quorum)
        end_offset = quorum.replica.log.log.log_end_offset
        quorum.controller.suspend()
        with pytest.raises(KafkaError) as caught:
            await creation
        assert caught.value.code == ErrorCode.NOT_CONTROLLER
        assert quorum.replica.log.log.log_end_offset == end_offset
        quorum.controller.begin()
        assert (await create_topic(quorum, "many", 3)).topics[0].error_code == 0
        await quorum.stop()

    asyncio.run(run())


def test_end_of_the_leadership_fails_the_operation_and_those_behind_it(path):
    async def run():
        quorum = await started(path)
        await register_broker(quorum)
        waiting = [await begun(quorum), create_topic(quorum, "b")]
        quorum.controller.end([])
        assert all(future.done() for future in waiting)
        for future in waiting:
            assert future.exception().code == ErrorCode.NOT_CONTROLLER
        quorum.controller.begin()
        assert (await create_topic(quorum, "many", 3)).topics[0].error_code == 0
        await quorum.stop()

    asyncio.run(run())


def test_stop_fails_an_operation_that_is_half_done(path):
    async def run():
        quorum = await started(path)
        await register_broker(quorum)
        waiting = [await begun(quorum), create_topic(quorum, "b")]
        await quorum.stop()
        for future in waiting:
            with pytest.raises(NodeClosedError):
                await future

    asyncio.run(run())


def test_operation_waits_without_turns_while_the_election_state_is_written(path):
    async def run():
        quorum = await started(path)
        await register_broker(quorum)
        creation = await begun(quorum)
        driver = quorum.replica.log.driver
        driver._election_write = asyncio.get_running_loop().create_future()
        behind = create_topic(quorum, "b")
        for _ in range(100):
            await asyncio.sleep(0)
        assert len(driver._inputs) <= 2
        written = driver._election_write
        written.set_result(None)
        driver._election_state_written(written, PersistElectionState(state=driver._persisted, kraft_version=1))
        assert (await creation).topics[0].error_code == (await behind).topics[0].error_code == 0
        assert partition_count(quorum) == PARTITIONS
        await quorum.stop()

    asyncio.run(run())


def test_control_records_may_come_between_the_steps(tmp_path, monkeypatch):
    monkeypatch.setattr(active_controller, "TURN_NS", 0)
    format_directory(tmp_path, is_static=True)

    async def run():
        quorum = await started(tmp_path, **{"controller.quorum.voters": "1@127.0.0.1:9093"})
        await register_broker(quorum)
        creation = await begun(quorum)
        log = quorum.replica.log
        end_offset = log.log.log_end_offset
        log.driver.tell(lambda: log.raft.update_kraft_version(1, log.driver.now_ms()))
        assert end_offset < log.log.log_end_offset == quorum.controller.next_offset
        await creation
        assert partition_count(quorum) == PARTITIONS
        assert quorum.controller.next_offset == quorum.image.offset + 1 == log.log.log_end_offset
        await quorum.stop()

    asyncio.run(run())


async def led_by_other(quorum, *, replicas):
    """Registers broker 2 and gives it a topic of ``PARTITIONS`` partitions; returns its epoch."""
    await register_broker(quorum)
    epoch = await register_broker(quorum, broker_id=OTHER)
    places = [
        CreateTopicsRequest.CreatableReplicaAssignment(partition_index=index, broker_ids=replicas)
        for index in range(PARTITIONS)
    ]
    topic = CreateTopicsRequest.CreatableTopic(
        name="many", num_partitions=-1, replication_factor=-1, assignments=places
    )
    response = await quorum.submit_request(CreateTopicsRequest(topics=[topic]))
    assert response.topics[0].error_code == 0
    return epoch


def leaders(quorum):
    return frozenset(partition.leader for partition in quorum.image.topics.by_name("many").partitions.values())


@pytest.mark.parametrize("replicas", [[OTHER, 1], [OTHER]])
def test_fencing_and_unfencing_a_leader_take_many_turns_and_are_seen_whole(path, replicas):
    after = replicas[-1] if len(replicas) > 1 else -1

    async def run():
        quorum = await started(path)
        epoch = await led_by_other(quorum, replicas=replicas)
        turns = Turns(lambda: (leaders(quorum), quorum.image.cluster.brokers[OTHER].fenced))
        assert (await heartbeat(quorum, epoch, broker_id=OTHER, want_fence=True)).is_fenced
        assert len(turns.seen) > 2 * PARTITIONS / 32
        assert set(turns.seen) <= {(frozenset({OTHER}), False), (frozenset({after}), True)}
        assert leaders(quorum) == {after}
        turns.seen.clear()
        assert not (await heartbeat(quorum, epoch, broker_id=OTHER)).is_fenced
        if after == -1:  # else another broker leads, and nothing of the partitions changes
            assert len(turns.seen) > 2 * PARTITIONS / 32
            after_unfencing = frozenset({OTHER})
        else:
            after_unfencing = frozenset({after})
        assert set(turns.seen) <= {(frozenset({after}), True), (after_unfencing, False)}
        assert leaders(quorum) == after_unfencing
        turns.end()
        await quorum.stop()

    asyncio.run(run())


@pytest.mark.parametrize("again", ["heartbeat", "registration"])
def test_broker_that_speaks_while_its_partitions_are_taken_away_comes_back_afterwards(path, again):
    async def run():
        quorum = await started(path)
        epoch = await led_by_other(quorum, replicas=[OTHER])
        fencing = quorum.controller.submit(lambda core, _: core.fence_dead_broker(OTHER, epoch))
        for _ in range(10):
            await asyncio.sleep(0)
        assert not fencing.done()
        if again == "heartbeat":
            speaks = heartbeat(quorum, epoch, broker_id=OTHER)
        else:
            speaks = asyncio.ensure_future(register_broker(quorum, broker_id=OTHER, previous=epoch))
        offset = quorum.image.offset
        assert await fencing
        assert quorum.image.offset > offset
        await speaks
        assert not quorum.image.cluster.brokers[OTHER].fenced
        assert leaders(quorum) == {OTHER}
        assert {partition.leader_epoch for partition in quorum.image.topics.by_name("many").partitions.values()} == {2}
        await quorum.stop()

    asyncio.run(run())


def test_operation_without_steps_is_proposed_in_the_event_in_which_it_ran():
    records = [(NoOpRecord(), 0)] * PARTITIONS
    steps = prepare(ControllerResult("answer", records), image=MetadataImage(), limit_bytes=1 << 20)
    with pytest.raises(StopIteration) as end:
        next(steps)
    assert end.value.value.response == "answer"
    assert [len(batch.values) for batch in end.value.value.batches] == [PARTITIONS]
