"""Topics as the coordinator of consumer groups sees them; the shell gives them."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Protocol

from kraftlog.types import Uuid

__all__ = ["TopicMatcher", "TopicMetadata", "Topics"]


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """A topic that exists; its partitions are numbered from 0 to ``partition_count``, exclusive."""

    name: str
    topic_id: Uuid
    partition_count: int


class TopicMatcher(Protocol):
    """A compiled regular expression."""

    @property
    def cost(self) -> int:
        """How long a match may take, in units of some 0.04 ms; 1 for a common one."""
        ...

    def matches(self, name: str) -> bool:
        """Whether the whole of a topic's name matches."""
        ...


class Topics(Protocol):
    """The committed topics.

    Attributes:
        version: Offset of the metadata that last changed a topic, its partitions or its racks.
        created_version: Offset of the metadata that last created a topic.
    """

    @property
    def version(self) -> int: ...  # noqa: D102
    @property
    def created_version(self) -> int: ...  # noqa: D102

    def by_name(self, name: str) -> TopicMetadata | None:
        """The topic of this name."""
        ...

    def by_id(self, topic_id: Uuid) -> TopicMetadata | None:
        """The topic with this id."""
        ...

    def names(self) -> Iterable[str]:
        """Every topic, internal ones as well."""
        ...

    def group_hash(self, names: Collection[str]) -> int:
        """Kafka's hash over the topics of a group that exist, signed (KIP-1101)."""
        ...

    def compile(self, pattern: str) -> TopicMatcher:
        """Compile a regular expression.

        Raises:
            ValueError: It is none; the text says why.
        """
        ...
