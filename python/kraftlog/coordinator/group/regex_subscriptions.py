"""Regular expressions that members of consumer groups subscribe by.

Source: ``GroupMetadataManager.maybeUpdateRegularExpressions`` and ``TopicRegexResolver`` of Kafka 4.3.1.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import Enum, auto

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
            group_id = group.group_id
            self._timers.schedule(key, now_ms, lambda at_ms: self._resolve(group_id, at_ms))

    def resolve(self, group: ConsumerGroup, change: Change, now_ms: int) -> None:
        """Match all regular expressions of a group; the epoch rises if the topics of one differ."""
        names = list(self._topics.names())
        has_changed = False
        for regex in list(group.subscribed_regexes):
            try:
                matcher = self._compile(regex)
            except KafkaError:
                # Kafka stored it, in syntax that is not supported here: it matches nothing.
                matched: frozenset[str] = frozenset()
            else:
                matched = frozenset(name for name in names if matcher.matches(name))
            known = group.regexes.get(regex)
            has_changed |= known is None or known.topics != matched
            resolved = ResolvedRegex(matched, self._topics.version, now_ms)
            change.write(regex_record(group.group_id, regex, resolved))
        if has_changed:
            metadata_hash = self._topics.group_hash(group.subscribed_names())
            change.write(epoch_record(group.group_id, group.epoch + 1, metadata_hash))
