"""One line on stderr that says how far long work is: bytes, rate and the time that is left.

    with progress("scanning", total_bytes) as bar:
        for chunk in chunks:
            ...
            bar.advance(len(chunk))

Nothing is written unless stderr is a terminal, so that logs and pipes stay clean. ``KRAFTLOG_PROGRESS=1`` in the
environment, or ``enabled=True``, draws it anyway; ``KRAFTLOG_PROGRESS=0`` never. The line is erased at the end, so what
a command prints afterwards starts at the left margin.
"""

from __future__ import annotations

import os
import shutil
import sys
import time
from collections.abc import Callable
from types import TracebackType
from typing import Self, TextIO

__all__ = ["Progress", "human_bytes", "progress"]

_REDRAW_SECONDS = 0.1
# Nothing is drawn for work that ends before it.
_FIRST_DRAW_SECONDS = 0.4
# Widths are those of a terminal in which a long line would wrap and could not be erased.
_COLUMNS_MIN = 20
_UNITS = ("B", "kB", "MB", "GB", "TB", "PB")


class Progress:
    """A progress line; made by :func:`progress`. Safe to call from several threads: a draw lost is drawn later.

    Args:
        label: What is being done, a word or two.
        total: Bytes (or what ``unit`` says) that the work has altogether; None when that is not known.
        unit: ``B`` for bytes, which are shown as kB, MB, GB; any other word is shown as it is after plain numbers.
        enabled: Draw or not; None asks the environment and then whether ``stream`` is a terminal.
        stream: Where to draw; stderr when None.
        clock: Seconds that only rise.
    """

    def __init__(
        self,
        label: str,
        total: int | None = None,
        *,
        unit: str = "B",
        enabled: bool | None = None,
        stream: TextIO | None = None,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.label = label
        self.total = total
        self.done = 0
        self._unit = unit
        self._stream = sys.stderr if stream is None else stream
        self._enabled = _is_wanted(self._stream) if enabled is None else enabled
        self._clock = clock
        self._started = self._drawn = clock()
        self._next_draw = self._started + _FIRST_DRAW_SECONDS
        self._is_shown = False

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    @property
    def is_enabled(self) -> bool:
        """False when nothing will ever be drawn."""
        return self._enabled

    def advance(self, amount: int) -> None:
        """Count ``amount`` more as done; cheap enough for every chunk or batch of records."""
        self.update(self.done + amount)

    def update(self, done: int) -> None:
        """Say how much is done altogether, as a callback from an engine does."""
        self.done = done
        if self._enabled:
            now = self._clock()
            if now >= self._next_draw:
                self._draw(now)

    def relabel(self, label: str) -> None:
        """Name the next step, such as the next file."""
        self.label = label

    def hide(self) -> None:
        """Erase the line, so that the caller can print; it comes back at the next advance that is due."""
        if self._is_shown:
            self._write("\r\x1b[K")
            self._is_shown = False

    def close(self) -> None:
        """Erase the line for good."""
        self.hide()
        self._enabled = False

    def line(self, now: float | None = None) -> str:
        """The text, without colours or cursor movements."""
        seconds = max((self._clock() if now is None else now) - self._started, 1e-9)
        rate = self.done / seconds
        parts = [self._amount(self.done)]
        if self.total:
            percent = min(100, 100 * self.done // self.total)
            parts = [f"{percent:3d} %", f"{self._amount(self.done)} of {self._amount(self.total)}"]
        parts.append(f"{self._amount(int(rate))}/s")
        if self.total and self.done and self.done < self.total:
            parts.append(f"{_duration((self.total - self.done) / rate)} left")
        return f"{self.label}: {'  '.join(parts)}"

    def _amount(self, amount: int) -> str:
        return human_bytes(amount) if self._unit == "B" else f"{amount:,} {self._unit}"

    def _draw(self, now: float) -> None:
        self._next_draw = now + _REDRAW_SECONDS
        columns = max(shutil.get_terminal_size().columns, _COLUMNS_MIN)
        self._write(f"\r{self.line(now)[: columns - 1]}\x1b[K")
        self._is_shown = True

    def _write(self, text: str) -> None:
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):
            # A terminal that went away must not end the work.
            self._enabled = False


def progress(
    label: str,
    total: int | None = None,
    *,
    unit: str = "B",
    enabled: bool | None = None,
    stream: TextIO | None = None,
) -> Progress:
    """A progress line on stderr, silent unless that is a terminal; see :class:`Progress`."""
    return Progress(label, total, unit=unit, enabled=enabled, stream=stream)


def human_bytes(count: int) -> str:
    """A number of bytes with three digits or so, in powers of 1000: ``5.37 GB``."""
    amount = float(count)
    for unit in _UNITS:
        if amount < 999.5 or unit == _UNITS[-1]:
            digits = 0 if unit == "B" or amount >= 99.95 else 1 if amount >= 9.995 else 2
            return f"{amount:.{digits}f} {unit}"
        amount /= 1000
    raise AssertionError("the last unit returns")


def _is_wanted(stream: TextIO) -> bool:
    asked = os.environ.get("KRAFTLOG_PROGRESS")
    if asked is not None:
        return asked not in {"", "0"}
    try:
        return stream.isatty()
    except ValueError:
        return False


def _duration(seconds: float) -> str:
    whole = int(seconds + 0.5)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    return f"{whole // 3600} h {whole % 3600 // 60:02d} min"
