from __future__ import annotations

import asyncio
import json
import logging
import shutil
import time

import pytest

from batch_rows import GOLDEN, read_rows
from kraftlog._kraftlog import read_batches
from kraftlog.controller.core import ControllerCore
from kraftlog.errors import ErrorCode, KafkaError, NodeClosedError
from kraftlog.storage.meta_properties import MetaProperties, read_meta_properties, write_meta_properties
from kraftlog.wire.records import decode_control_record, decode_metadata_record
from quorum_fixture import content, create_topic, format_directory, heartbeat, quorum_over, register_broker, started
from waiting import until

PARTITION = "__cluster_metadata-0"
KAFKA = GOLDEN / "kraft" / "logs"


@pytest.fixture
def path(tmp_path):
    format_directory(tmp_path / "data")
    return tmp_path / "data"


def stored_records(path):
    records = []
    for segment in sorted((path / PARTITION).glob("*.log")):
        for batch in read_batches(segment.read_bytes()):
            for _, _, key, value, _ in batch.records():
                records.append(
                    decode_control_record(key, value)[1] if batch.is_control else decode_metadata_record(value)[0]
                )
    return records


@pytest.mark.spec("BOOT-24", "BOOT-33", "ELEC-12", "ELEC-43")
def test_first_start_writes_what_kafka_writes(path):
    async def run():
        quorum = await started(path)
        assert quorum.is_leader
        assert (quorum.replica.leader_id, quorum.replica.leader_epoch, quorum.replica.high_watermark) == (1, 1, 13)
        await quorum.stop()

    asyncio.run(run())
    expected = GOLDEN / "kraft/expected/standalone/01-started/node-1" / PARTITION / "00000000000000000000.log.jsonl.gz"
    names = []
    for row in read_rows(expected):
        for record in row["records"]:
            kind = record.get("control", record.get("metadataRecord"))
            names.append(kind.get("typeName") or kind["type"])
    ours = [type(record).__name__ for record in stored_records(path)]
    assert [name.lower().replace("message", "") for name in ours] == [
        {"KRAFT_VERSION": "kraftversionrecord", "KRAFT_VOTERS": "votersrecord"}.get(name, name.replace("_", "").lower())
        for name in names[: len(ours)]
    ]
    assert (path / PARTITION / "partition.metadata").read_text() == "version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAQ"
    state = json.loads((path / PARTITION / "quorum-state").read_text())
    assert (state["leaderId"], state["leaderEpoch"], state["votedId"], state["data_version"]) == (1, 1, -1, 1)


def test_answers_come_after_commit_and_after_the_listeners(path):
    """CPRT-58."""

    async def run():
        quorum = await started(path)
        await register_broker(quorum)
        seen = []
        quorum.add_listener(lambda image, delta: seen.append((image.offset, list(delta.created_topics.values()))))
        response = await create_topic(quorum, "orders", 3)
        assert response.topics[0].error_code == 0
        assert [topic.name for topic in seen[0][1]] == ["orders"]
        assert quorum.replica.high_watermark == quorum.image.offset + 1 == seen[0][0] + 1
        assert len(quorum.image.topics.by_name("orders").partitions) == 3
        await quorum.stop()

    asyncio.run(run())


def test_one_flush_covers_what_was_submitted_while_the_last_one_ran(path):
    async def run():
        quorum = await started(path)
        await register_broker(quorum)
        flushes = 0
        flush = quorum.replica.log.log.flush

        def counted():
            nonlocal flushes
            flushes += 1
            return flush()

        quorum.replica.log.log.flush = counted
        await asyncio.gather(*(create_topic(quorum, f"t{index}") for index in range(100)))
        assert len(quorum.image.topics) == 100
        assert flushes <= 25  # the operations take several turns of the loop
        await quorum.stop()

    asyncio.run(run())


def test_refused_operation_fails_its_future_only(path):
    async def run():
        quorum = await started(path)
        stale = heartbeat(quorum, 5)
        fine = quorum.submit(lambda core, _: core.no_op())
        with pytest.raises(KafkaError) as caught:
            await stale
        assert caught.value.code == ErrorCode.STALE_BROKER_EPOCH
        assert await fine is None
        await quorum.stop()

    asyncio.run(run())


