"""What the parts of a consumer's core share: settings, metadata, positions, and what is to be raised or logged."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection
from dataclasses import dataclass, field

from kraftlog.client.state.cluster_metadata import ClusterMetadata
from kraftlog.client.state.fetch_session import FetchSession
from kraftlog.client.state.position import OffsetAndEpoch, ResetStrategy
from kraftlog.client.state.request import ConsumerRequest, RequestKind
from kraftlog.client.state.subscription import Subscription, Truncation
from kraftlog.errors import KafkaError, LogTruncationError
from kraftlog.types import Epoch, EpochEndOffset, Offset, TopicPartition

__all__ = ["ConsumerOptions", "CoreContext", "NodeState"]

VALIDATION_VERSION_MIN = 3
OFFSET_FOR_LEADER_EPOCH_KEY = 23


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """Kafka's settings of the same names, as far as the core uses them."""

    reset: ResetStrategy | None = "latest"
    is_read_committed: bool = False
    fetch_min_bytes: int = 1
    fetch_max_bytes: int = 52_428_800
    fetch_max_wait_ms: int = 500
    max_partition_fetch_bytes: int = 1_048_576
    client_rack: str = ""
    retry_backoff_ms: int = 100
    request_timeout_ms: int = 30_000
    metadata_max_age_ms: int = 300_000
    rebootstrap_after_ms: int | None = 300_000
    allow_auto_create_topics: bool = True


@dataclass(slots=True)
class NodeState:
    """What is under way with one broker.

    Attributes:
        session: Its fetch session.
        fetch: The Fetch request that waits for its answer.
        lookup_kinds: The other requests that do, at most one of each kind.
    """

    session: FetchSession = field(default_factory=FetchSession)
    fetch: ConsumerRequest | None = None
    lookup_kinds: set[RequestKind] = field(default_factory=set)


class CoreContext:
    """See the module.

    Args:
        options: Settings.
        versions_of: Highest common version of an API key with a node: None while the node's versions are not known,
            -1 when it does not have the API.

    Attributes:
        errors: What the next call of the application raises, first things first.
        warnings: What is logged.
    """

    def __init__(self, options: ConsumerOptions, versions_of: Callable[[int, int], int | None]) -> None:
        self.options = options
        self.metadata = ClusterMetadata()
        self.subscription = Subscription(options.reset)
        self.errors: deque[Exception] = deque()
        self.warnings: deque[str] = deque()
        self.nodes: dict[int, NodeState] = {}
        self.metadata_retry_ms = 0
        self._versions_of = versions_of
        self._refusals: dict[str, KafkaError] = {}

    def node(self, node_id: int) -> NodeState:
        """What is under way with a broker."""
        found = self.nodes.get(node_id)
        if found is None:
            found = self.nodes[node_id] = NodeState()
        return found

    def can_validate(self, node_id: int | None) -> bool | None:
        """Whether a broker has OffsetForLeaderEpoch 3 or later; None while its versions are not known."""
        version = None if node_id is None else self._versions_of(node_id, OFFSET_FOR_LEADER_EPOCH_KEY)
        return None if version is None else version >= VALIDATION_VERSION_MIN

    def want_metadata(self, now_ms: int) -> None:
        """Ask for newer metadata after the back-off; what fails meanwhile does not put it off."""
        if self.metadata.is_update_wanted:
            return
        self.metadata.is_update_wanted = True
        self.metadata_retry_ms = max(self.metadata_retry_ms, now_ms + self.options.retry_backoff_ms)

    def raise_later(self, error: Exception) -> None:
        """Let the next call of the application raise an error; one that waits already is not added again."""
        if not any(type(waiting) is type(error) and str(waiting) == str(error) for waiting in self.errors):
            self.errors.append(error)

    def forget_errors(self, partition: TopicPartition) -> None:
        """The application moved the position of a partition: what was wrong with the old one is not raised."""
        kept = [error for error in self.errors if getattr(error, "partition", None) != partition]
        self.errors.clear()
        self.errors.extend(kept)

    def refuse(self, topic: str, code: int) -> None:
        """Let the next call of the application raise what a broker says against a topic."""
        if self._refusals.get(topic) not in self.errors:
            self._refusals[topic] = KafkaError(code, f"topic {topic}")
            self.errors.append(self._refusals[topic])

    def forget_refusals(self, read: Collection[str]) -> None:
        """The application reads these topics only: what was refused of others is not raised."""
        dropped = [self._refusals.pop(topic) for topic in self._refusals.keys() - set(read)]
        for error in dropped:
            if error in self.errors:
                self.errors.remove(error)

    def settle(self, partition: TopicPartition, outcome: Truncation | OffsetAndEpoch | None) -> None:
        """Report what came of a validation: a truncation, or the offset at which reading goes on."""
        if isinstance(outcome, Truncation):
            end = outcome.diverging
            self.raise_later(
                LogTruncationError(
                    partition,
                    outcome.position.offset,
                    outcome.position.offset_epoch,
                    None if end is None else EpochEndOffset(Epoch(end.leader_epoch or 0), Offset(end.offset)),
                )
            )
        elif outcome is not None and outcome.leader_epoch is None:
            self.warnings.append(
                f"{partition}: the log was truncated below the position, and it is not known where: records that were "
                f"read are gone, others have their offsets; reading goes on at offset {outcome.offset}"
            )
        elif outcome is not None:
            self.warnings.append(
                f"{partition}: the log was truncated below the position; reading goes on at offset {outcome.offset}, "
                f"the first that differs (leader epoch {outcome.leader_epoch})"
            )
