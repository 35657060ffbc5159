"""Checkpoints of a running replica: what they hold, what is read of them at the start, what a failing cleaner does."""

from __future__ import annotations

import asyncio
import shutil

import pytest

from kraftlog.raft.voter_set import VoterSet
from kraftlog.runtime.raft.control_records import to_voters_record
from kraftlog.runtime.raft.opened_log import read_opened
from kraftlog.storage.metadata_log import MetadataLog, MetadataLogConfig
from kraftlog.storage.snapshot_file import BOOTSTRAP_SNAPSHOT_ID, Snapshot, encode_snapshot, write_snapshot
from kraftlog.types import Epoch, Offset, SnapshotId
from kraftlog.wire.messages.control_records import KRaftVersionRecord
from replicated_fixture import LOG_CONFIG, Recorder, bootstrap, propose, replicated, voters


@pytest.mark.spec("SNAP-18")
def test_voters_beyond_the_end_of_the_log_are_refused_and_below_it_known(tmp_path):
    async def run():
        bootstrap(tmp_path / "log", 1)
        log = replicated(tmp_path / "log", Recorder())
        end_offset = log.raft.log.end_offset
        assert log.raft.voters_before(end_offset) == voters(1)
        assert log.raft.kraft_version_before(end_offset) == 1
        for read in (log.raft.voters_before, log.raft.kraft_version_before):
            with pytest.raises(ValueError, match=f"The log ends at {end_offset}"):
                read(Offset(end_offset + 1))
        await log.stop()

    asyncio.run(run())


@pytest.mark.spec("SNAP-19")
def test_voters_come_from_the_newest_checkpoint_and_then_from_every_record_of_the_log(tmp_path):
    directory = tmp_path / "log"
    bootstrap(directory, 1)
    log = MetadataLog(directory, LOG_CONFIG, now_ms=1, clean_shutdown=False)

    def control(*records):
        log.append_control_records(records, base_offset=Offset(log.log_end_offset), epoch=Epoch(1), now_ms=1)

    control(KRaftVersionRecord(version=0, kraft_version=1), to_voters_record(voters(1, 2)))
    assert read_opened(log, VoterSet()).voters.latest == voters(1, 2)
    snapshot = Snapshot(kraft_version=1, voters=to_voters_record(voters(1, 2, 3)))
    write_snapshot(directory, SnapshotId(Offset(2), Epoch(1)), encode_snapshot(snapshot, epoch=Epoch(1), now_ms=1))
    log.close()
    log = MetadataLog(directory, LOG_CONFIG, now_ms=1, clean_shutdown=False)
    opened = read_opened(log, VoterSet())
    assert (opened.voters.latest, opened.voters.latest_offset) == (voters(1, 2, 3), 1)
    assert opened.start_offset == 2
    log.append_values([b"v"], base_offset=Offset(2), epoch=Epoch(1), now_ms=1)
    control(to_voters_record(voters(1, 2, 3, 4)))
    control(to_voters_record(voters(1, 2, 4)))
    opened = read_opened(log, VoterSet())
    assert (opened.voters.latest, opened.voters.latest_offset) == (voters(1, 2, 4), 4)
    assert opened.voters.value_before(Offset(4)) == voters(1, 2, 3, 4)
    assert opened.voters.value_before(Offset(3)) == voters(1, 2, 3)
    assert (opened.kraft_versions.latest, opened.kraft_versions.latest_offset) == (1, 1)
    log.close()


def test_a_log_that_is_being_closed_drops_and_begins_nothing(tmp_path, monkeypatch, caplog):
    """A stop that takes long, as that of a thousand logs does, is under way when the minute comes to drop old ones."""

    async def run():
        directory = tmp_path / "log"
        bootstrap(directory, 1)
        log = replicated(directory, Recorder(), snapshot_max_bytes=1 << 30)
        await propose(log, "a")
        monkeypatch.setattr(type(log.log), "clean", None)  # a call fails
        log.snapshots.max_bytes = 1
        assert log.snapshots.is_due
        stopping = asyncio.ensure_future(log.stop())
        await asyncio.sleep(0)
        assert not log.snapshots.is_due
        log.snapshots._on_timer()
        await log.snapshots.finish()
        await stopping
        assert [each.end_offset for each, _ in log.log.snapshots] == [0]

    asyncio.run(run())
    assert not caplog.records


@pytest.mark.spec("SNAP-50")
def test_cleaner_that_fails_is_logged_and_the_replica_goes_on(tmp_path, caplog):
    config = MetadataLogConfig(segment_bytes=4096, max_batch_bytes=4096, retention_bytes=0)

    async def run():
        directory = tmp_path / "log"
        bootstrap(directory, 1)
        # A directory in the way of the name that a dropped checkpoint gets.
        in_the_way = directory / (BOOTSTRAP_SNAPSHOT_ID.file_name + ".deleted")
        machine = Recorder()
        log = replicated(directory, machine, snapshot_max_bytes=1, log_config=config)
        in_the_way.mkdir()
        await propose(log, "a")
        await log.snapshots.finish()
        assert "old checkpoints and segments cannot be removed" in caplog.text
        assert BOOTSTRAP_SNAPSHOT_ID in [snapshot_id for snapshot_id, _ in log.log.snapshots]
        in_the_way.rmdir()
        await propose(log, "b")
        await log.snapshots.finish()
        assert [snapshot_id.end_offset for snapshot_id, _ in log.log.snapshots] == [log.applied_end_offset]
        assert log.raft.log.start_offset == log.log.log_start_offset == log.applied_end_offset
        assert (machine.failures, machine.values) == ([], [b"a", b"b"])
        await log.stop()

    asyncio.run(run())


