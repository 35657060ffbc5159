"""One replica alone: what its machine is told, checkpoints, failures, back-pressure, threads."""

from __future__ import annotations

import asyncio
import itertools
import threading
import time

import pytest

import kraftlog
from kraftlog import host
from kraftlog._kraftlog import encode_batch, encode_values, read_batches
from kraftlog.errors import (
    DeadlineError,
    ErrorCode,
    KafkaError,
    LogError,
    NodeClosedError,
    OutcomeUnknownError,
    StateMachineError,
)
from kraftlog.quorum import CommittedBatch, Quorum
from kraftlog.raft.effects import Durability, SendResponse
from kraftlog.runtime.raft.control_records import to_voters_record
from kraftlog.runtime.raft.opened_log import read_opened
from kraftlog.storage.metadata_log import MetadataLog, MetadataLogConfig
from kraftlog.storage.snapshot_file import read_snapshot
from kraftlog.types import ElectionState, Epoch, Offset
from kraftlog.wire.messages.control_records import LeaderChangeMessage
from quorum_api_fixture import Journal
from raft_fixture import voter_set
from waiting import settle, until

PARTITION = "__cluster_metadata-0"
FIRST_OFFSET = 3  # LeaderChange, KRaftVersion and Voters come before the first command
SMALL = {
    "metadata.log.max.record.bytes.between.snapshots": 4000,
    "internal.metadata.log.segment.bytes": 8192,
    "internal.metadata.max.batch.size.in.bytes": 8192,
    "metadata.max.retention.bytes": 60_000,
}


def alone(path, machine=None, **options):
    return Quorum(machine or Journal(), data_dir=path / "data", timeout_s=20, **options)


def test_propose_returns_the_last_offset_once_the_commands_are_applied(tmp_path):
    async def run():
        journal = Journal()
        async with alone(tmp_path, journal) as quorum:
            assert await quorum.propose([b"a", b"b"]) == FIRST_OFFSET + 1
            assert journal.commands == [b"a", b"b"]
            assert await quorum.call([b"c", b"d"]) == [2, 3]
            assert await quorum.read_barrier() == quorum.applied_end_offset == FIRST_OFFSET + 4
            assert (quorum.is_leader, quorum.leader_id, quorum.epoch) == (True, 1, 1)

    asyncio.run(run())


@pytest.mark.spec("LSTN-06", "LSTN-20", "LSTN-08")
def test_batches_come_in_order_without_gap_with_what_is_known_of_them(tmp_path):
    async def run():
        journal = Journal()
        commands = [b"%d" % index for index in range(30)]
        async with alone(tmp_path, journal) as quorum:
            begun_ms = time.time_ns() // 1_000_000
            for command in commands:
                await quorum.propose([command])
            assert [batch.base_offset for batch in journal.batches] == list(range(FIRST_OFFSET, FIRST_OFFSET + 30))
            for command, batch in zip(commands, journal.batches, strict=True):
                assert batch.commands[0] is command  # from memory: no copy, no read
                assert (batch.last_offset, batch.epoch, len(batch)) == (batch.base_offset, 1, 1)
                assert begun_ms <= batch.timestamp_ms <= time.time_ns() // 1_000_000
                assert batch.size_bytes > len(command)
        again = Journal()
        async with alone(tmp_path, again) as quorum:
            await quorum.read_barrier()
            assert again.commands == commands
            # The log's control records are between, and are nobody's command.
            assert again.batches[-1].last_offset < quorum.applied_end_offset - 1

    asyncio.run(run())


@pytest.mark.spec("LSTN-21")
def test_a_batch_ends_and_a_closed_quorum_refuses(tmp_path):
    batch = CommittedBatch(base_offset=7, epoch=1, timestamp_ms=0, size_bytes=0, commands=[b"a", b"b"])
    reader = iter(batch)
    assert [next(reader), next(reader)] == [(7, b"a"), (8, b"b")]
    with pytest.raises(StopIteration):
        next(reader)

    async def run():
        async with alone(tmp_path) as quorum:
            await quorum.propose([b"a"])
        with pytest.raises(NodeClosedError):
            await quorum.propose([b"b"])
        with pytest.raises(NodeClosedError):
            await quorum.read_barrier()
        await quorum.close()  # harmless

    asyncio.run(run())


