"""Which topics a consumer reads, and which it asks metadata about."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import TypeAlias

__all__ = ["PatternInput", "TopicPattern", "TopicSelection", "WantedTopics"]

PatternInput: TypeAlias = str | re.Pattern[str]


@dataclass(frozen=True, slots=True)
class TopicSelection:
    """What the application subscribed to: topics by name, or a pattern.

    Attributes:
        topics: Names, sorted; empty with a pattern.
        pattern: Text: the broker matches where the group's protocol is that of KIP-848. Compiled: the client does.
    """

    topics: tuple[str, ...] = ()
    pattern: PatternInput | None = None

    def __str__(self) -> str:
        if self.pattern is None:
            return ", ".join(self.topics)
        text = self.pattern if isinstance(self.pattern, str) else self.pattern.pattern
        return f"the pattern {text!r}"


@dataclass(frozen=True, slots=True)
class TopicPattern:
    """A regular expression that the client matches with topic names, as Kafka's ``subscribe(Pattern)``.

    Attributes:
        expression: Has to match the whole name.
        excludes_internal: Whether topics that the broker reports as internal never match (exclude.internal.topics).
    """

    expression: re.Pattern[str]
    excludes_internal: bool = True

    def matches(self, name: str, *, is_internal: bool) -> bool:
        """Whether a topic belongs to the subscription."""
        if is_internal and self.excludes_internal:
            return False
        return self.expression.fullmatch(name) is not None


@dataclass(slots=True)
class WantedTopics:
    """Topics that metadata is asked about, by what they are wanted for (``ConsumerMetadata``).

    Attributes:
        subscribed: Names of the subscription.
        pattern: Of the subscription: metadata of all topics is asked for, and what does not match is not kept.
        may_create: Whether asking for the names may create topics; never with a pattern.
        group: Topics of all members of the group, while this member assigns its partitions.
        asked: Topics of questions that have no answer yet, such as ``partitions_for``, and how many ask.
    """

    subscribed: frozenset[str] = frozenset()
    pattern: TopicPattern | None = None
    may_create: bool = True
    group: frozenset[str] = frozenset()
    asked: Counter[str] = field(default_factory=Counter)

    def names(self, assigned: Collection[str]) -> frozenset[str]:
        """The topics that are wanted by name, with those of assigned partitions."""
        return self.subscribed | self.group | self.asked.keys() | frozenset(assigned)
