"""Links between the files of this tree lead somewhere, and the README names commands that exist."""

from __future__ import annotations

import re
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


def test_every_verb_of_dev_is_a_function_under_its_line_of_help():
    listed, functions = [], []
    for path in sorted((ROOT / ".ci" / "verbs").glob("*.sh")):
        text = path.read_text()
        listed += [name.replace("-", "_") for name in re.findall(r"^#: ([a-z-]+) +\S", text, re.MULTILINE)]
        functions += re.findall(r"^#: .*\n(?:#: .*\n)*([a-z_]+)\(\) \{", text, re.MULTILINE)
    assert [name.removesuffix("_") for name in functions] == listed
    assert {"setup", "build", "check", "fmt", "lint", "type", "test", "sim", "interop", "docs", "all"} <= set(listed)
    assert len(set(listed)) == len(listed)


def test_readme_has_the_two_commands():
    first_screen = "\n".join((ROOT / "README.md").read_text().splitlines()[:30])
    assert ".venv/bin/kraftlog demo" in first_screen
    assert "sh .ci/dev test" in first_screen
