"""What clients and the controller see of a broker around a change of metadata: real logs, threads run by hand."""

from __future__ import annotations

import asyncio
import errno
import logging
from pathlib import Path
from typing import Any

import pytest

from kraftlog._kraftlog import encode_batch
from kraftlog.controller.directory import DIRECTORY_LOST, DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.partition.stop_replica import ReplicaStop
from kraftlog.runtime.replica.fetch_reader import FetchLimits, missing_partition_error, read_partition
from kraftlog.runtime.replica.fetch_session import SessionPartition
from kraftlog.storage.checkpoints import REPLICATION_OFFSET_CHECKPOINT
from kraftlog.types import TopicPartition, Uuid
from kraftlog.wire.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse
from kraftlog.wire.messages.metadata_records import (
    ConfigRecord,
    FeatureLevelRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from replica_bench import FIRST, NODE, SECOND, Bench, change
from waiting import until

OTHER = 2
RECORDS = encode_batch([(0, None, b"x", [])])
LIMITS = FetchLimits(isolation_level=0, max_bytes=999, max_wait_ms=0, min_bytes=0, uses_topic_ids=True)


def follow(partition: Any, fetch_offset: int) -> None:
    """The other broker fetches in epoch 0."""
    partition.replica.follower_fetch(
        replica_id=OTHER,
        broker_epoch=-1,
        current_leader_epoch=0,
        fetch_offset=fetch_offset,
        last_fetched_epoch=0,
        log_start_offset=0,
        now_ms=1,
        is_arrival=True,
    )


def registration(broker_id: int = OTHER) -> RegisterBrokerRecord:
    """A broker that does not answer."""
    end_point = RegisterBrokerRecord.BrokerEndpoint(name="PLAINTEXT", host="127.0.0.1", port=9, security_protocol=0)
    return RegisterBrokerRecord(
        broker_id=broker_id,
        incarnation_id=Uuid(bytes([broker_id] * 16)),
        broker_epoch=broker_id,
        fenced=False,
        end_points=[end_point],
    )


def fetched(bench: Bench, *, epoch: int, topic_id: Uuid = FIRST) -> int:
    """The error code of a consumer's fetch from offset 0."""
    wanted = SessionPartition("", topic_id, 0, 999, 0, epoch, -1, -1)
    return read_partition(bench.partitions, wanted, LIMITS, 999, is_first=True).error_code


def produced(bench: Bench) -> int:
    """The error code of an append."""
    partition = bench.partitions.get_by_name("t", 0)
    if partition is None:
        return bench.partitions.missing_error("t", 0)
    try:
        partition.append_as_leader(RECORDS, acks=1, completed=lambda *_: None)
    except KafkaError as error:
        return error.code
    return 0


def test_broker_that_has_not_applied_a_change_yet_never_answers_in_its_old_role_with_the_new_epoch(run: Any) -> None:
    """RDLT-17: what it answers is retriable, and the image is ahead of the replicas as Metadata answers show it."""

    async def test(bench: Bench) -> None:
        bench.commit(registration())
        bench.create(replicas=(NODE, OTHER), leader=OTHER)
        assert (fetched(bench, epoch=0), produced(bench)) == (ErrorCode.NOT_LEADER_OR_FOLLOWER,) * 2
        await bench.settle()
        bench.commit(change(leader=NODE))
        assert bench.image.topics.by_id(FIRST).partitions[0].leader == NODE
        found = {epoch: fetched(bench, epoch=epoch) for epoch in (1, 0, -1)}
        not_leader = ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert found == {1: ErrorCode.UNKNOWN_LEADER_EPOCH, 0: not_leader, -1: not_leader}
        assert produced(bench) == not_leader
        await bench.settle()
        assert (fetched(bench, epoch=1), produced(bench)) == (0, 0)
        bench.commit(change(leader=OTHER))
        assert fetched(bench, epoch=2) == ErrorCode.UNKNOWN_LEADER_EPOCH
        assert fetched(bench, epoch=1) == 0, "as of the old role, to those who know the old epoch"
        assert (fetched(bench, epoch=-1, topic_id=SECOND)) == ErrorCode.UNKNOWN_TOPIC_ID
        assert bench.partitions.missing_error("unknown", 0) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert bench.partitions.missing_error("t", 7) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION

    run(test)


def test_log_of_another_topic_id_is_neither_served_nor_touched(run: Any, caplog: Any) -> None:
    """CERR-10, RDLT-35, RFET-15, RINV-20: INCONSISTENT_TOPIC_ID on Fetch; fails before the fix."""

    async def test(bench: Bench) -> None:
        bench.create()
        await bench.settle()
        partition = bench.partitions.get(FIRST, 0)
        assert partition is not None
        partition.append_as_leader(RECORDS, acks=1, completed=lambda *_: None)
        # A topic of the same name without the removal of the first one.
        bench.commit(
            TopicRecord(name="t", topic_id=SECOND),
            PartitionRecord(
                partition_id=0, topic_id=SECOND, replicas=(NODE,), isr=(NODE,), leader=NODE, leader_epoch=0
            ),
        )
        with caplog.at_level(logging.ERROR):
            await bench.turns()
        assert f"partition t-0 is that of topic id {FIRST}, not {SECOND}" in caplog.text
        assert bench.partitions.get_by_name("t", 0) is partition
        assert (partition.log.log_end_offset, bench.names()) == (1, ["t-0"])
        assert fetched(bench, epoch=-1, topic_id=SECOND) == ErrorCode.INCONSISTENT_TOPIC_ID
        wanted = SessionPartition("", SECOND, 0, 999, 0, -1, -1, -1)
        assert missing_partition_error(bench.partitions, wanted, uses_topic_ids=True) == ErrorCode.INCONSISTENT_TOPIC_ID
        assert fetched(bench, epoch=-1, topic_id=Uuid(b"x" * 16)) == ErrorCode.UNKNOWN_TOPIC_ID
        bench.commit(RemoveTopicRecord(topic_id=FIRST))
        await bench.settle()
        renewed = bench.partitions.get_by_name("t", 0)
        assert renewed is not None
        assert (renewed.topic_id, renewed.log.log_end_offset) == (SECOND, 0)

    run(test)


def test_replica_that_should_be_here_is_created_with_an_error(run: Any, caplog: Any) -> None:
    """RDLT-38: here because a controller had it deleted (KIP-570) and the metadata has it with a higher epoch."""

    async def test(bench: Bench) -> None:
        bench.create(replicas=(NODE, OTHER))
        await bench.settle()
        stop = ReplicaStop(topic_partition=TopicPartition("t", 0), leader_epoch=0, is_deleted=True)
        ended = bench.manager.stop_replica(stop)
        await bench.settle()
        assert (ended.result(), len(bench.partitions)) == (0, 0)
        with caplog.at_level(logging.ERROR):
            bench.commit(change(leader=NODE))
            await bench.settle()
        assert "partition t-0 of a known topic is not here" in caplog.text
        (partition,) = bench.partitions
        assert (partition.is_leader, partition.leader_epoch, partition.log.log_end_offset) == (True, 1, 0)

    run(test)


class Controller:
    """Records in which directories replicas are said to be."""

    def __init__(self) -> None:
        self.reported: list[dict[tuple[Uuid, int], Uuid]] = []

    async def request(self, message: AssignReplicasToDirsRequest) -> AssignReplicasToDirsResponse:
        self.reported.append(
            {
                (topic.topic_id, partition.partition_index): directory.id
                for directory in message.directories
                for topic in directory.topics
                for partition in topic.partitions
            }
        )
        return AssignReplicasToDirsResponse(
            directories=[
                AssignReplicasToDirsResponse.DirectoryData(
                    id=directory.id,
                    topics=[
                        AssignReplicasToDirsResponse.TopicData(
                            topic_id=topic.topic_id,
                            partitions=[
                                AssignReplicasToDirsResponse.PartitionData(partition_index=partition.partition_index)
                                for partition in topic.partitions
                            ],
                        )
                        for topic in directory.topics
                    ],
                )
                for directory in message.directories
            ]
        )


@pytest.mark.parametrize(
    "assigned", [DIRECTORY_UNASSIGNED, DIRECTORY_MIGRATING, DIRECTORY_LOST, Uuid(b"another-dir-id--")]
)
@pytest.mark.parametrize("leader", [NODE, OTHER])
def test_directory_that_the_metadata_does_not_have_is_reported(run: Any, assigned: Uuid, leader: int) -> None:
    """RDLT-13, RDLT-44: of a new replica and of a changed directory id, from metadata.version 3.7-IV2 on."""

    async def test(bench: Bench) -> None:
        controller = Controller()
        bench.manager._directory_assignments._controllers = controller
        real = bench.log_dirs[0].directory_id
        bench.commit(registration(), FeatureLevelRecord(name="metadata.version", feature_level=16))
        bench.create(replicas=(NODE, OTHER), leader=leader, directories=(assigned, DIRECTORY_UNASSIGNED))
        await bench.settle()
        assert controller.reported == []
        bench.commit(FeatureLevelRecord(name="metadata.version", feature_level=17), change(isr=(leader,)))
        await bench.settle()
        await until(lambda: controller.reported)
        assert controller.reported == [{(FIRST, 0): real}]
        bench.commit(change(directories=(real, DIRECTORY_UNASSIGNED)))
        bench.commit(change(isr=(NODE, OTHER)))
        await bench.settle()
        assert len(controller.reported) == 1, "the metadata has it"
        bench.commit(change(directories=(DIRECTORY_LOST, DIRECTORY_UNASSIGNED)))
        await until(lambda: len(controller.reported) == 2)
        assert controller.reported[1] == {(FIRST, 0): real}

    run(test)


def test_directory_that_fails_takes_its_replicas_offline_and_leaves_the_others(run: Any) -> None:
    """RDLT-48."""

    async def test(bench: Bench) -> None:
        bench.commit(registration())
        bench.create(partitions=4, replicas=(NODE, OTHER), leader=OTHER)
        await bench.settle()
        lost = sorted(partition.index for partition in bench.partitions if partition.log_dir is bench.log_dirs[1])
        kept = sorted({0, 1, 2, 3} - set(lost))
        bench.commit(*(change(index, leader=NODE) for index in (lost[0], kept[0])))
        await bench.settle()
        acks: list[int] = []
        for index in (lost[0], kept[0]):
            partition = bench.partitions.get(FIRST, index)
            assert partition is not None
            await until(lambda partition=partition: partition.log.latest_epoch == 1)
            await bench.turns()
            appended = partition.append_as_leader(RECORDS, acks=-1, completed=lambda *_: None)
            partition.wait_for_ack(appended, acks.append)
        heard: list[int] = []
        bench.partitions.add_listener(lambda partition: heard.append(partition.index))
        followed = {key[1] for loop in bench.manager.fetchers.loops for key in loop.fetcher}
        assert followed == {lost[1], kept[1]}
        bench.manager.fail_log_dir(bench.log_dirs[1], OSError(errno.EIO, "broken"))
        await bench.settle()
        bench.manager.inbox.take()
        assert acks == [ErrorCode.KAFKA_STORAGE_ERROR]
        assert sorted(heard) == lost
        assert {key[1] for loop in bench.manager.fetchers.loops for key in loop.fetcher} == {kept[1]}
        codes = {index: bench.partitions.missing_error("t", index) for index in lost}
        assert codes == dict.fromkeys(lost, ErrorCode.KAFKA_STORAGE_ERROR)
        assert sorted(partition.index for partition in bench.partitions) == kept
        bench.manager._checkpoints.write_all()
        written = [(directory / REPLICATION_OFFSET_CHECKPOINT).exists() for directory in bench.paths]
        assert written == [True, False]
        assert not bench.fatal

    run(test, directories=2)


@pytest.mark.parametrize("topic", ["t", "__consumer_offsets", "__transaction_state"])
def test_partitions_of_coordinators_are_replicated_as_all_others(tmp_path: Path, topic: str) -> None:
    """RFET-90: the same fetches move the same high watermark, and nothing is committed before."""

    async def main() -> None:
        bench = Bench(tmp_path)
        bench.commit(
            registration(),
            TopicRecord(name=topic, topic_id=FIRST),
            *(
                PartitionRecord(
                    partition_id=index,
                    topic_id=FIRST,
                    replicas=(NODE, OTHER),
                    isr=(NODE, OTHER),
                    leader=leader,
                    leader_epoch=0,
                    partition_epoch=0,
                )
                for index, leader in enumerate((NODE, OTHER))
            ),
        )
        await bench.settle()
        assert [list(loop.fetcher) for loop in bench.manager.fetchers.loops] == [[(FIRST, 1)]]
        partition = bench.partitions.get(FIRST, 0)
        assert partition is not None
        await until(lambda: partition.log.latest_epoch == 0)
        await bench.turns()
        committed = partition.append_coordinator(RECORDS)
        await bench.turns()
        assert (committed.done(), partition.high_watermark) == (False, 0)
        follow(partition, 1)
        async with asyncio.timeout(10):
            assert await committed == 0
        await bench.manager.stop()
        bench.log_dirs[0].release()

    asyncio.run(main())


def test_offsets_of_segments_above_the_high_watermark_stay(tmp_path: Path) -> None:
    """RINV-76: KAFKA-5634; retention deletes what is committed, never what a new leader may still have to cut."""

    async def main() -> None:
        bench = Bench(tmp_path)
        bench.create(replicas=(NODE, OTHER))
        bench.commit(
            ConfigRecord(resource_type=2, resource_name="t", name="internal.segment.bytes", value="200"),
            ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="1"),
        )
        await bench.settle()
        partition = bench.partitions.get(FIRST, 0)
        assert partition is not None
        await until(lambda: partition.log.latest_epoch == 0)
        await bench.turns()
        for _ in range(20):
            partition.append_as_leader(encode_batch([(1000, None, b"x" * 60, [])]), acks=1, completed=lambda *_: None)
        await until(lambda: partition.log.log_end_offset == 20)
        assert partition.log.segment_count > 4
        expire(bench)
        assert partition.log.log_start_offset == 0
        follow(partition, 9)
        expire(bench)
        assert 0 < partition.log.log_start_offset <= partition.high_watermark == 9
        await bench.manager.stop()
        bench.log_dirs[0].release()

    asyncio.run(main())


