"""Offsets as Spark keeps them."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlog.spark.options import STREAM_OPTIONS, SourceOptions
from kraftlog.spark.stream_offsets import Position, StreamOffset
from kraftlog.spark.stream_progress import stream_lag

KEYS = st.tuples(st.sampled_from(["orders", "a-b", "x_1"]), st.integers(0, 2**31 - 1))
POSITIONS = st.dictionaries(
    KEYS, st.builds(Position, st.integers(0, 2**63 - 1), st.integers(-1, 2**31 - 1), st.none()), max_size=8
)


@given(POSITIONS, st.booleans(), st.none() | POSITIONS)
def test_an_offset_comes_back_from_its_json(positions: Any, is_initial: bool, batch_start: Any) -> None:
    offset = StreamOffset(positions, is_initial=is_initial, batch_start=batch_start)
    text = json.dumps(offset.to_json())
    assert StreamOffset.from_json(json.loads(text)) == offset
    # Spark compares texts: what is given back has to be written as it was.
    assert json.dumps(StreamOffset.from_json(json.loads(text)).to_json()) == text


def test_the_form_is_that_of_starting_offsets() -> None:
    offset = StreamOffset({("t", 10): Position(7, 3, "abc"), ("t", 2): Position(5, -1, "abc"), ("a", 0): Position(0)})
    document = offset.to_json()
    assert json.dumps(document) == json.dumps(
        {
            "version": 1,
            "offsets": {"a": {"0": 0}, "t": {"2": 5, "10": 7}},
            "epochs": {"t": {"10": 3}},
            "topicIds": {"t": "abc"},
        }
    )
    options = {"path": "logs", "startingOffsets": json.dumps(document["offsets"])}
    starting = SourceOptions.parse(options, known=STREAM_OPTIONS, streaming=True).starting
    assert starting.by_partition == {("a", 0): 0, ("t", 2): 5, ("t", 10): 7}


@pytest.mark.parametrize(
    ("document", "text"),
    [
        ({}, "an offset of version None is in the checkpoint; this version of kraftlog knows 1"),
        ({"version": 2, "offsets": {}}, "version 2 is in the checkpoint"),
        ({"version": 1}, "KeyError: 'offsets'"),
        ({"version": 1, "offsets": {"t": {"0": -1}}}, "offset -1"),
        ({"version": 1, "offsets": {"t": {"0": "7"}}}, "offset '7'"),
        ({"version": 1, "offsets": {"t": {"0": True}}}, "offset True"),
        ({"version": 1, "offsets": {"t": {"x": 7}}}, "invalid literal"),
        ({"version": 1, "offsets": {"t": 7}}, "AttributeError"),
        ({"version": 1, "offsets": {"t": {"0": 7}}, "epochs": {"t": {"0": "1"}}}, "epoch '1'"),
        ({"version": 1, "offsets": {"t": {"0": 7}}, "topicIds": {"t": 1}}, "topic id 1"),
        ({"version": 1, "offsets": {}, "from": {}}, "KeyError: 'offsets'"),
    ],
)
def test_what_is_no_offset_says_why(document: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        StreamOffset.from_json(document)


def test_two_topics_of_one_name_are_refused() -> None:
    offset = StreamOffset({("t", 0): Position(1, 0, "abc"), ("t", 1): Position(1, 0, "def")})
    with pytest.raises(ValueError, match="topic t has the ids abc and def"):
        offset.to_json()


def source(end: StreamOffset, latest: StreamOffset) -> dict[str, Any]:
    return {"endOffset": json.dumps(end.to_json()), "latestOffset": json.dumps(latest.to_json())}


def test_lag_is_what_is_behind_the_end_of_the_batch() -> None:
    end = StreamOffset({("a", 0): Position(5), ("b", 0): Position(100), ("gone", 0): Position(9)})
    latest = StreamOffset({("a", 0): Position(12), ("a", 1): Position(3), ("b", 0): Position(90)})
    lag = stream_lag({"sources": [{"description": "rate", "endOffset": 17}, source(end, latest)]})
    assert lag.partitions == {("a", 0): 7, ("a", 1): 3, ("b", 0): 0}
    assert lag.topics == {"a": 10, "b": 0}
    assert lag.total == 10
    with pytest.raises(ValueError, match="no source of the progress has the offsets of the kraftlog source"):
        stream_lag({"sources": [{"endOffset": json.dumps(end.to_json()), "latestOffset": None}]})
