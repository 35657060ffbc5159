"""One connection of ``kraftlog perf``, in a process of its own: ``python -m kraftlog.cli.perf_worker JSON``."""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Sequence
from typing import Any

from kraftlog.cli.perf_clients import CONSUMERS, PRODUCERS, PerfWork, children_cpu_s
from kraftlog.cli.perf_meter import PerfMeter
from kraftlog.errors import KraftlogError

__all__ = ["main"]

VALUES = 1000


def values_of(size: int, seed: int) -> list[bytes]:
    """Values of capital letters, as Kafka's ``ProducerPerformance`` sends them."""
    chance = random.Random(seed)
    return [bytes(chance.choices(range(65, 91), k=size)) for _ in range(VALUES)]


def main(arguments: Sequence[str]) -> int:
    """Run the work that the JSON text describes; 1 when it fails, with the reason on standard error."""
    task: dict[str, Any] = json.loads(arguments[0])
    is_produce = task["verb"] == "produce"
    values = values_of(task["value_bytes"], task["seed"]) if is_produce else []
    run = (PRODUCERS if is_produce else CONSUMERS)[task["client"]]
    meter = PerfMeter(task["records"], task["rate"])
    partitions = [(number, offset) for number, offset in task["partitions"]]
    try:
        run(PerfWork(task["settings"], task["topic"], values, partitions, meter))
    except ModuleNotFoundError as error:
        print(f"--client {task['client']}: {error.name} is not installed", file=sys.stderr)
        return 1
    except KraftlogError as error:
        print(error, file=sys.stderr)
        return 1
    meter.finish(children_cpu_s=children_cpu_s())
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
