"""Second attempts that can succeed: hooks for the tests that pytest-rerunfailures runs once more.

That plugin keeps the fixtures of a module between attempts, so a second attempt would meet what the first one left in
a shared node: its topics, the members of its groups, stopped brokers. pytest-timeout disarms its timer at a failure, so
nothing would end a second attempt that hangs.

And an end for tests that nothing in Python can end: pytest-timeout raises out of a signal handler, which does not run
while the main thread waits in native code.
"""

from __future__ import annotations

import faulthandler
import os
from collections.abc import Iterator
from typing import Any

import pytest

FAILED = pytest.StashKey[bool]()
TIMEOUT = pytest.StashKey[Any]()
STDERR = pytest.StashKey[int]()
#: Seconds after the time of a test at which its process ends, with the stacks of all threads on standard error.
GRACE = 60


def pytest_configure(config: pytest.Config) -> None:
    # Tests run with descriptor 2 on a file of pytest's.
    config.stash[STDERR] = os.dup(2)


def pytest_unconfigure(config: pytest.Config) -> None:
    """The process ends in time too, whatever its threads wait for. Workers wait for each other; xdist ends them."""
    if hasattr(config, "workerinput"):
        faulthandler.cancel_dump_traceback_later()
    else:
        end_after(GRACE, config)


def end_after(seconds: float, config: pytest.Config) -> None:
    faulthandler.dump_traceback_later(seconds, exit=True, file=config.stash[STDERR])


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--fail-first-attempts",
        action="store_true",
        help="fail the first attempts that would pass, where a second one is allowed, to show that those can succeed",
    )


@pytest.hookimpl(optionalhook=True)
def pytest_timeout_set_timer(item: pytest.Item, settings: Any) -> None:
    """Keeps the settings; pytest-timeout's own hook, which runs later, sets the timer."""
    item.stash[TIMEOUT] = settings
    if settings.timeout:
        end_after(settings.timeout + GRACE, item.config)


@pytest.hookimpl(optionalhook=True)
def pytest_timeout_cancel_timer(item: pytest.Item) -> None:
    faulthandler.cancel_dump_traceback_later()


def set_timer(item: pytest.Item) -> None:
    settings = item.stash.get(TIMEOUT, None)
    if settings is not None:
        item.config.hook.pytest_timeout_cancel_timer(item=item)
        item.config.hook.pytest_timeout_set_timer(item=item, settings=settings)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Each attempt has the whole time."""
    if item.stash.get(FAILED, False):
        item.stash[FAILED] = False
        set_timer(item)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    yield
    if item.config.getoption("fail_first_attempts") and getattr(item, "execution_count", 0) == 1:
        pytest.fail("on purpose: --fail-first-attempts", pytrace=False)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Iterator[None]:
    report = yield
    if report.failed:
        item.stash[FAILED] = True
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """A failed attempt leaves nothing but the session's fixtures, neither to the next attempt nor to other tests."""
    if item.stash.get(FAILED, False):
        set_timer(item)
        # pytest has no public call for this; pytest-rerunfailures, which would keep the fixtures, uses the same object.
        item.session._setupstate.teardown_exact(item.session)  # type: ignore[attr-defined]
