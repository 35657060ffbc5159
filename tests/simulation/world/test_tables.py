"""Compacted topics in simulated clusters: cleaners run, and what they must not drop is noticed."""

from __future__ import annotations

import pytest

from kraftlog._kraftlog import encode_batch
from kraftlog.runtime.replica.compactor import LogCleaner
from kraftlog.testing import InvariantViolationError
from kraftlog.testing.world.cluster import Cluster
from kraftlog.testing.world.compacted_records import CompactedRecords
from kraftlog.testing.world.history import TableHistory
from kraftlog.wire.messages.control_records import EndTxnMarker
from kraftlog.wire.records import encode_control_record

from .table_workload import tables

SETTINGS = {
    "default.replication.factor": "3",
    "log.cleaner.backoff.ms": "200",
    "log.cleaner.dedupe.buffer.size": "1048576",
    "min.insync.replicas": "2",
}


def run_tables():
    """Twelve seconds with a leader that loses power; returns how many logs were cleaned."""
    cleaned = []
    clean = LogCleaner._clean

    def count(cleaner, task):
        cleaned.append(str(task.entry.partition))
        return clean(cleaner, task)

    with pytest.MonkeyPatch.context() as patch, Cluster(2, properties=SETTINGS) as cluster:
        patch.setattr(LogCleaner, "_clean", count)
        task = cluster.begin(tables(cluster))
        cluster.run_for(6_000)
        cluster.power_off(cluster.leader_of("table", 0), data="torn", names="any")
        cluster.run_for(6_000)
        cluster.become_quiet()
        cluster.recover()
        cluster.run_until(task.done, within_ms=120_000)
        task.result()
        cluster.recover()
        assert cluster.checkers.looked["RINV-01"]
    return len(cleaned)


@pytest.mark.slow
def test_tables_are_cleaned_and_keep_the_last_value_of_each_key():
    assert run_tables() > 5


# What was committed of a compacted partition


def batch(*records, base_offset=0, **options):
    pairs = [(1, key, value, ()) for key, value in records]
    return encode_batch(pairs, base_offset=base_offset, partition_leader_epoch=0, **options)


def marker(base_offset, *, is_commit, producer_id=7):
    pair = encode_control_record(EndTxnMarker(coordinator_epoch=0), kind=int(is_commit))
    return batch(pair, base_offset=base_offset, control=True, transactional=True, producer_id=producer_id)


def test_replicas_have_the_same_records_and_may_lack_older_ones():
    records = CompactedRecords()
    assert records.check("p", "leader", batch((b"a", b"1"), (b"b", b"2"), (b"a", b"3"))) == 3
    cleaned = batch((b"b", b"2"), base_offset=1)
    records.check("p", "follower", cleaned)
    with pytest.raises(InvariantViolationError, match="RINV-14"):
        records.check("p", "follower", batch((b"a", b"9")))
    records.check_kept("p", "follower", 0, cleaned + batch((b"a", b"3"), base_offset=2))
    records.check_kept("p", "follower", 3, b"")
    for wrong in (cleaned, batch((b"a", b"1")) + cleaned):
        with pytest.raises(InvariantViolationError, match="RINV-01"):
            records.check_kept("p", "follower", 0, wrong)


def test_a_record_is_not_where_none_was():
    records = CompactedRecords()
    records.check("p", "leader", batch((b"a", b"1")) + batch((b"a", b"2"), base_offset=4))
    with pytest.raises(InvariantViolationError, match="RINV-14"):
        records.check("p", "follower", batch((b"b", b"2"), base_offset=2))


def test_tombstones_may_go_with_what_they_delete():
    records = CompactedRecords()
    records.check("p", "leader", batch((b"a", b"1"), (b"a", None)))
    records.check_kept("p", "leader", 0, b"")
    with pytest.raises(InvariantViolationError, match="RINV-01"):
        records.check_kept("p", "leader", 0, batch((b"a", b"1")))


def test_records_of_aborted_transactions_may_go_and_those_of_committed_ones_stay():
    kept = batch((b"a", b"1"))
    for is_commit in (False, True):
        records = CompactedRecords()
        written = kept + batch((b"a", b"2"), base_offset=1, transactional=True, producer_id=7)
        records.check("p", "leader", written)
        records.check_kept("p", "leader", 0, kept)  # the transaction is open
        end = marker(2, is_commit=is_commit)
        records.check("p", "leader", end)
        records.check_kept("p", "leader", 0, (written if is_commit else kept) + end)
        if is_commit:
            with pytest.raises(InvariantViolationError, match="RINV-01"):
                records.check_kept("p", "leader", 0, kept + end)


def test_a_value_that_was_read_is_one_that_was_written():
    history = TableHistory()
    assert [history.written("k", value) for value in (b"1", None, b"3")] == [1, 2, 3]
    history.acked("k", 2)
    assert history.check_read([("k", 1, b"1"), ("k", 3, b"3")]) == {"k": 3}
    for wrong in ([("k", 4, b"4")], [("k", 1, b"2")], [("other", 1, b"1")]):
        with pytest.raises(InvariantViolationError, match="RINV-20"):
            history.check_read(wrong)
    with pytest.raises(InvariantViolationError, match="RINV-05"):
        history.check_read([("k", 3, b"3"), ("k", 1, b"1")])


def test_an_acknowledged_value_is_there_unless_a_tombstone_was_written():
    history = TableHistory()
    history.written("k", b"1")
    history.acked("k", 1)
    history.check_complete({"k": 1})
    with pytest.raises(InvariantViolationError, match="RINV-01"):
        history.check_complete({})
    history.written("k", None)
    history.check_complete({})
    history.check_complete({"k": 1})
    history.acked("k", 2)
    with pytest.raises(InvariantViolationError, match="RINV-01"):
        history.check_complete({"k": 1})
    history.check_complete({})
