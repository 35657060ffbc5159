"""The check of lists notices what must not happen."""

from __future__ import annotations

import pytest

from linearizability.partition_list import Append, complaints

ENTRIES = [(0, "a"), (1, "b"), (3, "c")]
APPENDS = [Append("a", 0, 2, 0), Append("b", 1, 4, 1), Append("c", 5, None, None)]


def test_a_list_that_grows_in_the_order_of_its_calls_has_no_complaint():
    assert complaints(ENTRIES, APPENDS, [ENTRIES[:2], ENTRIES, []]) == []
    assert complaints(ENTRIES[:2], APPENDS, [ENTRIES[:2]]) == []  # a call without an answer may never have happened


@pytest.mark.parametrize(
    ("entries", "appends", "seen", "complaint"),
    [
        (ENTRIES[1:], APPENDS, [], "a was acknowledged at 0 and is at None"),
        ([*ENTRIES, (4, "b")], APPENDS, [], "b is there 2 times"),
        ([*ENTRIES, (4, "d")], APPENDS, [], "nobody appended d"),
        ([(0, "b"), (1, "a")], [Append("a", 0, 2, 1), Append("b", 3, 4, 0)], [], "b is at 0, before offset 1"),
        ([(0, "b"), (1, "a")], [Append("a", 0, 2, 1), Append("b", 3, None, None)], [], "b is at 0, before offset 1"),
        (ENTRIES, APPENDS, [[(0, "a"), (1, "lost")]], "reader 0 saw entries"),
        (ENTRIES, APPENDS, [[*ENTRIES, (4, "lost")]], "reader 0 saw entries"),
    ],
    ids=["lost", "doubled", "foreign", "before", "before, without an answer", "changed", "vanished"],
)
def test_what_must_not_happen_is_noticed(entries, appends, seen, complaint):
    assert any(complaint in found for found in complaints(entries, appends, seen))
