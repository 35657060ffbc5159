"""Every scenario file prints what it says it prints."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import behaviours
from scenarios.raft_scenario import run_scenario

FOLDER = Path(__file__).parent
FILES = sorted(FOLDER.glob("*.txt"))
KNOWN_IDS = behaviours.known_ids()


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_scenario_prints_what_it_says(path, request):
    text = path.read_text()
    now = run_scenario(text)
    if request.config.getoption("--rewrite-scenarios"):
        path.write_text(now)
        return
    assert now == text


@pytest.mark.parametrize("path", FILES, ids=lambda path: path.stem)
def test_scenario_opens_with_intent_and_names_known_rules(path):
    text = path.read_text()
    assert text.startswith("# "), f"{path.name} does not open with a sentence of intent"
    named = re.findall(r"\b[A-Z]{2,4}-\d{2}\b", text)
    assert named, f"{path.name} names no behaviour of docs/behaviours"
    unknown = [name for name in named if name not in KNOWN_IDS]
    assert not unknown, f"{path.name} names {unknown}, which docs/behaviours does not define"