@pytest.mark.spec("LSTN-07")
def test_apply_is_never_called_inside_apply(tmp_path):
    class Nested(Journal):
        depth = 0
        quorum = None

        def apply(self, batch):
            self.depth += 1
            assert self.depth == 1
            if batch.commands[0] == b"first":
                self.task = asyncio.ensure_future(self.quorum.propose([b"from within"]))
            result = super().apply(batch)
            self.depth -= 1
            return result

    async def run():
        machine = Nested()
        async with alone(tmp_path, machine) as quorum:
            machine.quorum = quorum
            await quorum.propose([b"first"])
            await machine.task
            assert machine.commands == [b"first", b"from within"]

    asyncio.run(run())


@pytest.mark.spec("LSTN-01", "LSTN-03", "LSTN-04", "SNAP-01")
def test_the_newest_checkpoint_is_restored_and_the_log_follows_it(tmp_path):
    async def run():
        journal = Journal()
        async with alone(tmp_path, journal, config=SMALL) as quorum:
            assert not journal.named("restore")  # 0-0 holds voters alone
            for index in range(50):
                await quorum.propose([b"%04d" % index * 50])
                await quorum._log.snapshots.finish()
            assert quorum._log.log.log_start_offset == 0
        newest = max((tmp_path / "data" / PARTITION).glob("*.checkpoint"))
        values = read_snapshot(newest).values
        assert len(values) > 20
        again = Journal()
        async with alone(tmp_path, again, config=SMALL) as quorum:
            assert again.calls[0] == ("restore", len(values))
            await quorum.propose([b"more"])
            assert again.named("apply")[0][1] >= int(newest.name[:20])
            assert again.commands == [*journal.commands, b"more"]
            assert len(again.named("restore")) == 1

    asyncio.run(run())


def test_a_checkpoint_of_a_function_is_made_beside_commits_and_the_log_is_cleaned(tmp_path):
    threads = set()

    class Large(Journal):
        def snapshot(self):
            view = list(self.commands)

            def encode():
                threads.add(threading.current_thread().name)
                yield from view

            return encode

    async def run():
        machine = Large()
        config = {**SMALL, "metadata.max.retention.bytes": 20_000}
        async with alone(tmp_path, machine, config=config) as quorum:
            for index in range(120):
                await quorum.propose([b"%04d" % index * 100])
                await quorum._log.snapshots.finish()
            assert quorum._log.log.log_start_offset > FIRST_OFFSET
        assert all(name.startswith("kraftlog-checkpoint") for name in threads)
        again = Large()
        async with alone(tmp_path, again, config=config) as quorum:
            await quorum.read_barrier()
            assert again.commands == machine.commands

    asyncio.run(run())


@pytest.mark.spec("LSTN-16")
def test_after_close_nothing_is_called_and_the_directory_has_one_user(tmp_path):
    async def run():
        journal = Journal()
        async with alone(tmp_path, journal) as quorum:
            await quorum.propose([b"a"])
            with pytest.raises(LogError, match="lock"):
                await alone(tmp_path).__aenter__()
        count = len(journal.calls)
        again = Journal()
        async with alone(tmp_path, again) as quorum:
            await quorum.propose([b"b"])
            assert again.commands == [b"a", b"b"]  # from nothing
        assert len(journal.calls) == count

    asyncio.run(run())


@pytest.mark.spec("LSTN-18")
def test_the_machine_is_told_once_that_the_replica_stops(tmp_path):
    async def run():
        journal = Journal()
        async with alone(tmp_path, journal) as quorum:
            await quorum.propose([b"a"])
            await quorum.close()
        assert journal.named("stop") == [("stop", None)]

    asyncio.run(run())


@pytest.mark.spec("LSTN-19")
def test_a_machine_that_raises_ends_its_replica(tmp_path):
    class Picky(Journal):
        def apply(self, batch):
            if b"bad" in batch.commands:
                raise ValueError("cannot take that")
            return super().apply(batch)

    async def run():
        machine = Picky()
        async with alone(tmp_path, machine) as quorum:
            await quorum.propose([b"good"])
            with pytest.raises(OutcomeUnknownError, match="cannot take that"):
                await quorum.propose([b"bad"])
            assert isinstance(await quorum.wait_failed(), StateMachineError)
            with pytest.raises(StateMachineError, match="ValueError: cannot take that"):
                await quorum.propose([b"good"])
            with pytest.raises(StateMachineError):
                await quorum.read_barrier()
        assert len(machine.named("stop")) == 1
        with pytest.raises(ValueError, match="cannot take that"):
            raise machine.named("stop")[0][1].__cause__

    asyncio.run(run())


