"""The binding of the log engine: conversions, threads, slices, the directory lock. The engine has its own tests."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from kraftlog import _kraftlog
from kraftlog._kraftlog import Log, LogConfig, encode_batch, read_batches
from kraftlog.errors import CorruptRecordError, KafkaError, LogError, OffsetOutOfRangeError

NOW_MS = 1_700_000_000_000


def make_batch(*values: bytes, producer_id: int = -1, sequence: int = -1) -> bytes:
    epoch = -1 if producer_id == -1 else 0
    no_headers: list[tuple[bytes, bytes]] = []
    records = [(NOW_MS + index, None, value, no_headers) for index, value in enumerate(values)]
    return encode_batch(records, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)


def open_log(path: Path, **config: int | str) -> Log:
    return Log.open(path / "t-0", config=LogConfig(**config), now_ms=NOW_MS)  # type: ignore[arg-type]


def test_append_read_flush_close_and_open(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    info = log.append_as_leader(make_batch(b"a", b"b"), leader_epoch=3, now_ms=NOW_MS)
    assert (info.first_offset, info.last_offset, info.record_count, info.duplicate) == (0, 1, 2, False)
    assert (info.log_append_time_ms, info.log_start_offset, info.rolled) == (-1, 0, False)
    assert log.flush() == log.recovery_point == log.log_end_offset == 2
    assert log.epoch_entries() == [(3, 0)]
    assert (log.latest_epoch, log.end_offset_for_epoch(3), log.epoch_for_offset(1)) == (3, (3, 2), 3)
    assert log.offset_for_timestamp(NOW_MS + 1) == log.max_timestamp() == (1, NOW_MS + 1, 3)
    assert log.topic_id is None
    log.write_partition_metadata(bytes(range(16)))
    log.close()
    again = Log.open(log.path, config=LogConfig(), now_ms=NOW_MS, recovery_point=2, clean_shutdown=True)
    assert (again.log_end_offset, again.topic_id) == (2, bytes(range(16)))
    assert again.truncate_to(1) is True
    assert again.log_end_offset == 0  # the batch goes as a whole
    again.truncate_fully_and_start_at(50)
    assert (again.log_start_offset, again.log_end_offset, again.segment_count) == (50, 50, 1)
    again.delete()
    assert not log.path.exists()


def test_caller_keeps_its_buffer(tmp_path: Path) -> None:
    batch = bytearray(make_batch(b"a"))
    before = bytes(batch)
    log = open_log(tmp_path)
    for records in (batch, memoryview(batch), before):
        log.append_as_leader(records, leader_epoch=1, now_ms=NOW_MS)
    assert bytes(batch) == before
    assert [b.base_offset for b in read_batches(log.read(0, max_bytes=1000, end_offset=3))] == [0, 1, 2]


def test_slice_is_a_buffer_and_a_file(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    for value in (b"a", b"b", b"c"):
        log.append_as_leader(make_batch(value), leader_epoch=1, now_ms=NOW_MS)
    found = log.read(1, max_bytes=1 << 20, end_offset=3)
    assert len(found) == found.nbytes == found.size_bytes == 2 * found.position
    assert bytes(memoryview(found)) == found.read()
    assert memoryview(found).readonly
    assert os.pread(found.fileno(), found.nbytes, found.position) == found.read()
    size = found.position
    part = found.part(2 * size, size)
    assert (part.position, part.path, part.read()) == (2 * size, found.path, found.read()[size:])
    assert found.part(3 * size, 0).read() == b""
    for outside in ((0, size), (size - 1, 2), (2 * size, size + 1), (3 * size, 1), (size, 2**64 - 1)):
        with pytest.raises(ValueError, match="are not in FileSlice"):
            found.part(*outside)
    log.truncate_to(1)
    gone = log.read(0, max_bytes=1, end_offset=1)
    log.truncate_to(0)
    with pytest.raises(OSError, match="read"):
        gone.read()
    empty = log.read(0, max_bytes=1, end_offset=0)
    assert (empty.nbytes, empty.read(), bytes(empty)) == (0, b"", b"")
    with pytest.raises(ValueError, match="empty"):
        empty.fileno()


def test_refusals_carry_the_code_and_the_records(tmp_path: Path) -> None:
    log = open_log(tmp_path, cleanup_policy="compact")
    with pytest.raises(KafkaError) as refused:
        log.append_as_leader(make_batch(b"a", b"b"), leader_epoch=1, now_ms=NOW_MS)
    assert refused.value.code == 87
    assert [index for index, _ in refused.value.record_errors] == [0, 1]
    with pytest.raises(OffsetOutOfRangeError):
        log.read(1, max_bytes=1, end_offset=1)
    with pytest.raises(CorruptRecordError):
        log.append_as_follower(make_batch(b"a")[:-1] + b"?", leader_epoch=1)
    with pytest.raises(ValueError, match="origin"):
        log.append_as_leader(make_batch(b"a"), leader_epoch=1, now_ms=NOW_MS, origin="x")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="compression"):
        LogConfig(compression_type="zip")
    log.close()
    with pytest.raises(LogError, match="closed"):
        log.flush()


def test_duplicates_and_producers(tmp_path: Path) -> None:
    log = open_log(tmp_path)
    first = make_batch(b"a", b"b", producer_id=7, sequence=0)
    log.append_as_leader(first, leader_epoch=1, now_ms=NOW_MS)
    again = log.append_as_leader(first, leader_epoch=1, now_ms=NOW_MS)
    assert (again.duplicate, again.first_offset, again.last_offset, log.log_end_offset) == (True, 0, 1, 2)
    (producer,) = log.active_producers()
    assert (producer.producer_id, producer.last_sequence, producer.last_offset) == (7, 1, 1)


def test_threads_append_flush_and_read_at_once(tmp_path: Path) -> None:
    log = open_log(tmp_path, segment_bytes=20_000)
    failures: list[BaseException] = []
    writers, each = 3, 300
    is_over = threading.Event()

    def run(work: object) -> None:
        try:
            work()  # type: ignore[operator]
        except BaseException as error:  # noqa: BLE001 - handed to the test
            failures.append(error)

    def write(producer_id: int) -> None:
        for sequence in range(each):
            batch = make_batch(b"%d" % sequence, producer_id=producer_id, sequence=sequence)
            log.append_as_leader(batch, leader_epoch=1, now_ms=NOW_MS)

    def flush() -> None:
        while not is_over.is_set():
            end = log.log_end_offset
            assert log.flush() >= end

    def read() -> None:
        offset = 0
        while offset < writers * each:
            end = log.log_end_offset
            for batch in read_batches(log.read(offset, max_bytes=5000, end_offset=end)):
                assert batch.base_offset == offset
                offset = batch.last_offset + 1

    threads = [threading.Thread(target=run, args=(lambda n=n: write(n),)) for n in range(writers)]
    reader = threading.Thread(target=run, args=(read,))
    flusher = threading.Thread(target=run, args=(flush,))
    for thread in [*threads, reader, flusher]:
        thread.start()
    for thread in [*threads, reader]:
        thread.join(60)
    is_over.set()
    flusher.join(60)
    assert failures == []
    assert log.log_end_offset == writers * each
    assert log.segment_count > 2


def test_recover_segment_names_the_file_it_refuses(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        _kraftlog.recover_segment(tmp_path / "00000000000000000000.log")
    with pytest.raises(LogError, match="not a base offset"):
        _kraftlog.recover_segment(tmp_path / "x.log")


def test_values_of_a_batch_from_an_offset_on():
    records = [(0, b"key", b"a", ()), (0, None, None, ()), (0, None, b"", [("header", b"x")]), (0, None, b"d", ())]
    for compression in ("none", "zstd"):
        (batch,) = read_batches(encode_batch(records, base_offset=7, compression=compression))
        assert batch.values() == [b"a", None, b"", b"d"] == [record[3] for record in batch.records()]
        assert batch.values(9) == [b"", b"d"]
        assert batch.values(11) == []
    whole = encode_batch(records)
    (torn,) = read_batches(whole[:-1] + b"\x7f", check_crc=False)
    with pytest.raises(CorruptRecordError):
        torn.values()
