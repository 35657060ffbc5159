"""Random histories of one replicated partition, and the orders of events that were bugs of Apache Kafka."""

from __future__ import annotations

from collections import Counter

import pytest

from kraftlog._kraftlog import append_fetched
from kraftlog.errors import OffsetOutOfRangeError
from replication_broker import BACKOFF_MS
from replication_history import ReplicationHistory
from replication_model import Model

SEEDS = 60


# What has to happen in the histories, or they would show little.
WANTED = {
    "clean election", "election by ELR", "divergence", "out of range", "append of a zombie", "expand", "shrink",
    "AlterPartition 95", "AlterPartition 74", "AlterPartition 107", "AlterPartition 108",
    "lost answer", "several epochs at once", "epoch changed under a fetch", "reassignment", "cancelled reassignment",
    "lost disk", "ack", "ack 6",
}  # fmt: skip


def test_random_histories_keep_every_invariant():
    """RINV-02, RINV-03, RINV-04, RINV-12, RINV-17, RINV-18, RINV-19, RINV-24, RINV-25, RINV-32, RINV-33, RINV-35.

    RINV-36, RFET-88, RFET-89 and ISR-90, too: brokers lose unflushed data and whole disks, one at a time. RINV-40:
    everything that makes such histories hard happens in them.
    """
    counts: Counter[str] = Counter()
    for seed in range(SEEDS):
        counts += ReplicationHistory(seed, is_unclean=False).play()
    assert {name for name in WANTED if not counts[name]} == set()


def test_unclean_elections_end_in_one_history():
    """RINV-30: whatever was lost, all replicas have the log of the last leader, and no mix of two."""
    counts: Counter[str] = Counter()
    for seed in range(SEEDS // 2):
        counts += ReplicationHistory(seed, is_unclean=True).play()
    assert counts["unclean election"]
    assert counts["below own high watermark"]


@pytest.fixture
def model(request):
    """Brokers 1, 2 and 3; 1 leads, all are in sync and up to date; elections may be unclean if the test says so."""
    one = Model(3, is_unclean=getattr(request, "param", False))
    one.tell()
    yield one
    one.close()


def replicate(model: Model, *followers: int) -> None:
    for _ in range(3):
        model.now_ms += BACKOFF_MS
        for broker_id in followers:
            model.brokers[broker_id].fetch()
    model.check()


def lead(model: Model, broker_id: int) -> None:
    """Elect a broker without asking what it has; only it hears of that."""
    for other in model.brokers:
        model.fence(other)
    model.unfence(broker_id)
    assert model.image.leader == broker_id
    model.tell(broker_id)


@pytest.mark.parametrize("model", [True], indirect=True)
def test_leaders_that_take_turns_with_unreplicated_records_end_alike(model):
    """LEPO-60: KAFKA-6361, KIP-279: A, B, A, each with a record of its own that only its leader acknowledged."""
    model.produce(1)
    replicate(model, 2, 3)
    for broker_id in (1, 2, 1, 2):
        if model.image.leader != broker_id:
            lead(model, broker_id)
        assert model.produce(broker_id, acks=1) is not None
    held = {broker_id: model.values(model.brokers[broker_id]) for broker_id in (1, 2)}
    assert (held[1][0], held[1][1] == held[2][1]) == (held[2][0], False)
    model.recover()
    found = list(model.values(model.brokers[3]).values())
    assert [epoch for _, epoch in found] == sorted(epoch for _, epoch in found)
    assert found == list(held[2].values()), "the log of the last leader"


@pytest.mark.parametrize("model", [True], indirect=True)
def test_replica_with_a_high_watermark_of_its_own_loses_a_tail_that_the_next_leader_does_not_have(model):
    """RINV-43: KIP-101, second case: both crash, the one with fewer records leads and writes first."""
    model.produce(1)
    replicate(model, 2, 3)
    for _ in range(2):
        model.produce(1)
        model.brokers[2].fetch()
        model.brokers[3].fetch()
    assert model.brokers[1].partition.high_watermark == 2
    longer = model.values(model.brokers[1])
    for broker_id in (3, 1, 2):
        model.crash(broker_id, loses_data=broker_id == 2)
        model.fence(broker_id)
    assert model.brokers[1].checkpoint == 2
    model.start(2)
    model.unfence(2)
    assert model.image.leader == 2
    model.tell()
    assert [model.produce(2, acks=1) for _ in range(2)] == [0, 1]
    shorter = model.values(model.brokers[2])
    assert shorter[0] != longer[0]
    model.recover()
    assert model.values(model.brokers[1]) == shorter, "by the epochs, not up to the high watermark of its own"


def test_change_in_flight_survives_metadata_that_says_nothing_new(model):
    """RINV-24, fails before the fix: a changed setting of the topic had the leader forget whom it had proposed."""
    leader = model.brokers[1]
    model.fence(3)
    model.unfence(3)
    model.tell()
    replicate(model, 2, 3)
    assert leader.maximal() == {1, 2, 3}
    model.propose(1, is_answer_lost=True)
    assert set(model.image.isr) == {1, 2, 3}
    leader.metadata -= 1
    leader.follow(len(model.states) - 2)
    assert leader.maximal() == {1, 2, 3}
    model.check()


def test_nothing_is_appended_after_a_failed_write(model):
    """RINV-56: KAFKA-10778; what a follower could not write it never acknowledges, also if the disk works again."""
    follower, leader = model.brokers[2], model.brokers[1]
    model.produce(1)
    replicate(model, 2, 3)
    assert follower.log.log_end_offset == 1
    model.produce(1)
    follower.disk.fail("write", 0, 5)
    for expected in ("", "Poisoned"):
        answered = follower.ask()
        *_, answer, records, log_start = answered
        follower.asking = None
        entry = (follower.partition, records, 1, follower.partition.leader_epoch, answer.high_watermark, log_start)
        ((kind, *_, error),) = append_fetched([entry], now_ms=model.now_ms, flush=False)
        assert kind not in {"", "superseded"}
        assert expected in type(error).__name__
        assert follower.log.poisoned is not None
        assert follower.log.log_end_offset == 1
    replicate(model, 3)
    assert leader.partition.high_watermark == 1, "the member that cannot write is waited for"


def test_deleted_records_are_served_by_no_live_replica(model):
    """RINV-19: DeleteRecords answers once each live replica's log starts there, and no start falls in a restart."""
    for _ in range(4):
        model.produce(1)
    replicate(model, 2, 3)
    replicate(model, 2, 3)
    leader = model.brokers[1]
    assert leader.partition.high_watermark == 4
    leader.log.advance_log_start_offset(3)
    replicate(model, 2)
    assert leader.partition.low_watermark < 3, "one follower has not deleted them"
    replicate(model, 3)
    # The second fetch tells the leader what the first one's answer brought about.
    replicate(model, 3)
    assert leader.partition.low_watermark == 3
    for broker in model.brokers.values():
        assert broker.log.log_start_offset == 3
        with pytest.raises(OffsetOutOfRangeError):
            broker.log.read(2, max_bytes=300, end_offset=4)
    model.crash(2, loses_data=True)
    model.start(2)
    model.tell()
    replicate(model, 2)
    assert model.brokers[2].log.log_start_offset == 3
    model.log_starts[2] = 4
    model._seen.pop(2)
    with pytest.raises(AssertionError, match="RINV-19"):
        model.check()
