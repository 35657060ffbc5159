"""The metadata log and its checkpoints: what may be made, what is found at the start, what is dropped."""

from __future__ import annotations

import pytest

from kraftlog.errors import CorruptRecordError, LogError
from kraftlog.storage.metadata_log import MetadataLog, MetadataLogConfig
from kraftlog.storage.snapshot_file import (
    BOOTSTRAP_SNAPSHOT_ID,
    Snapshot,
    encode_snapshot,
    read_snapshot,
    write_snapshot,
)
from kraftlog.types import Epoch, Offset, SnapshotId

SMALL = {"segment_bytes": 4096, "max_batch_bytes": 4096, "retention_bytes": -1, "retention_ms": -1}


def opened(directory, **config):
    return MetadataLog(directory, MetadataLogConfig(**{**SMALL, **config}), now_ms=0, clean_shutdown=False)


def append(log, *epochs, count=10, size_bytes=10):
    """A batch of ``count`` values for each epoch."""
    for epoch in epochs:
        base_offset = Offset(log.log_end_offset)
        log.append_values([b"v" * size_bytes] * count, base_offset=base_offset, epoch=Epoch(epoch), now_ms=1)
    log.flush()


def snapshot_id(end_offset, epoch):
    return SnapshotId(Offset(end_offset), Epoch(epoch))


def create(log, end_offset, epoch, *, high_watermark=None, quorum_epoch=9, timestamp_ms=1, told=None):
    return log.create_snapshot(
        snapshot_id(end_offset, epoch),
        epoch=Epoch(quorum_epoch),
        high_watermark=Offset(log.log_end_offset if high_watermark is None else high_watermark),
        last_contained_log_timestamp=timestamp_ms,
        now_ms=1,
        on_frozen=(lambda _: None) if told is None else told.append,
    )


def checkpoint(log, end_offset, epoch, **options):
    with create(log, end_offset, epoch, **options) as writer:
        writer.append([b"s"])
        return writer.freeze()


def ids(log):
    return [snapshot_id for snapshot_id, _ in log.snapshots]


@pytest.fixture
def log(tmp_path):
    one = opened(tmp_path / "log")
    append(one, 1, 1, 2, 2)  # 0-9, 10-19 of epoch 1; 20-29, 30-39 of epoch 2
    yield one
    one.close()


@pytest.mark.spec("SNAP-01", "SNAP-02", "SNAP-03")
@pytest.mark.parametrize(
    ("end_offset", "epoch", "high_watermark", "quorum_epoch", "match"),
    [
        (30, 2, 29, 2, "beyond the high watermark"),
        (50, 2, 50, 2, "beyond the end of the log at 40"),
        (40, 3, 40, 2, "beyond .* the epoch 2"),
        (40, 3, 40, 9, "record 39 is of 2"),
        (40, 1, 40, 9, "record 39 is of 2"),
        (20, 2, 40, 9, "record 19 is of 1"),
        (25, 2, 40, 9, "within the batch at 20"),
        (11, 1, 40, 9, "within the batch at 10"),
    ],
)
def test_checkpoint_beyond_what_is_committed_or_across_a_batch_or_of_another_epoch_is_refused(
    log, end_offset, epoch, high_watermark, quorum_epoch, match
):
    with pytest.raises(ValueError, match=match):
        create(log, end_offset, epoch, high_watermark=high_watermark, quorum_epoch=quorum_epoch)
    assert not list(log.directory.glob("*.part"))
    assert ids(log) == []


@pytest.mark.spec("SNAP-01")
def test_checkpoint_without_high_watermark_is_refused(log):
    with pytest.raises(ValueError, match="high watermark None"):
        log.create_snapshot(snapshot_id(10, 1), epoch=Epoch(9), high_watermark=None, now_ms=1)