def expire(bench: Bench) -> None:
    """Delete what is too old, as the recurring work does."""
    bench.manager._retention._delete_old_segments(list(bench.partitions), 1_800_000_000_000)


def test_change_of_the_in_sync_set_in_flight_outlives_a_changed_setting(run: Any) -> None:
    """RINV-24: the state that the proposal builds on says nothing new of it; fails before the fix."""

    async def test(bench: Bench) -> None:
        bench.manager.isr_changes.submit = lambda *_: None  # type: ignore[method-assign]
        bench.commit(registration())
        bench.create(replicas=(NODE, OTHER))
        bench.commit(change(isr=(NODE,)))
        await bench.settle()
        partition = bench.partitions.get(FIRST, 0)
        assert partition is not None
        *_, proposal = partition.replica.follower_fetch(
            replica_id=OTHER,
            broker_epoch=OTHER,
            current_leader_epoch=0,
            fetch_offset=0,
            last_fetched_epoch=-1,
            log_start_offset=0,
            now_ms=1,
            is_arrival=True,
        )
        assert proposal is not None
        bench.commit(ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value="77"))
        await bench.settle()
        assert partition.replica.is_proposal_pending(proposal[0])
        bench.commit(change(isr=(NODE, OTHER)))
        await bench.settle()
        assert not partition.replica.is_proposal_pending(proposal[0])
        assert partition.replica.isr == [NODE, OTHER]

    run(test)


