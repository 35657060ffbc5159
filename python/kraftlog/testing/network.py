"""A network that loses, repeats, delays and reorders messages, and is cut between any two nodes, one way or both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from random import Random

from kraftlog.testing.scheduler import Scheduler

__all__ = ["SimulatedNetwork"]


class SimulatedNetwork:
    """Messages between nodes known by id.

    Attributes:
        loss, duplication: Probabilities for each message.
        delay_us: Least and greatest delay.
        slow_delay_us: Delay of the messages that are held up.
        slowness: Probability of being held up, which reorders.
        blocked: Pairs (from, to) whose messages are lost.
        counters: What happened, by name.
    """

    __slots__ = (
        "_rng",
        "_scheduler",
        "blocked",
        "counters",
        "delay_us",
        "duplication",
        "loss",
        "slow_delay_us",
        "slowness",
    )

    def __init__(self, scheduler: Scheduler, rng: Random) -> None:
        self._scheduler = scheduler
        self._rng = rng
        self.loss = 0.0
        self.duplication = 0.0
        self.slowness = 0.0
        self.delay_us = (200, 2_000)
        self.slow_delay_us = (20_000, 900_000)
        self.blocked: set[tuple[int, int]] = set()
        self.counters: Counter[str] = Counter()

    def heal(self) -> None:
        """No faults any more."""
        self.loss = self.duplication = self.slowness = 0.0
        self.blocked.clear()

    def send(self, source: int, target: int, deliver: Callable[[], None]) -> None:
        """Deliver a message, perhaps."""
        rng = self._rng
        if self.blocked and (source, target) in self.blocked:
            self.counters["message_blocked"] += 1
            return
        if self.loss and rng.random() < self.loss:
            self.counters["message_lost"] += 1
            return
        self._scheduler.after(self._delay_us(), deliver)
        if self.duplication and rng.random() < self.duplication:
            self.counters["message_duplicated"] += 1
            self._scheduler.after(self._delay_us(), deliver)

    def _delay_us(self) -> int:
        rng = self._rng
        low, high = self.delay_us
        if self.slowness and rng.random() < self.slowness:
            self.counters["message_held_up"] += 1
            low, high = self.slow_delay_us
        return low + int(rng.random() * (high - low))

    # Shapes of a cut

    def isolate(self, node_id: int, others: list[int]) -> None:
        """Cut a node off, both ways."""
        for other in others:
            self.blocked |= {(node_id, other), (other, node_id)}
        self.counters["isolated"] += 1

    def cut_one_way(self, source: int, target: int) -> None:
        """Lose what ``source`` sends to ``target``."""
        self.blocked.add((source, target))
        self.counters["cut_one_way"] += 1

    def split(self, left: list[int], right: list[int]) -> None:
        """Cut the nodes into two groups."""
        for one in left:
            for other in right:
                self.blocked |= {(one, other), (other, one)}
        self.counters["split"] += 1

    def bridge(self, left: list[int], right: list[int], middle: int) -> None:
        """Cut the nodes into two groups that one node still reaches."""
        self.split([one for one in left if one != middle], [one for one in right if one != middle])
        self.counters["bridged"] += 1