@pytest.mark.spec("SNAP-05", "SNAP-06", "SNAP-14")
def test_checkpoint_at_the_end_of_the_log_is_made_once_and_known_when_it_is_frozen(log):
    told = []
    writer = create(log, 40, 2, high_watermark=40, told=told)
    writer.append([b"s"])
    assert (ids(log), told) == ([], [])
    size_bytes = writer.freeze()
    assert (list(log.snapshots), told) == ([(snapshot_id(40, 2), size_bytes)], [snapshot_id(40, 2)])
    assert create(log, 40, 2) is None
    assert not list(log.directory.glob("*.part"))
    checkpoint(log, 20, 1)
    assert ids(log) == [snapshot_id(20, 1), snapshot_id(40, 2)]


@pytest.mark.spec("SNAP-04", "SNAP-45")
def test_checkpoint_below_the_log_start_is_none_without_an_error(log):
    for end_offset, epoch in ((10, 1), (20, 1), (40, 2)):
        checkpoint(log, end_offset, epoch)
    log.config = MetadataLogConfig(**{**SMALL, "retention_bytes": 0})
    log.clean(now_ms=1, high_watermark=40)
    assert log.log_start_offset == 40
    assert create(log, 20, 1) is None
    assert create(log, 30, 2) is None


@pytest.mark.spec("SNAP-21")
def test_damage_in_log_or_checkpoint_is_an_error(log):
    checkpoint(log, 40, 2)
    path = log.directory / snapshot_id(40, 2).file_name
    data = bytearray(path.read_bytes())
    data[-3] ^= 1
    path.unlink()
    path.write_bytes(data)
    with pytest.raises(CorruptRecordError):
        read_snapshot(path)
    assert log.read_latest_snapshot() is None, "the log reaches back to its beginning and stands in for it"
    segment = log.directory / "00000000000000000000.log"
    data = bytearray(segment.read_bytes())
    data[len(data) // 2 + 80] ^= 1  # in the values of a batch
    segment.write_bytes(data)
    with pytest.raises(CorruptRecordError):
        list(log.batches(0))


@pytest.mark.spec("SNAP-22")
def test_parts_deleted_and_outdated_checkpoints_are_removed_at_the_start(tmp_path):
    directory = tmp_path / "log"
    log = opened(directory, retention_bytes=0)
    for end_offset in range(10, 210, 10):
        append(log, 1, size_bytes=300)
        checkpoint(log, end_offset, 1)
    log.clean(now_ms=1, high_watermark=200)
    log.clean(now_ms=100_000, high_watermark=200)
    start_offset = log.log_start_offset
    assert start_offset == 200
    log.close()
    old = write_snapshot(directory, snapshot_id(10, 1), encode_snapshot(Snapshot(), epoch=Epoch(1), now_ms=1))
    names = (
        "00000000000000000300-0000000002-77.checkpoint.part",
        "00000000000000000100-0000000001.checkpoint.deleted",
    )
    for name in names:
        (directory / name).touch()
    again = opened(directory)
    assert (again.log_start_offset, ids(again)) == (start_offset, [snapshot_id(200, 1)])
    assert not old.exists()
    assert not any((directory / name).exists() for name in names)
    again.close()


@pytest.mark.spec("SNAP-23")
@pytest.mark.parametrize("left", ["nothing", "deleted", "older"])
def test_log_that_no_checkpoint_leads_to_is_not_opened_and_stays_as_it_is(tmp_path, left):
    directory = tmp_path / "log"
    log = opened(directory, retention_bytes=0)
    for end_offset in range(10, 210, 10):
        append(log, 1, size_bytes=300)
        checkpoint(log, end_offset, 1)
    log.clean(now_ms=1, high_watermark=200)
    log.clean(now_ms=100_000, high_watermark=200)
    log.close()
    newest = directory / snapshot_id(200, 1).file_name
    match left:
        case "nothing":
            newest.unlink()
        case "deleted":
            newest.rename(newest.with_name(newest.name + ".deleted"))
        case _:
            newest.rename(directory / snapshot_id(20, 1).file_name)
    (directory / "00000000000000000300-0000000002-77.checkpoint.part").touch()
    before = {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}
    with pytest.raises(LogError, match="no checkpoint leads there"):
        opened(directory)
    assert {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()} == before


@pytest.mark.spec("SNAP-24", "SNAP-25")
def test_log_is_begun_anew_only_where_the_checkpoint_is_newer(tmp_path):
    directory = tmp_path / "log"
    log = opened(directory)
    append(log, 1, 1)
    checkpoint(log, 10, 1)
    log.close()
    again = opened(directory)
    assert (again.log_start_offset, again.log_end_offset) == (0, 20)
    assert len(list(again.batches(0))) == 2
    again.close()
    write_snapshot(directory, snapshot_id(50, 3), encode_snapshot(Snapshot(), epoch=Epoch(3), now_ms=1))
    third = opened(directory)
    assert (third.log_start_offset, third.log_end_offset, ids(third)) == (50, 50, [snapshot_id(50, 3)])
    third.close()


@pytest.mark.spec("SNAP-26")
def test_checkpoint_whose_file_vanished_is_absent_and_forgotten(log):
    checkpoint(log, 20, 1)
    checkpoint(log, 40, 2)
    assert log.read_snapshot_chunk(snapshot_id(40, 2), 0, 10)
    (log.directory / snapshot_id(40, 2).file_name).unlink()
    assert ids(log) == [snapshot_id(20, 1)]
    assert log.read_snapshot_chunk(snapshot_id(40, 2), 0, 10) is None
    assert log.latest_snapshot_id == snapshot_id(20, 1)
    checkpoint(log, 40, 2)
    assert ids(log) == [snapshot_id(20, 1), snapshot_id(40, 2)]


@pytest.mark.spec("SNAP-45", "SNAP-47")
def test_cleaning_by_size_drops_the_oldest_until_it_fits_and_whole_segments_below(tmp_path):
    log = opened(tmp_path / "log", retention_bytes=30_000)
    for end_offset in range(10, 110, 10):
        append(log, 1, size_bytes=300)
        checkpoint(log, end_offset, 1)
    append(log, 1, 1, 1, 1, size_bytes=300)
    assert log.clean(now_ms=1, high_watermark=100) == ids(log)[0]
    left = ids(log)
    assert 1 < len(left) < 10
    assert log.log_start_offset == left[0].end_offset
    starts = sorted(int(path.stem) for path in log.directory.glob("*.log"))
    assert starts[0] <= log.log_start_offset < starts[1]
    assert log.log_end_offset == 140
    assert sum(batch.record_count for batch in log.batches(left[0].end_offset)) == 140 - left[0].end_offset
    log.close()


@pytest.mark.spec("SNAP-45", "SNAP-46")
def test_cleaning_by_age_goes_by_the_stored_timestamp_and_keeps_the_newest(tmp_path):
    log = opened(tmp_path / "log", retention_ms=1000)
    append(log, 1, 1, 1)
    for end_offset, timestamp_ms in ((10, 100), (20, 2000), (30, 2500)):
        checkpoint(log, end_offset, 1, timestamp_ms=timestamp_ms)
    log.clean(now_ms=1100, high_watermark=30)
    assert len(ids(log)) == 3
    log.clean(now_ms=1101, high_watermark=30)
    assert (ids(log)[0], log.log_start_offset) == (snapshot_id(20, 1), 20)
    log.clean(now_ms=10_000_000, high_watermark=30)
    assert (ids(log), log.log_start_offset) == ([snapshot_id(30, 1)], 30)
    log.close()


@pytest.mark.spec("SNAP-46", "SNAP-47")
def test_single_checkpoint_and_the_segments_behind_it_stay_however_large(tmp_path):
    log = opened(tmp_path / "log", retention_bytes=0, retention_ms=0, segment_ms=1)
    append(log, *[1] * 20, size_bytes=300)
    checkpoint(log, 100, 1)
    segments = sorted(path.name for path in log.directory.glob("*.log"))
    assert len(segments) > 5
    log.clean(now_ms=10**12, high_watermark=200)
    assert (ids(log), log.log_start_offset) == ([snapshot_id(100, 1)], 0)
    assert sorted(path.name for path in log.directory.glob("*.log")) == segments
    checkpoint(log, 150, 1)
    log.clean(now_ms=10**12, high_watermark=200)
    assert log.log_start_offset == 150
    assert log.log_end_offset == 200
    assert sum(batch.record_count for batch in log.batches(150)) == 50
    log.close()


@pytest.mark.spec("SNAP-48")
def test_log_start_does_not_move_to_a_checkpoint_beyond_the_high_watermark(tmp_path):
    log = opened(tmp_path / "log", retention_bytes=0)
    append(log, 1, 1, 1)
    checkpoint(log, 10, 1)
    checkpoint(log, 30, 1)
    log.clean(now_ms=1, high_watermark=29)
    assert (ids(log), log.log_start_offset) == ([snapshot_id(10, 1), snapshot_id(30, 1)], 0)
    log.clean(now_ms=1, high_watermark=30)
    assert (ids(log), log.log_start_offset) == ([snapshot_id(30, 1)], 30)
    log.close()


@pytest.mark.spec("SNAP-49")
def test_dropped_checkpoint_is_renamed_first_and_removed_after_the_delay_while_readers_go_on(tmp_path):
    log = opened(tmp_path / "log", retention_bytes=0, delete_delay_ms=60_000)
    append(log, 1, 1)
    checkpoint(log, 10, 1)
    checkpoint(log, 20, 1)
    path = log.directory / snapshot_id(10, 1).file_name
    marked = path.with_name(path.name + ".deleted")
    with path.open("rb") as reader:
        log.clean(now_ms=1000, high_watermark=20)
        assert (path.exists(), marked.exists()) == (False, True)
        log.clean(now_ms=60_999, high_watermark=20)
        assert marked.exists()
        log.clean(now_ms=61_000, high_watermark=20)
        assert not marked.exists()
        assert len(reader.read()) > 100
    log.close()


def test_fetched_checkpoint_is_installed_under_its_name_and_read_only(log):
    wanted = snapshot_id(100, 5)
    data = encode_snapshot(Snapshot(values=[b"a"]), epoch=Epoch(5), now_ms=1)
    log.write_snapshot_chunk(wanted, 0, b"begun by another leader")
    log.write_snapshot_chunk(wanted, 0, data[:50])
    assert len(list(log.directory.glob("*.part"))) == 1
    log.write_snapshot_chunk(wanted, 50, data[50:])
    snapshot, size_bytes = log.install_snapshot(wanted)
    assert (list(snapshot.each_value()), size_bytes) == ([b"a"], len(data))
    assert (log.log_start_offset, log.log_end_offset, ids(log)) == (100, 100, [wanted])
    assert not list(log.directory.glob("*.part"))
    log.write_snapshot_chunk(snapshot_id(200, 5), 0, b"x")
    log.abandon_snapshot(snapshot_id(200, 5))
    log.abandon_snapshot(snapshot_id(200, 5))
    assert not list(log.directory.glob("*.part"))
    assert BOOTSTRAP_SNAPSHOT_ID not in ids(log)


@pytest.mark.spec("CQ-26")
def test_log_whose_newest_segment_is_empty_is_closed_whole_and_opened_without_recovery(tmp_path):
    directory = tmp_path / "log"
    log = opened(directory)
    append(log, 1, 1)
    wanted = snapshot_id(100, 5)
    log.write_snapshot_chunk(wanted, 0, encode_snapshot(Snapshot(), epoch=Epoch(5), now_ms=1))
    log.install_snapshot(wanted)
    log.close()
    assert (directory / "00000000000000000100.log").stat().st_size == 0
    again = MetadataLog(directory, MetadataLogConfig(**SMALL), now_ms=0, clean_shutdown=True)
    assert (again.log_start_offset, again.log_end_offset, ids(again)) == (100, 100, [wanted])
    append(again, 5)
    again.close()
