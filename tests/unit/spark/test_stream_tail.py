"""Which offsets the batches of a stream have, over directories that grow, shrink and vanish; without a JVM."""

from __future__ import annotations

import logging
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from growing_logs import GrowingLogs, topic_id_text
from kraftlog.errors import LogTruncatedError, OffsetOutOfRangeError
from kraftlog.spark.options import STREAM_OPTIONS, SourceOptions
from kraftlog.spark.stream_offsets import Position, StreamOffset
from kraftlog.spark.stream_tail import BatchLimit, Tail

ALL = BatchLimit()


@pytest.fixture
def logs(tmp_path: Path) -> Iterator[GrowingLogs]:
    growing = GrowingLogs(tmp_path / "logs")
    yield growing
    growing.close()


@pytest.fixture
def tail_of(logs: GrowingLogs) -> Callable[..., Tail]:
    def make(clock: Callable[[], float] | None = None, **options: str) -> Tail:
        given = {"path": str(logs.path), "startingOffsets": "earliest", **options}
        given = {name.replace("__", "."): value for name, value in given.items()}
        parsed = SourceOptions.parse(given, known=STREAM_OPTIONS, streaming=True)
        return Tail(parsed) if clock is None else Tail(parsed, clock=clock)

    return make


def offsets(offset: StreamOffset) -> dict[str, int]:
    return {f"{topic}-{partition}": position.offset for (topic, partition), position in offset.positions.items()}


def planned(tail: Tail, start: StreamOffset, end: StreamOffset) -> dict[str, tuple[int, int]]:
    """First offset and end of each partition in a plan, whose ranges have to join."""
    found: dict[str, tuple[int, int]] = {}
    for task in tail.plan(start, end):
        for marked in task:
            name = f"{marked.offsets.topic}-{marked.offsets.partition}"
            first, last = found.get(name, (marked.offsets.start_offset,) * 2)
            assert last == marked.offsets.start_offset
            found[name] = first, marked.offsets.end_offset
    return found


def test_batches_follow_the_high_watermark(logs: GrowingLogs, tail_of: Callable[..., Tail]) -> None:
    logs.add("t", 0)
    logs.append("t", 0, 10)
    tail = tail_of()
    first = tail.latest(tail.initial(), ALL)
    assert offsets(first) == {"t-0": 10}
    assert first.positions["t", 0] == Position(10, 0, topic_id_text())
    logs.append("t", 0, 10, checkpoint=False)
    assert tail.latest(first, ALL) is first
    logs.checkpoint(t_0=15)
    second = tail.latest(first, ALL)
    assert offsets(second) == {"t-0": 15}
    assert planned(tail, first, second) == {"t-0": (10, 15)}
    logs.checkpoint(t_0=12)  # another leader may know less
    assert tail.latest(second, ALL) is second
    assert offsets(tail_of(endOffset="logEnd").latest(second, ALL)) == {"t-0": 20}


def test_a_copy_whose_checkpoint_is_newer_than_its_segments_ends_with_them(
    logs: GrowingLogs, tail_of: Callable[..., Tail]
) -> None:
    logs.add("t", 0)
    logs.append("t", 0, 10)
    logs.checkpoint(t_0=25)
    tail = tail_of()
    assert offsets(tail.latest(tail.initial(), ALL)) == {"t-0": 10}


def test_the_start_of_the_first_batch_holds_whatever_is_answered_later(
    logs: GrowingLogs, tail_of: Callable[..., Tail]
) -> None:
    logs.add("t", 0)
    logs.append("t", 0, 10)
    tail = tail_of(startingOffsets="latest")
    initial = tail.initial()
    assert offsets(initial) == {"t-0": 10}
    logs.append("t", 0, 10)
    first = tail.latest(initial, ALL)
    logs.append("t", 0, 10)
    # Another process runs the batch again, after a crash before its commit.
    again = tail_of(startingOffsets="latest")
    end = StreamOffset.from_json(first.to_json())
    late = again.initial()
    assert offsets(late) == {"t-0": 30}
    assert planned(again, late, end) == {"t-0": (10, 20)}
    second = again.latest(end, ALL)
    assert second.batch_start is None
    assert planned(again, end, second) == {"t-0": (20, 30)}


def test_a_first_batch_without_records_has_an_end_of_its_own(logs: GrowingLogs, tail_of: Callable[..., Tail]) -> None:
    logs.add("t", 0)
    logs.append("t", 0, 10)
    tail = tail_of(startingOffsets="latest")
    first = tail.latest(tail.initial(), ALL)
    assert not first.is_initial
    assert planned(tail, tail.initial(), first) == {}
    assert tail.latest(first, ALL) is first


