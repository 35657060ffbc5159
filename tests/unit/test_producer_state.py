"""What a partition's log keeps of producers: sequences, epochs, transactions, snapshots; through the engine's binding.

Source: Kafka's ProducerStateManagerTest and UnifiedLogTest; the ids are those of area 33 in docs/behaviours.
"""

from __future__ import annotations

import struct
from pathlib import Path
from typing import Any

import pytest

from kraftlog._kraftlog import AppendInfo, Log, LogConfig, crc32c, encode_batch, read_batches
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.wire.messages.control_records import EndTxnMarker
from kraftlog.wire.records import encode_control_record

NOW_MS = 1_700_000_000_000
MAX_SEQUENCE = 2**31 - 1
HEADER_BYTES = 61


class Bench:
    """A log, and short ways to append to it. Each batch has a record per number in ``count``."""

    def __init__(self, path: Path, **config: Any) -> None:
        self.log = Log.open(path / "t-0", config=LogConfig(**config), now_ms=NOW_MS)

    def data(
        self,
        sequence: int,
        count: int = 1,
        *,
        epoch: int = 0,
        producer_id: int = 7,
        transactional: bool = False,
        origin: Any = "client",
        **verification: Any,
    ) -> AppendInfo:
        batch = data_batch(sequence, count, epoch=epoch, producer_id=producer_id, transactional=transactional)
        return self.log.append_as_leader(batch, leader_epoch=1, now_ms=NOW_MS, origin=origin, **verification)

    def refused(self, *args: Any, **fields: Any) -> int:
        """The error code of ``data``; nothing was appended."""
        before = self.log.log_end_offset, [vars_of(found) for found in self.log.active_producers()]
        with pytest.raises(KafkaError) as error:
            self.data(*args, **fields)
        assert before == (self.log.log_end_offset, [vars_of(found) for found in self.log.active_producers()])
        return error.value.code

    def marker(
        self, *, commit: bool = True, epoch: int = 0, producer_id: int = 7, coordinator_epoch: int = 1, version: int = 0
    ) -> AppendInfo:
        batch = marker_batch(commit=commit, epoch=epoch, producer_id=producer_id, coordinator_epoch=coordinator_epoch)
        return self.log.append_as_leader(
            batch, leader_epoch=1, now_ms=NOW_MS, origin="coordinator", transaction_version=version
        )

    def producer(self, producer_id: int = 7) -> tuple[int, int, int, int | None]:
        """Epoch, last sequence, coordinator epoch and start of the open transaction."""
        (found,) = [found for found in self.log.active_producers() if found.producer_id == producer_id]
        return found.producer_epoch, found.last_sequence, found.coordinator_epoch, found.current_txn_first_offset

    def everything(self, start: int = 0) -> bytes:
        end = self.log.log_end_offset
        return b"".join(self.log.read(at, max_bytes=1, end_offset=end).read() for at in self._bases(start))

    def _bases(self, start: int) -> list[int]:
        bases, at = [], start
        while at < self.log.log_end_offset:
            (batch,) = read_batches(self.log.read(at, max_bytes=1, end_offset=self.log.log_end_offset).read())
            bases.append(at)
            at = batch.last_offset + 1
        return bases


def vars_of(found: Any) -> tuple[Any, ...]:
    return found.producer_id, found.producer_epoch, found.last_sequence, found.current_txn_first_offset


def data_batch(
    sequence: int, count: int = 1, *, epoch: int = 0, producer_id: int = 7, transactional: bool = False, **fields: Any
) -> bytes:
    return encode_batch(
        [(NOW_MS + index, None, b"v", ()) for index in range(count)],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=transactional,
        **fields,
    )


def marker_batch(
    *, commit: bool = True, epoch: int = 0, producer_id: int = 7, coordinator_epoch: int = 1, **fields: Any
) -> bytes:
    key, value = encode_control_record(EndTxnMarker(coordinator_epoch=coordinator_epoch), kind=int(commit))
    return encode_batch(
        [(NOW_MS, key, value, ())],
        producer_id=producer_id,
        producer_epoch=epoch,
        transactional=True,
        control=True,
        **fields,
    )


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


