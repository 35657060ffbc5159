"""The metadata log on disk: what it refuses, when it rolls, its leader epochs, what damage does to it."""

from __future__ import annotations

import contextlib
import random
import struct

import pytest

from kraftlog._kraftlog import Log, LogConfig, encode_values
from kraftlog.errors import CorruptRecordError, KraftlogError, LogError
from kraftlog.node.config import ConfigError, NodeConfig
from kraftlog.node.quorum_settings import metadata_log_config
from kraftlog.raft.log import LogState
from kraftlog.storage.metadata_log import MetadataLog, MetadataLogConfig
from kraftlog.storage.snapshot_file import Snapshot, encode_snapshot, write_snapshot
from kraftlog.types import Epoch, Offset, SnapshotId, Uuid

NOW_MS = 1_700_000_000_000


def open_log(directory, *, clean_shutdown=True, **settings):
    return MetadataLog(directory, MetadataLogConfig(**settings), now_ms=NOW_MS, clean_shutdown=clean_shutdown)


def append(log, count=1, *, epoch=1, size_bytes=10, now_ms=NOW_MS):
    log.append_values([bytes(size_bytes)] * count, base_offset=log.log_end_offset, epoch=epoch, now_ms=now_ms)


def batch(base_offset, *, epoch=1, count=1, size_bytes=10):
    return encode_values(
        [bytes(size_bytes)] * count, timestamps=NOW_MS, base_offset=base_offset, partition_leader_epoch=epoch
    )


@pytest.fixture
def log(tmp_path):
    one = open_log(tmp_path / "__cluster_metadata-0")
    yield one
    one.close()


def names(log, suffix):
    return sorted(path.name for path in log.directory.glob(f"*{suffix}"))


def epochs_on_disk(log):
    lines = (log.directory / "leader-epoch-checkpoint").read_text().splitlines()
    assert lines[0] == "0"
    assert int(lines[1]) == len(lines) - 2
    return [tuple(map(int, line.split())) for line in lines[2:]]


@pytest.mark.spec("DISK-16", "DISK-17")
def test_append_that_does_not_continue_the_log_is_refused(log):
    append(log, 3)
    for base_offset in (0, 2, 4):
        with pytest.raises(LogError):
            log.append_values([b"x"], base_offset=base_offset, epoch=1, now_ms=NOW_MS)
    for base_offset in (0, 2):
        with pytest.raises(KraftlogError):
            log.append_fetched([batch(base_offset)], epoch=1)
    assert log.log_end_offset == 3


@pytest.mark.spec("DISK-18")
def test_bytes_that_are_no_batches_leave_the_log_at_a_batch_boundary(log):
    append(log, 2)
    rng = random.Random(18)
    good = batch(2, count=3)
    for _ in range(300):
        data = bytearray(good)
        match rng.randrange(4):
            case 0:
                data = bytearray(rng.randbytes(rng.randrange(1, 200)))
            case 1:
                data = data[: rng.randrange(1, len(data))]
            case 2:
                data[rng.randrange(16, len(data))] ^= 1 << rng.randrange(8)
            case _:
                data[8:12] = struct.pack(">i", rng.choice((-1, 0, 5, 2**31 - 1)))
        with contextlib.suppress(KraftlogError):
            log.append_fetched([bytes(data)], epoch=1)
        assert log.log_end_offset == 2, bytes(data)
    log.append_fetched([good], epoch=1)
    assert [batch.base_offset for batch in log.batches(0)] == [0, 2]


@pytest.mark.spec("DISK-20")
def test_largest_batch_passes_and_a_byte_more_does_not(tmp_path):
    size_bytes = len(batch(0, size_bytes=5000))
    log = open_log(tmp_path / "a", max_batch_bytes=size_bytes)
    append(log, size_bytes=5000)
    with pytest.raises(KraftlogError, match=r"(?i)large"):
        append(log, size_bytes=5001)
    assert log.log_end_offset == 1
    assert MetadataLogConfig().max_batch_bytes == 8 * 1024 * 1024
    log.close()


@pytest.mark.spec("DISK-21")
def test_segments_roll_at_batches_and_are_named_after_their_first_offset(tmp_path):
    log = open_log(tmp_path / "a", segment_bytes=400)
    bases = []
    for _ in range(20):
        bases.append(log.log_end_offset)
        append(log, 3, size_bytes=40)
    segments = [int(name[:20]) for name in names(log, ".log")]
    assert len(segments) > 3
    assert set(segments) <= set(bases)
    for path in log.directory.glob("*.log"):
        assert path.stat().st_size <= 400
    assert [batch.base_offset for batch in log.batches(0)] == bases
    log.close()