def test_a_number_of_results_that_is_not_that_of_the_commands_ends_the_replica(tmp_path):
    class Wrong(Journal):
        def apply(self, batch):
            return [1, 2, 3]

    async def run():
        async with alone(tmp_path, Wrong()) as quorum:
            with pytest.raises(OutcomeUnknownError, match="3 results for 1 commands"):
                await quorum.propose([b"a"])

    asyncio.run(run())


def test_a_failed_flush_is_not_acknowledged(tmp_path):
    async def run():
        async with alone(tmp_path) as quorum:
            await quorum.propose([b"a"])

            def fail():
                raise OSError(5, "Input/output error")

            quorum._log.log.flush = fail
            with pytest.raises(OutcomeUnknownError, match="Input/output error"):
                await quorum.propose([b"b"])
            assert isinstance(quorum.failure, OSError)
            with pytest.raises(NodeClosedError, match="Input/output error"):
                await quorum.propose([b"c"])

    asyncio.run(run())


@pytest.mark.spec("APPD-06")
def test_what_is_pending_is_bounded_and_what_finds_no_room_uses_no_offset(tmp_path):
    async def run():
        journal = Journal()
        async with alone(tmp_path, journal, max_pending_bytes=20_000) as quorum:
            held, is_held = threading.Event(), threading.Event()
            flush = quorum._log.log.flush

            def slow():
                is_held.set()
                held.wait(100)
                return flush()

            quorum._log.log.flush = slow
            waiting = [asyncio.ensure_future(quorum.propose([bytes(5000)])) for _ in range(10)]

            def pending_bytes():
                return sum(batch.size_bytes for batch in quorum._log.pending)

            # A flush that had begun before may still commit some; once one is held, three more are all that fits.
            await until(lambda: is_held.is_set() and pending_bytes() > 15_000)
            await settle()
            assert pending_bytes() <= 20_000
            end_offset = quorum._log.log.log_end_offset
            with pytest.raises(DeadlineError) as caught:
                await quorum.propose([bytes(5000)], timeout_s=0.05)
            assert not caught.value.may_be_committed
            assert quorum._log.log.log_end_offset == end_offset
            held.set()
            offsets = await asyncio.gather(*waiting)
            assert offsets == list(range(FIRST_OFFSET, FIRST_OFFSET + 10))
            assert len(journal.commands) == 10

    asyncio.run(run())


def test_commands_that_do_not_fit_into_a_batch_are_refused(tmp_path):
    async def run():
        async with alone(tmp_path) as quorum:
            with pytest.raises(KafkaError) as caught:
                await quorum.propose([bytes(9 << 20)])
            assert caught.value.code == ErrorCode.MESSAGE_TOO_LARGE
            with pytest.raises(ValueError, match="no commands"):
                await quorum.propose([])
            assert await quorum.propose([bytes(8_000_000)]) == FIRST_OFFSET

    asyncio.run(run())


def test_one_flush_covers_what_was_proposed_while_the_last_one_ran(tmp_path):
    async def run():
        async with alone(tmp_path) as quorum:
            await quorum.propose([b"warm"])
            flushes = 0
            flush = quorum._log.log.flush

            def counted():
                nonlocal flushes
                flushes += 1
                return flush()

            quorum._log.log.flush = counted
            batches = len(read_batches(next((tmp_path / "data" / PARTITION).glob("*.log")).read_bytes()))
            await asyncio.gather(*(quorum.propose([b"%d" % index]) for index in range(1000)))
            assert flushes <= 2
            after = len(read_batches(next((tmp_path / "data" / PARTITION).glob("*.log")).read_bytes()))
            assert after - batches <= 2

    asyncio.run(run())


@pytest.mark.spec("APPD-20")
def test_a_batch_in_the_log_has_the_fields_that_kafka_gives_it(tmp_path):
    async def run():
        async with alone(tmp_path) as quorum:
            await quorum.propose([b"a", b"b"])

    asyncio.run(run())
    batch = read_batches(next((tmp_path / "data" / PARTITION).glob("*.log")).read_bytes())[-1]
    assert (batch.magic, batch.partition_leader_epoch, batch.timestamp_type, batch.compression) == (
        2,
        1,
        "CreateTime",
        "none",
    )
    assert (batch.producer_id, batch.producer_epoch, batch.base_sequence) == (-1, -1, -1)
    assert batch.is_crc_valid()
    assert not batch.is_control
    assert [record[2:4] for record in batch.records()] == [(None, b"a"), (None, b"b")]


