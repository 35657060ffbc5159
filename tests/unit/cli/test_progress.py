"""The progress line: when it is drawn, what it says, and that it leaves nothing behind."""

from __future__ import annotations

import io

import pytest

from kraftlog.cli.progress import Progress, human_bytes, progress


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def test_nothing_is_written_where_no_terminal_is(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KRAFTLOG_PROGRESS", raising=False)
    stream = io.StringIO()
    clock = Clock()
    with Progress("scanning", 1000, stream=stream, clock=clock) as bar:
        for _ in range(10):
            clock.now += 1
            bar.advance(100)
    assert bar.done == 1000
    assert stream.getvalue() == ""


def test_environment_forces_it_and_forbids_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for value, wanted in (("1", True), ("0", False), ("", False)):
        monkeypatch.setenv("KRAFTLOG_PROGRESS", value)
        assert progress("scanning", stream=io.StringIO()).is_enabled is wanted


def test_line_has_share_amount_rate_and_time_left_and_is_erased() -> None:
    stream = io.StringIO()
    clock = Clock()
    with Progress("scanning", 4_000_000_000, enabled=True, stream=stream, clock=clock) as bar:
        clock.now += 2
        bar.advance(1_000_000_000)
        assert stream.getvalue() == "\rscanning:  25 %  1.00 GB of 4.00 GB  500 MB/s  6 s left\x1b[K"
        bar.relabel("checking")
        bar.advance(1)  # too early for another draw
        assert "checking" not in stream.getvalue()
    assert stream.getvalue().endswith("\r\x1b[K")
    drawn = stream.getvalue()
    clock.now += 10
    bar.advance(1)
    assert stream.getvalue() == drawn


def test_short_work_draws_nothing_and_redraws_are_limited() -> None:
    stream = io.StringIO()
    clock = Clock()
    bar = Progress("reading", enabled=True, stream=stream, unit="records", clock=clock)
    bar.advance(5)
    bar.close()
    assert stream.getvalue() == ""
    bar = Progress("reading", enabled=True, stream=stream, unit="records", clock=clock)
    for _ in range(10_000):
        clock.now += 1 / 1024
        bar.advance(1)
    assert 85 <= stream.getvalue().count("\r") <= 97
    assert bar.line() == "reading: 10,000 records  1,024 records/s"


def test_a_terminal_that_goes_away_ends_the_drawing_not_the_work() -> None:
    stream = io.StringIO()
    clock = Clock()
    bar = Progress("reading", 10, enabled=True, stream=stream, clock=clock)
    stream.close()
    clock.now += 1
    bar.advance(5)
    assert not bar.is_enabled
    bar.close()


@pytest.mark.parametrize(
    ("count", "text"),
    [(0, "0 B"), (999, "999 B"), (1000, "1.00 kB"), (12_345, "12.3 kB"), (999_999, "1.00 MB"), (5 * 2**30, "5.37 GB")],
)
def test_bytes_are_short(count: int, text: str) -> None:
    assert human_bytes(count) == text