@pytest.mark.spec("DISK-22")
def test_segments_below_8_mib_are_a_configuration_error():
    config = {
        "process.roles": "controller",
        "node.id": "1",
        "controller.listener.names": "CONTROLLER",
        "listeners": "CONTROLLER://127.0.0.1:0",
        "log.dirs": "unused",
        "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
    }
    with pytest.raises(ConfigError, match=r"metadata\.log\.segment\.bytes"):
        metadata_log_config(NodeConfig({**config, "metadata.log.segment.bytes": str(8 * 1024 * 1024 - 1)}))
    wanted = NodeConfig({**config, "metadata.log.segment.bytes": str(8 * 1024 * 1024)})
    assert metadata_log_config(wanted).segment_bytes == 8 * 1024 * 1024


@pytest.mark.spec("DISK-23")
def test_segment_whose_time_is_over_is_rolled_with_the_next_batch(tmp_path):
    log = open_log(tmp_path / "a", segment_ms=1000)
    append(log)
    append(log, now_ms=NOW_MS + 900)
    assert len(names(log, ".log")) == 1
    append(log, now_ms=NOW_MS + 1100)
    assert [int(name[:20]) for name in names(log, ".log")] == [0, 2]
    log.close()


def damage(log, position):
    path = min(log.directory.glob("*.log"))
    data = bytearray(path.read_bytes())
    data[position] ^= 0xFF
    path.write_bytes(data)


