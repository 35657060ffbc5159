"""java.util.Properties.load, rule by rule."""

from __future__ import annotations

import pytest

from kraftlog.storage.properties import PropertiesError, parse_properties


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a=1\nb:2\nc 3\n", {"a": "1", "b": "2", "c": "3"}),
        ("  a = 1 \n", {"a": "1 "}),
        ("# no\n! no\n\n  # no\na=1", {"a": "1"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=x\\\n   y\\\n z\nb=1", {"a": "xyz", "b": "1"}),
        ("a=x\\\\\nb=1", {"a": "x\\", "b": "1"}),
        ("a\\ b\\=c=d", {"a b=c": "d"}),
        ("a=\\u00e9\\t\\q", {"a": "\u00e9\tq"}),
        ("a", {"a": ""}),
        ("a=1\r\nb=2\rc=3", {"a": "1", "b": "2", "c": "3"}),
        ("a==b", {"a": "=b"}),
        ("a=x\\\n# not a comment", {"a": "x# not a comment"}),
        ("a=end\\", {"a": "end"}),
    ],
)
def test_parse_properties_reads_as_java_does(text: str, expected: dict[str, str]) -> None:
    assert parse_properties(text) == expected


def test_parse_properties_bad_unicode_escape_names_the_line() -> None:
    with pytest.raises(PropertiesError, match="line 2"):
        parse_properties("a=1\nb=\\u12x4")
