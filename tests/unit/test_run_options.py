"""Options of every test run, of ``tests/conftest.py``."""

from __future__ import annotations

import sys
import types

import conftest


def _raises():
    raise ValueError


def _traceback():
    try:
        _raises()
    except ValueError as error:
        return error.__traceback__
    raise AssertionError


def test_a_traceback_keeps_its_entries_and_lines():
    found = conftest.with_line_numbers(_traceback())
    entries = [(found.tb_frame.f_code.co_name, found.tb_lineno), (found.tb_next.tb_frame.f_code.co_name, None)]
    assert [name for name, _ in entries] == ["_traceback", "_raises"]
    assert found.tb_lineno == _traceback().tb_lineno
    assert found.tb_next.tb_next is None


def test_an_entry_without_a_line_has_that_of_its_function():
    """What a signal handler raises may come from an instruction without a line."""
    frame = sys._getframe()
    entry = types.TracebackType(None, frame, tb_lasti=len(frame.f_code.co_code) + 2, tb_lineno=-1)
    assert entry.tb_lineno is None
    assert conftest.with_line_numbers(entry).tb_lineno == frame.f_code.co_firstlineno
