"""Drawn histories of the fetch sessions of a broker, against a dictionary and the order of eviction of KIP-227."""

from __future__ import annotations

from collections import Counter
from dataclasses import astuple, dataclass, field
from random import Random

from kraftlog.runtime.replica.fetch_session import FetchSession, FetchSessionCache, SessionPartition
from kraftlog.testing.log_invariants import InvariantViolationError
from kraftlog.types import Uuid

STEPS = 200
EVICTION_MS = 100
_TOLD = 2  # the last fields of a partition: what the client was told


def violated(rule: str, reason: str) -> InvariantViolationError:
    return InvariantViolationError(rule, reason, [])


@dataclass(slots=True)
class Known:
    """A session, as its client knows it."""

    session: FetchSession
    created_ms: int
    used_ms: int
    epoch: int = 1
    wanted: dict[tuple[str, int], tuple[object, ...]] = field(default_factory=dict)

    @property
    def rank(self) -> tuple[bool, int]:
        return self.session.is_privileged, len(self.wanted)


class SessionHistory:
    """One history; ``play`` runs it.

    Args:
        seed: Of all chance.
    """

    def __init__(self, seed: int) -> None:
        self.rng = rng = Random(f"{seed}/sessions")
        self.counts: Counter[str] = Counter()
        self.slots = rng.choice((1, 2, 4))
        self.cache = FetchSessionCache(self.slots, EVICTION_MS, Random(seed), id_step=rng.choice((1, 2)))
        self.known: dict[int, Known] = {}
        self.now_ms = 0

    def partition(self) -> SessionPartition:
        rng = self.rng
        return SessionPartition(
            rng.choice(("t", "u", "v")),
            Uuid.ZERO,
            rng.randrange(3),
            rng.randrange(1 << 20),
            rng.randrange(1000),
            rng.randrange(-1, 9),
            rng.randrange(-1, 9),
            rng.randrange(1000),
        )

    def create(self) -> None:
        found = {partition.key: partition for partition in (self.partition() for _ in range(self.rng.randint(1, 6)))}
        is_privileged = self.rng.random() < 0.4
        wanted = {key: astuple(partition)[:-_TOLD] for key, partition in found.items()}
        session = self.cache.create(
            found.values(), is_privileged=is_privileged, uses_topic_ids=False, now_ms=self.now_ms
        )
        victim = self.victim((is_privileged, len(wanted)))
        if (session is not None) != (len(self.known) < self.slots or victim is not None):
            raise violated("RINV-89", f"{is_privileged} {len(wanted)}: session {session}, others {self.known}")
        if session is None:
            self.counts["refused"] += 1
            return
        if len(self.known) >= self.slots and victim is not None:
            del self.known[victim]
            self.counts["evicted"] += 1
        if session.session_id in self.known:
            raise violated("KIP-227", f"two sessions have the id {session.session_id}")
        self.known[session.session_id] = Known(session, self.now_ms, self.now_ms, wanted=wanted)

    def victim(self, rank: tuple[bool, int]) -> int | None:
        """Whom KIP-227 evicts for a new session: the oldest if it is idle, else the least of those that had time."""
        oldest = min(self.known, key=lambda name: self.known[name].used_ms, default=None)
        if oldest is not None and self.now_ms - self.known[oldest].used_ms > EVICTION_MS:
            return oldest
        mature = [name for name, known in self.known.items() if self.now_ms - known.created_ms > EVICTION_MS]
        least = min(mature, key=lambda name: self.known[name].rank, default=None)
        return least if least is not None and self.known[least].rank < rank else None

    def fetch(self) -> None:
        if not self.known:
            return
        name = self.rng.choice(list(self.known))
        known = self.known[name]
        epoch = known.epoch + (self.rng.random() < 0.1)
        found = self.cache.find(name, epoch, uses_topic_ids=False, now_ms=self.now_ms)
        if isinstance(found, int) == (epoch == known.epoch):
            raise violated("KIP-227", f"session {name} of epoch {known.epoch} is asked in {epoch}: {found}")
        if isinstance(found, int):
            return
        known.epoch, known.used_ms = known.epoch + 1, self.now_ms
        # The least recently used is the first one that the cache looks at; equal times are in the order of use.
        self.known[name] = self.known.pop(name)
        wanted = {partition.key: partition for partition in (self.partition() for _ in range(self.rng.randrange(3)))}
        forgotten = [key for key in known.wanted if self.rng.random() < 0.1 and key not in wanted]
        known.wanted |= {key: astuple(partition)[:-_TOLD] for key, partition in wanted.items()}
        for key in forgotten:
            del known.wanted[key]
        found.update(wanted.values(), forgotten)
        if known.wanted and self.rng.random() < 0.5:
            key = self.rng.choice(list(known.wanted))
            found.move_to_end(key)
        self.counts["fetched"] += 1

    def remove(self) -> None:
        if self.known and self.rng.random() < 0.2:
            name = self.rng.choice(list(self.known))
            del self.known[name]
            self.cache.remove(name)

    def time(self) -> None:
        self.now_ms += self.rng.choice((1, 30, EVICTION_MS + 1))

    def check(self) -> None:
        if len(self.cache) != len(self.known):
            raise violated("KIP-227", f"{len(self.cache)} sessions are open, {len(self.known)} clients have one")
        for name, known in self.known.items():
            found = {partition.key: astuple(partition)[:-_TOLD] for partition in known.session}
            if found != known.wanted:
                raise violated("RINV-89", f"session {name} has {found}, asked for was {known.wanted}")

    def play(self) -> Counter[str]:
        """Run the history.

        Returns:
            How often what happened.

        Raises:
            InvariantViolationError: A rule is broken.
        """
        for name in self.rng.choices(("create", "fetch", "remove", "time"), (2, 5, 1, 2), k=STEPS):
            getattr(self, name)()
            self.check()
        return self.counts
