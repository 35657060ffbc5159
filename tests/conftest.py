"""Options of every test run."""

from __future__ import annotations

import os

import pytest


def pytest_configure():
    """Nodes in this process have the data path that KRAFTLOG_TEST_DATA_PATH names, unless a test sets its own."""
    data_path = os.environ.get("KRAFTLOG_TEST_DATA_PATH")
    if data_path:
        from kraftlog.node import config

        config.DEFAULT_DATA_PATH = data_path


def pytest_addoption(parser):
    parser.addoption(
        "--rewrite-scenarios",
        action="store_true",
        help="write what scenarios print into their files; read the diff, commit only what you understand and want",
    )


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """With several workers (pytest-xdist) a file stays on one of them, and so do all of Spark's, which share a session.

    Its own ``loadgroup`` does nothing under pytest 9.2: it renames items in a way that this release does not see.
    """
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def _split_scope(self, nodeid):
            file = nodeid.partition("::")[0]
            return "spark" if file.startswith("tests/interop/spark/") else file

    return ByFile(config, log)


def pytest_collection_modifyitems(items):
    """The longest group first, so that the other workers are not idle at the end."""
    items.sort(key=lambda item: not item.nodeid.startswith("tests/interop/spark/"))
