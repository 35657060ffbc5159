"""Make ``metrics/sampled-stats.json``: what Kafka's sampled stats say of values recorded at given times.

Times and values follow from the seed, the answers are Kafka's (``java/Stats.java``): the same seed gives the same file.
"""

from __future__ import annotations

import json
import random
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from golden.make.rows import answers
from interop.harness import Java

PROGRAM = str(Path(__file__).parent / "java" / "Stats.java")
# Milliseconds between the steps of a run: half a sample of 30 s, several in a sample, and some past whole windows.
PACES = (
    (15_000,),
    (0, 50, 500, 1500, 2999, 3000, 6100, 12_000),
    (0, 1, 500, 5000, 15_000, 29_999, 30_000, 30_001, 61_000, 120_000),
)
RUNS_PER_PACE, STEPS = 4, 40

Run = list[list[Any]]


def questions(seed: int) -> Iterator[Run]:
    """Runs of ``[now ms, value or None]``."""
    for pace in PACES:
        for number in range(RUNS_PER_PACE):
            chance = random.Random(f"{seed} {pace} {number}")
            now = 1_000_000 + chance.randrange(1000)
            run = []
            for _ in range(STEPS):
                now += chance.choice(pace)
                run.append([now, None if chance.random() < 0.3 else chance.randrange(1000) / 4])
            yield run


def answered(java: Java, runs: Sequence[Run]) -> list[Run]:
    """Runs of ``[now ms, value or None, rate, avg, max]``, None for NaN."""
    return [answer["run"] for answer in answers(java, PROGRAM, "runs", [{"run": run} for run in runs])]


def write(java: Java, folder: Path, seed: int) -> None:
    """Write ``sampled-stats.json`` into ``folder``."""
    folder.mkdir(parents=True, exist_ok=True)
    runs = answered(java, list(questions(seed)))
    (folder / "sampled-stats.json").write_text(json.dumps(runs) + "\n")
