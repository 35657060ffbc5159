"""What a load test counts: records, bytes, CPU, and latencies in buckets of 2 %."""

from __future__ import annotations

import json
import math
import sys
import time
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

__all__ = ["PERCENTILES", "PerfMeter", "percentiles_ms"]

PERCENTILES = (50.0, 95.0, 99.0, 99.9)
REPORT_S = 0.2
_STEP = math.log(1.02)


class PerfMeter:
    """Counts one connection and reports to the process that started it, one JSON object per line.

    Args:
        records: How many to send or read.
        rate: Records per second at most; 0 for as many as possible.

    Attributes:
        percentiles: Milliseconds by name, where the client measures them itself.
    """

    def __init__(self, records: int, rate: float = 0.0) -> None:
        self.target = records
        self.records = 0
        self.bytes = 0
        self.first_s: float | None = None
        self.buckets: Counter[int] = Counter()
        self.rate = rate
        self.percentiles: dict[str, float] = {}
        self._begin = time.perf_counter()
        self._cpu = time.process_time()
        self._reported = self._begin

    @property
    def is_done(self) -> bool:
        """Whether all records were counted."""
        return self.records >= self.target

    def count(self, records: int, size: int) -> None:
        """Count records, and the bytes of their values."""
        now = time.perf_counter()
        if self.first_s is None:
            self.first_s = now - self._begin
        self.records += records
        self.bytes += size
        if now - self._reported >= REPORT_S:
            self._reported = now
            self._write({"records": self.records})

    def latency(self, seconds: float, records: int = 1) -> None:
        """Count a latency, of so many records."""
        self.buckets[round(math.log(max(seconds, 1e-6) * 1e6) / _STEP)] += records

    def ahead_s(self, records: int) -> float:
        """Seconds to wait before ``records`` are within the rate."""
        if not self.rate:
            return 0.0
        return max(self._begin + records / self.rate - time.perf_counter(), 0.0)

    def finish(self, **more: Any) -> None:
        """Report the whole."""
        self._write(
            {
                "records": self.records,
                "bytes": self.bytes,
                "seconds": time.perf_counter() - self._begin,
                "cpu_s": time.process_time() - self._cpu,
                "first_s": self.first_s,
                "buckets": dict(self.buckets),
                "percentiles": self.percentiles,
                "is_final": True,
                **more,
            }
        )

    def _write(self, found: Mapping[str, Any]) -> None:
        sys.stdout.write(json.dumps(found) + "\n")
        sys.stdout.flush()


def percentiles_ms(all_buckets: Iterable[Mapping[str, int]]) -> dict[str, float]:
    """Milliseconds by percentile, of the latencies of several connections; empty without any."""
    merged: Counter[int] = Counter()
    for buckets in all_buckets:
        for bucket, count in buckets.items():
            merged[int(bucket)] += count
    total = sum(merged.values())
    found: dict[str, float] = {}
    seen = 0
    wanted = list(PERCENTILES)
    for index in sorted(merged):
        seen += merged[index]
        while wanted and seen >= total * wanted[0] / 100:
            found[f"p{wanted.pop(0):g}_ms"] = round(math.exp(index * _STEP) / 1000, 3)
    return found