def test_limits_share_a_batch_by_lag(logs: GrowingLogs, tail_of: Callable[..., Tail]) -> None:
    for partition, count in enumerate([100, 200, 0]):
        logs.add("t", partition)
        if count:
            logs.append("t", partition, count)
    tail = tail_of(maxOffsetsPerTrigger="90")
    offset = tail.latest(tail.initial(), BatchLimit(most=90))
    assert offsets(offset) == {"t-0": 30, "t-1": 60, "t-2": 0}
    assert {str(key): value.offset for key, value in tail.available().positions.items()} == {
        "('t', 0)": 100,
        "('t', 1)": 200,
        "('t', 2)": 0,
    }
    assert offsets(tail.latest(offset, ALL)) == {"t-0": 100, "t-1": 200, "t-2": 0}
    read = [offset]
    while (after := tail.latest(read[-1], BatchLimit(most=90))) is not read[-1]:
        read.append(after)
    assert len(read) == 4
    assert offsets(read[-1]) == {"t-0": 100, "t-1": 200, "t-2": 0}


def test_the_least_waits_until_the_delay_is_over(logs: GrowingLogs, tail_of: Callable[..., Tail]) -> None:
    logs.add("t", 0)
    logs.append("t", 0, 5)
    now = [0.0]
    tail = tail_of(lambda: now[0], minOffsetsPerTrigger="100", maxTriggerDelay="10s")
    limit = BatchLimit(least=100)
    first = tail.latest(tail.initial(), limit)
    assert offsets(first) == {"t-0": 5}  # the first does not wait
    logs.append("t", 0, 99)
    now[0] = 9.9
    assert tail.latest(first, limit) is first
    now[0] = 10.0
    second = tail.latest(first, limit)
    assert offsets(second) == {"t-0": 104}
    logs.append("t", 0, 100)
    assert offsets(tail.latest(second, BatchLimit(most=150, least=100))) == {"t-0": 204}
    logs.append("t", 0, 7)
    tail.fix_target()
    assert offsets(tail.latest(second, limit)) == {"t-0": 211}  # AvailableNow has to end


def test_available_now_ends_at_what_was_there(logs: GrowingLogs, tail_of: Callable[..., Tail]) -> None:
    logs.add("t", 0)
    logs.add("t", 1)
    logs.append("t", 0, 10)
    tail = tail_of()
    tail.fix_target()
    offset = tail.latest(tail.initial(), BatchLimit(most=4))
    logs.append("t", 0, 50)
    logs.append("t", 1, 50)
    logs.add("new", 0)
    logs.append("new", 0, 50)
    seen = [offsets(offset)]
    while (after := tail.latest(offset, BatchLimit(most=4))) is not offset:
        offset = after
        seen.append(offsets(offset))
    assert seen == [{"t-0": 4, "t-1": 0}, {"t-0": 8, "t-1": 0}, {"t-0": 10, "t-1": 0}]
    assert tail.available().positions["t", 0].offset == 60
    # The next run goes on with all.
    again = tail_of()
    again.fix_target()
    end = again.latest(offset, ALL)
    assert offsets(end) == {"new-0": 50, "t-0": 60, "t-1": 50}
    assert again.latest(end, ALL) is end


def test_new_partitions_and_topics_are_read_from_their_start(logs: GrowingLogs, tail_of: Callable[..., Tail]) -> None:
    logs.add("orders.a", 0)
    tail = tail_of(subscribePattern="orders.*", startingOffsets="latest")
    first = tail.latest(tail.initial(), ALL)
    assert offsets(first) == {"orders.a-0": 0}
    for topic, partition in (("orders.a", 1), ("orders.b", 0), ("other", 0), ("__consumer_offsets", 0)):
        logs.add(topic, partition)
        logs.append(topic, partition, 5)
    second = tail.latest(first, ALL)
    assert offsets(second) == {"orders.a-0": 0, "orders.a-1": 5, "orders.b-0": 5}
    assert planned(tail, first, second) == {"orders.a-1": (0, 5), "orders.b-0": (0, 5)}


def test_a_new_partition_that_lacks_its_beginning(
    logs: GrowingLogs, tail_of: Callable[..., Tail], caplog: pytest.LogCaptureFixture
) -> None:
    logs.add("t", 0)
    first = tail_of().latest(tail_of().initial(), ALL)
    logs.add("t", 1)
    logs.append("t", 1, 20)
    logs.delete_records("t", 1, 15)
    with pytest.raises(OffsetOutOfRangeError, match=r"partition t-1 \(.*\) is new and begins at offset 15"):
        tail_of().latest(first, ALL)
    tail = tail_of(failOnDataLoss="false")
    with caplog.at_level(logging.WARNING, "kraftlog.spark"):
        second = tail.latest(first, ALL)
        assert planned(tail, first, second) == {"t-1": (15, 20)}
    assert "is new and begins at offset 15" in caplog.text