def test_replica_that_a_reassignment_added_or_removed_is_gone_with_its_records(run: Any) -> None:
    """RINV-85: KAFKA-13198, KAFKA-13972; one that comes back begins with nothing."""

    async def test(bench: Bench) -> None:
        bench.commit(registration())
        bench.create(replicas=(NODE, OTHER))
        await bench.settle()
        for replicas in ((OTHER, NODE), (NODE, OTHER)):
            partition = bench.partitions.get(FIRST, 0)
            assert partition is not None
            bench.commit(change(leader=NODE, replicas=replicas))
            await bench.settle()
            await until(lambda partition=partition: partition.log.latest_epoch == partition.leader_epoch)
            await bench.turns()
            partition.append_as_leader(RECORDS, acks=1, completed=lambda *_: None)
            # It may wait for the start of the epoch, which a thread writes.
            await until(lambda partition=partition: partition.log.log_end_offset == 1)
            # The reassignment ends without this broker, or the one that added it is cancelled.
            bench.commit(
                change(replicas=(OTHER,), isr=(OTHER,), leader=OTHER, adding_replicas=(), removing_replicas=())
            )
            await bench.settle()
            assert (len(bench.partitions), followed(bench)) == (0, [])
            assert [name for name in bench.names() if not name.endswith("-delete")] == []
            assert fetched(bench, epoch=-1) == ErrorCode.NOT_LEADER_OR_FOLLOWER
            bench.commit(change(replicas=(OTHER, NODE), adding_replicas=(NODE,)))
            await bench.settle()
            (partition,) = bench.partitions
            assert (partition.is_leader, partition.log.log_end_offset, followed(bench)) == (False, 0, [0])

    run(test)


def followed(bench: Bench) -> list[int]:
    """The partitions that are fetched."""
    return [key[1] for loop in bench.manager.fetchers.loops for key in loop.fetcher]
