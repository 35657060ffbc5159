"""The examples of the how-to pages of engines: indented blocks of Python, run one after the other."""

from __future__ import annotations

import sys
import textwrap
from pathlib import Path

HOW_TO = Path(__file__).resolve().parents[1] / "docs" / "how-to"


def examples(page: str) -> list[str]:
    """The blocks of a page that are indented by four spaces."""
    blocks: list[list[str]] = [[]]
    for line in (HOW_TO / f"{page}.md").read_text().splitlines():
        if line.startswith("    "):
            blocks[-1].append(line)
        elif line or not blocks[-1]:
            blocks.append([])
        else:
            blocks[-1].append("")
    return [textwrap.dedent("\n".join(block)).strip() for block in blocks if any(block)]


def run(page: str) -> int:
    """Runs the examples in one namespace, in the current directory; how many there were."""
    names: dict[str, object] = {"__name__": "__main__"}
    blocks = examples(page)
    for number, block in enumerate(blocks):
        exec(compile(block, f"{page}.md, example {number + 1}", "exec"), names)
    return len(blocks)


if __name__ == "__main__":
    run(sys.argv[1])