@pytest.mark.spec("LSTN-09", "LSTN-22", "LSTN-23")
def test_compressed_batches_of_several_segments_are_read_as_from_memory(tmp_path):
    """A log with batches as other writers might have left them, and one more epoch written by this replica."""

    async def run():
        journal = Journal()
        async with alone(tmp_path, journal, config=SMALL) as quorum:
            for index in range(20):
                await quorum.propose([b"%04d" % index * 200])
            log = quorum._log.log
            assert len(list((tmp_path / "data" / PARTITION).glob("*.log"))) > 1
            base = log.log_end_offset
        values = [b"compressed %d" % index for index in range(10)]
        log = MetadataLog(
            tmp_path / "data" / PARTITION, MetadataLogConfig(segment_bytes=8192), now_ms=0, clean_shutdown=False
        )
        for codec in ("gzip", "snappy", "lz4", "zstd"):
            data = encode_values(values, compression=codec, base_offset=base, partition_leader_epoch=1)
            log.append_fetched([data], epoch=Epoch(1))
            base += len(values)
        unknown = encode_batch(
            [(0, b"\0\0\0\x63", b"\0\0", ())], base_offset=base, partition_leader_epoch=1, control=True
        )
        log.append_fetched([unknown], epoch=Epoch(1))
        log.close()
        again = Journal()
        async with alone(tmp_path, again, config=SMALL) as quorum:
            await quorum.propose([b"from memory again"])
            assert again.commands == [*journal.commands, *values * 4, b"from memory again"]

    asyncio.run(run())


@pytest.mark.spec("LSTN-10", "LSTN-13")
def test_commits_go_out_in_any_role_and_a_leadership_that_is_over_is_not_announced(tmp_path):
    async def run():
        journal = Journal()
        async with alone(tmp_path, journal) as quorum:
            await quorum.propose([b"a"])
        again = Journal()
        voters = {1: "127.0.0.1:1", 2: "127.0.0.1:2", 3: "127.0.0.1:3"}
        async with Quorum(
            again,
            data_dir=tmp_path / "three",
            voters=voters,
            listen="127.0.0.1:0",
            config={"controller.quorum.election.timeout.ms": 20},
        ) as quorum:
            log = quorum._log
            await until(lambda: log.raft.role.name == "prospective")
            data = encode_values([b"x", b"y"], base_offset=0, partition_leader_epoch=1)
            log.log.append_fetched([data], epoch=Epoch(1))
            log.on_committed(Offset(2))
            assert again.commands == [b"x", b"y"]
            # Elected, then another epoch before everything from before was applied.
            log.on_leader_changed(log.raft.config.local_key.node_id, Epoch(5))
            log.on_leader_changed(None, Epoch(6))
            log.on_committed(Offset(2))
            assert (1, 5) not in [call[1:3] for call in again.named("leader")]

    asyncio.run(run())


def test_an_answer_that_waits_for_a_flush_goes_out_after_a_later_election_state(tmp_path):
    async def run():
        async with alone(tmp_path) as quorum:
            await quorum.propose([b"a"])
            driver = quorum._log.driver
            sent = []
            driver._send = sent.append
            stored, end_offset = driver._persisted, driver._flushed_end_offset
            waits_for = Durability(election_state=stored, log_end_offset=Offset(end_offset + 1))
            answer = SendResponse(source=None, response=None, waits_for=waits_for)
            driver.tell(lambda: driver._effects.append(answer))
            assert not sent
            driver._persisted = ElectionState(epoch=Epoch(stored.epoch + 1))
            driver._flushed_end_offset = Offset(end_offset + 1)
            driver.tell(driver._tell_flushed)
            assert len(sent) == 1
            assert quorum.failure is None
            driver._persisted, driver._flushed_end_offset = stored, end_offset

    asyncio.run(run())


