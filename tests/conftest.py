"""Options of every test run."""

from __future__ import annotations

import pytest


def pytest_addoption(parser):
    parser.addoption(
        "--rewrite-scenarios",
        action="store_true",
        help="write what scenarios print into their files; read the diff, commit only what you understand and want",
    )


@pytest.hookimpl(tryfirst=True)  # before pytest-xdist looks at the groups
def pytest_collection_modifyitems(items):
    """With several workers (pytest-xdist) a file stays together, and all of Spark's files, which share a session."""
    for item in items:
        file = item.path
        group = "spark" if file.parent.name == "spark" and file.parent.parent.name == "interop" else file.stem
        item.add_marker(pytest.mark.xdist_group(group))
    # The longest group first, so that the other workers are not idle at the end.
    items.sort(key=lambda item: item.path.parent.name != "spark")
