"""Virtual time for code that knows nothing of it: a client library on a simulated machine.

``time.time``, ``time.monotonic`` and their kin ask the machine whose loop runs, and so do ``os.urandom``,
``uuid.uuid4`` and ``secrets``; anywhere else they are what they were. The module ``random`` begins at the world's seed.
Code that took these functions by name (``from time import time``) before the world began is not reached.
"""

from __future__ import annotations

import os
import random
import time
from asyncio import _get_running_loop
from collections.abc import Callable
from typing import Any

__all__ = ["VirtualTime"]

_REAL: dict[str, Callable[[], Any]] = {
    name: getattr(time, name)
    for name in ("time", "time_ns", "monotonic", "monotonic_ns", "perf_counter", "perf_counter_ns")
}
_REAL_URANDOM = os.urandom


def _urandom(size: int, /) -> bytes:
    host = getattr(_get_running_loop(), "host", None)
    if host is None or size <= 0:
        return _REAL_URANDOM(size)
    return host.random_bits(8 * size).to_bytes(size, "big")  # type: ignore[no-any-return]


def _put_urandom(function: Callable[[int], bytes]) -> None:
    os.urandom = function
    # ``SystemRandom``, which ``secrets`` uses, has it by this name.
    random._urandom = function  # type: ignore[attr-defined]


def _virtual(name: str) -> Callable[[], Any]:
    real = _REAL[name]
    is_wall, is_ns = name.startswith("time"), name.endswith("_ns")

    def now() -> Any:
        host = getattr(_get_running_loop(), "host", None)
        if host is None:
            return real()
        now_ns = host.wall_ms() * 1_000_000 if is_wall else host.monotonic_ns()
        return now_ns if is_ns else now_ns / 1e9

    return now


class VirtualTime:
    """In force from ``begin`` to ``end``; several may be at the same time."""

    _users = 0

    def __init__(self, seed: int) -> None:
        self._seed = seed
        self._random_state: Any = None

    def begin(self) -> None:
        """Put the functions in place."""
        self._random_state = random.getstate()
        random.seed(self._seed)
        VirtualTime._users += 1
        if VirtualTime._users == 1:
            for name in _REAL:
                setattr(time, name, _virtual(name))
            _put_urandom(_urandom)

    def end(self) -> None:
        """Put back what was there."""
        if self._random_state is None:
            return
        random.setstate(self._random_state)
        self._random_state = None
        VirtualTime._users -= 1
        if VirtualTime._users == 0:
            for name, real in _REAL.items():
                setattr(time, name, real)
            _put_urandom(_REAL_URANDOM)
