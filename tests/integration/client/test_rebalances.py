"""Rebalances while the application works on what it polled: it can commit that, or hears that it cannot."""

from __future__ import annotations

import asyncio
import threading
import time
from contextlib import suppress

import pytest

import kraftlog
from kraftlog.client.broker_assigned_membership import BrokerAssignedMembership
from kraftlog.client.classic_membership import ClassicMembership
from kraftlog.client.group_offsets import GroupOffsets
from kraftlog.errors import CommitFailedError, ErrorCode, KafkaError
from kraftlog.types import TopicPartition
from kraftlog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest

pytestmark = pytest.mark.timeout(120)
SESSION_MS = 1_000
PARTITIONS = 2
RECORDS = 20
PROTOCOLS = pytest.mark.parametrize("protocol", ["classic", "cooperative", "consumer"])


@pytest.fixture(scope="module")
def broker():
    sessions = {
        "group.min.session.timeout.ms": SESSION_MS,
        "group.consumer.min.session.timeout.ms": SESSION_MS,
        "group.consumer.session.timeout.ms": SESSION_MS,
        "group.consumer.heartbeat.interval.ms": 100,
        "group.consumer.min.heartbeat.interval.ms": 100,
    }
    with kraftlog.Broker(config=sessions) as node:
        yield node


def consumer(broker, group_id, protocol, kind=kraftlog.Consumer, **settings):
    if protocol == "cooperative":
        settings["partition_assignment_strategy"] = "cooperative-sticky"
    return kind(
        bootstrap_servers=broker.bootstrap_servers,
        group_id=group_id,
        group_protocol="consumer" if protocol == "consumer" else "classic",
        auto_offset_reset="earliest",
        session_timeout_ms=SESSION_MS,
        heartbeat_interval_ms=100,
        max_poll_records=5,
        **settings,
    )


def fill(broker, topic):
    broker.create_topic(topic, partitions=PARTITIONS)
    with kraftlog.Producer(bootstrap_servers=broker.bootstrap_servers) as producer:
        for number in range(RECORDS):
            producer.send(topic, b"%d" % number, partition=number % PARTITIONS)


class Reader:
    """Another member, which polls on a thread of its own until it is stopped."""

    def __init__(self, member, topic):
        self.member = member
        self.values = []
        self._is_stopped = threading.Event()
        self._thread = threading.Thread(target=self._run, args=(topic,))
        self._thread.start()

    def _run(self, topic):
        self.member.subscribe([topic])
        while not self._is_stopped.is_set():
            self.values += [record.value for record in self.member.poll_records(0.05)]

    def stop(self):
        self._is_stopped.set()
        self._thread.join()


def poll_until_each_has_one(worker, other):
    deadline = time.monotonic() + 30
    while not len(other.assignment) == len(worker.assignment) == 1:
        assert time.monotonic() < deadline, (worker.assignment, other.assignment)
        worker.poll_records(0.05)


@PROTOCOLS
@pytest.mark.parametrize("commits", [True, False], ids=["commits", "polls"])
def test_a_member_keeps_its_partitions_until_the_application_is_done_with_its_rows(broker, protocol, commits):
    topic = group_id = f"{protocol}-{commits}"
    fill(broker, topic)
    revoked = []
    with (
        consumer(broker, group_id, protocol, enable_auto_commit=not commits) as worker,
        consumer(broker, group_id, protocol) as other,
    ):
        worker.subscribe([topic], on_revoke=revoked.extend)
        seen = [record.value for record in worker.poll_records(60)]
        assert len(seen) == 5
        assert len(worker.assignment) == PARTITIONS
        reader = Reader(other, topic)
        try:
            time.sleep(2 * SESSION_MS / 1000)  # longer than a member lives that does not say that it does
            assert revoked == []
            assert len(worker.assignment) == PARTITIONS
            if commits:
                worker.commit()
            deadline = time.monotonic() + 60
            while not (len(other.assignment) == len(worker.assignment) == 1 and len(seen + reader.values) >= RECORDS):
                assert time.monotonic() < deadline, (seen, reader.values, worker.assignment, other.assignment)
                seen += [record.value for record in worker.poll_records(0.05)]
        finally:
            reader.stop()
        assert revoked
        assert sorted(seen + reader.values, key=int) == [b"%d" % number for number in range(RECORDS)]


@PROTOCOLS
def test_rows_of_partitions_that_are_given_up_are_not_handed_over(broker, protocol):
    """A poll with further rows at hand lets the rebalance go first, or a busy application would keep everything."""
    topic = group_id = f"busy-{protocol}"
    fill(broker, topic)
    with consumer(broker, group_id, protocol) as worker, consumer(broker, group_id, protocol) as other:
        worker.subscribe([topic])
        assert worker.poll_records(60)
        reader = Reader(other, topic)
        try:
            deadline = time.monotonic() + 60
            while len(other.assignment) != 1:
                assert time.monotonic() < deadline, (worker.assignment, other.assignment)
                for name in worker.assignment:
                    with suppress(KafkaError):  # the group goes on between polls: it may have gone by now
                        worker.seek(name, 0)  # there is always something to read
                worker.poll_records(0.2)
                time.sleep(0.1)
            assert len(worker.assignment) == 1
            assert set(worker.assignment) | set(other.assignment) == {
                TopicPartition(topic, index) for index in range(PARTITIONS)
            }
        finally:
            reader.stop()


