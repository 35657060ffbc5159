"""Names one share partition."""

from __future__ import annotations

from typing import NamedTuple

from kraftlog.types import Uuid

__all__ = ["ShareKey"]


class ShareKey(NamedTuple):
    """A partition as one share group sees it."""

    group_id: str
    topic_id: Uuid
    partition: int

    def __str__(self) -> str:
        """The key of FindCoordinator, ``group:topicId:partition``."""
        return f"{self.group_id}:{self.topic_id}:{self.partition}"
