"""A network that loses, repeats, delays and reorders messages, and is cut between any two nodes, one way or both."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable
from random import Random

from kraftlog.testing.scheduler import Scheduler

__all__ = ["Cut", "SimulatedNetwork"]

Link = tuple[int, int]
DELAY_US = (200, 2_000)


class Cut:
    """Links that are cut together and mended together; one that two cuts share works when both are mended."""

    __slots__ = ("links",)

    def __init__(self, links: Iterable[Link]) -> None:
        self.links = tuple(dict.fromkeys(links))


class SimulatedNetwork:
    """Messages between nodes known by id.

    Attributes:
        loss: Probability that a message is lost.
        duplication: Probability that it comes twice.
        slowness: Probability that it is held up, which reorders.
        delay_us: Least and greatest delay.
        slow_delay_us: Delay of the messages that are held up.
        counters: What happened, by name.
    """

    __slots__ = (
        "_cuts",
        "_random",
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
        self._random = rng.random
        self._cuts: list[Cut] = []
        self.blocked: set[Link] = set()
        self.loss = 0.0
        self.duplication = 0.0
        self.slowness = 0.0
        self.delay_us = DELAY_US
        self.slow_delay_us = (20_000, 900_000)
        self.counters: Counter[str] = Counter()

    def heal(self) -> None:
        """No faults any more."""
        self.loss = self.duplication = self.slowness = 0.0
        self.delay_us = DELAY_US
        self._cuts.clear()
        self.blocked.clear()

    def send(self, source: int, target: int, deliver: Callable[..., object], *arguments: object) -> None:
        """Deliver a message, perhaps."""
        if self.blocked and (source, target) in self.blocked:
            self.counters["message_blocked"] += 1
            return
        random = self._random
        if self.loss and random() < self.loss:
            self.counters["message_lost"] += 1
            return
        low, high = self.delay_us
        if self.slowness:
            low, high = self._held_up(low, high)
        self._scheduler.after(low + int(random() * (high - low)), deliver, *arguments)
        if self.duplication and random() < self.duplication:
            self.counters["message_duplicated"] += 1
            low, high = self._held_up(*self.delay_us)
            self._scheduler.after(low + int(random() * (high - low)), deliver, *arguments)

    def _held_up(self, low: int, high: int) -> tuple[int, int]:
        if self._random() < self.slowness:
            self.counters["message_held_up"] += 1
            return self.slow_delay_us
        return low, high

    # Cuts

    def cut(self, links: Iterable[Link]) -> Cut:
        """Lose everything along these links (from, to) until ``mend``."""
        made = Cut(links)
        self._cuts.append(made)
        self.blocked.update(made.links)
        return made

    def mend(self, cut: Cut) -> None:
        """Take a cut back; harmless when it was healed meanwhile."""
        if cut in self._cuts:
            self._cuts.remove(cut)
            self.blocked = {link for cut in self._cuts for link in cut.links}

    def isolate(self, node_id: int, others: Iterable[int]) -> Cut:
        """Cut a node off, both ways."""
        return self.cut(link for other in others for link in ((node_id, other), (other, node_id)))

    def cut_one_way(self, source: int, target: int) -> Cut:
        """Lose what ``source`` sends to ``target``."""
        return self.cut([(source, target)])

    def split(self, left: Iterable[int], right: Iterable[int]) -> Cut:
        """Cut the nodes into two groups."""
        far = list(right)
        return self.cut(link for near in left for other in far for link in ((near, other), (other, near)))

    def bridge(self, left: Iterable[int], right: Iterable[int], middle: int) -> Cut:
        """Cut the nodes into two groups that one node still reaches."""
        return self.split(
            [near for near in left if near != middle], [far_node for far_node in right if far_node != middle]
        )