@PROTOCOLS
def test_a_coordinator_that_moves_while_the_application_works_does_not_keep_partitions(monkeypatch, broker, protocol):
    """The wait ends with an error that may pass: what is to be given up is known afterwards, too."""
    topic = group_id = f"moved-{protocol}"
    fill(broker, topic)
    kind = BrokerAssignedMembership if protocol == "consumer" else ClassicMembership
    keep_alive, is_moved = kind._keep_alive, threading.Event()

    async def moved_once(self):
        if not is_moved.is_set():
            is_moved.set()
            raise KafkaError(ErrorCode.NOT_COORDINATOR)
        await keep_alive(self)

    monkeypatch.setattr(kind, "_keep_alive", moved_once)
    with consumer(broker, group_id, protocol) as worker, consumer(broker, group_id, protocol) as other:
        worker.subscribe([topic])
        assert worker.poll_records(60)
        reader = Reader(other, topic)
        try:
            assert is_moved.wait(30)
            poll_until_each_has_one(worker, other)
        finally:
            reader.stop()


def test_an_assignment_that_came_with_a_lost_answer_is_asked_for_again(monkeypatch, broker):
    """The coordinator says it once, and again only to a request that says everything (NGRP-16)."""
    topic = group_id = "lost-answers"
    fill(broker, topic)
    ask, lost = GroupOffsets.ask, []

    async def ask_in_vain(self, message, *arguments):
        answer = await ask(self, message, *arguments)
        is_told = isinstance(message, ConsumerGroupHeartbeatRequest) and answer.assignment is not None
        if is_told and message.member_epoch > 0 and message.member_id not in lost:
            lost.append(message.member_id)
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "the connection ended")
        return answer

    monkeypatch.setattr(GroupOffsets, "ask", ask_in_vain)
    with consumer(broker, group_id, "consumer") as worker, consumer(broker, group_id, "consumer") as other:
        worker.subscribe([topic])
        assert worker.poll_records(60)
        reader = Reader(other, topic)
        try:
            poll_until_each_has_one(worker, other)
        finally:
            reader.stop()
    assert len(lost) == 2


def partitions(topic):
    return {TopicPartition(topic, number) for number in range(PARTITIONS)}


@PROTOCOLS
@pytest.mark.parametrize("is_assigned_again", [False, True], ids=["at-once", "after-joining-again"])
def test_commit_after_the_session_ended_names_what_was_lost(broker, protocol, is_assigned_again):
    """A loop that stands still for longer than the session, as in a paused process."""
    topic = group_id = f"ended-{protocol}-{is_assigned_again}"
    fill(broker, topic)

    async def run():
        lost, assigned = [], asyncio.Event()
        async with consumer(broker, group_id, protocol, kraftlog.AsyncConsumer, enable_auto_commit=False) as worker:
            worker.subscribe([topic], on_lost=lost.extend, on_assign=lambda _: assigned.set())
            assert len(await worker.poll_records(60)) == 5
            assert len(worker.assignment) == PARTITIONS
            assigned.clear()
            time.sleep(2.5 * SESSION_MS / 1000)  # noqa: ASYNC251 - which is what is tested
            if is_assigned_again:
                await asyncio.wait_for(assigned.wait(), 60)
                assert set(lost) == set(worker.assignment) == partitions(topic)
                with pytest.raises(CommitFailedError, match="lost since the last poll"):
                    _ = worker.group_metadata
                with pytest.raises(CommitFailedError, match=f"{topic}-0: lost since the last poll"):
                    await worker.commit({(topic, 0): 5})
            with pytest.raises(CommitFailedError) as raised:
                await worker.commit()
            assert raised.value.code in {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH}
            assert set(raised.value.partitions) <= partitions(topic)
            assert raised.value.partitions
            assert await worker.committed(list(partitions(topic))) == {}
            found = await worker.poll_records(60)
            assert [record.value for record in found] == [
                b"%d" % (found[0].partition + 2 * index) for index in range(5)
            ]
            await worker.commit()
            found_at = TopicPartition(topic, found[0].partition)
            assert (await worker.committed([found_at]))[found_at].offset == 5

    asyncio.run(run())


@PROTOCOLS
def test_commit_of_an_application_that_was_too_slow_names_what_it_lost(broker, protocol):
    topic = group_id = f"slow-{protocol}"
    fill(broker, topic)
    with consumer(broker, group_id, protocol, enable_auto_commit=False, max_poll_interval_ms=1_000) as worker:
        worker.subscribe([topic])
        assert len(worker.poll_records(60)) == 5
        deadline = time.monotonic() + 60
        while worker.assignment:
            assert time.monotonic() < deadline
            time.sleep(0.05)
        with pytest.raises(CommitFailedError, match=r"max\.poll\.interval.ms=1000") as raised:
            worker.commit()
        assert set(raised.value.partitions) == partitions(topic)
        while not worker.poll_records(0.2):
            assert time.monotonic() < deadline
        worker.commit()
        committed = worker.committed(list(partitions(topic)))
        assert max(found.offset for found in committed.values()) == 5


@PROTOCOLS
def test_partitions_that_a_slow_application_has_to_give_up_are_lost(broker, protocol):
    """Another member joins, and the time to give up passes while the application works."""
    topic = group_id = f"forced-{protocol}"
    fill(broker, topic)
    settings = {"enable_auto_commit": False, "max_poll_interval_ms": 1_500}
    with (
        consumer(broker, group_id, protocol, **settings) as worker,
        consumer(broker, group_id, protocol, enable_auto_commit=False) as other,
    ):
        worker.subscribe([topic])
        assert len(worker.poll_records(60)) == 5
        reader = Reader(other, topic)
        try:
            deadline = time.monotonic() + 60
            while not other.assignment:
                assert time.monotonic() < deadline
                time.sleep(0.05)
            with pytest.raises(CommitFailedError, match=r"max\.poll\.interval.ms=1500"):
                worker.commit()
        finally:
            reader.stop()
