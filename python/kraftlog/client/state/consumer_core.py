"""The decisions of a consumer: which requests to send now, and what their answers change.

    for request in core.next_requests(now_ms): ...        # each to its node, or to any when there is none
    core.handle_answer(request, response, version, now_ms)
    core.handle_failure(request, error, now_ms)
    fetched = core.take_fetched()                         # records for the position of an assigned partition

At most one Fetch per node is under way, and none while records of that node wait to be taken: memory is bounded by
``fetch.max.bytes`` per node. Source: ``Fetcher``, ``OffsetFetcher`` and ``FetchCollector`` of Kafka's consumer.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from typing import Any

from kraftlog.client.state.core_context import ConsumerOptions, CoreContext
from kraftlog.client.state.fetch_answer import FetchAnswers, Fetched
from kraftlog.client.state.fetch_session import FetchSession, FetchTarget
from kraftlog.client.state.offset_lookup import OffsetLookups
from kraftlog.client.state.position import FetchPosition, OffsetAndEpoch
from kraftlog.client.state.request import ConsumerRequest, RequestKind
from kraftlog.client.state.subscription import FetchState
from kraftlog.client.state.topic_selection import TopicPattern, WantedTopics
from kraftlog.errors import ErrorCode, KafkaError, NoOffsetForPartitionError
from kraftlog.types import TopicPartition, Uuid
from kraftlog.wire.messages.fetch import FetchRequest
from kraftlog.wire.messages.metadata import MetadataRequest, MetadataResponse
from kraftlog.wire.struct import Message

__all__ = ["ConsumerCore"]

FETCH_VERSION_WITH_TOPIC_IDS = 13
READ_COMMITTED = 1
_FATAL_FOR_TOPIC = frozenset((ErrorCode.TOPIC_AUTHORIZATION_FAILED, ErrorCode.INVALID_TOPIC_EXCEPTION))


class ConsumerCore:
    """See the module.

    Args:
        options: How.
        versions_of: Highest common version of an API key with a node: None while the node's versions are not known,
            -1 when it does not have the API.
    """

    def __init__(self, options: ConsumerOptions, versions_of: Callable[[int, int], int | None]) -> None:
        context = CoreContext(options, versions_of)
        self.context = context
        self.options = options
        self.metadata = context.metadata
        self.subscription = context.subscription
        self.errors = context.errors
        self.warnings = context.warnings
        self.wanted = WantedTopics()
        self.has_group = False
        # Until the application polls it may still seek: no position is looked for before.
        self.is_polled = False
        self._answers = FetchAnswers(context)
        self._lookups = OffsetLookups(context)
        self._metadata_asked = False
        # None: all topics.
        self._topics_asked: frozenset[str] | None = frozenset()
        self._has_all_topics = False
        self._metadata_at_ms: int | None = None
        self._unanswered_since_ms: int | None = None

    # What the application does

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Replace the assignment."""
        for name in set(self.subscription.assigned) - set(partitions):
            self.context.forget_errors(name)
        self.subscription.assign(partitions)
        self.context.forget_refusals(self._read_topics)
        self._want_metadata_of({name.topic for name in partitions})
        self._answers.drop_unassigned()

    def subscribe(
        self, topics: Collection[str], pattern: TopicPattern | None = None, *, may_create: bool = True
    ) -> None:
        """Replace the topics that the group assigns partitions of.

        Args:
            topics: By name.
            pattern: Matched with the names of all topics that the cluster lets this client see.
            may_create: Whether asking for the names may create topics.
        """
        self.wanted.subscribed = frozenset(topics)
        self.context.forget_refusals(self._read_topics)
        self.wanted.may_create = may_create and pattern is None
        if pattern != self.wanted.pattern:
            self.wanted.pattern = pattern
            self._has_all_topics = False
        if pattern is None:
            self._want_metadata_of(self.wanted.subscribed)
        elif not self._has_all_topics:
            self._want_metadata_now()

    def want_group_topics(self, topics: Collection[str]) -> None:
        """Replace the topics of the other members of the group, whose partitions this member assigns."""
        self.wanted.group = frozenset(topics)
        self._want_metadata_of(self.wanted.group)

    @contextmanager
    def asking(self, topics: Collection[str]) -> Iterator[None]:
        """Ask for metadata of more topics within the block."""
        self.wanted.asked.update(topics)
        self._want_metadata_of(topics)
        try:
            yield
        finally:
            self.wanted.asked.subtract(topics)
            self.wanted.asked = +self.wanted.asked

    @property
    def wanted_topics(self) -> frozenset[str]:
        """The topics that metadata is wanted of by name."""
        return self.wanted.names({name.topic for name in self.subscription.assigned})

    @property
    def matched_topics(self) -> tuple[str, ...] | None:
        """The topics that match the pattern, sorted; None before metadata of all topics was seen."""
        pattern = self.wanted.pattern
        if pattern is None or not self._has_all_topics:
            return None
        return tuple(
            sorted(
                name
                for name, topic in self.metadata.topics.items()
                if not topic.error_code and pattern.matches(name, is_internal=topic.is_internal)
            )
        )

    def _want_metadata_of(self, topics: Collection[str]) -> None:
        if not self.metadata.topics.keys() >= set(topics):
            self._want_metadata_now()

    def _want_metadata_now(self) -> None:
        self.metadata.is_update_wanted = True
        self.context.metadata_retry_ms = 0

    def seek(self, partition: TopicPartition, offset: int, leader_epoch: int | None) -> None:
        """Go to an offset; with a leader epoch the leader is asked whether its log agrees (KIP-320).

        Raises:
            KafkaError: The partition is not assigned.
        """
        found = self.subscription.get(partition)
        if found is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"{partition} is not assigned")
        found.read_epochs.go_back(OffsetAndEpoch(offset, leader_epoch))
        if leader_epoch is None:
            found.seek_validated(FetchPosition(offset, None, self.metadata.leader_of(partition)))
        else:
            self.metadata.note_epoch(partition, leader_epoch)
            found.validate(FetchPosition(offset, leader_epoch, self.metadata.leader_of(partition)))
        self._answers.drop(partition)
        self.context.forget_errors(partition)

    def position(self, partition: TopicPartition) -> OffsetAndEpoch | None:
        """The next offset and the epoch of the last record; None while there is no position."""
        found = self.subscription.get(partition)
        if found is None or found.position is None:
            return None
        return OffsetAndEpoch(found.position.offset, found.position.offset_epoch)

    def set_committed(self, partition: TopicPartition, committed: OffsetAndEpoch | None) -> None:
        """Begin at a committed offset, or by the reset policy where nothing is committed."""
        found = self.subscription.get(partition)
        if found is None or found.state is not FetchState.INITIALIZING:
            return
        if committed is not None:
            self.seek(partition, committed.offset, committed.leader_epoch)
        elif self.options.reset is None:
            self.context.raise_later(NoOffsetForPartitionError(partition))
        else:
            found.request_reset(self.options.reset)

    @property
    def uninitialized(self) -> list[TopicPartition]:
        """Partitions without a position, for which committed offsets are wanted once the application polls."""
        if not self.is_polled:
            return []
        return [name for name, found in self.subscription.items() if found.state is FetchState.INITIALIZING]

    # Requests

    def next_requests(self, now_ms: int) -> list[ConsumerRequest]:
        """What to send now; each counts as sent."""
        requests = self._metadata_request(now_ms)
        if self.is_polled and not self.has_group:
            for name in self.uninitialized:
                self.set_committed(name, None)
        self._check_leaders()
        requests += self._lookups.requests(now_ms)
        requests += self._fetch_requests(now_ms)
        return requests

    def next_timeout_ms(self, now_ms: int) -> int:
        """Milliseconds until ``next_requests`` may have more to send without an event before."""
        due = [now_ms + self.options.metadata_max_age_ms]
        if self._metadata_at_ms is not None:
            due.append(self._metadata_at_ms + self.options.metadata_max_age_ms)
        if self.metadata.is_update_wanted and not self._metadata_asked:
            due.append(self.context.metadata_retry_ms)
        retry = self.subscription.next_retry_ms()
        if retry is not None:
            due.append(retry)
        due += [self._answers.pause_until_ms(name) for name, _ in self.subscription.items()]
        return max(min(time for time in due if time) - now_ms, 1)

    def _metadata_request(self, now_ms: int) -> list[ConsumerRequest]:
        age = self.options.metadata_max_age_ms
        is_old = self._metadata_at_ms is None or now_ms - self._metadata_at_ms >= age
        if (
            self._metadata_asked
            or now_ms < self.context.metadata_retry_ms
            or not (self.metadata.is_update_wanted or is_old)
        ):
            return []
        self._metadata_asked = True
        # What asks for an update from here on wants a later answer than this one.
        self.metadata.is_update_wanted = False
        self._unanswered_since_ms = self._unanswered_since_ms or now_ms
        if self.wanted.pattern is not None:
            self._topics_asked = None
            message = MetadataRequest(topics=None, allow_auto_topic_creation=False)
        else:
            self._topics_asked = self.wanted_topics
            message = MetadataRequest(
                topics=[MetadataRequest.MetadataRequestTopic(name=name) for name in sorted(self._topics_asked)],
                allow_auto_topic_creation=self.options.allow_auto_create_topics and self.wanted.may_create,
            )
        return [ConsumerRequest(RequestKind.METADATA, None, message)]

    def _check_leaders(self) -> None:
        for name, found in self.subscription.items():
            if found.position is None:
                continue
            leader = self.metadata.leader_of(name)
            if leader == found.position.leader:
                continue
            self.subscription.check_leader(name, leader, can_validate=self.context.can_validate(leader.leader_id))

    def _fetch_requests(self, now_ms: int) -> list[ConsumerRequest]:
        by_node: dict[int, dict[TopicPartition, FetchTarget]] = {}
        waiting = set()
        for name, found in self.subscription.items():
            position = found.position
            if not found.is_fetchable or position is None or self._answers.pause_until_ms(name) > now_ms:
                continue
            leader_id = position.leader.leader_id
            if leader_id is None:
                self.metadata.is_update_wanted = True
                continue
            node_id = leader_id
            if found.preferred_replica is not None:
                if now_ms < found.preferred_until_ms and found.preferred_replica in self.metadata.nodes:
                    node_id = found.preferred_replica
                else:
                    found.preferred_replica = None
            if self._answers.has_records(name):
                waiting.add(node_id)
                continue
            epoch = position.leader.epoch
            by_node.setdefault(node_id, {})[name] = FetchTarget(
                self.metadata.topic_id(name.topic),
                position.offset,
                -1 if epoch is None else epoch,
                self.options.max_partition_fetch_bytes,
            )
        requests = []
        for node_id, targets in by_node.items():
            node = self.context.node(node_id)
            if node.fetch is None and node_id not in waiting:
                node.fetch = self._fetch_request(node_id, node.session, targets)
                requests.append(node.fetch)
        return requests

    def _fetch_request(
        self, node_id: int, session: FetchSession, targets: dict[TopicPartition, FetchTarget]
    ) -> ConsumerRequest:
        options = self.options
        topics, forgotten = session.request(targets)
        message = FetchRequest(
            max_wait_ms=options.fetch_max_wait_ms,
            min_bytes=options.fetch_min_bytes,
            max_bytes=options.fetch_max_bytes,
            isolation_level=READ_COMMITTED if options.is_read_committed else 0,
            session_id=session.session_id,
            session_epoch=session.epoch,
            topics=topics,
            forgotten_topics_data=forgotten,
            rack_id=options.client_rack,
        )
        has_ids = all(target.topic_id != Uuid.ZERO for target in targets.values())
        version_max = None if has_ids else FETCH_VERSION_WITH_TOPIC_IDS - 1
        return ConsumerRequest(RequestKind.FETCH, node_id, message, targets, version_max)

    # Answers

    def handle_answer(self, request: ConsumerRequest, response: Message, version: int, now_ms: int) -> None:
        """Take the answer to a request, in the version it was asked in."""
        answer: Any = response
        if request.kind is RequestKind.METADATA:
            self._metadata_answer(answer, version, now_ms)
        elif request.kind is RequestKind.FETCH:
            node = self.context.node(request.node_id or 0)
            node.fetch = None
            self._answers.handle(request, answer, node.session, now_ms)
        else:
            self._lookups.handle(request, answer, now_ms)

    def handle_failure(self, request: ConsumerRequest, error: Exception, now_ms: int) -> None:
        """No answer will come: the node cannot be reached, or does not have the API."""
        retry_ms = now_ms + self.options.retry_backoff_ms
        if request.kind is RequestKind.METADATA:
            self._metadata_asked = False
            self.metadata.is_update_wanted = True
            self.context.metadata_retry_ms = retry_ms
            after = self.options.rebootstrap_after_ms
            since = self._unanswered_since_ms
            if after is not None and since is not None and now_ms - since >= after and self.metadata.nodes:
                self.rebootstrap()
            return
        self.context.want_metadata(now_ms)
        if request.kind is RequestKind.FETCH:
            node = self.context.node(request.node_id or 0)
            node.fetch = None
            node.session.fail()
            for name in request.targets:
                self._answers.pause(name, retry_ms)
        else:
            self._lookups.fail(request, now_ms)

    def rebootstrap(self) -> None:
        """Forget the cluster and begin again from the bootstrap servers (KIP-899)."""
        self.warnings.append("the known brokers cannot be reached: starting again from bootstrap.servers")
        self.metadata.forget()
        self.context.nodes.clear()
        self.context.metadata_retry_ms = 0
        self._unanswered_since_ms = None

    def _metadata_answer(self, response: MetadataResponse, version: int, now_ms: int) -> None:
        self._metadata_asked = False
        if response.error_code == ErrorCode.REBOOTSTRAP_REQUIRED and self.options.rebootstrap_after_ms is not None:
            self.rebootstrap()
            return
        if response.error_code or not response.brokers:
            self.metadata.is_update_wanted = True
            self.context.metadata_retry_ms = now_ms + self.options.retry_backoff_ms
            return
        self._unanswered_since_ms = None
        self._metadata_at_ms = now_ms
        # Topics that were wanted while this answer was under way are asked for at once.
        is_complete = self._topics_asked is None or (
            self.wanted.pattern is None and self.wanted_topics <= self._topics_asked
        )
        self.context.metadata_retry_ms = now_ms + self.options.retry_backoff_ms if is_complete else 0
        self.metadata.is_update_wanted |= not is_complete
        self._take_metadata(response, version)
        for name in sorted(self._read_topics & self.metadata.topics.keys()):
            code = self.metadata.topics[name].error_code
            if code in _FATAL_FOR_TOPIC:
                self.context.refuse(name, code)

    @property
    def _read_topics(self) -> frozenset[str]:
        """Topics that the application reads, not those that it only asks about."""
        return self.wanted.subscribed | self.wanted.group | {name.topic for name in self.subscription.assigned}

    def _take_metadata(self, response: MetadataResponse, version: int) -> None:
        if self._topics_asked is not None:
            self.metadata.update(response, version)
            return
        pattern, wanted = self.wanted.pattern, self.wanted_topics

        def is_kept(name: str, is_internal: bool) -> bool:
            return name in wanted or (pattern is not None and pattern.matches(name, is_internal=is_internal))

        self.metadata.update(response, version, retains=is_kept, wanted=wanted)
        self._has_all_topics = pattern is not None

    # Records

    def take_fetched(self) -> Fetched | None:
        """The records that wait longest and still belong to the position of their partition."""
        return self._answers.take()

    def advance(self, fetched: Fetched, offset: int, epoch: int | None) -> None:
        """Move a position over records that the application got."""
        self._answers.advance(fetched, offset, epoch)

    def release(self, fetched: Fetched) -> None:
        """All records of an answer were given: the next fetch may be sent."""
        self._answers.release(fetched)

    def refetch(self, fetched: Fetched, now_ms: int) -> None:
        """Records could not be read: fetch them again after the back-off."""
        self._answers.release(fetched)
        self._answers.pause(fetched.partition, now_ms + self.options.retry_backoff_ms)