def test_unexpected_exception_of_an_operation_ends_that_request_alone(path, caplog):
    def broken(core, now_ms):
        raise ZeroDivisionError("in an operation")

    async def run():
        quorum = await started(path)
        await register_broker(quorum)
        with pytest.raises(KafkaError, match="ZeroDivisionError: in an operation") as caught:
            await asyncio.wait_for(quorum.submit(broken), 30)
        assert caught.value.code == ErrorCode.UNKNOWN_SERVER_ERROR
        # A count that no integer is fails in the controller; every topic of the request gets the error.
        refused = (await asyncio.wait_for(create_topic(quorum, "t", "3"), 30)).topics[0]
        assert (refused.name, refused.error_code) == ("t", ErrorCode.UNKNOWN_SERVER_ERROR)
        assert (await create_topic(quorum, "t", 1)).topics[0].error_code == ErrorCode.NONE
        assert quorum.is_leader
        await quorum.stop()

    asyncio.run(run())
    assert "an operation of the controller failed" in caplog.text


def test_unexpected_exception_while_records_are_applied_ends_the_leadership_and_not_the_node(path, caplog, monkeypatch):
    async def run():
        quorum = await started(path)
        await register_broker(quorum)
        epoch = quorum.replica.log.raft.epoch
        apply_changes = ControllerCore.apply_changes
        broken = iter([True])

        def fails_once(self, *args, **options):
            if next(broken, False):
                raise ZeroDivisionError("while applying")
            return apply_changes(self, *args, **options)

        monkeypatch.setattr(ControllerCore, "apply_changes", fails_once)
        answer = (await asyncio.wait_for(create_topic(quorum, "t", 1), 30)).topics[0]
        assert answer.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        # The sole voter leads again, with what is committed; its records may be among that.
        await until(lambda: quorum.is_leader and quorum.replica.log.raft.epoch > epoch)
        await until(lambda: quorum.controller.next_offset is not None)
        assert (await create_topic(quorum, "u", 1)).topics[0].error_code == ErrorCode.NONE
        again = (await create_topic(quorum, "t", 1)).topics[0].error_code
        assert again in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)
        await quorum.stop()

    asyncio.run(run())
    assert "the active controller failed to apply its own records and resigns" in caplog.text


def test_answer_without_records_waits_for_what_it_read(path):
    async def run():
        quorum = await started(path)
        await register_broker(quorum)
        order = []
        first, second = create_topic(quorum, "a"), create_topic(quorum, "a")
        first.add_done_callback(lambda _: order.append("created"))
        second.add_done_callback(lambda _: order.append("refused"))
        assert (await second).topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS
        assert order == ["created", "refused"]
        await quorum.stop()

    asyncio.run(run())


def test_operation_larger_than_a_batch_is_refused_and_leaves_nothing(path):
    async def run():
        quorum = await started(path, **{"internal.metadata.max.batch.size.in.bytes": "20000"})
        await register_broker(quorum)
        refused = (await create_topic(quorum, "big", 1000)).topics[0]
        assert (refused.name, refused.error_code) == ("big", ErrorCode.POLICY_VIOLATION)
        assert (await create_topic(quorum, "big", 1)).topics[0].error_code == 0
        await quorum.stop()

    asyncio.run(run())


def test_shutdown_of_a_broker_with_more_partitions_than_a_batch_holds_is_split(path):
    async def run():
        quorum = await started(path, **{"internal.metadata.max.batch.size.in.bytes": "20000"})
        epoch = await register_broker(quorum)
        for index in range(5):
            await create_topic(quorum, f"t{index}", 100)
        await heartbeat(quorum, epoch, want_shut_down=True)
        partitions = [partition for topic in quorum.image.topics for partition in topic.partitions.values()]
        assert {partition.leader for partition in partitions} == {-1}
        assert (await heartbeat(quorum, epoch, want_shut_down=True)).should_shut_down
        await quorum.stop()

    asyncio.run(run())


@pytest.mark.spec("ELEC-10", "DISK-31")
@pytest.mark.parametrize("torn_bytes", [0, 1, 40, 73])
def test_restart_after_a_crash_keeps_everything_acknowledged(path, tmp_path, torn_bytes):
    crashed = tmp_path / "crashed"

    async def run():
        quorum = await started(path, **{"metadata.max.idle.interval.ms": "0"})
        await register_broker(quorum)
        await create_topic(quorum, "orders", 2)
        before = content(quorum.image)
        shutil.copytree(path, crashed)  # what a crash leaves: no clean close, trailing bytes of a batch never flushed
        await create_topic(quorum, "later")
        await quorum.stop()
        log = crashed / PARTITION / "00000000000000000000.log"
        whole = (path / PARTITION / log.name).read_bytes()
        log.write_bytes(whole[: log.stat().st_size + torn_bytes])
        again = await started(crashed, **{"metadata.max.idle.interval.ms": "0"})
        assert again.replica.leader_epoch == 2
        topics, _, configs, *rest = content(again.image)
        assert (topics, configs, *rest) == (before[0], before[2], *before[3:])
        await register_broker(again)
        assert again.image.topics.by_name("orders").partitions[0].leader == 1
        await again.stop()

    asyncio.run(run())


