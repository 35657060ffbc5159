"""Wall time and CPU seconds of a query: of the driver, the JVM, the Python workers and the broker, each by itself."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

TICKS = os.sysconf("SC_CLK_TCK")


def processes(root: int) -> dict[int, tuple[str, float]]:
    """Name and CPU seconds, those of reaped children included, of a process and of all that descend from it."""
    children: dict[int, list[int]] = {}
    facts: dict[int, tuple[str, float]] = {}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            text = (entry / "stat").read_text()
        except OSError:
            continue  # ended in between
        name, rest = text[text.index("(") + 1 : text.rindex(")")], text[text.rindex(")") + 2 :].split()
        children.setdefault(int(rest[1]), []).append(int(entry.name))
        facts[int(entry.name)] = (name, sum(map(int, rest[11:15])) / TICKS)
    found: dict[int, tuple[str, float]] = {}
    waiting = [root]
    while waiting:
        pid = waiting.pop()
        if pid in facts:
            found[pid] = facts[pid]
            waiting += children.get(pid, [])
    return found


def machine_busy() -> float:
    """CPU seconds that all processors together have worked since the machine started; stolen time is not work."""
    fields = [int(part) for part in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:]]
    user, nice, system, _idle, _wait, irq, soft = fields[:7]
    return (user + nice + system + irq + soft) / TICKS


class CpuMeter:
    """CPU seconds of this process's tree, by role: driver, jvm, workers, broker, and tools that ran to their end."""

    def __init__(self, broker_pid: int | None = None) -> None:
        self.broker_pid = broker_pid

    def read(self) -> dict[str, float]:
        ended = os.times()
        roles = {"driver": time.process_time(), "jvm": 0.0, "workers": 0.0, "broker": 0.0}
        roles["tools"] = ended.children_user + ended.children_system
        for pid, (name, seconds) in processes(os.getpid()).items():
            if pid == os.getpid():
                continue
            if pid == self.broker_pid:
                roles["broker"] += seconds
            else:
                roles["jvm" if name == "java" else "workers"] += seconds
        return roles


@dataclass
class Sample:
    """One run of a case."""

    wall_s: float
    cpu_s: dict[str, float]
    others_busy: float  # processors that everybody else kept busy meanwhile: the noise
    result: str

    @property
    def total_cpu_s(self) -> float:
        return sum(self.cpu_s.values())


@dataclass
class Case:
    """What is run again and again, and what was measured."""

    name: str
    run: Callable[[], Any]
    rows: int
    size_bytes: int
    group: str = ""
    samples: list[Sample] = field(default_factory=list)

    def summary(self) -> dict[str, Any]:
        """Medians and spreads, for JSON."""
        cpu = [sample.total_cpu_s for sample in self.samples]
        wall = [sample.wall_s for sample in self.samples]
        return {
            "group": self.group,
            "name": self.name,
            "rows": self.rows,
            "size_bytes": self.size_bytes,
            "wall_s": statistics.median(wall),
            "wall_s_least": min(wall),
            "cpu_s": statistics.median(cpu),
            "cpu_s_least": min(cpu),
            "cpu_s_most": max(cpu),
            "cpu_by": {
                role: statistics.median(sample.cpu_s[role] for sample in self.samples) for role in self.samples[0].cpu_s
            },
            "result": self.samples[0].result,
            "others_busy": statistics.median(sample.others_busy for sample in self.samples),
            "samples": [asdict(sample) for sample in self.samples],
        }


def alternate(cases: Iterable[Case], meter: CpuMeter, *, rounds: int, warm_ups: int) -> None:
    """Every case once a round, so that what else the machine does falls on all alike; every second round backwards."""
    cases = list(cases)
    for number in range(-warm_ups, rounds):
        for case in cases if number % 2 == 0 else cases[::-1]:
            sample = measure(case.run, meter)
            if number >= 0:
                case.samples.append(sample)
    for case in cases:
        results = {sample.result for sample in case.samples}
        if len(results) > 1:
            raise SystemExit(f"{case.group}, {case.name}: {results}")


def measure(run: Callable[[], Any], meter: CpuMeter) -> Sample:
    before, busy, begun = meter.read(), machine_busy(), time.perf_counter()
    result = run()
    if isinstance(result, Sample):
        return result  # of a process that measures itself
    wall = time.perf_counter() - begun
    after = meter.read()
    cpu = {role: after[role] - before[role] for role in after}
    others = max(machine_busy() - busy - sum(cpu.values()), 0) / wall
    return Sample(wall, cpu, others, str(result)[:200])


def same_results(cases: Iterable[Case]) -> None:
    """Cases of one question have to agree."""
    answers = {case.name: case.samples[0].result for case in cases if case.samples}
    if len(set(answers.values())) > 1:
        raise SystemExit(f"not the same answer: {answers}")
