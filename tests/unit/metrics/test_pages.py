"""The pages about metrics: the example prints what it says, and the table names every metric."""

from __future__ import annotations

import contextlib
import io
import re
from pathlib import Path

import kraftlog

DOCS = Path(__file__).resolve().parents[3] / "docs"


def test_example_of_the_page_prints_what_the_page_says():
    page = (DOCS / "how-to" / "metrics.md").read_text()
    code, printed = re.search(r"```python\n(.*?)```\n\nprints\n\n((?:    [^\n]*\n)+)", page, re.DOTALL).groups()
    output = io.StringIO()
    with contextlib.redirect_stdout(output):
        exec(compile(code, "metrics.md", "exec"), {})
    assert output.getvalue() == re.sub("^    ", "", printed, flags=re.MULTILINE)


def test_table_names_every_metric_of_a_node():
    table = (DOCS / "reference" / "metrics.md").read_text()
    with kraftlog.Broker() as broker:
        names = {re.sub(r"\{.*", "", metric).split(".")[-1] for metric in broker.metrics()}
    assert len(names) > 55
    for name in names:
        stem = re.sub("-(avg|max|p50|p95|p99|p999|rate|count|total)$", "", name)
        assert re.search(rf"\b{re.escape(stem)}\b", table), name