def test_clean_restart_goes_on_in_the_next_epoch(path):
    async def run():
        quorum = await started(path)
        epoch = await register_broker(quorum)
        await create_topic(quorum, "orders")
        assert not (await heartbeat(quorum, epoch, want_shut_down=True)).should_shut_down
        assert (await heartbeat(quorum, epoch, want_shut_down=True)).should_shut_down
        before = content(quorum.image)
        await quorum.stop()
        again = await started(path, was_clean=True)
        assert again.replica.leader_epoch == 2
        assert content(again.image)[0] == before[0]
        await register_broker(again, previous=epoch)
        partition = again.image.topics.by_name("orders").partitions[0]
        assert (partition.leader, partition.leader_recovery_state) == (1, 0)
        await again.stop()

    asyncio.run(run())


def test_checkpoints_are_written_read_and_cleaned_with_the_log_behind_them(path):
    properties = {
        "metadata.log.max.record.bytes.between.snapshots": "4000",
        "internal.metadata.log.segment.bytes": "8192",
        "internal.metadata.max.batch.size.in.bytes": "8192",
        "metadata.max.retention.bytes": "60000",
        "metadata.max.idle.interval.ms": "0",
    }

    async def run():
        quorum = await started(path, **properties)
        await register_broker(quorum)
        for index in range(60):
            await create_topic(quorum, f"topic-{index}", 4)
            await quorum.replica.log.snapshots.finish()
        before, offset = content(quorum.image), quorum.image.offset
        start = quorum.replica.log.log.log_start_offset
        await quorum.stop()
        return before, offset, start

    before, offset, start = asyncio.run(run())
    checkpoints = sorted(checkpoint.name for checkpoint in (path / PARTITION).glob("*.checkpoint"))
    assert start > 0
    assert checkpoints[0].startswith(f"{start:020}-")
    assert not (path / PARTITION / "00000000000000000000-0000000000.checkpoint").exists()

    async def run_again():
        quorum = await started(path, **properties)
        assert quorum.image.offset > offset
        assert content(quorum.image)[0] == before[0]
        assert content(quorum.image)[2:] == before[2:]
        assert (
            quorum.replica.describe_quorum().voters[0].directory_id == quorum.replica.raft.config.local_key.directory_id
        )
        await quorum.stop()

    asyncio.run(run_again())
    assert len(checkpoints) > 1
    newest = path / PARTITION / checkpoints[-1]
    newest.write_bytes(newest.read_bytes()[:-10])
    asyncio.run(run_again())


@pytest.mark.parametrize("moment", ["standalone/02-stopped", "standalone/03-restarted", "upgrade-from-3.9/02-upgraded"])
def test_start_on_a_directory_that_kafka_used(tmp_path, moment):
    path = tmp_path / "data"
    shutil.copytree(KAFKA / moment / "node-1", path)
    properties = read_meta_properties(path)
    stored = json.loads((path / PARTITION / "quorum-state").read_text())

    async def run():
        quorum = await started(path, cluster_id=properties.cluster_id)
        assert quorum.replica.leader_epoch == stored["leaderEpoch"] + 1
        assert len(quorum.image.topics) > 2
        await register_broker(quorum, previous=max(broker.epoch for broker in quorum.image.cluster.brokers.values()))
        partitions = [partition for topic in quorum.image.topics for partition in topic.partitions.values()]
        assert {partition.leader for partition in partitions} == {1}
        assert (await create_topic(quorum, "made-by-us")).topics[0].error_code == 0
        await quorum.stop()

    asyncio.run(run())


