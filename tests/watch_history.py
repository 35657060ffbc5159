"""Drawn histories of the watch of the active controller over brokers whose process may have ended.

Processes end and begin, refuse one connection while they are well, reconnect, and leave probes without an answer. The
watch may fence only who is gone, and has to fence who is gone for good.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from random import Random
from types import SimpleNamespace
from typing import Any

from kraftlog.runtime.metadata import broker_watch
from kraftlog.runtime.metadata.broker_watch import BrokerWatch, Finding
from kraftlog.testing.log_invariants import InvariantViolationError
from virtual_loop import VirtualLoop

STEPS = 150
BROKERS = (1, 2, 3, 4)


def violated(rule: str, reason: str) -> InvariantViolationError:
    return InvariantViolationError(rule, reason, [])


class Connection:
    """What a controller knows of the end of a connection."""

    def __init__(self) -> None:
        self.is_open = True
        self._calls: list[Callable[[], object]] = []

    def add(self, call: Callable[[], object]) -> None:
        self._calls.append(call)

    def end(self) -> None:
        self.is_open = False
        calls, self._calls = self._calls, []
        for call in calls:
            call()


class Process:
    """A broker's process; ``connection`` is that of its last heartbeat, ``epoch`` of the last registration.

    One that began again has not registered before its first heartbeat: the epoch is that of a process that has ended.
    """

    def __init__(self) -> None:
        self.is_running = self.is_registered = True
        self.epoch = 1
        self.fenced = False
        self.connection: Connection | None = None
        self.has_refused = False


class WatchHistory:
    """One history; ``play`` runs it.

    Args:
        seed: Of all chance.
    """

    def __init__(self, seed: int) -> None:
        self.rng = rng = Random(f"{seed}/watch")
        self.counts: Counter[str] = Counter()
        self.loop = VirtualLoop()
        self.processes = {broker_id: Process() for broker_id in BROKERS}
        self.is_calm = False
        # Brokers that the active controller has heard of, and those that answered a probe of it.
        self.heard: set[int] = set()
        self.answered = False
        self.unrest = {name: rng.choice((0.0, 0.1, 0.4)) for name in ("refuse", "silence")}
        self.probes: list[tuple[int, asyncio.Future[Finding]]] = []
        self.epoch = 0
        with self.loop.running():
            self.new_watch()
        names = ("kill", "start", "beat", "beat", "reconnect", "probe", "probe", "time", "move", "kill_all")
        self.weights = Counter({name: rng.choice((1, 3)) for name in names})
        self.weights["probe"] = 10
        self.weights["move"] = self.weights["kill_all"] = 0.5  # type: ignore[assignment]

    def new_watch(self) -> None:
        self.watch = BrokerWatch(99, self.loop, lambda: self, self.fence)
        self.heard, self.answered = set(), False
        self.watch.begin()

    # -- what the watch asks --------------------------------------------------------------------------------------

    @property
    def cluster(self) -> Any:
        brokers = {
            broker_id: SimpleNamespace(
                broker_id=broker_id, epoch=process.epoch, fenced=process.fenced, end_points=broker_id
            )
            for broker_id, process in self.processes.items()
        }
        return SimpleNamespace(brokers=brokers)

    async def find(self, broker_id: Any) -> Finding:
        future: asyncio.Future[Finding] = self.loop.create_future()
        self.probes.append((broker_id, future))
        return await future

    def fence(self, broker_id: int, epoch: int) -> asyncio.Future[bool]:
        process = self.processes[broker_id]
        is_same = epoch == process.epoch
        if is_same and process.is_running and process.is_registered:
            raise violated("FENCE", f"broker {broker_id} runs, and is fenced")
        if broker_id not in self.heard and not self.answered:
            raise violated("FENCE", f"no broker has answered this controller, and broker {broker_id} is fenced")
        done: asyncio.Future[bool] = self.loop.create_future()
        done.set_result(is_same and not process.fenced)
        process.fenced = process.fenced or is_same
        self.counts["fenced"] += 1
        return done

    # -- events ---------------------------------------------------------------------------------------------------

    def probe(self) -> None:
        """A probe is answered: by the kernel, by nobody, or by a process that is busy for once."""
        if not self.probes:
            return
        broker_id, future = self.probes.pop(self.rng.randrange(len(self.probes)))
        if future.done():
            return
        process = self.processes[broker_id]
        if self.rng.random() < (0.0 if self.is_calm else self.unrest["silence"]):
            finding = Finding.UNKNOWN
        elif not process.is_running:
            finding = Finding.GONE
        elif not process.has_refused and self.rng.random() < (0.0 if self.is_calm else self.unrest["refuse"]):
            finding, process.has_refused = Finding.GONE, True
        else:
            finding, process.has_refused, self.answered = Finding.ALIVE, False, True
        self.counts[finding.name] += 1
        future.set_result(finding)

    def kill(self) -> None:
        process = self.processes[self.rng.choice(BROKERS)]
        if process.is_running:
            process.is_running = False
            if process.connection is not None:
                process.connection.end()

    def kill_all(self) -> None:
        """The whole cluster ends; what begins first leads."""
        for process in self.processes.values():
            process.is_running = False
        self.move()

    def start(self) -> None:
        """The process begins again, and soon sends a heartbeat, which may unfence it."""
        process = self.processes[self.rng.choice(BROKERS)]
        if not process.is_running:
            process.is_running, process.is_registered, process.has_refused = True, False, False
            process.connection = None

    def beat(self) -> None:
        broker_id = self.rng.choice(BROKERS)
        process = self.processes[broker_id]
        if not process.is_running:
            return
        if not process.is_registered:
            process.is_registered, process.epoch = True, process.epoch + 1
        process.fenced = False
        if process.connection is None or not process.connection.is_open:
            process.connection = Connection()
        self.heard.add(broker_id)
        self.watch.heard(broker_id, process.connection)  # type: ignore[arg-type]

    def reconnect(self) -> None:
        """The connection of a process ends; the next heartbeat comes over another one."""
        process = self.processes[self.rng.choice(BROKERS)]
        if process.is_running and process.connection is not None and process.connection.is_open:
            process.connection.end()

    def move(self) -> None:
        """Another controller is the active one: nobody has a connection to it yet."""
        self.watch.end()
        for process in self.processes.values():
            process.connection = None
        self.probes.clear()
        self.new_watch()
        self.counts["moved"] += 1

    def time(self) -> None:
        self.loop.turn(self.rng.choice((0.01, 0.1, 0.3)))

    def happen(self, name: str) -> None:
        if name == "time":
            self.time()
            return
        with self.loop.running():
            getattr(self, name)()
        self.loop.turn()

    def play(self) -> Counter[str]:
        """Run the history, then kill a broker that was heard of: it has to be fenced.

        Returns:
            How often what happened.

        Raises:
            InvariantViolationError: A rule is broken.
        """
        names, weights = list(self.weights), list(self.weights.values())
        known, broker_watch.probe_broker = broker_watch.probe_broker, self.find  # type: ignore[assignment]
        try:
            for name in self.rng.choices(names, weights, k=STEPS):
                self.happen(name)
            self.finish()
        finally:
            broker_watch.probe_broker = known
            self.loop.end()
        return self.counts

    def finish(self) -> None:
        self.is_calm = True
        process = self.processes[BROKERS[0]]
        with self.loop.running():
            process.is_running = True
        for _ in range(50):
            self.happen("beat")
        if process.connection is None:
            return
        with self.loop.running():
            process.is_running = False
            process.connection.end()
        for _ in range(200):
            self.happen("probe")
            self.loop.turn(0.05)
        if not process.fenced:
            raise violated("FENCE", "a broker that is gone is not fenced")
