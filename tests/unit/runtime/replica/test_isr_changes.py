"""Changes of in-sync sets on their way to the controller: what is sent, and what each answer means."""

from __future__ import annotations

import asyncio

import pytest

from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.partition.assignment import Assignment
from kraftlog.runtime.replica.isr_changes import IsrChanges
from kraftlog.types import Uuid
from kraftlog.wire.frame import encode_request
from kraftlog.wire.messages.alter_partition import AlterPartitionResponse
from oracle.native_replica import NativeReplica
from waiting import until

TOPIC = Uuid(b"t" * 16)
OTHER = Uuid(b"o" * 16)
LIVE = ((2, 20, False), (3, 30, False))


class Replica:
    """The state machine with the names that a partition has."""

    def __init__(self):
        self.core = NativeReplica(
            node_id=1,
            flush_on_ack=False,
            min_insync_replicas=1,
            log_end_offset=0,
            flushed_offset=0,
            high_watermark=0,
        )
        self.assign(0)
        self.core.update_live_brokers(list(LIVE))

    def assign(self, partition_epoch, *, leader_epoch=5, isr=(1,)):
        self.core.handle_assignment(
            Assignment(
                leader_id=1, leader_epoch=leader_epoch, partition_epoch=partition_epoch, replicas=(1, 2, 3), isr=isr
            ),
            0,
        )

    @property
    def isr(self):
        return self.core.isr

    def is_proposal_pending(self, number):
        return self.core.pending_proposal == number

    def isr_committed(self, number, *, leader_epoch, partition_epoch, isr):
        return self.core.on_isr_committed(number, leader_epoch, partition_epoch, isr)

    def isr_refused(self, number):
        self.core.on_isr_refused(number)


class Led:
    """A partition that this broker leads alone, and that others may join."""

    def __init__(self, topic_id=TOPIC, index=0):
        self.topic_id, self.index = topic_id, index
        self.replica = Replica()

    def joins(self, replica_id=2):
        return self.replica.core.on_follower_fetch(replica_id, 0, 1, broker_epoch=10 * replica_id)


class Controller:
    """Keeps what it is asked until the test answers."""

    def __init__(self, version=3):
        self.asked, self.version = [], version
        self._answers = []

    async def request(self, message, *, in_version):
        self.asked.append(in_version(self.version))
        future = asyncio.get_running_loop().create_future()
        self._answers.append(future)
        return await future

    async def answer(self, *partitions, error_code=0):
        """Answer the oldest request: (topic id, index, error code, changes) of partitions, or an exception."""
        await until(lambda: self._answers)
        future = self._answers.pop(0)
        if partitions and isinstance(partitions[0], Exception):
            future.set_exception(partitions[0])
            return
        topics = {}
        for topic_id, index, code, changes in partitions:
            values = {
                "leader_id": 1,
                "leader_epoch": 5,
                "isr": [1, 2],
                "partition_epoch": 1,
                "leader_recovery_state": 0,
            } | changes
            data = AlterPartitionResponse.PartitionData(partition_index=index, error_code=code, **values)
            topics.setdefault(topic_id, []).append(data)
        future.set_result(
            AlterPartitionResponse(
                error_code=error_code,
                topics=[
                    AlterPartitionResponse.TopicData(topic_id=topic_id, partitions=found)
                    for topic_id, found in topics.items()
                ],
            )
        )


class Counted:
    def __init__(self):
        self.expanded = self.shrunk = self.failed = 0

    def on_isr_expanded(self):
        self.expanded += 1

    def on_isr_shrunk(self):
        self.shrunk += 1

    def on_isr_update_failed(self):
        self.failed += 1


class Bench:
    def __init__(self, version=3):
        self.controller, self.counted = Controller(version), Counted()
        self.changes = IsrChanges(1, lambda: 77, self.controller, self.counted)

    def submit(self, partition, replica_id=2):
        proposal = partition.joins(replica_id)
        assert proposal is not None
        self.changes.submit(partition, proposal)


def run(test, version=3):
    async def running():
        bench = Bench(version)
        try:
            async with asyncio.timeout(20):
                await test(bench)
        finally:
            await bench.changes.stop()

    asyncio.run(running())


async def not_sent_again(bench):
    """The next request has what is submitted now and nothing else."""
    count = len(bench.controller.asked)
    bench.submit(Led(OTHER, 9))
    await until(lambda: len(bench.controller.asked) > count)
    (topic,) = bench.controller.asked[count].topics
    assert (topic.topic_id, [partition.partition_index for partition in topic.partitions]) == (OTHER, [9])


