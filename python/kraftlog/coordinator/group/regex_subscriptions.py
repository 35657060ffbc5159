"""Regular expressions that members of consumer groups subscribe by.

Source: ``GroupMetadataManager.maybeUpdateRegularExpressions`` and ``TopicRegexResolver`` of Kafka 4.3.1.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from enum import Enum, auto
from functools import partial

from kraftlog.coordinator.group.changes import Change
from kraftlog.coordinator.group.config import GroupConfig
from kraftlog.coordinator.group.consumer_group import ConsumerGroup, ResolvedRegex
from kraftlog.coordinator.group.consumer_member import ConsumerMember
from kraftlog.coordinator.group.consumer_records import epoch_record, regex_record, regex_tombstone
from kraftlog.coordinator.group.topics import TopicMatcher, Topics
from kraftlog.coordinator.timers import Timers
from kraftlog.errors import ErrorCode, KafkaError

__all__ = ["RegexStatus", "RegexSubscriptions"]

_REFRESH_PAUSE_MS = 10_000
_NAMES_PER_STEP = 1_000
_STEP_PAUSE_MS = 1


class _Matching:
    """The regular expressions of a group on their way through the names of all topics.

    Attributes:
        version: Of the topics when it began.
        matched: Topics by regular expression, complete once ``is_complete``.
    """

    __slots__ = ("_matchers", "_names", "_position", "matched", "version")

    def __init__(self, names: Sequence[str], version: int, matchers: Mapping[str, TopicMatcher | None]) -> None:
        self._names = names
        self._matchers = matchers
        self._position = 0
        self.version = version
        self.matched: dict[str, set[str]] = {regex: set() for regex in matchers}

    @property
    def is_complete(self) -> bool:
        """Whether no name is left."""
        return self._position >= len(self._names)

    def step(self) -> None:
        """Match so many names that the loop is not held up."""
        count = max(1, _NAMES_PER_STEP // max(1, len(self._matchers)))
        names = self._names[self._position : self._position + count]
        self._position += count
        for regex, matcher in self._matchers.items():
            if matcher is not None:
                self.matched[regex].update(name for name in names if matcher.matches(name))


class RegexStatus(Enum):
    """What a request did to a member's regular expression."""

    UNCHANGED = auto()
    CHANGED = auto()
    CHANGED_AND_RESOLVED = auto()


class RegexSubscriptions:
    """Resolves the regular expressions of groups, apart from the request that needs them.

    Args:
        resolve: Called with the group id and the time; to call ``resolve`` of this object in a change of its own.
    """

    def __init__(
        self, config: GroupConfig, topics: Topics, timers: Timers, resolve: Callable[[str, int], None]
    ) -> None:
        self._config = config
        self._topics = topics
        self._timers = timers
        self._resolve = resolve
        self._matchings: dict[str, _Matching] = {}

    def update(
        self, group: ConsumerGroup, before: ConsumerMember, member: ConsumerMember, change: Change, now_ms: int
    ) -> RegexStatus:
        """Take in a member that ``group`` has already, and schedule what has to be resolved.

        Raises:
            KafkaError: INVALID_REGULAR_EXPRESSION.
        """
        status = RegexStatus.UNCHANGED
        is_unresolved = False
        if member.regex != before.regex:
            status = RegexStatus.CHANGED
            if before.regex and before.regex not in group.subscribed_regexes and before.regex in group.regexes:
                change.write(regex_tombstone(group.group_id, before.regex))
            if not member.regex or member.regex in group.regexes:
                status = RegexStatus.CHANGED_AND_RESOLVED
            else:
                is_unresolved = True
                self._compile(member.regex)
        if group.subscribed_regexes:
            self._schedule(group, now_ms, is_unresolved=is_unresolved)
        return status

    def _compile(self, regex: str) -> TopicMatcher:
        try:
            return self._topics.compile(regex)
        except ValueError as error:
            text = f"SubscribedTopicRegex `{regex}` is not a valid regular expression: {error}."
            raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, text) from error

    def _schedule(self, group: ConsumerGroup, now_ms: int, *, is_unresolved: bool) -> None:
        key = ("regex", group.group_id)
        last_ms = group.last_refresh_ms
        if key in self._timers or (last_ms is not None and now_ms <= last_ms + _REFRESH_PAUSE_MS and not is_unresolved):
            return
        is_stale = any(resolved.version < self._topics.created_version for resolved in group.regexes.values())
        is_old = last_ms is not None and last_ms + self._config.group_consumer_regex_refresh_interval_ms <= now_ms
        is_incomplete = any(regex not in group.regexes for regex in group.subscribed_regexes)
        if is_incomplete or is_stale or is_old:
            self._schedule_step(group.group_id, now_ms)

    def _schedule_step(self, group_id: str, at_ms: int) -> None:
        self._timers.schedule(("regex", group_id), at_ms, partial(self._resolve, group_id))

    def step(self, group: ConsumerGroup, now_ms: int) -> bool:
        """Match some more names against the regular expressions of a group.

        Returns:
            Whether all are matched, and ``resolve`` is to be called; otherwise the next step is scheduled.
        """
        matching = self._matchings.get(group.group_id)
        if matching is None:
            matchers = {regex: self._matcher(regex) for regex in group.subscribed_regexes}
            matching = _Matching(list(self._topics.names()), self._topics.version, matchers)
            self._matchings[group.group_id] = matching
        matching.step()
        if not matching.is_complete:
            self._schedule_step(group.group_id, now_ms + _STEP_PAUSE_MS)
        return matching.is_complete

    def _matcher(self, regex: str) -> TopicMatcher | None:
        try:
            return self._compile(regex)
        except KafkaError:
            # Kafka stored it, in syntax that is not supported here: it matches nothing.
            return None

    def forget(self, group_id: str) -> None:
        """Drop what was matched for a group that is gone."""
        self._matchings.pop(group_id, None)

    def resolve(self, group: ConsumerGroup, change: Change, now_ms: int) -> None:
        """Store what the regular expressions of a group match; the epoch rises if the topics of one differ."""
        matching = self._matchings.pop(group.group_id)
        has_changed = False
        for regex in list(group.subscribed_regexes):
            if regex not in matching.matched:
                # A member brought it after the first step.
                self._schedule_step(group.group_id, now_ms + _STEP_PAUSE_MS)
                continue
            matched = frozenset(matching.matched[regex])
            known = group.regexes.get(regex)
            has_changed |= known is None or known.topics != matched
            resolved = ResolvedRegex(matched, matching.version, now_ms)
            change.write(regex_record(group.group_id, regex, resolved))
        if has_changed:
            metadata_hash = self._topics.group_hash(group.subscribed_names())
            change.write(epoch_record(group.group_id, group.epoch + 1, metadata_hash))
