"""Options of every test run."""

from __future__ import annotations


def pytest_addoption(parser):
    parser.addoption(
        "--rewrite-scenarios",
        action="store_true",
        help="write what scenarios print into their files; read the diff, commit only what you understand and want",
    )
