"""In which directory the log of a new replica is created, and when in none."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kraftlog.controller.directory import DIRECTORY_LOST, DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED
from kraftlog.errors import ErrorCode, LogError
from kraftlog.runtime.replica.log_placement import LogPlacement
from kraftlog.storage.log_dir import LogDir
from kraftlog.types import TopicPartition, Uuid
from kraftlog.wire.messages.metadata_records import PartitionRecord, TopicRecord
from replica_bench import FIRST, NODE
from unit.runtime.replica.test_reconciler import run  # noqa: F401  the fixture

KEY = TopicPartition("t", 0)
A, B, C = (Uuid(letter.encode() * 16) for letter in "ABC")


def placement(path: Path, *offline: Uuid) -> LogPlacement:
    """Directories A, B and C with 2, 1 and 1 partitions."""
    log_dirs = []
    for directory_id in (A, B, C):
        directory = path / directory_id.decode()
        directory.mkdir()
        log_dir = LogDir(directory)
        log_dir.directory_id = directory_id
        log_dir.failure = "broken" if directory_id in offline else None
        log_dirs.append(log_dir)
    made = LogPlacement(log_dirs)
    for position in (0, 0, 1, 2):
        made.add(log_dirs[position])
    return made


@pytest.mark.parametrize(
    ("assigned", "offline", "expected"),
    [
        (A, (), A),
        (A, (C,), A),
        (DIRECTORY_UNASSIGNED, (), B),
        (DIRECTORY_UNASSIGNED, (B,), C),
        (DIRECTORY_LOST, (), B),
        (DIRECTORY_MIGRATING, (), B),
        (None, (B,), C),
        (C, (C,), None),
        (C, (B, C), None),
        (DIRECTORY_LOST, (C,), None),
        (DIRECTORY_MIGRATING, (C,), None),
        (DIRECTORY_UNASSIGNED, (A, B, C), None),
    ],
)
def test_directory_of_a_new_log(tmp_path: Path, assigned: Any, offline: Any, expected: Any) -> None:
    """RDLT-45, RDLT-46: assigned, else the one with the fewest logs; in none if it may lie in one that is offline."""
    chooser = placement(tmp_path, *offline)
    if expected is None:
        with pytest.raises(LogError, match="offline"):
            chooser.choose(KEY, assigned)
    else:
        assert chooser.choose(KEY, assigned).directory_id == expected


@pytest.mark.parametrize(
    ("assigned", "cordoned", "expected"),
    [
        (DIRECTORY_UNASSIGNED, (B,), C),
        (DIRECTORY_UNASSIGNED, (B, C), A),
        (DIRECTORY_UNASSIGNED, (A, B, C), A),
        (DIRECTORY_LOST, (B,), C),
        (B, (B,), B),
    ],
)
def test_cordoned_directory_gets_only_what_is_assigned_to_it(
    tmp_path: Path, assigned: Any, cordoned: Any, expected: Any
) -> None:
    """RDLT-45: if all are cordoned, the first one."""
    chooser = placement(tmp_path)
    for log_dir in chooser.log_dirs:
        log_dir.is_cordoned = log_dir.directory_id in cordoned
    assert chooser.choose(KEY, assigned).directory_id == expected


def test_log_that_exists_is_found_wherever_it_is_assigned(tmp_path: Path) -> None:
    chooser = placement(tmp_path, A)
    (tmp_path / C.decode() / str(KEY)).mkdir()
    for assigned in (A, B, DIRECTORY_LOST):
        assert chooser.choose(KEY, assigned).directory_id == C


def test_replica_whose_directory_is_offline_is_not_created_in_another(run: Any) -> None:  # noqa: F811
    """RDLT-46, RDLT-47, RINV-87: KAFKA-16234; fails before the fix, which made an empty log in the other directory."""

    async def test(bench: Any) -> None:
        bench.manager.fail_log_dir(bench.log_dirs[1], OSError(5, "broken"))
        bench.commit(
            TopicRecord(name="t", topic_id=FIRST),
            *(
                PartitionRecord(
                    partition_id=index,
                    topic_id=FIRST,
                    replicas=(NODE,),
                    isr=(NODE,),
                    leader=NODE,
                    leader_epoch=0,
                    directories=(directory,),
                )
                for index, directory in enumerate([bench.log_dirs[1].directory_id, DIRECTORY_UNASSIGNED])
            ),
        )
        await bench.settle()
        assert bench.error(0) == ErrorCode.KAFKA_STORAGE_ERROR
        assert [partition.index for partition in bench.partitions] == [1]
        assert [name for name in bench.names() if name.startswith("t-")] == ["t-1"]

    run(test, directories=2)
