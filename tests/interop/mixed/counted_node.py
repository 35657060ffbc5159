"""``kraftlog``, with a count of who answers its followers and of what it takes from its leaders.

usage: counted_node.py COUNTS ARGUMENTS

The counts stand in the file COUNTS, which is replaced several times per second. No metric of a node tells its I/O
threads from its event loop: this program counts where their paths part.
"""

from __future__ import annotations

import functools
import json
import os
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

from kraftlog.cli.__main__ import main
from kraftlog.metrics.replica import ReplicaMetrics
from kraftlog.runtime.replica.fetcher_loop import FetcherLoop
from kraftlog.runtime.replica.follower_reads import FollowerReader
from kraftlog.runtime.replica.registry import Partitions

__all__ = ["FETCHES_BY_LOOP", "OUT", "OUT_BY_LOOP", "taken_from"]

# Bytes that followers were answered with, those of them that the event loop sent, and the fetches that came to it.
OUT, OUT_BY_LOOP, FETCHES_BY_LOOP = "out", "out by loop", "fetches by loop"
WRITTEN_EACH_S = 0.2


def taken_from(broker_id: int) -> str:
    """The name of the count of bytes that the follower loop took from this leader and the engine appended."""
    return f"taken from {broker_id}"


def count_calls(kind: type, name: str, count: Callable[..., None]) -> None:
    """Have ``count`` see the arguments of each call of a method."""
    method = getattr(kind, name)

    @functools.wraps(method)
    def counted(*arguments: Any, **named: Any) -> Any:
        count(*arguments)
        return method(*arguments, **named)

    setattr(kind, name, counted)


def count_into(counts: Counter[str]) -> None:
    """Count from now on."""

    def sent(_traffic: object, size_bytes: int) -> None:
        counts[OUT] += size_bytes

    def sent_by_loop(_partitions: object, _partition: object, _broker_id: int, size_bytes: int) -> None:
        counts[OUT_BY_LOOP] += size_bytes

    def fetch_came(*_: object) -> None:
        counts[FETCHES_BY_LOOP] += 1

    def appended(loop: FetcherLoop, _step: object, _partition: object, outcome: tuple[Any, ...]) -> None:
        kind, *_, size_bytes, _error = outcome
        if kind == "":
            counts[taken_from(loop.link.address.broker_id)] += size_bytes

    count_calls(ReplicaMetrics, "on_replicated_out", sent)
    count_calls(Partitions, "replicated_out", sent_by_loop)
    count_calls(FollowerReader, "read_all", fetch_came)
    count_calls(FetcherLoop, "_appended", appended)


def write_forever(counts: Counter[str], path: Path) -> None:
    part = path.with_suffix(".part")
    while True:
        part.write_text(json.dumps(dict(counts)))
        os.replace(part, path)
        time.sleep(WRITTEN_EACH_S)


if __name__ == "__main__":
    counted: Counter[str] = Counter()
    count_into(counted)
    threading.Thread(target=write_forever, args=(counted, Path(sys.argv[1])), daemon=True).start()
    del sys.argv[1]
    sys.exit(main())
