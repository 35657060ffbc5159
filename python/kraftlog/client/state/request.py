"""A request that a consumer wants sent, with what it needs to understand the answer."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from kraftlog.types import TopicPartition
from kraftlog.wire.struct import Message

__all__ = ["ConsumerRequest", "RequestKind"]


class RequestKind(Enum):
    """What a request asks for."""

    METADATA = "metadata"
    FETCH = "fetch"
    RESET = "reset"
    VALIDATION = "validation"
    CONNECT = "connect"


@dataclass(frozen=True, slots=True, eq=False)
class ConsumerRequest:
    """One request.

    Attributes:
        kind: What it asks for; CONNECT has no message and only wants the node's versions.
        node_id: Where to; None for any node.
        message: The request.
        targets: What was asked of each partition.
        version_max: The highest version that may be used; None for the highest that both sides have.
    """

    kind: RequestKind
    node_id: int | None
    message: Message | None
    targets: Mapping[TopicPartition, Any] = field(default_factory=dict)
    version_max: int | None = None
