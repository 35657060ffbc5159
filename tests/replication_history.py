"""Drawn histories of the replicas of one partition and of their controller, with the product's log and fetcher."""

from __future__ import annotations

from collections import Counter
from random import Random

from replication_broker import BACKOFF_MS, LAG_MS
from replication_model import Model

STEPS = 250


class ReplicationHistory:
    """One history; ``play`` runs it.

    Args:
        seed: Of all chance.
        is_unclean: Whether elections may be unclean; by default in every second one.
    """

    def __init__(self, seed: int, *, is_unclean: bool | None = None) -> None:
        self.rng = Random(seed)
        self.model = Model(is_unclean=seed % 2 == 1 if is_unclean is None else is_unclean)

    def play(self) -> Counter[str]:
        """Run the history, then let every replica catch up.

        Returns:
            How often what happened.

        Raises:
            AssertionError: A rule is broken.
        """
        held: list = []
        try:
            self.model.tell()
            for _ in range(STEPS):
                any_event(self.model, self.rng, held)
                self.model.check()
            self.model.recover()
            return self.model.counts
        finally:
            self.model.close()


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