@pytest.mark.parametrize(
    ("version", "members", "with_epochs"), [(2, [1, 2], []), (3, [], [(1, 77), (2, 20)])], ids=["v2", "v3"]
)
def test_request_of_each_version_names_the_members(version, members, with_epochs):
    """ISR-37, ISR-38, ISR-39, RINV-68: also when it is built again after a failure (KAFKA-15353)."""

    async def test(bench):
        partition = Led()
        bench.submit(partition)
        await bench.controller.answer(KafkaError(ErrorCode.NETWORK_EXCEPTION, "cut"))
        await until(lambda: len(bench.controller.asked) == 2)
        for request in bench.controller.asked:
            assert encode_request(56, version, 1, "test", request)
            assert (request.broker_id, request.broker_epoch) == (1, 77)
            (topic,) = request.topics
            (asked,) = topic.partitions
            assert (topic.topic_id, topic.topic_name) == (TOPIC, "")
            assert (asked.partition_index, asked.leader_epoch, asked.partition_epoch) == (0, 5, 0)
            assert asked.leader_recovery_state == 0
            assert list(asked.new_isr) == members
            found = [(member.broker_id, member.broker_epoch) for member in asked.new_isr_with_epochs]
            assert found == with_epochs

    run(test, version)


def test_one_request_is_in_flight_and_the_next_one_has_the_rest():
    """ISR-40."""

    async def test(bench):
        partitions = [Led(TOPIC, 0), Led(TOPIC, 1), Led(OTHER, 0)]
        bench.submit(partitions[0])
        await until(lambda: bench.controller.asked)
        bench.submit(partitions[1])
        bench.submit(partitions[2])
        await bench.controller.answer((TOPIC, 0, 0, {}))
        await until(lambda: len(bench.controller.asked) == 2)
        asked = {
            topic.topic_id: [partition.partition_index for partition in topic.partitions]
            for topic in bench.controller.asked[1].topics
        }
        assert asked == {TOPIC: [1], OTHER: [0]}
        await bench.controller.answer((TOPIC, 1, 0, {}), (OTHER, 0, 0, {}))
        await until(lambda: bench.counted.expanded == 3)
        assert len(bench.controller.asked) == 2
        assert [list(partition.replica.isr) for partition in partitions] == [[1, 2]] * 3

    run(test)


def test_queued_partition_refuses_another_proposal():
    """ISR-41: OPERATION_NOT_ATTEMPTED for the second; the first stays queued."""

    async def test(bench):
        partition = Led()
        proposal = partition.joins()
        bench.changes.submit(partition, proposal)
        bench.changes.submit(partition, (proposal[0] + 1, 5, 0, [(1, -1)]))
        await bench.controller.answer((TOPIC, 0, 0, {}))
        await until(lambda: bench.counted.expanded == 1)
        assert len(bench.controller.asked) == 1
        assert list(partition.replica.isr) == [1, 2]

    run(test)


@pytest.mark.parametrize(
    "failure",
    [
        ErrorCode.STALE_BROKER_EPOCH,
        ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
        ErrorCode.UNKNOWN_SERVER_ERROR,
        KafkaError(ErrorCode.UNSUPPORTED_VERSION, "version"),
        KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, "who"),
        KafkaError(ErrorCode.NETWORK_EXCEPTION, "no answer"),
    ],
    ids=str,
)
def test_request_that_fails_as_a_whole_is_sent_again_until_there_is_an_answer(failure):
    """ISR-42, ISR-43, RINV-65, RINV-69: never given up, and nothing is assumed of it meanwhile (KAFKA-14144)."""

    async def test(bench):
        partition = Led()
        bench.submit(partition)
        for _ in range(3):
            if isinstance(failure, Exception):
                await bench.controller.answer(failure)
            else:
                await bench.controller.answer(error_code=failure)
        await until(lambda: len(bench.controller.asked) == 4)
        assert partition.replica.core.maximal_isr == [1, 2]
        assert list(partition.replica.isr) == [1]
        await bench.controller.answer((TOPIC, 0, 0, {}))
        await until(lambda: list(partition.replica.isr) == [1, 2])
        assert bench.counted.expanded == 1

    run(test)


def test_proposal_that_metadata_has_overtaken_is_not_sent_again():
    """ISR-42, RINV-63: KAFKA-12686."""

    async def test(bench):
        partition = Led()
        bench.submit(partition)
        await until(lambda: bench.controller.asked)
        partition.replica.assign(1)
        await bench.controller.answer((TOPIC, 0, 0, {}))
        await not_sent_again(bench)
        assert list(partition.replica.isr) == [1], "the answer is older than the metadata"
        assert (bench.counted.expanded, bench.counted.failed) == (1, 0)

    run(test)