@pytest.mark.spec("BOOT-25", "DISK-01")
def test_static_voter_starts_at_kraft_version_0(tmp_path):
    path = tmp_path / "data"
    format_directory(path, is_static=True)

    async def run():
        quorum = await started(
            path,
            **{"controller.quorum.voters": "1@127.0.0.1:9093", "controller.quorum.bootstrap.servers": ""},
        )
        assert quorum.replica.describe_quorum().voters[0].listeners[0].port == 9093
        await quorum.stop()

    asyncio.run(run())
    state = json.loads((path / PARTITION / "quorum-state").read_text())
    assert state == {
        "clusterId": "",
        "leaderId": 1,
        "leaderEpoch": 1,
        "votedId": -1,
        "appliedOffset": 0,
        "currentVoters": [{"voterId": 1}],
        "data_version": 0,
    }
    assert type(stored_records(path)[1]).__name__ == "BeginTransactionRecord"


def test_one_of_several_voters_does_not_lead_alone_and_leaves_no_trace(tmp_path):
    path = tmp_path / "data"
    shutil.copytree(KAFKA / "dynamic/10-stopped/node-3001", path)
    files = [*(path / PARTITION).glob("*.log"), path / PARTITION / "quorum-state"]
    before = [file.read_bytes() for file in files]

    async def run():
        cluster_id = read_meta_properties(path).cluster_id
        fast = {f"controller.quorum.{name}.timeout.ms": "20" for name in ("election", "fetch", "request")}
        quorum = quorum_over(path, node_id=3001, cluster_id=cluster_id, **fast)
        await quorum.start()
        await until(
            lambda: quorum.replica.log.driver.core._replica.connections._next_correlation_id >= 8
        )  # several pre-votes
        assert not quorum.is_leader
        assert len(quorum.replica.describe_quorum().voters) > 1
        with pytest.raises(KafkaError) as caught:
            await quorum.submit(lambda core, _: core.no_op())
        assert caught.value.code == ErrorCode.NOT_CONTROLLER
        await quorum.stop()

    asyncio.run(run())
    # Pre-votes that nobody answers change neither epoch nor vote (KIP-996).
    assert [file.read_bytes() for file in files] == before


@pytest.mark.spec("BOOT-32")
def test_missing_directory_id_is_drawn_and_stored(tmp_path):
    path = tmp_path / "data"
    format_directory(path, is_static=True)
    properties = read_meta_properties(path)
    write_meta_properties(path, MetaProperties(cluster_id=properties.cluster_id, node_id=properties.node_id))

    async def run():
        quorum = await started(path, **{"controller.quorum.voters": "1@127.0.0.1:9093"})
        assert quorum.replica.raft.config.local_key.directory_id == read_meta_properties(path).directory_id
        await quorum.stop()

    asyncio.run(run())
    assert read_meta_properties(path).directory_id is not None


@pytest.mark.spec("DISK-11", "DISK-40")
def test_failed_flush_answers_nothing_and_ends_all_writing(path):
    async def run():
        quorum = await started(path)
        await register_broker(quorum)

        def fail():
            raise OSError(5, "Input/output error")

        quorum.replica.log.log.flush = fail
        with pytest.raises(NodeClosedError, match="Input/output error"):
            await create_topic(quorum, "a")
        assert quorum.image.topics.by_name("a") is None
        assert isinstance(quorum.failure, OSError)
        assert quorum.failed.is_set()
        with pytest.raises(NodeClosedError):
            await create_topic(quorum, "b")
        await quorum.stop()

    asyncio.run(run())


def test_idle_leader_writes_no_op_records(path):
    async def run():
        quorum = await started(path, **{"metadata.max.idle.interval.ms": "20"})
        offset, begun_s = quorum.image.offset, time.monotonic()
        await until(lambda: quorum.image.offset - offset >= 3)
        assert quorum.image.offset - offset <= (time.monotonic() - begun_s) / 0.020 + 2
        await quorum.stop()

    asyncio.run(run())
    assert type(stored_records(path)[-1]).__name__ == "NoOpRecord"


def test_stop_fails_what_was_not_begun_and_is_harmless_twice(path):
    async def run():
        quorum = await started(path)
        waiting = quorum.submit(lambda core, _: core.no_op())
        await quorum.stop()
        with pytest.raises(NodeClosedError):
            await waiting
        await quorum.stop()
        with pytest.raises(NodeClosedError):
            await quorum.submit(lambda core, _: core.no_op())

    asyncio.run(run())


def test_clean_stop_logs_no_unknown_leader(path, caplog):
    async def run():
        quorum = await started(path)
        await quorum.stop()

    with caplog.at_level(logging.INFO):
        asyncio.run(run())
    assert "leading the metadata quorum in epoch 1" in caplog.text
    assert "is unknown" not in caplog.text
