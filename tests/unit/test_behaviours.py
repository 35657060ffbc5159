"""docs/behaviours/tests.md lists the tests that name each behaviour, as they are now."""

from __future__ import annotations

import behaviours


def test_page_of_the_tests_is_as_generated():
    assert behaviours.PAGE.read_text() == behaviours.page_text(), "run python tests/behaviours.py"


def test_ids_are_defined_once():
    every = [name for page in behaviours.area_pages() for name in behaviours.defined_ids(page)]
    assert len(every) == len(set(every)) > 0


def test_comment_and_decorator_above_a_test_belong_to_it():
    text = """@mark
def helper():
    pass

# about the first
@mark
def test_first():
    pass

class TestGroup:
    def test_second(self):
        pass
"""
    assert list(behaviours.test_spans(text)) == [(5, 8, "test_first"), (11, 12, "TestGroup::test_second")]