def test_partition_that_the_answer_leaves_out_is_sent_again():
    """ISR-44: the others complete."""

    async def test(bench):
        partition, left_out = Led(TOPIC, 0), Led(TOPIC, 1)
        bench.submit(partition)
        bench.submit(left_out)
        await bench.controller.answer((TOPIC, 0, 0, {}))
        await until(lambda: len(bench.controller.asked) == 2)
        assert list(partition.replica.isr) == [1, 2]
        assert [asked.partition_index for asked in bench.controller.asked[1].topics[0].partitions] == [1]
        await bench.controller.answer((TOPIC, 1, 0, {}))
        await until(lambda: list(left_out.replica.isr) == [1, 2])

    run(test)


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    ],
)
def test_decision_that_metadata_will_explain_keeps_the_proposal_in_force(code):
    """LEPO-43, ISR-49, ISR-50, ISR-53: not sent again; the maximal set holds until the metadata comes."""

    async def test(bench):
        partition = Led()
        bench.submit(partition)
        await bench.controller.answer((TOPIC, 0, code, {}))
        await not_sent_again(bench)
        assert partition.replica.core.maximal_isr == [1, 2]
        assert partition.joins(3) is None, "one proposal is pending"
        partition.replica.assign(1)
        assert partition.replica.core.maximal_isr == [1]
        assert bench.counted.failed == 1

    run(test)


@pytest.mark.parametrize("code", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED])
def test_refused_proposal_is_taken_back(code):
    """LEPO-43, ISR-48: the next fetch may propose again."""

    async def test(bench):
        partition = Led()
        bench.submit(partition)
        await bench.controller.answer((TOPIC, 0, code, {}))
        await until(lambda: partition.replica.core.maximal_isr == [1])
        bench.submit(partition)
        await bench.controller.answer((TOPIC, 0, 0, {}))
        await until(lambda: list(partition.replica.isr) == [1, 2])

    run(test)


@pytest.mark.parametrize(
    ("code", "changes"),
    [
        (ErrorCode.NOT_CONTROLLER, {}),
        (ErrorCode.UNKNOWN_SERVER_ERROR, {}),
        (ErrorCode.NONE, {"leader_recovery_state": 2}),  # ISR-52: as UNKNOWN_SERVER_ERROR
        (ErrorCode.NONE, {"leader_recovery_state": -1}),
    ],
)
def test_same_proposal_is_sent_again_after_another_error(code, changes):
    """ISR-51, ISR-52, RINV-67: KAFKA-14010, 14154."""

    async def test(bench):
        partition = Led()
        bench.submit(partition)
        await bench.controller.answer((TOPIC, 0, code, changes))
        await until(lambda: len(bench.controller.asked) == 2)
        first, second = bench.controller.asked
        assert first == second
        assert (list(partition.replica.isr), bench.counted.failed) == ([1], 1)
        await bench.controller.answer((TOPIC, 0, 0, {"leader_recovery_state": 1}))
        await until(lambda: list(partition.replica.isr) == [1, 2])
        assert len(bench.controller.asked) == 2

    run(test)


def test_answer_of_another_epoch_is_a_failure_and_changes_nothing():
    """ISR-47."""

    async def test(bench):
        partition = Led()
        bench.submit(partition)
        await bench.controller.answer((TOPIC, 0, 0, {"leader_epoch": 6}))
        await until(lambda: bench.counted.failed == 1)
        assert (list(partition.replica.isr), partition.replica.core.maximal_isr) == ([1], [1, 2])

    run(test)


def test_shrink_that_is_confirmed_is_counted():
    """ISR-54: a member that is proposed for removal counts until then, also while the request fails."""

    async def test(bench):
        partition = Led()
        partition.replica.assign(3, isr=(1, 2))
        core = partition.replica.core
        core.on_appended(10)
        proposal = core.propose_shrink(1_000_000)
        bench.changes.submit(partition, proposal)
        await bench.controller.answer(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
        await bench.controller.answer((TOPIC, 0, ErrorCode.UNKNOWN_SERVER_ERROR, {}))
        assert (core.maximal_isr, core.high_watermark) == ([1, 2], 0)
        await bench.controller.answer((TOPIC, 0, 0, {"isr": [1], "partition_epoch": 4}))
        await until(lambda: bench.counted.shrunk == 1)
        assert (list(core.isr), core.high_watermark) == ([1], 10)

    run(test)


def test_answer_within_the_call_that_submits_does_not_deadlock():
    """ISR-55, RINV-75: KAFKA-13254; the next proposal is made while the answer to the first one is handled."""

    class Immediate(Controller):
        async def request(self, message, *, in_version):
            self.asked.append(in_version(3))
            isr = [member.broker_id for member in message.topics[0].partitions[0].new_isr_with_epochs]
            data = AlterPartitionResponse.PartitionData(
                leader_id=1, leader_epoch=5, isr=isr, partition_epoch=len(self.asked)
            )
            return AlterPartitionResponse(topics=[AlterPartitionResponse.TopicData(topic_id=TOPIC, partitions=[data])])

    async def test(bench):
        partition = Led()
        bench.changes = IsrChanges(1, lambda: 77, Immediate(), bench.counted)
        committed = partition.replica.isr_committed

        def and_again(*args, **answer):
            is_taken = committed(*args, **answer)
            proposal = partition.joins(3)
            if proposal is not None:
                bench.changes.submit(partition, proposal)
            return is_taken

        partition.replica.isr_committed = and_again
        bench.submit(partition)
        await until(lambda: list(partition.replica.isr) == [1, 2, 3])

    run(test)