# -- sequences -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("first", [0, 5, MAX_SEQUENCE])
def test_unknown_producer_begins_anywhere_and_goes_on_in_order(bench: Bench, first: int) -> None:
    """PSTA-01, PSTA-02, PSTA-03: also over the largest sequence."""
    bench.data(first)
    following = 0 if first == MAX_SEQUENCE else first + 1
    for wrong in (following + 1, following + 100):
        assert bench.refused(wrong) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert bench.data(following).first_offset == 1


def test_sequences_wrap_inside_a_batch_and_skip_nothing(tmp_path: Path) -> None:
    """PSTA-03, PSTA-04."""
    inside = Bench(tmp_path / "inside")
    inside.data(MAX_SEQUENCE - 1, 4)
    assert inside.data(2).first_offset == 4
    between = Bench(tmp_path / "between")
    between.data(MAX_SEQUENCE)
    assert between.refused(1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_epochs_rise_and_begin_with_sequence_0(bench: Bench) -> None:
    """PSTA-05, PSTA-06, PSTA-18: what an epoch before had sent is no duplicate any more."""
    bench.data(0)
    bench.data(1)
    assert bench.refused(2, epoch=1) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    bench.data(0, epoch=3)
    assert bench.refused(1, epoch=0) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert bench.refused(2, epoch=2) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert bench.producer() == (3, 0, -1, None)


def test_client_batches_need_a_sequence_and_no_control_records(bench: Bench) -> None:
    """PSTA-07, PSTA-08, PSTA-09."""
    control = marker_batch()
    two = data_batch(0) + data_batch(1)
    for batch in (data_batch(-1), control, two, b""):
        with pytest.raises(KafkaError) as error:
            bench.log.append_as_leader(batch, leader_epoch=1, now_ms=NOW_MS)
        assert error.value.code == ErrorCode.INVALID_RECORD, batch[:4]
    assert bench.log.log_end_offset == 0


def test_producers_are_checked_separately(bench: Bench) -> None:
    """PSTA-12."""
    for sequence in range(3):
        bench.data(sequence)
        bench.data(sequence + 40, producer_id=8)
    assert bench.refused(43) == bench.refused(3, producer_id=8) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_coordinators_append_without_sequences(bench: Bench) -> None:
    """PSTA-11: offsets that are committed in a transaction."""
    for _ in range(2):
        bench.data(-1, transactional=True, origin="coordinator")
    assert bench.producer() == (0, -1, -1, 0)


def test_append_that_fails_in_its_second_batch_changes_nothing(bench: Bench) -> None:
    """PSTA-13."""
    bench.data(-1, epoch=5, producer_id=8, origin="coordinator")
    batches = data_batch(-1, producer_id=7) + data_batch(-1, epoch=4, producer_id=8)
    with pytest.raises(KafkaError) as error:
        bench.log.append_as_leader(batches, leader_epoch=1, now_ms=NOW_MS, origin="coordinator")
    assert error.value.code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert ([found.producer_id for found in bench.log.active_producers()], bench.log.log_end_offset) == ([8], 1)


# -- duplicates ------------------------------------------------------------------------------------------------------


def test_last_five_batches_are_known(bench: Bench) -> None:
    """PSTA-14, PSTA-15, PSTA-16, PSTA-17."""
    for number in range(7):
        bench.data(3 * number, 3)
    bench.log.update_high_watermark(21)
    bench.log.advance_log_start_offset(2)
    for number in range(2, 7):
        again = bench.data(3 * number, 3)
        assert (again.duplicate, again.first_offset, again.last_offset) == (True, 3 * number, 3 * number + 2)
        assert (again.log_append_time_ms, again.log_start_offset) == (NOW_MS + 2, 2)
    assert bench.log.log_end_offset == 21
    # Older than that, another end, an overlap.
    for sequence, count in ((3, 3), (18, 2), (18, 4), (17, 3), (19, 2)):
        assert bench.refused(sequence, count) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, sequence
    assert bench.data(21).log_append_time_ms == -1


def test_new_leader_knows_duplicates_from_replication(bench: Bench, tmp_path: Path) -> None:
    """PSTA-21; and PSTA-20: a follower appends a repeated batch as it comes."""
    bench.data(0, 2)
    bench.data(2, 2)
    follower = Bench(tmp_path / "follower")
    follower.log.append_as_follower(bench.everything(), leader_epoch=1)
    again = follower.data(2, 2)
    assert (again.duplicate, again.first_offset) == (True, 2)
    follower.log.append_as_follower(data_batch(2, 2, base_offset=4, partition_leader_epoch=1), leader_epoch=1)
    assert follower.log.log_end_offset == 6


def test_followers_take_gaps_and_old_epochs(bench: Bench) -> None:
    """PSTA-10, PSTA-38: whatever a leader has accepted."""
    batches = [
        data_batch(9, base_offset=0, partition_leader_epoch=1, epoch=4, transactional=True),
        data_batch(50, base_offset=1, partition_leader_epoch=1, epoch=4, transactional=True),
        marker_batch(base_offset=2, partition_leader_epoch=1, epoch=4, coordinator_epoch=8),
        data_batch(70, base_offset=3, partition_leader_epoch=1, epoch=2),
        marker_batch(base_offset=4, partition_leader_epoch=1, epoch=1, coordinator_epoch=3),
    ]
    for batch in batches:
        bench.log.append_as_follower(batch, leader_epoch=1)
    assert bench.log.log_end_offset == 5


# -- transactions ----------------------------------------------------------------------------------------------------


def test_transaction_holds_the_stable_offset_until_its_marker_is_replicated(bench: Bench) -> None:
    """PSTA-26, PSTA-42."""
    bench.data(0)
    for sequence in (1, 2):
        bench.data(sequence, transactional=True)
        assert bench.producer()[3] == bench.log.first_unstable_offset == 1
    bench.marker()
    assert bench.producer()[3] is None
    for high_watermark, expected in ((3, 1), (4, None)):
        bench.log.update_high_watermark(high_watermark)
        assert bench.log.first_unstable_offset == expected


def test_marker_is_a_control_batch_of_one_record(bench: Bench) -> None:
    """PSTA-30."""
    bench.marker(commit=False, epoch=2, coordinator_epoch=9)
    (batch,) = read_batches(bench.everything())
    assert (batch.is_control, batch.is_transactional, batch.base_sequence, batch.record_count) == (True, True, -1, 1)
    ((_, _, key, value, _),) = batch.records()
    assert (key, value) == (struct.pack(">hh", 0, 0), struct.pack(">hi", 0, 9))


def test_first_sequence_of_a_transaction_by_version(tmp_path: Path) -> None:
    """PSTA-29, PSTA-67: version 2 begins with 0; before, the lowest sequence of those that wait is the first."""
    for supports_bump, sequence, lowest, is_taken in (
        (True, 0, 0, True),
        (True, 3, 3, False),
        (False, 3, 3, True),
        (False, 4, 3, False),
    ):
        bench = Bench(tmp_path / f"{supports_bump}-{sequence}")
        fields: dict[str, Any] = {"transactional": True, "verification": (lowest, supports_bump)}
        if is_taken:
            bench.data(sequence, **fields)
        else:
            assert bench.refused(sequence, **fields) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


@pytest.mark.spec("PSTA-37")
def test_control_batch_whose_records_were_cleaned_away_changes_nothing(bench: Bench, tmp_path: Path) -> None:
    bench.data(0, transactional=True)
    empty = bytearray(marker_batch(epoch=5, coordinator_epoch=9, base_offset=1)[:HEADER_BYTES])
    empty[8:12] = (HEADER_BYTES - 12).to_bytes(4)
    empty[57:61] = bytes(4)
    empty[17:21] = crc32c(bytes(empty[21:])).to_bytes(4)
    follower = Bench(tmp_path / "follower")
    follower.log.append_as_follower(bench.everything() + bytes(empty), leader_epoch=1)
    assert follower.log.log_end_offset == 2
    assert follower.producer() == bench.producer() == (0, 0, -1, 0)


@pytest.mark.spec("PSTA-49")
@pytest.mark.parametrize("damage", ["torn", "version", "last offset", "gone"])
def test_damaged_transaction_index_is_built_again_from_the_segment(tmp_path: Path, damage: str) -> None:
    bench = Bench(tmp_path)
    for sequence in range(2):
        bench.data(sequence, transactional=True)
        bench.marker(commit=False)
    bench.log.update_high_watermark(4)
    wanted = bench.log.aborted_transactions(0, 4)
    assert len(wanted) == 2
    bench.log.flush()
    bench.log.close()
    path = bench.log.path / f"{0:020d}.txnindex"
    data = bytearray(path.read_bytes())
    match damage:
        case "torn":
            del data[-1]
        case "version":
            data[1] = 1
        case "last offset":
            data[18:26] = (-5).to_bytes(8, signed=True)
    path.write_bytes(data)
    if damage == "gone":
        path.unlink()
    is_clean = damage != "gone"
    again = Log.open(
        bench.log.path, config=LogConfig(), now_ms=NOW_MS, recovery_point=4 * is_clean, clean_shutdown=is_clean
    )
    assert again.aborted_transactions(0, 4) == wanted
    again.close()


def test_aborted_transactions_are_indexed(bench: Bench) -> None:
    """PSTA-47, PSTA-48: an entry per abort with data; its last stable offset is that of the others."""
    bench.data(0, transactional=True, producer_id=7)
    bench.data(0, transactional=True, producer_id=8)
    bench.marker(producer_id=7)
    bench.marker(commit=False, producer_id=9)
    assert not list(bench.log.path.glob("*.txnindex")) or not any(
        path.stat().st_size for path in bench.log.path.glob("*.txnindex")
    )
    bench.data(1, transactional=True, producer_id=7)
    bench.marker(commit=False, producer_id=8)
    bench.marker(commit=False, producer_id=7)
    wanted = [(8, 1, 5, 4), (7, 4, 6, 7)]
    assert bench.log.aborted_transactions(0, 7) == wanted
    (path,) = bench.log.path.glob("*.txnindex")
    entries = list(struct.iter_unpack(">hqqqq", path.read_bytes()))
    assert entries == [(0, *entry) for entry in wanted]


def test_truncation_takes_aborts_and_opens_transactions_again(bench: Bench) -> None:
    """PSTA-50."""
    bench.data(0, transactional=True)
    bench.marker(commit=False)
    bench.data(1, transactional=True)
    bench.marker(commit=False)
    bench.log.update_high_watermark(4)
    assert bench.log.first_unstable_offset is None
    bench.log.truncate_to(3, now_ms=NOW_MS)
    bench.log.update_high_watermark(3)
    assert (bench.log.aborted_transactions(0, 3), bench.log.first_unstable_offset) == ([(7, 0, 1, 2)], 2)


def test_follower_appends_several_transactions_of_one_producer_at_once(bench: Bench, tmp_path: Path) -> None:
    """A follower that catches up gets many transactions in one answer; Kafka's ProducerAppendInfo keeps all of them."""
    for number in range(3):
        bench.data(0, epoch=number, transactional=True)
        if number < 2:
            bench.marker(commit=number == 1, epoch=number + 1, version=2)
    follower = Bench(tmp_path / "follower")
    follower.log.append_as_follower(bench.everything(), leader_epoch=1)
    for log in (bench.log, follower.log):
        # The third one is open; the first two are over once their markers are below the high watermark.
        assert log.first_unstable_offset == 0
        log.update_high_watermark(log.log_end_offset)
        assert log.first_unstable_offset == 4
        assert log.aborted_transactions(0, log.log_end_offset) == [(7, 0, 1, 2)]


# -- what is forgotten, and snapshots --------------------------------------------------------------------------------


def test_idle_producers_are_forgotten_but_not_in_a_transaction(tmp_path: Path) -> None:
    """PSTA-73, PSTA-74: the setting changes while the log is open."""
    bench = Bench(tmp_path, producer_id_expiration_ms=1_000_000)
    bench.data(5)
    bench.data(0, producer_id=8, transactional=True)
    bench.log.delete_old_segments(NOW_MS + 999_999, 2)
    assert {found.producer_id for found in bench.log.active_producers()} == {7, 8}
    bench.log.update_config(LogConfig(producer_id_expiration_ms=1_000))
    bench.log.delete_old_segments(NOW_MS + 1_000, 2)
    assert {found.producer_id for found in bench.log.active_producers()} == {8}
    assert bench.data(77).first_offset == 2


def test_state_outlives_its_segments(tmp_path: Path) -> None:
    """PSTA-76, PSTA-82: retention removes segments with their snapshots; what is known of producers stays."""
    bench = Bench(tmp_path, retention_ms=10)
    bench.data(5)
    bench.log.roll(NOW_MS)
    bench.data(0, producer_id=8)
    bench.log.roll(NOW_MS)
    bench.log.update_high_watermark(2)
    bench.log.delete_old_segments(NOW_MS + 1_000, 2)
    assert {found.producer_id for found in bench.log.active_producers()} == {7, 8}
    assert [path.name for path in bench.log.path.glob("*.snapshot")] == [f"{2:020d}.snapshot"]
    assert bench.data(6).first_offset == 2


def test_snapshot_has_the_format_of_kafka(bench: Bench) -> None:
    """PSTA-77, PSTA-79: one at each roll, none where nothing came."""
    bench.data(3, 2)
    bench.marker(epoch=2, coordinator_epoch=6)
    bench.data(0, 3, epoch=2, transactional=True)
    bench.log.roll(NOW_MS)
    bench.log.roll(NOW_MS)
    (path,) = bench.log.path.glob("*.snapshot")
    assert path.name == f"{6:020d}.snapshot"
    data = path.read_bytes()
    assert struct.unpack_from(">h", data) == (1,)
    assert struct.unpack_from(">i", data, 6) == (1,)
    assert struct.unpack_from(">qhiqiqiq", data, 10) == (7, 2, 2, 5, 2, NOW_MS + 2, 6, 3)
    assert len(data) == 10 + 46


@pytest.mark.parametrize("damage", ["empty", "cut", "checksum", "version"])
def test_damaged_snapshot_gives_way_to_an_older_one(tmp_path: Path, damage: str) -> None:
    """PSTA-80, PSTA-83: with the records after that one, an open transaction is open again."""
    bench = Bench(tmp_path)
    bench.data(0, transactional=True)
    bench.log.roll(NOW_MS)
    bench.data(1, transactional=True)
    bench.log.roll(NOW_MS)
    bench.data(2, transactional=True)
    bench.log.flush()
    bench.log.close()
    newest = bench.log.path / f"{3:020d}.snapshot"
    if not newest.exists():
        newest = bench.log.path / f"{2:020d}.snapshot"
    data = bytearray(newest.read_bytes())
    match damage:
        case "empty":
            data.clear()
        case "cut":
            del data[30:]
        case "checksum":
            data[20] ^= 1
        case "version":
            data[1] = 9
    newest.write_bytes(data)
    again = Log.open(bench.log.path, config=LogConfig(), now_ms=NOW_MS, recovery_point=3, clean_shutdown=True)
    (found,) = again.active_producers()
    assert (found.last_sequence, found.current_txn_first_offset, again.first_unstable_offset) == (2, 0, 0)


@pytest.mark.spec("PSTA-78")
def test_snapshot_keeps_the_last_batch_and_the_log_those_after_it(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    for sequence in range(3):
        bench.data(sequence)
    bench.log.roll(NOW_MS)
    for sequence in (3, 4):
        bench.data(sequence)
    bench.log.flush()
    bench.log.close()
    (bench.log.path / f"{5:020d}.snapshot").unlink(missing_ok=True)
    bench.log = Log.open(bench.log.path, config=LogConfig(), now_ms=NOW_MS, recovery_point=5, clean_shutdown=True)
    for older in (0, 1):
        assert bench.refused(older) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    for known in (2, 3, 4):
        assert (bench.data(known).first_offset, bench.log.log_end_offset) == (known, 5)
    assert bench.data(5).first_offset == 5


@pytest.mark.spec("PSTA-85")
def test_clean_start_without_snapshots_scans_nothing(tmp_path: Path) -> None:
    bench = Bench(tmp_path)
    for sequence in range(3):
        bench.data(sequence)
        bench.log.roll(NOW_MS)
    bench.data(3)
    bench.log.flush()
    bench.log.close()
    for path in bench.log.path.glob("*.snapshot"):
        path.unlink()
    again = Log.open(bench.log.path, config=LogConfig(), now_ms=NOW_MS, recovery_point=4, clean_shutdown=True)
    assert again.active_producers() == []
    assert sorted(int(path.stem) for path in bench.log.path.glob("*.snapshot")) == [2, 3, 4]
    assert [event.kind for event in again.recovery_events] == ["producers-forgotten"]


def test_reload_drops_expired_producers_and_snapshots_out_of_range(tmp_path: Path) -> None:
    """PSTA-81, PSTA-84."""
    bench = Bench(tmp_path)
    for sequence in range(4):
        bench.data(sequence)
        bench.log.roll(NOW_MS)
    bench.log.truncate_to(2, now_ms=NOW_MS)
    assert max(int(path.stem) for path in bench.log.path.glob("*.snapshot")) <= 2
    assert bench.producer()[1] == 1
    bench.log.close()
    later = NOW_MS + 2 * 86_400_000
    again = Log.open(bench.log.path, config=LogConfig(), now_ms=later, recovery_point=2, clean_shutdown=True)
    assert again.active_producers() == []


def clean(bench: Bench, now_ms: int) -> list[tuple[int, bool, int]]:
    """Compact everything so far; base offset, whether it is a marker, and count of records of each batch."""
    bench.log.roll(now_ms)
    bench.log.update_high_watermark(bench.log.log_end_offset)
    bench.log.clean(
        first_dirty_offset=0,
        first_uncleanable_offset=bench.log.log_end_offset,
        now_ms=now_ms,
        delete_retention_ms=1000,
    )
    data = bytes(bench.log.read(0, max_bytes=1 << 20, end_offset=bench.log.log_end_offset))
    return [(batch.base_offset, batch.is_control, len(list(batch.records()))) for batch in read_batches(data)]


def keyed(key: bytes, **fields: Any) -> bytes:
    return encode_batch([(NOW_MS, key, b"x", [])], **fields)


def test_markers_outlive_their_data_and_a_producer_keeps_its_last_batch(tmp_path: Path) -> None:
    """PSTA-55: delete.retention.ms counts from the first clean that finds the data gone."""
    bench = Bench(tmp_path, cleanup_policy="compact")

    def append(key: bytes, **fields: Any) -> None:
        bench.log.append_as_leader(keyed(key, **fields), leader_epoch=1, now_ms=NOW_MS)

    # Offsets 0 to 3: an aborted transaction and one whose record is overwritten; 4 to 7: one more of each producer.
    for sequence in (0, 1):
        for producer_id in (7, 8):
            producer = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": sequence}
            append(b"old" if not sequence else b"%d" % producer_id, transactional=True, **producer)
            bench.marker(commit=sequence == 1 or producer_id == 8, producer_id=producer_id)
    append(b"old", producer_id=9, producer_epoch=0, base_sequence=0)
    append(b"old")
    kept = [(4, False, 1), (5, True, 1), (6, False, 1), (7, True, 1), (8, False, 0), (9, False, 1)]
    markers = [(1, True, 1), (3, True, 1)]
    assert clean(bench, NOW_MS) == markers + kept, "their data are gone with this clean"
    assert clean(bench, NOW_MS + 10) == markers + kept, "their time begins to run"
    assert clean(bench, NOW_MS + 1009) == markers + kept
    assert clean(bench, NOW_MS + 1010) == kept
    assert sorted(found.producer_id for found in bench.log.active_producers()) == [7, 8, 9]
    reopened = Log.open(tmp_path / "t-0", config=LogConfig(cleanup_policy="compact"), now_ms=NOW_MS)
    assert [found.last_sequence for found in reopened.active_producers() if found.producer_id == 9] == [0]
