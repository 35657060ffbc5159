"""Links between the files of this tree lead somewhere, and the README names commands that exist."""

from __future__ import annotations

import re
from pathlib import Path

import behaviours

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]


# `](target#anchor)` in a sentence, and `[name]: target#anchor` below the text.
LINK = re.compile(r"(?:\]\(|^\[[^\]]+\]: )([^)#\s]+)(?:#([^)\s]*))?\)?")


def test_relative_links_lead_somewhere():
    known = behaviours.known_ids()
    wrong = []
    for page in PAGES:
        for line, text in enumerate(page.read_text().splitlines(), 1):
            for target, anchor in LINK.findall(text):
                file = page.parent / target
                if "://" in target:
                    continue
                if not file.exists():
                    wrong += [f"{page.relative_to(ROOT)}:{line}: {target} is not there"]
                elif anchor and file.parent.resolve() == behaviours.FOLDER and anchor.upper() not in known:
                    wrong += [f"{page.relative_to(ROOT)}:{line}: {target} has no {anchor}"]
    assert not wrong, "\n".join(wrong)


def test_behaviours_named_in_pages_are_links():
    """`[INV-01]` in the text, and its target below; not inside examples, code and link targets."""
    known = behaviours.known_ids()
    wrong = []
    for page in PAGES:
        if page.parent == behaviours.FOLDER:
            continue
        text = page.read_text()
        targets = set(re.findall(r"^\[([A-Z]+-\d+)\]: ", text, re.MULTILINE))
        for line, shown in enumerate(text.splitlines(), 1):
            prose = "" if shown.startswith("    ") else re.sub(r"`[^`]*`|^\[[^\]]+\]: .*", "", shown)
            for name in re.findall(r"\b[A-Z]+-\d\d\d?\b", prose):
                if name in known and (name not in targets or f"[{name}]" not in prose):
                    wrong += [f"{page.relative_to(ROOT)}:{line}: {name} is not a link to docs/behaviours"]
    assert not wrong, "\n".join(wrong)


def test_paths_named_in_the_docs_exist():
    """A page that names a file of the repository is changed with the file."""
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


# What an example writes, by the call that writes it.
WRITES = re.compile(
    r"""sink_parquet\("([^"]+)"|\bTO '([^']+)'|write_parquet\(\s*spark, "[^"]+", "([^"]+)\""""
    r"""|"checkpointLocation", "([^"]+)"|"dataLossReport", "([^"]+)\""""
    r"""|writeStream\.format\("parquet"\)\s*\.option\("path", "([^"]+)\""""
)


def paths_written(text: str) -> set[str]:
    """The paths below the reader's directory that the examples and commands of a page make."""
    found = {path for match in WRITES.finditer(text) for path in match.groups() if path}
    folder = ""
    for block in re.findall(r"^```sh\n(.*?)^```", text, re.MULTILINE | re.DOTALL):
        for line in block.splitlines():
            if entered := re.match(r"mkdir ([\w-]+) && cd \1$", line):
                found.add(entered[1])
                folder = f"{entered[1]}/"
            elif made := re.match(r"\s*mkdir (.+)", line):
                found |= {folder + name for name in made[1].split()}
            elif file := re.match(r"\s*cat .*> (\S+)", line):
                found.add(folder + file[1])
    return found


def test_pages_that_are_followed_in_order_do_not_write_to_the_same_path():
    pages: dict[str, list[str]] = {}
    for page in sorted((ROOT / "docs" / "how-to").glob("*.md")):
        for path in paths_written(page.read_text()):
            pages.setdefault(path, []).append(page.name)
    assert {"several", "orders-stream", "orders-by-task", "orders-duckdb.parquet", "c4"} <= pages.keys()
    assert not {path: names for path, names in pages.items() if len(names) > 1}
