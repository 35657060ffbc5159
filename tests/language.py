"""The mechanical rules of the language in pages, comments, docstrings and names: plain technical English.

`python tests/language.py` prints every violation. tests/unit/test_tidy.py holds the rules.
"""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from behaviours import files_of_tree

ROOT = Path(__file__).resolve().parents[1]

UNITS = "second|minute|hour|day|record|row|batch|call|query|message|processor|partition|line|thread|CPU-second"
COUNTED = "commits|records|rows|events|bytes|KB|MB|GB|ns|us|ms|operations|elections|requests|one|object|times"

# What prose may not say, and what to write instead.
PROSE = {
    re.compile(r"\b(ours|theirs)\b", re.IGNORECASE): "name the product",
    re.compile(r"\bthe own\b", re.IGNORECASE): "its own, the replica's own",
    re.compile(r"\bwithout a word\b", re.IGNORECASE): "state the behaviour: silently, without an error",
    re.compile(r"\bto be had\b", re.IGNORECASE): "available, supported",
    re.compile(r"\b(whoever|who looks|who asks)\b", re.IGNORECASE): "the caller, client, reader or operator",
    re.compile(r"\b(as far as time allowed|set beforehand)\b", re.IGNORECASE): "leave it out",
    re.compile(rf"\b({COUNTED}) an? ({UNITS})\b"): "per",
}
# Words of building: pages speak of the product.
PAGE_PROSE = PROSE | {
    re.compile(r"\b(we|our)\b", re.IGNORECASE): "name the product",
    re.compile(r"(?<!-)\b(goals?|bar|missed)\b", re.IGNORECASE): "state the figure",
    re.compile(r"\b(nobody|somebody|everybody)\b", re.IGNORECASE): "name the actor",
}
# Modules are nouns: what they contain. These end in -ing and are nouns.
NOUNS = {"mapping", "reading", "testing"}


class Violation(NamedTuple):
    """One place that breaks a rule; lines count from 1."""

    path: str
    line: int
    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.rule}: {self.text.strip()[:100]}"


def tracked(*suffixes: str) -> Iterator[tuple[str, Path]]:
    """Files of the repository without the generated messages."""
    for name in files_of_tree():
        if name.endswith(suffixes) and not name.startswith("python/kraftlog/wire/messages/"):
            yield name, ROOT / name


def prose_of_page(text: str) -> Iterator[tuple[int, str]]:
    """The lines of a page without code, link targets and comments."""
    is_fenced = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            is_fenced = not is_fenced
        elif not is_fenced and not line.startswith(("    ", "<!--")):
            yield number, re.sub(r"`[^`]*`|\]\([^)]*\)|^\[[^\]]+\]: .*", "", line)


def prose_of_python(text: str) -> Iterator[tuple[int, str]]:
    """The lines of comments and docstrings."""
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)) and node.body:
            first = node.body[0]
            if (
                isinstance(first, ast.Expr)
                and isinstance(first.value, ast.Constant)
                and isinstance(first.value.value, str)
            ):
                for offset, line in enumerate(first.value.value.splitlines()):
                    yield first.lineno + offset, re.sub(r"``[^`]*``|`[^`]*`", "", line)


def prose_of_rust(text: str) -> Iterator[tuple[int, str]]:
    """The lines of comments."""
    for number, line in enumerate(text.splitlines(), 1):
        found = re.match(r"\s*//[/!]?(.*)", line) or re.search(r"\s// (.*)", line)
        if found:
            yield number, re.sub(r"`[^`]*`", "", found[1])


def prose_violations(
    name: str, lines: Iterator[tuple[int, str]], rules: dict[re.Pattern[str], str]
) -> Iterator[Violation]:
    for number, line in lines:
        for pattern, advice in rules.items():
            found = pattern.search(line)
            if found:
                yield Violation(name, number, f"{found[0]!r}, write: {advice}", line)


def loop_violations(name: str, text: str) -> Iterator[Violation]:
    """Loops and comprehensions whose variable is called `one`: it is the thing that it holds."""
    for node in ast.walk(ast.parse(text)):
        targets = []
        if isinstance(node, (ast.For, ast.AsyncFor)):
            targets = [node.target]
        elif isinstance(node, (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)):
            targets = [generator.target for generator in node.generators]
        for target in targets:
            if any(isinstance(inner, ast.Name) and inner.id == "one" for inner in ast.walk(target)):
                yield Violation(name, target.lineno, "a loop variable is the thing it holds", "for one in")


def page_violations() -> list[Violation]:
    """Pages: README, CONTRIBUTING and docs, without the generated page of tests."""
    return [
        violation
        for name, path in tracked(".md")
        if name.startswith("docs/") or name in {"README.md", "CONTRIBUTING.md"}
        if name != "docs/behaviours/tests.md"
        for violation in prose_violations(
            name,
            prose_of_page(path.read_text()),
            PROSE if name.startswith("docs/behaviours/") else PAGE_PROSE,  # Kafka's own words for its faults stay
        )
    ]


def code_violations() -> list[Violation]:
    """Comments, docstrings and loop variables of Python, and comments of Rust."""
    found: list[Violation] = []
    suspicious = re.compile("|".join(pattern.pattern for pattern in PROSE), re.IGNORECASE)
    for name, path in tracked(".py", ".pyi"):
        text = path.read_text()
        if name == "tests/language.py":
            continue
        if suspicious.search(text):  # to split a file into its prose takes longer
            found += prose_violations(name, prose_of_python(text), PROSE)
        if re.search(r"\bone\b[^\n]* in ", text):
            found += loop_violations(name, text)
    for name, path in tracked(".rs"):
        found += prose_violations(name, prose_of_rust(path.read_text()), PROSE)
    return found


def module_violations() -> list[Violation]:
    """Modules of the package that are called after an activity."""
    return [
        Violation(name, 1, "a module is a noun: what it contains", path.name)
        for name, path in tracked(".py")
        if name.startswith("python/") and path.stem.endswith("ing") and path.stem not in NOUNS
    ]


if __name__ == "__main__":
    for violation in page_violations() + code_violations() + module_violations():
        print(violation)