def test_partitions_that_are_gone(
    logs: GrowingLogs, tail_of: Callable[..., Tail], caplog: pytest.LogCaptureFixture
) -> None:
    for partition in (0, 1):
        logs.add("t", partition)
        logs.append("t", partition, 10)
    first = tail_of().latest(tail_of().initial(), BatchLimit(most=10))
    second = tail_of().latest(first, ALL)
    logs.remove("t", 1)
    with pytest.raises(FileNotFoundError, match=r"partition t-1, read up to offset 5, is gone from .*failOnDataLoss"):
        tail_of().latest(first, ALL)
    with pytest.raises(FileNotFoundError, match=r"offsets \[5, 10\) of t-1 are gone"):
        tail_of().plan(first, second)
    tail = tail_of(failOnDataLoss="false")
    with caplog.at_level(logging.WARNING, "kraftlog.spark"):
        assert offsets(tail.latest(first, ALL)) == {"t-0": 10, "t-1": 5}
        tail.latest(first, ALL)
        assert planned(tail, first, second) == {"t-0": (5, 10)}
    assert sum("read up to offset 5, is gone" in record.message for record in caplog.records) == 1
    assert "offsets [5, 10)" in caplog.text


def test_what_retention_took_before_it_was_read(
    logs: GrowingLogs, tail_of: Callable[..., Tail], caplog: pytest.LogCaptureFixture
) -> None:
    logs.add("t", 0)
    logs.append("t", 0, 50)
    first = tail_of().latest(tail_of().initial(), BatchLimit(most=10))
    end = tail_of().latest(first, ALL)
    logs.delete_records("t", 0, 30)
    with pytest.raises(OffsetOutOfRangeError, match=r"offsets \[10, 30\) of partition t-0 .* are gone: the log starts"):
        tail_of().plan(first, end)
    tail = tail_of(failOnDataLoss="false")
    with caplog.at_level(logging.WARNING, "kraftlog.spark"):
        assert planned(tail, first, end) == {"t-0": (30, 50)}
    assert "offsets [10, 30)" in caplog.text
    logs.delete_records("t", 0, 50)
    assert planned(tail, first, end) == {}
    assert tail.latest(end, ALL) is end


@pytest.mark.parametrize("fail", ["true", "false"])
def test_truncation_is_an_error_in_any_case(logs: GrowingLogs, tail_of: Callable[..., Tail], fail: str) -> None:
    for partition in (0, 1):
        logs.add("t", partition)
        logs.append("t", partition, 6)
        logs.append("t", partition, 4)
    tail = tail_of(failOnDataLoss=fail)
    initial = tail.initial()
    end = tail.latest(initial, ALL)
    logs.truncate("t", 0, 6)
    text = r"partition t-0 \(.*/t-0\) was truncated: offset 10 of leader epoch 0 was there, .* ends at 6 of .* epoch 0"
    with pytest.raises(LogTruncatedError, match=text):
        tail.latest(end, ALL)
    with pytest.raises(LogTruncatedError, match=text):
        tail.plan(initial, end)
    logs.append("t", 0, 10, epoch=3, mark="other ")
    text = "before offset 10 was of leader epoch 0 and is of leader epoch 3 now; what was read from offset 6 on"
    with pytest.raises(LogTruncatedError, match=text):
        tail.latest(end, ALL)
    with pytest.raises(LogTruncatedError, match=text):
        tail.plan(initial, end)
    # What was before the cut is no other log, and the other partition is no worse for it.
    assert offsets(tail.latest(StreamOffset({("t", 0): Position(6, 0), ("t", 1): Position(10, 0)}), ALL)) == {
        "t-0": 16,
        "t-1": 10,
    }
    assert planned(tail, StreamOffset({("t", 1): Position(0)}), StreamOffset({("t", 1): Position(10, 0)})) == {
        "t-1": (0, 10)
    }


def test_records_of_other_leaders_are_no_truncation(logs: GrowingLogs, tail_of: Callable[..., Tail]) -> None:
    logs.add("t", 0)
    tail = tail_of()
    offset = tail.latest(tail.initial(), ALL)
    for epoch in (0, 2, 7):
        logs.append("t", 0, 10, epoch=epoch)
        offset, before = tail.latest(offset, ALL), offset
        assert offset.positions["t", 0].epoch == epoch
        assert len(tail.plan(before, offset)) == 1
    assert offsets(tail.latest(StreamOffset({("t", 0): Position(10, 0)}), BatchLimit(most=10))) == {"t-0": 20}


