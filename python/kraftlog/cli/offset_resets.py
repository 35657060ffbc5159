"""The places to which ``kraftlog groups reset-offsets`` sets offsets, in ConsumerGroupCommand's words (KIP-122)."""

from __future__ import annotations

import argparse
import csv
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from kraftlog.cli.broker_client import EARLIEST, LATEST, BrokerClient, Topic
from kraftlog.errors import KraftlogError
from kraftlog.types import TopicPartition

__all__ = ["OffsetReset", "add_scenario_arguments", "parse_topics", "read_csv"]

_DURATION = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?",
    re.IGNORECASE,
)
_CSV_WITHOUT_GROUP = 3


def add_scenario_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the places to which offsets can be set; exactly one has to be given."""
    scenario = parser.add_mutually_exclusive_group(required=True)
    scenario.add_argument("--to-earliest", action="store_true", help="the first offsets")
    scenario.add_argument("--to-latest", action="store_true", help="the ends")
    scenario.add_argument("--to-current", action="store_true", help="where the group is; the end where it has none")
    scenario.add_argument("--to-offset", type=int, metavar="N", help="this offset, within what the partition has")
    scenario.add_argument("--shift-by", type=int, metavar="N", help="so many further than now; negative goes back")
    scenario.add_argument("--to-datetime", metavar="TIME", help="such as 2026-01-31T13:00:00.000, in UTC without zone")
    scenario.add_argument("--by-duration", metavar="PnDTnHnMnS", help="so long before now")
    scenario.add_argument("--from-file", metavar="CSV", help="lines of topic,partition,offset, as --export prints them")


def parse_topics(texts: Iterable[str], topics: Mapping[str, Topic]) -> list[TopicPartition]:
    """Read ``topic`` or ``topic:0,1``.

    Raises:
        KraftlogError: A partition is no number, or the topic does not exist.
    """
    found: list[TopicPartition] = []
    for text in texts:
        name, colon, indexes = text.rpartition(":") if ":" in text else (text, "", "")
        if name not in topics:
            raise KraftlogError(f"Topic {name} does not exist.")
        if not colon:
            found.extend(TopicPartition(name, index) for index in sorted(topics[name].leaders))
            continue
        for index in indexes.split(","):
            if not index.strip().isdigit():
                raise KraftlogError(f"Invalid partition {index!r} in {text}.")
            found.append(TopicPartition(name, int(index)))
    return found


def read_csv(path: str, group_id: str) -> dict[TopicPartition, int]:
    """Offsets of a group from lines of ``topic,partition,offset`` or ``group,topic,partition,offset``.

    Raises:
        KraftlogError: The file cannot be read; the text names the line.
    """
    wanted: dict[TopicPartition, int] = {}
    try:
        with Path(path).open(newline="", encoding="utf-8") as file:
            for number, row in enumerate(csv.reader(file), 1):
                if not row:
                    continue
                values = row if len(row) > _CSV_WITHOUT_GROUP else [group_id, *row]
                try:
                    group, topic, index, offset = values
                    key = TopicPartition(topic.strip(), int(index))
                    if group == group_id:
                        wanted[key] = int(offset)
                except ValueError as error:
                    raise KraftlogError(f"{path}, line {number}: expected topic,partition,offset") from error
    except OSError as error:
        raise KraftlogError(f"{path}: {error.strerror}") from error
    return wanted


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetReset:
    """Computes new offsets of partitions.

    Attributes:
        client: Asks the leaders.
        topics: Those that exist.
        committed: What the group has now.
        now_ms: The wall clock.
    """

    client: BrokerClient
    topics: Mapping[str, Topic]
    committed: Mapping[TopicPartition, int]
    now_ms: int

    async def compute(
        self, args: argparse.Namespace, group_id: str, partitions: list[TopicPartition]
    ) -> tuple[dict[TopicPartition, int], list[str]]:
        """The new offset of each partition, and warnings about offsets that the partition does not have.

        Raises:
            KraftlogError: An argument cannot be read, or a partition has no leader.
        """
        if args.from_file is not None:
            return await self._within(read_csv(args.from_file, group_id))
        if args.to_offset is not None:
            return await self._within(dict.fromkeys(partitions, args.to_offset))
        if args.shift_by is not None:
            absent = [partition for partition in partitions if partition not in self.committed]
            if absent:
                raise KraftlogError(
                    f"Cannot shift offset for partition {absent[0]}: there is no current committed offset"
                )
            return await self._within({found: self.committed[found] + args.shift_by for found in partitions})
        if args.to_datetime is not None or args.by_duration is not None:
            # Negative timestamps have meanings of their own.
            return await self._at_time(partitions, max(0, self._timestamp(args))), []
        if args.to_current:
            ends = await self._known(partitions, LATEST)
            return {found: self.committed.get(found, ends[found]) for found in partitions}, []
        return await self._known(partitions, EARLIEST if args.to_earliest else LATEST), []

    def _timestamp(self, args: argparse.Namespace) -> int:
        if args.to_datetime is not None:
            try:
                time = datetime.fromisoformat(args.to_datetime)
            except ValueError as error:
                raise KraftlogError(f"--to-datetime {args.to_datetime}: {error}") from error
            return int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000)
        matched = _DURATION.fullmatch(args.by_duration)
        if matched is None or not any(matched.groups()):
            raise KraftlogError(f"--by-duration {args.by_duration}: the form is PnDTnHnMnS, such as P1DT12H")
        duration = timedelta(**{unit: float(number) for unit, number in matched.groupdict().items() if number})
        return self.now_ms - int(duration.total_seconds() * 1000)

    async def _at_time(self, partitions: list[TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
        """The first offset at or after a time; the end where no record is that young."""
        ends = await self._known(partitions, LATEST)
        found = await self.client.offsets(self.topics, partitions, timestamp)
        return {key: found[key] if found.get(key, -1) >= 0 else ends[key] for key in partitions}

    async def _within(self, wanted: Mapping[TopicPartition, int]) -> tuple[dict[TopicPartition, int], list[str]]:
        starts, ends = await self._known(wanted, EARLIEST), await self._known(wanted, LATEST)
        offsets: dict[TopicPartition, int] = {}
        warnings: list[str] = []
        for key, offset in wanted.items():
            offsets[key] = min(max(offset, starts[key]), ends[key])
            if offset < starts[key]:
                warnings.append(
                    f"New offset ({offset}) is lower than earliest offset for topic partition {key}."
                    f" Value will be set to {starts[key]}"
                )
            elif offset > ends[key]:
                warnings.append(
                    f"New offset ({offset}) is higher than latest offset for topic partition {key}."
                    f" Value will be set to {ends[key]}"
                )
        return offsets, warnings

    async def _known(self, partitions: Iterable[TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
        wanted = list(partitions)
        found = await self.client.offsets(self.topics, wanted, timestamp)
        for partition in wanted:
            if partition not in found:
                raise KraftlogError(f"The offset of partition {partition} cannot be determined.")
        return found
