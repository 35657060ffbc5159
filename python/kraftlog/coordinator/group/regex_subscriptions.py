"""Regular expressions that members of consumer groups subscribe by.

Source: ``GroupMetadataManager.maybeUpdateRegularExpressions`` and ``TopicRegexResolver`` of Kafka 4.3.1.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Sequence
from enum import Enum, auto
from functools import partial

from kraftlog.coordinator.group.changes import Change
from kraftlog.coordinator.group.config import GroupConfig
from kraftlog.coordinator.group.consumer_group import ConsumerGroup, ResolvedRegex
from kraftlog.coordinator.group.consumer_member import ConsumerMember
from kraftlog.coordinator.group.consumer_records import epoch_record, regex_record, regex_tombstone
from kraftlog.coordinator.group.events import GroupEvents
from kraftlog.coordinator.group.topics import TopicMatcher, Topics
from kraftlog.coordinator.timers import Timers
from kraftlog.errors import ErrorCode, KafkaError

__all__ = ["RegexStatus", "RegexSubscriptions"]

_REFRESH_PAUSE_MS = 10_000
# What one step may cost, in units of ``TopicMatcher.cost``: at most 10 ms, and one more name or regular expression.
_COST_PER_STEP = 250
_COMPILE_COST = 10
_REGEX_LENGTH_PER_COST = 32
_STEP_PAUSE_MS = 1


class _Matching:
    """The regular expressions of a group on their way through the names of all topics.

    Args:
        names: Of all topics.
        version: Of the topics.
        regexes: What is matched.
        compile_regex: Gives None for what matches nothing.
        may_describe: Topics for which it is False match nothing; None for no such topics.

    Attributes:
        version: Of the topics when it began.
        matched: Topics by regular expression, complete once ``is_complete``.
        is_complete: Whether no name is left.
    """

    __slots__ = ("_costs", "_may_describe", "is_complete", "matched", "version")

    def __init__(
        self,
        names: Sequence[str],
        version: int,
        regexes: Iterable[str],
        compile_regex: Callable[[str], TopicMatcher | None],
        may_describe: Callable[[str], bool] | None,
    ) -> None:
        self.version = version
        self._may_describe = may_describe
        self.matched: dict[str, set[str]] = {regex: set() for regex in regexes}
        self.is_complete = False
        self._costs = self._match(names, compile_regex)

    def step(self) -> None:
        """Match so many names that the loop is not held up."""
        left = _COST_PER_STEP
        while left > 0:
            cost = next(self._costs, None)
            if cost is None:
                self.is_complete = True
                return
            left -= cost

    def _match(
        self, names: Sequence[str], compile_regex: Callable[[str], TopicMatcher | None]
    ) -> Generator[int, None, None]:
        """Matches one name after the other; yields what each may have cost."""
        for regex, matched in self.matched.items():
            yield _COMPILE_COST + len(regex) // _REGEX_LENGTH_PER_COST
            matcher = compile_regex(regex)
            if matcher is None:
                continue
            for name in names:
                if matcher.matches(name) and (self._may_describe is None or self._may_describe(name)):
                    matched.add(name)
                yield matcher.cost


class RegexStatus(Enum):
    """What a request did to a member's regular expression."""

    UNCHANGED = auto()
    CHANGED = auto()
    CHANGED_AND_RESOLVED = auto()


class RegexSubscriptions:
    """Resolves the regular expressions of groups, apart from the request that needs them.

    Args:
        config: Limits and times.
        topics: The committed topics.
        timers: Of the shard.
        events: Counts rebalances.
        resolve: Called with the group id and the time; to call ``resolve`` of this object in a change of its own.
    """

    def __init__(
        self,
        config: GroupConfig,
        topics: Topics,
        timers: Timers,
        events: GroupEvents,
        resolve: Callable[[str, int], None],
    ) -> None:
        self._config = config
        self._topics = topics
        self._timers = timers
        self._events = events
        self._resolve = resolve
        self._matchings: dict[str, _Matching] = {}
        self._judges: dict[str, Callable[[str], bool]] = {}

    def judge_by(self, group: ConsumerGroup, may_describe: Callable[[str], bool] | None) -> None:
        """A scheduled resolution is going to find what the member may describe that just sent a heartbeat."""
        if may_describe is not None and ("regex", group.group_id) in self._timers:
            self._judges[group.group_id] = may_describe

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
            names = list(self._topics.names())
            judge = self._judges.pop(group.group_id, None)
            matching = _Matching(names, self._topics.version, group.subscribed_regexes, self._matcher, judge)
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
        self._judges.pop(group_id, None)

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
            has_changed |= matched != (frozenset() if known is None else known.topics)
            resolved = ResolvedRegex(matched, matching.version, now_ms)
            change.write(regex_record(group.group_id, regex, resolved))
        if has_changed:
            self._events.consumer_rebalances += 1
            metadata_hash = self._topics.group_hash(group.subscribed_names())
            change.write(epoch_record(group.group_id, group.epoch + 1, metadata_hash))