def test_a_topic_that_was_deleted_and_made_again(
    logs: GrowingLogs, tail_of: Callable[..., Tail], caplog: pytest.LogCaptureFixture
) -> None:
    logs.add("t", 0)
    logs.append("t", 0, 10)
    tail = tail_of()
    initial = tail.initial()
    first = tail.latest(initial, ALL)
    logs.remove("t", 0)
    logs.add("t", 0, topic_id=b"another topic id")
    logs.append("t", 0, 25, mark="other ")
    with pytest.raises(LogTruncatedError, match=r"topic t was deleted and made again: .* read up to offset 10"):
        tail.latest(first, ALL)
    with pytest.raises(LogTruncatedError, match=r"offsets \[0, 10\) of t-0 are gone: the topic was deleted"):
        tail.plan(initial, first)
    tail = tail_of(failOnDataLoss="false")
    with caplog.at_level(logging.WARNING, "kraftlog.spark"):
        second = tail.latest(first, ALL)
        assert planned(tail, first, second) == {"t-0": (0, 25)}
        assert planned(tail, initial, first) == {}
    assert "topic t was deleted and made again" in caplog.text


def test_a_partition_that_moves_between_directories_goes_on(tmp_path: Path, tail_of: Callable[..., Tail]) -> None:
    one, other = GrowingLogs(tmp_path / "one"), GrowingLogs(tmp_path / "other")
    one.add("t", 0)
    one.append("t", 0, 10)
    other.add("u", 0)
    paths = {"path": str(one.path), "paths": f'["{other.path}"]'}
    tail = tail_of(failOnDataLoss="false", **paths)
    first = tail.latest(tail.initial(), ALL)
    moved = one.logs.pop(("t", 0))
    moved.close()
    Path(moved.path).rename(tmp_path / "away")
    second = tail.latest(first, ALL)
    assert second is first
    (tmp_path / "away").rename(other.path / "t-0")
    other.add("t", 0)
    other.append("t", 0, 5)
    third = tail.latest(second, ALL)
    assert planned(tail, second, third) == {"t-0": (10, 15)}
    one.close()
    other.close()


def test_a_partition_in_two_places_is_refused(tmp_path: Path, logs: GrowingLogs, tail_of: Callable[..., Tail]) -> None:
    logs.add("t", 0)
    other = GrowingLogs(tmp_path / "other")
    tail = tail_of(paths=f'["{other.path}"]')
    first = tail.latest(tail.initial(), ALL)
    other.add("t", 0)
    other.close()
    with pytest.raises(Exception, match=r"partition t-0 is in .*/logs/t-0 and in .*/other/t-0"):
        tail.latest(first, ALL)


def test_paths_that_are_no_directories(tmp_path: Path, tail_of: Callable[..., Tail]) -> None:
    nothing = StreamOffset({})
    with pytest.raises(FileNotFoundError, match=r"no directory .*/missing"):
        tail_of(path=str(tmp_path / "missing")).latest(nothing, ALL)
    with pytest.raises(ValueError, match="memory://logs is a URL; streams read local directories"):
        tail_of(path="memory://logs").latest(nothing, ALL)


def test_a_path_that_is_a_partition(logs: GrowingLogs, tail_of: Callable[..., Tail]) -> None:
    for partition in (0, 1):
        logs.add("t", partition)
        logs.append("t", partition, 10)
    logs.checkpoint(t_1=7)
    tail = tail_of(path=str(logs.path / "t-1"))
    assert offsets(tail.latest(tail.initial(), ALL)) == {"t-1": 7}


def test_one_partition_makes_several_tasks(logs: GrowingLogs, tail_of: Callable[..., Tail]) -> None:
    logs.add("t", 0)
    for _ in range(30):
        logs.append("t", 0, 1000)
    tail = tail_of(splitBytes="60000")
    initial = tail.initial()
    end = tail.latest(initial, ALL)
    tasks = tail.plan(initial, end)
    assert len(tasks) > 4
    assert planned(tail, initial, end) == {"t-0": (0, 30_000)}
    assert {marked.end for task in tasks for marked in task} == {end.positions["t", 0]}
    assert pickle.loads(pickle.dumps(tasks)) == tasks
    assert len(tail_of(minPartitions="9").plan(initial, end)) >= 9


def test_starts_by_options(logs: GrowingLogs, tail_of: Callable[..., Tail]) -> None:
    for partition in (0, 1):
        logs.add("t", partition)
        logs.append("t", partition, 10)
    given: dict[str, Any] = {'{"t": {"0": 4, "1": -2}}': (4, 0), '{"t": {"0": -1, "1": 10}}': (10, 10)}
    for text, expected in given.items():
        initial = tail_of(startingOffsets=text).initial()
        assert tuple(position.offset for position in initial.positions.values()) == expected
    with pytest.raises(FileNotFoundError, match="no partition of topic missing"):
        tail_of(subscribe="missing").initial()
    assert tail_of(subscribePattern="none.*").initial().positions == {}
