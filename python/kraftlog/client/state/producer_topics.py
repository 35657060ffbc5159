"""Which topics a producer asks about, and when its metadata is old (KIP-526, KIP-899)."""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["ProducerTopics", "TopicOptions"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicOptions:
    """Kafka's settings of the same names, milliseconds.

    Attributes:
        rebootstrap_after_ms: ``metadata.recovery.rebootstrap.trigger.ms``; None if the producer never starts again from
            its bootstrap servers.
    """

    metadata_max_age_ms: int = 300_000
    metadata_max_idle_ms: int = 300_000
    retry_backoff_ms: int = 100
    rebootstrap_after_ms: int | None = 300_000


class ProducerTopics:
    """Kafka's ``ProducerMetadata``: topics that nothing is sent to are forgotten, the others are asked about again.

    Args:
        options: Settings.

    Attributes:
        is_wanted: Whether something waits for newer metadata than was asked for.
    """

    def __init__(self, options: TopicOptions) -> None:
        self.options = options
        self.is_wanted = False
        self._used_ms: dict[str, float] = {}
        self._answered_ms: float | None = None
        self._ended_ms: float | None = None
        self._failing_since_ms: float | None = None

    def use(self, topic: str, now_ms: float) -> None:
        """Something is sent to this topic."""
        self._used_ms[topic] = now_ms

    def discard(self, topic: str) -> None:
        """Ask about this topic no more."""
        self._used_ms.pop(topic, None)

    def want(self) -> None:
        """Something waits for newer metadata than is here, and than was asked for until now."""
        self.is_wanted = True

    def ask(self, now_ms: float) -> list[str]:
        """The topics to ask about now, sorted; those that were not used for ``metadata.max.idle.ms`` are forgotten."""
        self.is_wanted = False
        before_ms = now_ms - self.options.metadata_max_idle_ms
        self._used_ms = {topic: used_ms for topic, used_ms in self._used_ms.items() if used_ms > before_ms}
        return sorted(self._used_ms)

    @property
    def due_ms(self) -> float | None:
        """When to ask, as something waits or as metadata is old; None if neither will be."""
        again_ms = -math.inf if self._ended_ms is None else self._ended_ms + self.options.retry_backoff_ms
        if self.is_wanted:
            return again_ms
        return (
            None if self._answered_ms is None else max(again_ms, self._answered_ms + self.options.metadata_max_age_ms)
        )

    def answered(self, now_ms: float) -> None:
        """Metadata came."""
        self._answered_ms = self._ended_ms = now_ms
        self._failing_since_ms = None

    def failed(self, now_ms: float) -> bool:
        """None came; whether to start again from the bootstrap servers, as none came for long."""
        self._ended_ms = now_ms
        if self._failing_since_ms is None:
            self._failing_since_ms = now_ms
        after_ms = self.options.rebootstrap_after_ms
        if after_ms is None or now_ms - self._failing_since_ms < after_ms:
            return False
        self._failing_since_ms = None
        return True
