"""What opening a damaged log cuts or builds anew is reported with file and position."""

from __future__ import annotations

import logging
from pathlib import Path
from types import SimpleNamespace

import pytest

from kraftlog._kraftlog import Log, LogConfig, RecoveryEvent, encode_batch
from kraftlog.storage.recovery_report import RecoveryReport, log_recovery_events

NOW_MS = 1_700_000_000_000
FIRST, SECOND = "00000000000000000000", "00000000000000000010"


def open_log(path: Path, *, clean: bool, recovery_point: int = 0, preallocate: bool = False) -> Log:
    config = LogConfig(segment_bytes=1 << 20, index_interval_bytes=0, preallocate=preallocate)
    return Log.open(path, config=config, now_ms=NOW_MS, clean_shutdown=clean, recovery_point=recovery_point)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """A cleanly closed log: two segments of ten batches, one record each, of an idempotent producer."""
    path = tmp_path / "t-0"
    log = open_log(path, clean=False)
    for number in range(20):
        if number == 10:
            log.roll(NOW_MS)
        batch = encode_batch([(NOW_MS, None, b"x" * 50, [])], producer_id=1, producer_epoch=0, base_sequence=number)
        log.append_as_leader(batch, leader_epoch=3, now_ms=NOW_MS)
    log.close()
    return path


def events(path: Path, **options: bool | int) -> list[RecoveryEvent]:
    log = open_log(path, **options)
    found = log.recovery_events
    log.close()
    return found


def flip(file: Path, position: int) -> None:
    data = bytearray(file.read_bytes())
    data[position] ^= 1
    file.write_bytes(data)


@pytest.mark.parametrize("clean", [True, False])
def test_sound_log_has_no_events(path: Path, clean: bool) -> None:
    assert events(path, clean=clean) == []


def test_torn_tail_is_a_cut_with_its_position(path: Path) -> None:
    segment = path / f"{SECOND}.log"
    size = segment.stat().st_size
    with segment.open("r+b") as file:
        file.truncate(size - 7)
    [event] = events(path, clean=False)
    batch_bytes = size // 10
    assert (event.kind, event.path, event.offset) == ("segment-cut", segment, 19)
    assert (event.position, event.lost_bytes) == (size - batch_bytes, batch_bytes - 7)
    assert event.reason == "an incomplete batch"


def test_damage_in_the_middle_cuts_and_removes_what_follows(path: Path) -> None:
    first, second = path / f"{FIRST}.log", path / f"{SECOND}.log"
    batch_bytes, second_bytes = first.stat().st_size // 10, second.stat().st_size
    flip(first, 4 * batch_bytes + 80)
    removed, cut = events(path, clean=False)
    assert (removed.kind, removed.path, removed.offset, removed.lost_bytes) == (
        "segment-removed",
        second,
        10,
        second_bytes,
    )
    assert f"{first} before it is damaged at position {4 * batch_bytes}" in removed.reason
    assert (cut.kind, cut.path, cut.position, cut.offset) == ("segment-cut", first, 4 * batch_bytes, 4)
    assert cut.lost_bytes == 6 * batch_bytes
    assert cut.reason == "a batch whose checksum differs"


def test_zeros_of_preallocation_are_no_loss(tmp_path: Path) -> None:
    path = tmp_path / "t-0"
    log = open_log(path, clean=False, preallocate=True)
    log.append_as_leader(encode_batch([(NOW_MS, None, b"x", [])]), leader_epoch=0, now_ms=NOW_MS)
    log.flush()
    assert (path / f"{FIRST}.log").stat().st_size == 1 << 20
    again = open_log(path, clean=False, preallocate=True)
    assert (again.log_end_offset, again.recovery_events) == (1, [])


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (f"{FIRST}.index", "index-rebuilt"),
        (f"{SECOND}.timeindex", "index-rebuilt"),
        ("leader-epoch-checkpoint", "epochs-rebuilt"),
        ("00000000000000000020.snapshot", "producers-rebuilt"),
    ],
)
def test_missing_file_is_reported_and_built_anew(path: Path, name: str, kind: str) -> None:
    (path / name).unlink()
    [event] = events(path, clean=True)
    assert (event.kind, event.path, event.lost_bytes) == (kind, path / name, 0)
    assert "missing" in event.reason
    assert (path / name).exists()
    assert events(path, clean=True) == []


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        (f"{FIRST}.txnindex", "index-rebuilt"),
        (f"{SECOND}.index", "index-rebuilt"),
        ("leader-epoch-checkpoint", "epochs-rebuilt"),
        ("00000000000000000020.snapshot", "producers-rebuilt"),
    ],
)
def test_damaged_file_is_reported(path: Path, name: str, kind: str) -> None:
    (path / name).write_bytes(b"\x7f" * 24)
    [event] = events(path, clean=True)
    assert (event.kind, event.path) == (kind, path / name)


def test_lost_producer_snapshots_are_reported(path: Path) -> None:
    for snapshot in path.glob("*.snapshot"):
        snapshot.unlink()
    [event] = events(path, clean=True)
    assert event.kind == "producers-forgotten"


def test_orphaned_index_is_reported(path: Path) -> None:
    orphan = path / "00000000000000000099.timeindex"
    orphan.write_bytes(b"")
    [event] = events(path, clean=True)
    assert (event.kind, event.path) == ("orphan-removed", orphan)


def test_segments_before_the_log_start_are_reported(path: Path) -> None:
    log = Log.open(path, config=LogConfig(), now_ms=NOW_MS, clean_shutdown=True, log_start_offset=50)
    assert [event.kind for event in log.recovery_events] == ["segment-removed", "segment-removed"]
    assert "before the log start 50" in log.recovery_events[0].reason


def test_each_event_is_a_warning_with_file_and_position(path: Path, caplog: pytest.LogCaptureFixture) -> None:
    segment = path / f"{SECOND}.log"
    with segment.open("r+b") as file:
        file.truncate(segment.stat().st_size - 7)
    found = events(path, clean=False)
    with caplog.at_level(logging.WARNING):
        log_recovery_events(path, found)
    line, total = caplog.messages
    assert line.startswith(f"{segment}, position {found[0].position}, offset 19: an incomplete batch; the file was cut")
    assert f"{found[0].lost_bytes} bytes of records are gone" in line
    assert total.startswith(f"opening the logs in {path} found damage: 1 segment-cut;")


def test_lines_are_bounded_per_directory(caplog: pytest.LogCaptureFixture) -> None:
    event = SimpleNamespace(
        kind="index-rebuilt", path=Path("/d/t-0/0.index"), position=0, offset=-1, lost_bytes=0, reason="gone"
    )
    report = RecoveryReport(Path("/d"), limit=3)
    with caplog.at_level(logging.WARNING):
        for _ in range(10):
            report.add([event])  # type: ignore[list-item]
        report.finish()
        report.finish()
    assert len(caplog.messages) == 4
    assert "10 index-rebuilt" in caplog.messages[-1]
    assert "7 lines were left out" in caplog.messages[-1]
