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
from kraftlog.wire.messages.delete_topics import DeleteTopicsRequest
from kraftlog.wire.messages.metadata_records import NoOpRecord
from kraftlog.wire.records import encode_metadata_record
from quorum_fixture import content, create_topic, format_directory, quorum_over, register_broker, started

PARTITIONS = 1000


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


def test_operation_without_steps_is_proposed_in_the_event_in_which_it_ran():
    records = [(NoOpRecord(), 0)] * PARTITIONS
    steps = prepare(ControllerResult("answer", records), image=MetadataImage(), limit_bytes=1 << 20)
    with pytest.raises(StopIteration) as end:
        next(steps)
    assert end.value.value.response == "answer"
    assert [len(batch.values) for batch in end.value.value.batches] == [PARTITIONS]