@pytest.mark.spec("LSTN-24")
def test_the_voters_in_force_are_those_at_the_end_of_the_log(tmp_path):
    log = MetadataLog(tmp_path / PARTITION, MetadataLogConfig(), now_ms=0, clean_shutdown=False)
    two, three = voter_set(1, 2), voter_set(1, 2, 3)
    log.append_control_records([to_voters_record(two)], base_offset=Offset(0), epoch=Epoch(1), now_ms=0)
    log.append_values([b"a"], base_offset=Offset(1), epoch=Epoch(1), now_ms=0)
    log.append_control_records([to_voters_record(three)], base_offset=Offset(2), epoch=Epoch(1), now_ms=0)
    opened = read_opened(log, voter_set())
    assert opened.voters.latest.ids == (1, 2, 3)  # nothing of it is known to be committed
    assert opened.voters.value_before(Offset(2)).ids == (1, 2)
    opened.voters.truncate_to(Offset(2))
    assert opened.voters.latest.ids == (1, 2)
    log.close()


@pytest.mark.spec("APPD-15")
def test_control_records_have_their_place_or_are_refused(tmp_path):
    log = MetadataLog(tmp_path / PARTITION, MetadataLogConfig(), now_ms=0, clean_shutdown=False)
    record = LeaderChangeMessage(version=0, leader_id=1)
    log.append_control_records([record], base_offset=Offset(0), epoch=Epoch(2), now_ms=0)
    for base_offset in (0, 2):
        with pytest.raises(LogError, match="ends at 1"):
            log.append_control_records([record], base_offset=Offset(base_offset), epoch=Epoch(2), now_ms=0)
    with pytest.raises(KafkaError, match="INVALID_RECORD"):
        log.append_control_records([], base_offset=Offset(1), epoch=Epoch(2), now_ms=0)
    with pytest.raises(LogError):
        log.append_control_records([record], base_offset=Offset(1), epoch=Epoch(1), now_ms=0)
    assert log.log_end_offset == 1
    log.close()


@pytest.mark.spec("APPD-12")
def test_any_thread_may_use_a_quorum_and_none_waits_for_a_timer(tmp_path):
    journal = Journal()
    with alone(tmp_path, journal) as quorum:
        begun = time.monotonic()
        offsets = []
        threads = [
            threading.Thread(target=lambda: offsets.extend(quorum.propose([b"t"]) for _ in range(20))) for _ in range(5)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert sorted(offsets) == list(range(FIRST_OFFSET, FIRST_OFFSET + 100))
        assert quorum.call([b"last"]) == [100]
        assert time.monotonic() - begun < 10
        assert quorum.read_barrier() == FIRST_OFFSET + 101
        assert quorum.is_leader
        assert [voter.replica_id for voter in quorum.describe().voters] == [1]
    with pytest.raises(NodeClosedError):
        quorum.propose([b"late"])
    quorum.close()


def test_what_cannot_start_leaves_nothing_behind(tmp_path):
    with alone(tmp_path) as quorum:
        taken = quorum.address
        with pytest.raises(kraftlog.errors.KraftlogError, match="cannot listen"):
            Quorum(Journal(), data_dir=tmp_path / "other", address=taken).start()
    with Quorum(Journal(), data_dir=tmp_path / "other", address=taken) as other:
        assert other.address == taken
    with pytest.raises(LogError, match="of node 1 in quorum"):
        Quorum(Journal(), data_dir=tmp_path / "other", node_id=2).start()
    with pytest.raises(ValueError, match="is not a voter"):
        Quorum(Journal(), data_dir=tmp_path, node_id=4, voters={1: "127.0.0.1:1"})
    with pytest.raises(ValueError, match="one of them"):
        Quorum(Journal(), data_dir=tmp_path, voters={1: "127.0.0.1:1"}, join=["127.0.0.1:2"])


def test_the_leader_applies_a_batch_with_the_timestamp_of_the_log(tmp_path, monkeypatch):
    """The other replicas read it there; the wall clock goes on between proposal and append."""
    ticks = itertools.count(1_700_000_000_000)
    monkeypatch.setattr(host, "wall_ms", lambda: next(ticks))

    async def run():
        journal = Journal()
        async with alone(tmp_path, journal) as quorum:
            await asyncio.gather(*(quorum.propose([b"%d" % number]) for number in range(20)))
            await quorum.propose([b"last"])
            applied = {batch.base_offset: batch.timestamp_ms for batch in journal.batches}
            stored = {}
            async for batch in quorum.committed(0):
                stored[batch.base_offset] = batch.timestamp_ms
                if batch.commands[-1] == b"last":
                    break
            assert applied == stored

    asyncio.run(asyncio.wait_for(run(), 30))
