"""What stands between the driver and a state machine: waiting for offsets, failures, clocks."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import Counter

import pytest

from kraftlog.errors import ErrorCode, KafkaError, LogError, NodeClosedError
from kraftlog.raft.voter_set import Endpoint, Voter, VoterSet
from kraftlog.runtime.raft import replicated_log
from kraftlog.runtime.raft.control_records import from_voters_record, to_voters_record
from kraftlog.runtime.raft.log_machine import Proposed
from kraftlog.runtime.raft.replicated_log import APPLY_BYTES_PER_TURN
from kraftlog.storage.election_store import ElectionStore
from kraftlog.storage.metadata_log import MetadataLog
from kraftlog.storage.snapshot_file import Snapshot
from kraftlog.types import ElectionState, Epoch, NodeId, Offset, ReplicaKey, SnapshotId, Uuid
from kraftlog.wire.messages.vote import VoteRequest
from kraftlog.wire.records import decode_control_record, encode_control_record
from replicated_fixture import LOG_CONFIG, Recorder, bootstrap, propose, replicated
from waiting import settle, until


@pytest.mark.spec("CONN-28")
def test_those_who_wait_for_offsets_are_told_up_to_what_is_applied_and_all_of_an_end(tmp_path):
    async def run():
        bootstrap(tmp_path / "log", 1)
        log = replicated(tmp_path / "log", Recorder())
        await propose(log, "before")
        end_offset = log.applied_end_offset
        waits = [asyncio.ensure_future(log.wait_for_offset(end_offset + number)) for number in (3, 0, 1, 7, 2)]
        impatient = asyncio.ensure_future(asyncio.wait_for(log.wait_for_offset(end_offset + 5), 0.01))
        with pytest.raises(TimeoutError):
            await impatient
        await propose(log, "a", "b")
        await asyncio.sleep(0)
        assert [wait.done() for wait in waits] == [False, True, True, False, False]
        await log.wait_for_offset(end_offset)  # what is applied already is not waited for
        await propose(log, "c", "d")
        await asyncio.sleep(0)
        assert [wait.done() for wait in waits] == [True, True, True, False, True]
        error = NodeClosedError("stopped")
        later = asyncio.ensure_future(log.wait_for_offset(end_offset + 100))
        await asyncio.sleep(0)
        log.fail_offset_waiters(error)
        for wait in (waits[3], later):
            with pytest.raises(NodeClosedError) as caught:
                await wait
            assert caught.value is error
        await log.stop()

    asyncio.run(run())


@pytest.mark.spec("CONN-13")
@pytest.mark.parametrize("error", [LogError("the disk is gone"), ZeroDivisionError("a bug")])
def test_what_a_state_machine_raises_ends_the_replica_and_everybody_is_told_once(tmp_path, error):
    class Broken(Recorder):
        def apply_proposed(self, proposed):
            if proposed.payload == [b"poison"]:
                raise error
            super().apply_proposed(proposed)

        def on_failure(self, failure):
            super().on_failure(failure)
            log.fail_offset_waiters(NodeClosedError("failed"))

    async def run():
        nonlocal log
        bootstrap(tmp_path / "log", 1)
        machine = Broken()
        log = replicated(tmp_path / "log", machine)
        await propose(log, "good")
        with pytest.raises(NodeClosedError, match="failed"):
            await propose(log, "poison")
        assert machine.failures == [error]
        assert log.failure is error
        assert not log.is_leader
        told = []
        log.driver.tell(lambda: told.append(1))
        assert told == [], "nothing is done any more"
        assert machine.values == [b"good"]
        await log.stop()
        assert machine.failures == [error]

    log = None
    asyncio.run(run())


@pytest.mark.spec("CONN-15")
def test_timers_go_by_the_monotonic_clock_whatever_the_wall_clock_does(tmp_path, monkeypatch):
    async def run():
        bootstrap(tmp_path / "log", 1, 2, 3)
        log = replicated(tmp_path / "log", Recorder())
        epoch = log.raft.epoch
        before_ms, deadline_ms = log.driver.now_ms(), log.raft.next_timeout_ms()
        real_ns = time.time_ns
        for jump_s in (86_400, -86_400):
            monkeypatch.setattr(time, "time_ns", lambda jump_s=jump_s: real_ns() + jump_s * 10**9)
            monkeypatch.setattr(time, "time", lambda jump_s=jump_s: real_ns() / 10**9 + jump_s)
            log.driver.tell(lambda: log.raft.handle_timeout(log.driver.now_ms()))
            assert 0 <= log.driver.now_ms() - before_ms < 900
            assert (log.raft.role.name, log.raft.epoch) == ("unattached", epoch)
            assert log.raft.next_timeout_ms() <= deadline_ms + 1000
        await log.stop()

    asyncio.run(run())


@pytest.mark.spec("RCFG-07")
def test_voter_set_comes_back_from_its_record_and_no_directory_id_is_zero_on_the_wire():
    voters = VoterSet(
        [
            Voter(
                ReplicaKey(NodeId(1), Uuid(bytes(range(16)))),
                (Endpoint("CONTROLLER", "one", 9093), Endpoint("SECOND", "::1", 65535)),
                0,
                1,
            ),
            Voter(ReplicaKey(NodeId(2)), (Endpoint("CONTROLLER", "two", 1),), 0, 0),
        ]
    )
    record = to_voters_record(voters)
    assert (record.version, [voter.voter_directory_id for voter in record.voters]) == (0, [bytes(range(16)), Uuid.ZERO])
    key, value = encode_control_record(record)
    assert int.from_bytes(value[:2], "big") == 0
    assert bytes(16) in value
    decoded = decode_control_record(key, value)[1]
    assert from_voters_record(decoded) == voters
    assert [voter.endpoints for voter in from_voters_record(decoded)] == [voter.endpoints for voter in voters]
    assert to_voters_record(from_voters_record(decoded)) == record


@pytest.mark.spec("ELEC-03")
def test_stored_epoch_below_that_of_the_log_is_left_out_with_a_warning(tmp_path, caplog):
    async def run():
        bootstrap(tmp_path / "log", 1)
        log = replicated(tmp_path / "log", Recorder())
        await propose(log, "a")
        await log.stop()
        assert "is left out" not in caplog.text
        state = ElectionState(epoch=Epoch(0), leader_id=NodeId(7))
        ElectionStore(tmp_path / "log").write(state, kraft_version=1)
        again = replicated(tmp_path / "log", Recorder())
        assert "the log has records of epoch 1" in caplog.text
        assert again.raft.epoch == 2, "the only voter leads the next epoch"
        await again.stop()

    asyncio.run(run())


def vote_request(*, epoch):
    partition = VoteRequest.PartitionData(
        partition_index=0,
        replica_epoch=epoch,
        replica_id=2,
        replica_directory_id=Uuid(bytes([2] * 16)),
        voter_directory_id=Uuid(bytes([1] * 16)),
        last_offset_epoch=0,
        last_offset=0,
    )
    topic = VoteRequest.TopicData(topic_name="__cluster_metadata", partitions=[partition])
    return VoteRequest(cluster_id="c", voter_id=1, topics=[topic])


@pytest.mark.spec("VOTE-27")
def test_vote_that_cannot_be_stored_is_not_given(tmp_path):
    async def run():
        directory = tmp_path / "log"
        bootstrap(directory, 1, 2, 3)
        machine = Recorder()
        log = replicated(directory, machine)
        before = ElectionStore(directory).read()
        (directory / "quorum-state.tmp").mkdir()  # in the way of what is written next
        answer = log.driver.handle_request(vote_request(epoch=5), version=2, listener_name="CONTROLLER")
        with pytest.raises(KafkaError) as refused:
            await answer
        assert refused.value.code == ErrorCode.BROKER_NOT_AVAILABLE
        await until(lambda: machine.failures)
        await settle()
        assert len(machine.failures) == 1
        assert isinstance(machine.failures[0], OSError)
        (directory / "quorum-state.tmp").rmdir()
        assert ElectionStore(directory).read() == before
        await log.stop()

    asyncio.run(run())


def test_vote_is_stored_beside_the_loop_and_answered_after_it(tmp_path, monkeypatch):
    """While the disk takes its time the loop turns, and whatever came later is answered later."""
    order, answers, may_write = [], [], threading.Event()
    write = ElectionStore.write

    def slow_write(store, state, **options):
        assert threading.current_thread() is not threading.main_thread()
        assert may_write.wait(5)
        write(store, state, **options)
        order.append((state.epoch, [answer.done() for answer in answers]))

    async def run():
        directory = tmp_path / "log"
        bootstrap(directory, 1, 2, 3)
        log = replicated(directory, Recorder())
        monkeypatch.setattr(ElectionStore, "write", slow_write)
        for epoch in (5, 6):
            request = vote_request(epoch=epoch)
            answers.append(log.driver.handle_request(request, version=2, listener_name="CONTROLLER"))
        for _ in range(10):
            await asyncio.sleep(0)  # the loop turns
        assert order == []
        may_write.set()
        granted = [(await answer).topics[0].partitions[0] for answer in answers]
        assert [(response.leader_epoch, response.vote_granted) for response in granted] == [(5, True), (6, True)]
        # The new epoch may be stored before the vote in it.
        assert list(dict.fromkeys(map(repr, order))) == [repr((5, [False, False])), repr((6, [True, False]))]
        assert ElectionStore(directory).read().epoch == 6
        await log.stop()

    asyncio.run(run())


def test_replica_that_fails_while_a_vote_is_stored_answers_nothing_and_forgets_what_waits(tmp_path, monkeypatch):
    may_write = threading.Event()

    def failing_write(store, state, **options):
        assert may_write.wait(5)
        raise OSError("the disk is gone")

    async def run():
        directory = tmp_path / "log"
        bootstrap(directory, 1, 2, 3)
        machine = Recorder()
        log = replicated(directory, machine)
        monkeypatch.setattr(ElectionStore, "write", failing_write)
        told = []
        answer = log.driver.handle_request(vote_request(epoch=5), version=2, listener_name="CONTROLLER")
        log.driver.tell(lambda: told.append(1))
        may_write.set()
        with pytest.raises(KafkaError) as refused:
            await asyncio.wait_for(answer, 30)
        assert refused.value.code == ErrorCode.BROKER_NOT_AVAILABLE
        assert [str(failure) for failure in machine.failures] == ["the disk is gone"]
        assert told == []
        await log.stop()

    asyncio.run(run())


BACKLOG_BATCHES, BATCH_VALUES, VALUE_BYTES = 600, 20, 100


def write_backlog(directory, *voter_ids):
    """A log with several times what one turn applies; return the values."""
    bootstrap(directory, *voter_ids)
    log = MetadataLog(directory, LOG_CONFIG, now_ms=0, clean_shutdown=False)
    values = [b"%d" % number + bytes(VALUE_BYTES) for number in range(BACKLOG_BATCHES * BATCH_VALUES)]
    for start in range(0, len(values), BATCH_VALUES):
        log.append_values(
            values[start : start + BATCH_VALUES], base_offset=Offset(log.log_end_offset), epoch=Epoch(1), now_ms=0
        )
    log.close()
    return values


def test_long_backlog_is_applied_in_pieces_and_leadership_announced_behind_it(tmp_path):
    class Leading(Recorder):
        def __init__(self):
            super().__init__()
            self.turn = 0
            self.bytes_by_turn = Counter()
            self.leading_at = None

        def apply_batch(self, batch):
            super().apply_batch(batch)
            self.bytes_by_turn[self.turn] += batch.size_bytes

        def on_leading(self, epoch):
            self.leading_at = len(self.values)

    async def run():
        directory = tmp_path / "log"
        values = write_backlog(directory, 1)
        machine = Leading()
        loop = asyncio.get_running_loop()

        def count_turns():
            machine.turn += 1
            if machine.leading_at is None:
                loop.call_soon(count_turns)

        loop.call_soon(count_turns)
        log = replicated(directory, machine)
        await until(lambda: machine.leading_at is not None)
        assert machine.values == values
        assert machine.leading_at == len(values)
        assert max(machine.bytes_by_turn.values()) < APPLY_BYTES_PER_TURN + LOG_CONFIG.max_batch_bytes
        assert len(machine.bytes_by_turn) >= len(values) * VALUE_BYTES // APPLY_BYTES_PER_TURN
        await log.stop()

    asyncio.run(run())


def test_proposal_that_is_committed_behind_a_backlog_is_not_lost_with_the_leadership(tmp_path):
    class Losing(Recorder):
        lost = None

        def on_leader_changed(self, leader_id, epoch, lost):
            self.lost = lost

    async def run():
        directory = tmp_path / "log"
        values = write_backlog(directory, 1, 2, 3)
        machine = Losing()
        log = replicated(directory, machine)
        end_offset = log.log.log_end_offset
        committed = Proposed(end_offset - BATCH_VALUES, end_offset - 1, 1, 0, 1, values[-BATCH_VALUES:])
        uncommitted = Proposed(end_offset, end_offset, 1, 0, 1, [b"uncommitted"])
        log.pending.extend([committed, uncommitted])
        log.on_committed(Offset(end_offset))
        assert len(machine.values) < len(values)
        log.on_leader_changed(None, Epoch(2))
        assert machine.values == values
        assert list(machine.lost) == [uncommitted]
        assert not log.pending, "a later leader's record at its offset would be applied as this proposal"
        await settle()
        assert machine.values == values
        await log.stop()

    asyncio.run(run())


def test_state_machine_that_fails_in_a_later_piece_ends_the_replica(tmp_path):
    class Failing(Recorder):
        def apply_batch(self, batch):
            super().apply_batch(batch)
            if len(self.values) > BACKLOG_BATCHES * BATCH_VALUES // 2:
                raise ZeroDivisionError("a bug")

    async def run():
        directory = tmp_path / "log"
        write_backlog(directory, 1)
        machine = Failing()
        log = replicated(directory, machine)
        await until(lambda: machine.failures)
        assert [str(failure) for failure in machine.failures] == ["a bug"]
        await log.stop()

    asyncio.run(run())


class Stepping(Recorder):
    """Takes a step per value, and has the values of a batch at once behind the last one."""

    def __init__(self):
        super().__init__()
        self.steps = 0

    def apply_batch(self, batch):
        for _ in batch.records():
            self.steps += 1
            yield
        super().apply_batch(batch)


def test_batch_that_is_applied_in_steps_takes_turns_and_is_seen_whole(tmp_path, monkeypatch):
    monkeypatch.setattr(replicated_log, "TURN_NS", 0)

    async def run():
        directory = tmp_path / "log"
        values = write_backlog(directory, 1, 2, 3)
        machine = Stepping()
        log = replicated(directory, machine)
        log.on_committed(Offset(3 * BATCH_VALUES))
        assert (machine.steps, machine.values) == (1, [])
        seen = set()
        while log.applied_end_offset < 3 * BATCH_VALUES:
            steps = machine.steps
            await asyncio.sleep(0)
            assert machine.steps <= steps + 1
            assert len(machine.values) == log.applied_end_offset
            seen.add(len(machine.values))
        assert seen == {0, BATCH_VALUES, 2 * BATCH_VALUES, 3 * BATCH_VALUES}
        assert machine.values == values[: 3 * BATCH_VALUES]
        await log.stop()

    asyncio.run(run())


def test_steps_of_a_batch_end_before_a_lost_leadership_is_told(tmp_path, monkeypatch):
    monkeypatch.setattr(replicated_log, "TURN_NS", 0)

    async def run():
        directory = tmp_path / "log"
        values = write_backlog(directory, 1, 2, 3)
        machine = Stepping()
        log = replicated(directory, machine)
        end_offset = log.log.log_end_offset
        log.pending.append(Proposed(end_offset - BATCH_VALUES, end_offset - 1, 1, 0, 1, values[-BATCH_VALUES:]))
        log.on_committed(Offset(end_offset))
        await asyncio.sleep(0)
        assert (machine.steps, machine.values) == (2, [])
        log.on_leader_changed(None, Epoch(2))
        assert machine.values == values
        await settle()
        assert machine.values == values
        await log.stop()

    asyncio.run(run())


def test_snapshot_makes_a_batch_that_is_half_done_void(tmp_path, monkeypatch):
    monkeypatch.setattr(replicated_log, "TURN_NS", 0)

    async def run():
        directory = tmp_path / "log"
        values = write_backlog(directory, 1, 2, 3)
        machine = Stepping()
        log = replicated(directory, machine)
        log.on_committed(Offset(2 * BATCH_VALUES))
        await asyncio.sleep(0)
        assert (machine.steps, machine.values) == (2, [])
        snapshot = Snapshot(kraft_version=1, values=values[:BATCH_VALUES])
        log.on_snapshot_loaded(SnapshotId(Offset(BATCH_VALUES), Epoch(1)), snapshot)
        await until(lambda: log.applied_end_offset == 2 * BATCH_VALUES)
        assert machine.values == values[: 2 * BATCH_VALUES]
        await log.stop()

    asyncio.run(run())
