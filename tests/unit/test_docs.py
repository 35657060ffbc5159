"""Links between the files of this tree lead somewhere, and the README names commands that exist."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


def test_relative_links_lead_somewhere():
    wrong = []
    for page in PAGES:
        for line, text in enumerate(page.read_text().splitlines(), 1):
            for target in re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", text):
                if "://" not in target and not (page.parent / target).exists():
                    wrong += [f"{page.relative_to(ROOT)}:{line}: {target} is not there"]
    assert not wrong, "\n".join(wrong)


def test_paths_named_in_the_docs_exist():
    """A page that names a file of ours is changed with the file."""
    tops = "python|rust|tests|benches|spark|docs|\\.ci"
    wrong = []
    for page in PAGES:
        for line, text in enumerate(page.read_text().splitlines(), 1):
            for target in re.findall(rf"`((?:{tops})/[\w./-]+)`", text):
                if not (ROOT / target).exists():
                    wrong += [f"{page.relative_to(ROOT)}:{line}: `{target}` is not there"]
    assert not wrong, "\n".join(wrong)


def test_dev_without_a_verb_lists_every_verb():
    said = subprocess.run(["sh", str(ROOT / ".ci" / "dev")], capture_output=True, text=True, check=True).stdout
    for verb in (
        "setup",
        "build",
        "fmt",
        "lint",
        "type",
        "test",
        "sim",
        "interop",
        "bench",
        "docs",
        "fuzz",
        "kill",
        "all",
    ):
        assert re.search(rf"^  {verb}\b", said, re.MULTILINE), f".ci/dev does not list {verb}"


def test_readme_has_the_two_commands():
    first_screen = "\n".join((ROOT / "README.md").read_text().splitlines()[:30])
    assert ".venv/bin/kraftlog demo" in first_screen
    assert "sh .ci/dev test" in first_screen
