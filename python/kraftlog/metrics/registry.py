"""Groups of metrics and what is read from them.

A group hands out all its readings at once, from one state that it replaces as a whole. A readers, on whatever
thread, takes no lock and sees no half of a change; a writer never waits.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from kraftlog.metrics.histogram import HistogramValue
from kraftlog.metrics.meter import MeterValue

__all__ = ["MetricGroup", "MetricValue", "Metrics", "MetricsSnapshot", "Reading", "Tags"]

MetricValue = int | float | str | HistogramValue | MeterValue
Tags = tuple[tuple[str, str], ...]


class Reading(NamedTuple):
    """One metric at one moment.

    Attributes:
        name: Kafka's name, unique in its group together with the tags.
        value: Numbers, text, a distribution or a meter.
        description: One line.
        tags: Kafka's tags, as pairs.
        is_counter: Whether it only grows.
        choices: All the texts that ``value`` may be, where there are few.
    """

    name: str
    value: MetricValue
    description: str
    tags: Tags = ()
    is_counter: bool = False
    choices: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class MetricGroup:
    """What belongs together under one name.

    Args:
        domain: Of Kafka's MBean: kafka.server or kafka.controller.
        name: Of Kafka's group or MBean type, such as raft-metrics.
        read: Gives the readings of one moment; called from any thread.
    """

    domain: str
    name: str
    read: Callable[[], Sequence[Reading]]


class MetricsSnapshot(Mapping[str, MetricValue]):
    """All metrics at one moment, by name: ``raft-metrics.current-leader``, ``KafkaController.ActiveControllerCount``.

    Tags stand behind the name: ``node-metrics.maximum-supported-level{feature-name=kraft-version}``. What has no value
    in the current role, such as raft-metrics.number-of-observers on a follower, is absent.

    Attributes:
        groups: The same with descriptions, by group.
    """

    __slots__ = ("_values", "groups")

    def __init__(self, groups: Sequence[tuple[MetricGroup, Sequence[Reading]]]) -> None:
        self.groups = tuple(groups)
        self._values: dict[str, MetricValue] = {
            f"{group.name}.{reading.name}{_text(reading.tags)}": reading.value
            for group, readings in groups
            for reading in readings
        }

    def __getitem__(self, name: str) -> MetricValue:
        """The value of one metric."""
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        """All names."""
        return iter(self._values)

    def __len__(self) -> int:
        """How many there are."""
        return len(self._values)


def _text(tags: Tags) -> str:
    return "{" + ",".join(f"{key}={value}" for key, value in tags) + "}" if tags else ""


class Metrics:
    """The metrics of one node. Groups come and go on its loop; ``snapshot`` may be called on any thread."""

    __slots__ = ("_groups",)

    def __init__(self) -> None:
        self._groups: tuple[MetricGroup, ...] = ()

    def register(self, group: MetricGroup) -> None:
        """Add a group.

        Raises:
            ValueError: There is one of this name; its owner has to unregister it first.
        """
        if any(registered.name == group.name for registered in self._groups):
            msg = f"metrics of the group {group.name} are registered already"
            raise ValueError(msg)
        self._groups = (*self._groups, group)

    def unregister(self, group: MetricGroup) -> None:
        """Take a group out; harmless when it is not there."""
        self._groups = tuple(registered for registered in self._groups if registered is not group)

    def snapshot(self) -> MetricsSnapshot:
        """All metrics now. Takes no lock; each group is read as of one moment."""
        return MetricsSnapshot([(group, group.read()) for group in self._groups])
