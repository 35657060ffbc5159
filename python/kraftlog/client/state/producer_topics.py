"""Which topics a producer asks about, and when its metadata is old (KIP-526, KIP-899)."""

from __future__ import annotations

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
    """

    def __init__(self, options: TopicOptions) -> None:
        self.options = options
        self._used_ms: dict[str, float] = {}
        self._answered_ms: float | None = None
        self._failed_ms: float | None = None
        self._failing_since_ms: float | None = None

    def use(self, topic: str, now_ms: float) -> None:
        """Something is sent to this topic."""
        self._used_ms[topic] = now_ms

    def discard(self, topic: str) -> None:
        """Ask about this topic no more."""
        self._used_ms.pop(topic, None)

    def wanted(self, now_ms: float) -> list[str]:
        """The topics to ask about, sorted; those that were not used for ``metadata.max.idle.ms`` are forgotten."""
        before_ms = now_ms - self.options.metadata_max_idle_ms
        self._used_ms = {topic: used_ms for topic, used_ms in self._used_ms.items() if used_ms > before_ms}
        return sorted(self._used_ms)

    @property
    def due_ms(self) -> float | None:
        """When to ask although nothing needs it; None before the first answer."""
        if self._answered_ms is None:
            return None
        due_ms = self._answered_ms + max(self.options.metadata_max_age_ms, self.options.retry_backoff_ms)
        return due_ms if self._failed_ms is None else max(due_ms, self._failed_ms + self.options.retry_backoff_ms)

    def answered(self, now_ms: float) -> None:
        """Metadata came."""
        self._answered_ms = now_ms
        self._failed_ms = self._failing_since_ms = None

    def failed(self, now_ms: float) -> bool:
        """None came; whether to start again from the bootstrap servers, as none came for long."""
        self._failed_ms = now_ms
        if self._failing_since_ms is None:
            self._failing_since_ms = now_ms
        after_ms = self.options.rebootstrap_after_ms
        if after_ms is None or now_ms - self._failing_since_ms < after_ms:
            return False
        self._failing_since_ms = None
        return True