@pytest.mark.spec("SNAP-54", "BOOT-34")
@pytest.mark.parametrize("has_bootstrap", [True, False])
def test_listener_gets_each_record_once_with_and_without_an_own_bootstrap_checkpoint(tmp_path, has_bootstrap):
    async def run():
        leader_dir, follower_dir = tmp_path / "leader", tmp_path / "follower"
        bootstrap(leader_dir, 1)
        leader = replicated(leader_dir, Recorder())
        await propose(leader, "first", "second")
        await propose(leader, "third")
        await leader.stop()
        # What a follower has fetched: the same log, with or without a 0-0 of its own that names others.
        shutil.copytree(leader_dir, follower_dir)
        (follower_dir / BOOTSTRAP_SNAPSHOT_ID.file_name).unlink()
        if has_bootstrap:
            bootstrap(follower_dir, 1, 7)
        machine = Recorder()
        follower = replicated(follower_dir, machine)
        assert follower.raft.voters == voters(1)
        await propose(follower, "fourth")
        assert (machine.values, machine.loaded) == ([b"first", b"second", b"third", b"fourth"], [])
        await follower.stop()

    asyncio.run(run())


@pytest.mark.spec("SNAP-16", "CQ-26")
def test_checkpoint_of_a_running_replica_is_made_once_and_read_at_the_next_start(tmp_path):
    async def run():
        bootstrap(tmp_path / "log", 1)
        log = replicated(tmp_path / "log", Recorder(), snapshot_max_bytes=1)
        sizes = []
        await log.wait_for_offset(log.log.log_end_offset - 1)  # what beginning to lead wrote has its own checkpoint
        await log.snapshots.finish()
        log.on_checkpoint = sizes.append
        await propose(log, "a", "b")
        await log.snapshots.finish()
        newest, size_bytes = log.log.snapshots[-1]
        assert sizes == [size_bytes]
        assert newest.end_offset == log.applied_end_offset
        assert log.raft.voters_offset is not None
        metrics = log.driver.metrics
        await log.stop()
        assert not metrics._metrics.snapshot()
        machine = Recorder()
        again = replicated(tmp_path / "log", machine)
        assert (machine.loaded, machine.values) == ([newest], [b"a", b"b"])
        await again.stop()

    asyncio.run(run())


@pytest.mark.parametrize("outgrows_last", [True, False])
def test_checkpoint_of_a_large_state_waits_for_as_many_bytes_of_commands(tmp_path, outgrows_last):
    async def run():
        bootstrap(tmp_path / "log", 1)
        options = {"snapshot_max_bytes": 1, "snapshot_outgrows_last": outgrows_last}
        machine = Recorder()
        machine.values = [bytes(1000)] * 3  # as if it had taken many commands
        log = replicated(tmp_path / "log", machine, **options)
        await log.wait_for_offset(log.log.log_end_offset - 1)
        await log.snapshots.finish()

        async def counted(log):
            """Batches that were committed, of 100 bytes each, when a checkpoint is due."""
            last = log.log.latest_snapshot_id
            for count in range(1, 100):
                await propose(log, "a")
                await log.snapshots.finish()
                if log.log.latest_snapshot_id != last:
                    return count
            return None

        await counted(log)
        state_bytes = log.log.snapshots[-1][1]
        assert state_bytes > 3000
        expected = -(-state_bytes // 100) if outgrows_last else 1
        assert await counted(log) == expected
        await log.stop()
        again = replicated(tmp_path / "log", Recorder(), **options)
        newest_bytes = again.log.snapshots[-1][1]
        assert await counted(again) in ({newest_bytes // 100, newest_bytes // 100 + 1} if outgrows_last else {1})
        await again.stop()

    asyncio.run(run())


def test_checkpoint_that_is_due_by_time_is_made_though_nothing_is_committed_any_more(tmp_path):
    async def run():
        bootstrap(tmp_path / "log", 1)
        log = replicated(tmp_path / "log", Recorder())
        await propose(log, "a")
        before = log.log.latest_snapshot_id
        log.snapshots._on_timer()
        await log.snapshots.finish()
        assert log.log.latest_snapshot_id == before
        log.snapshots.max_interval_ms = 60_000
        log.snapshots._last_s -= 60
        log.snapshots._on_timer()
        await log.snapshots.finish()
        assert log.log.latest_snapshot_id.end_offset == log.applied_end_offset
        latest = log.log.latest_snapshot_id
        log.snapshots._last_s -= 60
        log.snapshots._on_timer()  # nothing has changed since
        await log.snapshots.finish()
        assert log.log.latest_snapshot_id == latest
        await log.stop()

    asyncio.run(run())
