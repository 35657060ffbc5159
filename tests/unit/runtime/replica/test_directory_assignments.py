"""Reports of the directories of replicas: what is sent, and what each answer means."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.runtime.replica import directory_assignments
from kraftlog.runtime.replica.directory_assignments import REPLICAS_MAX, DirectoryAssignments, retry_delay_s
from kraftlog.types import Uuid
from kraftlog.wire.messages.assign_replicas_to_dirs import AssignReplicasToDirsResponse
from waiting import until

TOPIC, GONE = Uuid(b"t" * 16), Uuid(b"g" * 16)
FIRST, SECOND = Uuid(b"1" * 16), Uuid(b"2" * 16)


class Placed:
    """A partition of the metadata, in a directory of broker 1."""

    def __init__(self, replicas=(1, 2), directory_id=FIRST):
        self.replicas, self.directory_id = replicas, directory_id

    def directory(self, _broker_id):
        return self.directory_id


class Bench:
    """Reports, and a controller that answers with the codes that the test gives; then with none."""

    def __init__(self, partitions):
        self.partitions, self.codes, self.asked = partitions, [], []
        self.in_flight = self.most_in_flight = 0
        topic = SimpleNamespace(partitions=self.partitions)
        topics = SimpleNamespace(by_id=lambda topic_id: topic if topic_id == TOPIC else None)
        self.reports = DirectoryAssignments(1, lambda: 77, lambda: SimpleNamespace(topics=topics), self)

    async def request(self, message):
        self.in_flight += 1
        self.most_in_flight = max(self.most_in_flight, self.in_flight)
        await asyncio.get_running_loop().run_in_executor(None, int)
        self.in_flight -= 1
        self.asked.append(message)
        code = self.codes.pop(0) if self.codes else {}
        if isinstance(code, Exception):
            raise code
        if isinstance(code, int):
            return AssignReplicasToDirsResponse(error_code=code)
        return AssignReplicasToDirsResponse(
            directories=[
                AssignReplicasToDirsResponse.DirectoryData(
                    id=directory.id,
                    topics=[
                        AssignReplicasToDirsResponse.TopicData(
                            topic_id=topic.topic_id,
                            partitions=[
                                AssignReplicasToDirsResponse.PartitionData(
                                    partition_index=partition.partition_index,
                                    error_code=code.get(partition.partition_index, 0),
                                )
                                for partition in topic.partitions
                            ],
                        )
                        for topic in directory.topics
                    ],
                )
                for directory in message.directories
            ]
        )

    def sent(self, number):
        return {
            (topic.topic_id, partition.partition_index): directory.id
            for directory in self.asked[number].directories
            for topic in directory.topics
            for partition in topic.partitions
        }

    @property
    def is_quiet(self):
        return self.reports._task is None


@pytest.fixture
def run(monkeypatch):
    monkeypatch.setattr(directory_assignments, "retry_delay_s", lambda _failures: 0)

    def run(test, partitions):
        async def main():
            bench = Bench(partitions)
            async with asyncio.timeout(20):
                await test(bench)
            await bench.reports.stop()

        asyncio.run(main())

    return run


def test_only_replicas_of_this_broker_that_lie_elsewhere_are_reported(run):
    """RFET-87: entries of deleted topics and of partitions that are no longer here are dropped."""

    async def test(bench):
        for key in [(TOPIC, 0), (TOPIC, 1), (TOPIC, 2), (TOPIC, 9), (GONE, 0)]:
            bench.reports.assign(key, SECOND)
        await until(lambda: bench.is_quiet)
        assert bench.sent(0) == {(TOPIC, 0): SECOND}
        assert (len(bench.asked), bench.asked[0].broker_id, bench.asked[0].broker_epoch) == (1, 1, 77)

    run(test, {0: Placed(), 1: Placed(replicas=(2, 3)), 2: Placed(directory_id=SECOND)})


def test_requests_are_bounded_and_go_one_after_the_other(run):
    """RFET-87: at most 2250 replicas in a request, and one request in flight."""
    count = 2 * REPLICAS_MAX + 1

    async def test(bench):
        for index in range(count):
            bench.reports.assign((TOPIC, index), SECOND)
        await until(lambda: bench.is_quiet)
        assert [len(bench.sent(number)) for number in range(len(bench.asked))] == [2250, 2250, 1]
        assert len({key for number in range(3) for key in bench.sent(number)}) == count
        assert bench.most_in_flight == 1

    run(test, {index: Placed() for index in range(count)})


@pytest.mark.parametrize("failure", [ErrorCode.STALE_BROKER_EPOCH, KafkaError(ErrorCode.NETWORK_EXCEPTION, "cut")])
def test_request_that_fails_is_sent_again(run, failure):
    """RFET-87."""

    async def test(bench):
        bench.codes = [failure if isinstance(failure, Exception) else int(failure)] * 3
        bench.reports.assign((TOPIC, 0), SECOND)
        await until(lambda: bench.is_quiet)
        assert [bench.sent(number) for number in range(4)] == [{(TOPIC, 0): SECOND}] * 4

    run(test, {0: Placed()})


def test_replica_that_is_refused_is_sent_again_and_the_others_are_not(run):
    """RFET-87."""

    async def test(bench):
        bench.codes = [{1: ErrorCode.NOT_LEADER_OR_FOLLOWER}]
        bench.reports.assign((TOPIC, 0), SECOND)
        bench.reports.assign((TOPIC, 1), SECOND)
        await until(lambda: bench.is_quiet)
        assert [bench.sent(number) for number in range(2)] == [
            {(TOPIC, 0): SECOND, (TOPIC, 1): SECOND},
            {(TOPIC, 1): SECOND},
        ]

    run(test, {0: Placed(), 1: Placed()})


def test_later_report_of_a_replica_replaces_the_earlier_one(run):
    async def test(bench):
        bench.reports.assign((TOPIC, 0), FIRST)
        bench.reports.assign((TOPIC, 0), SECOND)
        await until(lambda: bench.is_quiet)
        assert bench.sent(0) == {(TOPIC, 0): SECOND}

    run(test, {0: Placed(directory_id=Uuid(b"3" * 16))})


def test_pause_doubles_up_to_ten_seconds():
    """RFET-87."""
    assert [round(retry_delay_s(failures), 3) for failures in (1, 2, 3, 7, 8, 1000)] == [0.1, 0.2, 0.4, 6.4, 10, 10]
