"""Options of every test run."""

from __future__ import annotations

import os
import types

import pytest

from slow_turns import not_in_turn

pytest_plugins = ["attempts"]


@pytest.hookimpl(tryfirst=True)
def pytest_configure(config):
    """Nodes in this process have the data path that KRAFTLOG_TEST_DATA_PATH names, unless a test sets its own.

    Property tests draw from the seed that KRAFTLOG_TEST_SEED names, unless ``--hypothesis-seed`` does.
    """
    seed = os.environ.get("KRAFTLOG_TEST_SEED")
    if seed and config.getoption("hypothesis_seed", None) is None:
        config.option.hypothesis_seed = seed
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


def with_line_numbers(traceback):
    """The same traceback; an entry without a line number has that of its function.

    pytest-timeout raises out of a signal handler, which in Python 3.11 may run at an instruction that belongs to no
    line. Pytest computes with the number, and a worker that dies of it ends the whole run.
    """
    entries = []
    while traceback is not None:
        entries.append(traceback)
        traceback = traceback.tb_next
    for entry in reversed(entries):
        line = entry.tb_lineno if entry.tb_lineno is not None else entry.tb_frame.f_code.co_firstlineno
        traceback = types.TracebackType(traceback, entry.tb_frame, entry.tb_lasti, line)
    return traceback


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_makereport(item, call):
    """Runs before pytest's own, which formats the traceback."""
    if call.excinfo is not None:
        error = call.excinfo.value
        call.excinfo = pytest.ExceptionInfo.from_exception(error.with_traceback(with_line_numbers(error.__traceback__)))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config, log):
    """With several workers (pytest-xdist) a file stays on one of them, and so do all of Spark's, which share a session.

    Its own ``loadgroup`` does nothing under pytest 9.2: it renames items in a way that this release does not see.
    """
    from xdist.scheduler import LoadScopeScheduling

    class ByFile(LoadScopeScheduling):
        def __init__(self, config, log):
            # Or the files with the fewest tests come last, which are those that take minutes for one.
            config.option.loadscopereorder = False
            super().__init__(config, log)

        def _split_scope(self, nodeid):
            file = nodeid.partition("::")[0]
            return "spark" if file.startswith("tests/interop/spark/") else file

        def remove_node(self, node):
            """xdist would give the test that ended its process to the next worker, and to the one after that."""
            workload = self.assigned_work[node]
            crashed = next(
                (item for tests in workload.values() for item, is_done in tests.items() if not is_done), None
            )
            if crashed is None:
                return super().remove_node(node)
            del self.assigned_work[node]
            for file, tests in workload.items():
                if crashed in tests:
                    tests[crashed] = True
                if not all(tests.values()):
                    self.workqueue[file] = tests
            for other in self.assigned_work:
                self._reschedule(other)
            return crashed

    return ByFile(config, log)


# Each takes a minute or more on an idle machine with two cores, the longest first.
LONGEST_FIRST = (
    "tests/interop/spark/",
    "tests/interop/test_golden_makers.py",
    "tests/interop/test_clients.py",
    "tests/interop/tiered/",
    "tests/interop/test_stories.py",
    "tests/linearizability/",
    "tests/interop/test_kill.py",
    "tests/interop/test_stories_tls.py",
    "tests/interop/test_files.py",
    "tests/interop/test_quorum_api.py",
    "tests/interop/test_cleaner.py",
    "tests/model/",
    "tests/simulation/",
    "tests/interop/",
    "tests/integration/",
)


def pytest_collection_modifyitems(config, items):
    """Long files first, so that no worker is left with one at the end.

    With KRAFTLOG_TEST_DATA_PATH, tests are left out that run on both data paths without it. KRAFTLOG_SLOW_TURN
    names the part of the slow tests that is run (``slow_turns.py``).
    """
    left_out = set()
    if os.environ.get("KRAFTLOG_TEST_DATA_PATH"):
        left_out.update(item for item in items if has_data_path_of_its_own(item))
    slow_turn = os.environ.get("KRAFTLOG_SLOW_TURN")
    if slow_turn:
        left_out.update(not_in_turn(items, slow_turn))
    if left_out:
        config.hook.pytest_deselected(items=[item for item in items if item in left_out])
        items[:] = [item for item in items if item not in left_out]
    count = len(LONGEST_FIRST)
    items.sort(
        key=lambda item: next((n for n, start in enumerate(LONGEST_FIRST) if item.nodeid.startswith(start)), count)
    )


def has_data_path_of_its_own(item):
    """Whether its file or one of its parameters names the data path."""
    call = getattr(item, "callspec", None)
    parameters = [value for value in call.params.values() if isinstance(value, str)] if call else []
    return item.path.name.startswith("test_native_") or not {"native", "python"}.isdisjoint(parameters)
