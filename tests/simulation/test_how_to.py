"""The page about simulating one's own state machine does what it says."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs/how-to/simulate.md"


def test_page_finds_the_bug_by_a_seed_and_the_mended_machine_passes():
    names = {"__name__": "page"}
    for block in re.findall(r"```python\n(.*?)```", PAGE.read_text(), re.DOTALL):
        exec(compile(block, str(PAGE), "exec"), names)
    failure = names["failure"]
    assert "INV-08" in str(failure)
    assert failure.scenario.breaks == "INV-08"
    assert len(failure.scenario.faults) < 15
    assert "cluster seed=" in names["text"]


@pytest.mark.slow
def test_page_finds_the_bug_of_a_service_by_a_seed_and_replays_it():
    names = {"__name__": "page"}
    for block in re.findall(r"```python cluster\n(.*?)```", PAGE.read_text(), re.DOTALL):
        exec(compile(block, str(PAGE), "exec"), names)
    assert "an order was placed twice" in str(names["failure"])
    assert "sends it again" in str(names["failure"])
    assert len(names["failure"].outcome.scenario.faults) < 5
