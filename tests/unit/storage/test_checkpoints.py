"""Offset checkpoints: Kafka's own files in and out, byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftlog.errors import LogError
from kraftlog.storage.checkpoints import (
    CLEANER_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    format_offset_checkpoint,
    parse_offset_checkpoint,
    read_offset_checkpoint,
    write_offset_checkpoint,
)
from kraftlog.types import TopicPartition

GOLDEN = Path(__file__).parents[2] / "golden" / "topics"


@pytest.mark.parametrize("node", ["node-1", "node-2", "node-3"])
@pytest.mark.parametrize(
    "name", [LOG_START_OFFSET_CHECKPOINT, RECOVERY_POINT_CHECKPOINT, REPLICATION_OFFSET_CHECKPOINT]
)
def test_kafkas_files_come_out_as_they_went_in(node, name):
    path = GOLDEN / node / name
    offsets = read_offset_checkpoint(path)
    assert format_offset_checkpoint(offsets) == path.read_text()


def test_offsets_are_read_by_topic_and_partition():
    offsets = read_offset_checkpoint(GOLDEN / "node-1" / LOG_START_OFFSET_CHECKPOINT)
    assert offsets == {TopicPartition("g-deleterecords", 0): 289}


def test_absent_and_empty_files_have_no_entries(tmp_path):
    assert read_offset_checkpoint(tmp_path / "absent") == {}
    (tmp_path / "empty").touch()
    assert read_offset_checkpoint(tmp_path / "empty") == {}


def test_written_file_reads_back_and_leaves_no_other(tmp_path):
    offsets = {TopicPartition("a-b", 3): 7, TopicPartition("a", 0): 2**40}
    write_offset_checkpoint(tmp_path / "x", offsets)
    assert read_offset_checkpoint(tmp_path / "x") == offsets
    assert [path.name for path in tmp_path.iterdir()] == ["x"]


@pytest.mark.spec("DISK-50")
@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("", 1),
        ("1\n0\n", 1),
        ("x", 1),
        ("0\n", 2),
        ("0\nx\n", 2),
        ("0\n2\nt 0 1\n", 2),
        ("0\n1\nt 0\n", 3),
        ("0\n2\nt 0 1\nt zero 1\n", 4),
        ("0\n1\n\n\nt 0 1 2\n", 5),
    ],
)
def test_damaged_text_is_refused_with_file_and_line(text, line):
    with pytest.raises(LogError, match=f"^the-file line {line}: "):
        parse_offset_checkpoint(text, origin="the-file")


def test_bytes_that_are_no_text_are_refused(tmp_path):
    path = tmp_path / CLEANER_OFFSET_CHECKPOINT
    path.write_bytes(b"0\n1\n\xff 0 1\n")
    with pytest.raises(LogError, match=path.name):
        read_offset_checkpoint(path)