@pytest.mark.spec("DISK-32", "DISK-33")
def test_damage_in_what_is_durable_is_an_error_and_nothing_is_cut(tmp_path):
    log = open_log(tmp_path / "a")
    for _ in range(5):
        append(log, 2)
    log.flush()
    log.close()
    size = min(log.directory.glob("*.log")).stat().st_size
    damage(log, size // 2)
    log = open_log(tmp_path / "a", clean_shutdown=True)
    assert log.log_end_offset == 10
    with pytest.raises(CorruptRecordError):
        list(log.batches(0))
    assert min(log.directory.glob("*.log")).stat().st_size == size
    log.close()


class SnapshotOnly:
    """A log that was replaced by a snapshot."""

    log_start_offset = log_end_offset = 7
    leader_epochs = ()
    snapshots = ((SnapshotId(Offset(7), Epoch(3)), 100),)


@pytest.mark.spec("DISK-35")
def test_empty_log_behind_a_snapshot_ends_in_the_epoch_of_the_snapshot():
    assert LogState(SnapshotOnly()).last_epoch == 3


@pytest.mark.spec("DISK-42", "DISK-49")
def test_first_batch_of_an_epoch_is_in_the_checkpoint_at_once(log):
    for epoch, expected in ((1, [(1, 0)]), (1, [(1, 0)]), (4, [(1, 0), (4, 4)])):
        append(log, 2, epoch=epoch)
        assert log.leader_epochs == expected
        assert epochs_on_disk(log) == expected


@pytest.mark.spec("DISK-43")
def test_epoch_zero_is_an_epoch(log):
    append(log, epoch=0)
    assert log.leader_epochs == [(0, 0)]
    assert epochs_on_disk(log) == [(0, 0)]


@pytest.fixture
def plain(tmp_path):
    one = Log.open(str(tmp_path / "t-0"), config=LogConfig(), now_ms=NOW_MS)
    for epoch in (1, 2, 4):
        one.append_as_follower(
            encode_values([b"x"] * 10, timestamps=NOW_MS, base_offset=one.log_end_offset, partition_leader_epoch=epoch),
            leader_epoch=epoch,
        )
    yield one
    one.close()


@pytest.mark.spec("DISK-44")
@pytest.mark.parametrize(
    ("epoch", "offset", "expected"),
    [
        (4, 25, [(1, 0), (2, 10), (4, 20)]),
        (5, 30, [(1, 0), (2, 10), (4, 20), (5, 30)]),
        (5, 20, [(1, 0), (2, 10), (5, 20)]),
        (3, 15, [(1, 0), (2, 10), (3, 15)]),
    ],
)
def test_epochs_and_their_starts_keep_rising(plain, epoch, offset, expected):
    plain.assign_epoch_start(epoch, offset)
    assert plain.epoch_entries() == expected


@pytest.mark.spec("DISK-45")
@pytest.mark.parametrize(("epoch", "offset"), [(-1, 30), (5, -1)])
def test_negative_epochs_and_offsets_are_refused(plain, epoch, offset):
    with pytest.raises((KraftlogError, ValueError, OverflowError)):
        plain.assign_epoch_start(epoch, offset)
    assert plain.epoch_entries() == [(1, 0), (2, 10), (4, 20)]


@pytest.mark.spec("DISK-46")
def test_truncation_takes_the_epochs_that_begin_at_or_above_it(plain):
    plain.assign_epoch_start(5, 30)
    plain.truncate_to(30)
    assert plain.epoch_entries() == [(1, 0), (2, 10), (4, 20)]
    plain.truncate_to(20)
    assert plain.epoch_entries() == [(1, 0), (2, 10)]


@pytest.mark.spec("DISK-47")
def test_epoch_in_force_at_a_new_log_start_begins_there(plain):
    plain.update_high_watermark(30)
    plain.advance_log_start_offset(13)
    assert plain.epoch_entries() == [(2, 13), (4, 20)]
    plain.advance_log_start_offset(20)
    assert plain.epoch_entries() == [(4, 20)]


@pytest.mark.spec("DISK-48")
@pytest.mark.parametrize("damaged", [None, "", "0\n5\n1 0\n", "0\n1\n1 0\n", "not a checkpoint\n"])
def test_epochs_are_those_of_the_batches_where_the_checkpoint_is_not_right(tmp_path, damaged):
    log = open_log(tmp_path / "a", segment_bytes=300)
    for epoch in (1, 1, 3, 3, 7):
        append(log, 3, epoch=epoch, size_bytes=30)
    expected = log.leader_epochs
    log.close()
    path = log.directory / "leader-epoch-checkpoint"
    if damaged is None:
        path.unlink()
    else:
        path.write_text(damaged)
    log = open_log(tmp_path / "a", segment_bytes=300, clean_shutdown=False)
    assert log.leader_epochs == expected == [(1, 0), (3, 6), (7, 12)]
    log.close()


@pytest.mark.spec("DISK-52")
def test_partition_metadata_has_version_and_topic_id(log):
    text = (log.directory / "partition.metadata").read_text()
    assert text.splitlines() == ["version: 0", f"topic_id: {Uuid.METADATA_TOPIC_ID}"]
    with pytest.raises(KraftlogError):
        log._log.write_partition_metadata(bytes(range(16)))


@pytest.fixture
def closed(tmp_path):
    """A log of two epochs, whose records have to be recovered, and what it held."""
    log = open_log(tmp_path / "__cluster_metadata-0")
    for epoch in (1, 1, 2, 2):
        append(log, epoch=epoch, size_bytes=100)
    log.flush()
    log.close()
    return log.directory


def warnings_of(caplog):
    return [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]


def test_sound_metadata_log_is_opened_without_a_warning(closed, caplog):
    for clean_shutdown in (True, False):
        open_log(closed, clean_shutdown=clean_shutdown).close()
    assert warnings_of(caplog) == []


def test_recovery_that_cuts_the_metadata_log_warns_with_file_and_position(closed, caplog):
    segment = closed / f"{0:020}.log"
    size = segment.stat().st_size
    with segment.open("r+b") as file:
        file.truncate(size - 5)
    log = open_log(closed, clean_shutdown=False)
    assert log.log_end_offset == 3
    log.close()
    cut = size * 3 // 4
    found = [line for line in warnings_of(caplog) if f"{segment}, position {cut}" in line]
    assert len(found) == 1
    assert f"{size - 5 - cut} bytes of records are gone" in found[0]


@pytest.mark.parametrize(
    ("name", "text"),
    [(f"{0:020}.index", b"x" * 9), (f"{0:020}.index", None), ("leader-epoch-checkpoint", b"garbage")],
)
def test_damaged_file_beside_the_metadata_log_is_built_anew_with_a_warning(closed, caplog, name, text):
    if text is None:
        (closed / name).unlink()
    else:
        (closed / name).write_bytes(text)
    log = open_log(closed)
    assert log.log_end_offset == 4
    assert [epoch for epoch, _ in log.leader_epochs] == [1, 2]
    log.close()
    assert any(name in line for line in warnings_of(caplog)), caplog.text


def test_log_that_ends_before_its_checkpoint_is_begun_anew_with_a_warning(closed, caplog):
    snapshot_id = SnapshotId(Offset(9), Epoch(2))
    write_snapshot(closed, snapshot_id, encode_snapshot(Snapshot(), epoch=Epoch(2), now_ms=NOW_MS))
    log = open_log(closed)
    assert (log.log_start_offset, log.log_end_offset) == (9, 9)
    log.close()
    (line,) = warnings_of(caplog)
    assert f"{closed}: the log ends at offset 4, before {snapshot_id.file_name}" in line
