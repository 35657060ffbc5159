"""Recovery where it depends on which batch is damaged: the golden files of ``damaged`` have one such batch per case.

What Kafka does was found by ``golden/make/damage.py`` with each batch in turn: ``LogSegment.recover`` of Kafka 4.3.1.
"""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from golden.make import damage
from golden.make.make import damage_sources
from kraftlog import _kraftlog
from kraftlog.errors import LogError

SOURCES = damage_sources()


def damaged(folder: Path, source: str, case: str, edited: int) -> Path:
    base_offset, data = SOURCES[source]
    path = folder / f"{base_offset:020}.log"
    path.write_bytes(damage.damage(data, case, edited, random.Random(0)))
    return path


@pytest.mark.parametrize("case", ["codec-5", "codec-6", "codec-7", "codec-other", "record-length-overflow"])
def test_marker_that_kafka_recovery_throws_at_is_refused_and_nothing_is_cut(case: str, tmp_path: Path) -> None:
    """Kafka throws IllegalArgumentException or KafkaException, of which its recovery cuts nothing."""
    path = damaged(tmp_path, "txn", case, 1)
    before = path.read_bytes()
    with pytest.raises(LogError, match="transaction marker"):
        _kraftlog.recover_segment(path, index_interval_bytes=1024)
    assert path.read_bytes() == before


def test_marker_that_is_no_record_ends_the_log_behind_it_as_in_kafka(tmp_path: Path) -> None:
    path = damaged(tmp_path, "txn", "record-length-zero", 1)
    found = _kraftlog.recover_segment(path, index_interval_bytes=1024)
    assert (found.truncated_bytes, found.next_offset) == (2670, 216)


@pytest.mark.parametrize(
    ("source", "case", "kafka"),
    [
        ("snappy", "swapped-batches", 1578),
        ("zstd", "swapped-batches", 2141),
        ("txn", "base-offset-jump-once", 207),
        ("logappend", "base-offset-jump-once", 257),
    ],
)
def test_next_offset_is_never_that_of_an_empty_segment(source: str, case: str, kafka: int, tmp_path: Path) -> None:
    """The last index entry is above the last batch: Kafka's ``readNextOffset`` finds nothing and returns the base
    offset of the segment, so that the next records would get the offsets of all of its records. Here it is the offset
    behind the last batch, and a log that ends in such a segment does not open after an unclean stop.
    """
    base_offset, data = SOURCES[source]
    assert kafka == base_offset
    last = damage.batches_of(damage.damage(data, case, 3, random.Random(0)))[-1]
    behind_last = int.from_bytes(last[:8], "big") + int.from_bytes(last[23:27], "big") + 1
    found = _kraftlog.recover_segment(damaged(tmp_path, source, case, 3), index_interval_bytes=1024)
    assert found.truncated_bytes == 0
    assert found.next_offset == behind_last > base_offset
