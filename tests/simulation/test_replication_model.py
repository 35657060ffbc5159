"""Random histories of one replicated partition, and the orders of events that were bugs of Apache Kafka."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest

from kraftlog._kraftlog import append_fetched
from kraftlog.errors import OffsetOutOfRangeError
from replication_broker import BACKOFF_MS, LAG_MS
from replication_model import Model

SEEDS = 60
EVENTS = 250


def any_event(model: Model, rng: Random, held: list) -> None:
    """One event: of a client, a follower, the controller, a network or a machine."""
    broker_id = rng.choice(list(model.brokers))
    broker = model.brokers[broker_id]
    match rng.choices(range(16), (30, 30, 14, 20, 20, 5, 5, 3, 3, 3, 3, 3, 2, 4, 2, 8))[0]:
        case 0:
            model.produce(broker_id, rng.choice((-1, -1, 1)))
        case 1:
            broker.fetch()
        case 2:
            answered = broker.ask()
            if answered is not None:
                held.append((broker, broker.partition, answered))
        case 3:
            broker.follow(rng.randrange(max(0, broker.metadata), len(model.states)))
        case 4:
            model.propose(broker_id, is_answer_lost=rng.random() < 0.2)
        case 5:
            leader = model.leader
            joining = leader.maximal() - set(leader.partition.isr) if leader is not None else set()
            model.fence(rng.choice(sorted(joining) or [broker_id]))
            if joining and rng.random() < 0.5:
                model.propose(leader.broker_id)
        case 6:
            model.unfence(broker_id)
        case 7:
            if may_lose(model, broker_id):
                model.crash(broker_id, loses_data=rng.random() < 0.5)
        case 8:
            model.start(broker_id)
        case 9:
            model.reassign(rng.sample(list(model.brokers), rng.choice((2, 3))))
        case 10:
            model.reassign(None)
        case 11:
            model.elect()
        case 12:
            model.cut_links ^= {frozenset((broker_id, rng.choice(list(model.brokers))))}
        case 13:
            model.now_ms += rng.choice((1, BACKOFF_MS, 2 * LAG_MS))
        case 14:
            if broker.is_leader and broker.partition.high_watermark > broker.log.log_start_offset:
                offset = rng.randint(broker.log.log_start_offset, broker.partition.high_watermark)
                broker.log.advance_log_start_offset(offset)
        case 15:
            if rng.random() < 0.3:
                model.produce(broker_id)
                model.now_ms += 2 * LAG_MS
            model.shrink(broker_id)
            model.propose(broker_id)
    if held and rng.random() < 0.3:
        # An answer that was under way may come behind a change of leaders, and never to another process.
        broker, partition, answered = held.pop(rng.randrange(len(held)))
        if broker.partition is partition:
            broker.take(answered)


def may_lose(model: Model, broker_id: int) -> bool:
    """Whether somebody else has all that was acknowledged: what a clean election needs (RINV-03)."""
    image = model.image
    others = {*image.isr, *image.elr} - {broker_id}
    return bool(others) and not any(not model.brokers[other].is_running for other in others)


def play(seed: int, *, is_unclean: bool = False) -> Counter[str]:
    rng = Random(seed)
    model = Model(is_unclean=is_unclean)
    held: list = []
    try:
        model.tell()
        for _ in range(EVENTS):
            any_event(model, rng, held)
            model.check()
        model.recover()
        return model.counts
    finally:
        model.close()


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
        counts += play(seed)
    assert {name for name in WANTED if not counts[name]} == set()


def test_unclean_elections_end_in_one_history():
    """RINV-30: whatever was lost, all replicas have the log of the last leader, and no mix of two."""
    counts: Counter[str] = Counter()
    for seed in range(SEEDS // 2):
        counts += play(seed, is_unclean=True)
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
