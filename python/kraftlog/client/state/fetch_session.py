"""Incremental fetch sessions with one broker (KIP-227, ``FetchSessionHandler``)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from kraftlog.errors import ErrorCode
from kraftlog.types import TopicPartition, Uuid
from kraftlog.wire.messages.fetch import FetchRequest, FetchResponse

__all__ = ["FetchSession", "FetchTarget"]

EPOCH_MAX = 2**31 - 1
FINAL_EPOCH = -1


@dataclass(frozen=True, slots=True)
class FetchTarget:
    """What is asked of one partition.

    Attributes:
        topic_id: Zero when the broker reports no ids.
        leader_epoch: Of the metadata; -1 when it is not known.
        max_bytes: Bytes of records that the broker should not exceed.
    """

    topic_id: Uuid
    fetch_offset: int
    leader_epoch: int
    max_bytes: int


class FetchSession:
    """The partitions that a broker remembers between fetches; ``epoch`` 0 begins a session anew."""

    def __init__(self) -> None:
        self.session_id = 0
        self.epoch = 0
        self._partitions: dict[TopicPartition, FetchTarget] = {}
        self._has_topic_ids = False

    def names_of_ids(self) -> Mapping[Uuid, str]:
        """The topics of the session by id, since newer answers have ids alone."""
        return {target.topic_id: name.topic for name, target in self._partitions.items()}

    def __contains__(self, partition: TopicPartition) -> bool:
        return partition in self._partitions

    def request(
        self, targets: Mapping[TopicPartition, FetchTarget]
    ) -> tuple[list[FetchRequest.FetchTopic], list[FetchRequest.ForgottenTopic]]:
        """The topics of the next request and those that the broker is to forget; remembers ``targets``."""
        has_topic_ids = all(target.topic_id != Uuid.ZERO for target in targets.values())
        if self.epoch and has_topic_ids != self._has_topic_ids:
            self.epoch = 0  # a session has ids or names; the broker ends the old one
        self._has_topic_ids = has_topic_ids
        if self.epoch == 0:
            self._partitions = dict(targets)
            return _topics(targets.items()), []
        changed = {name: target for name, target in targets.items() if self._partitions.get(name) != target}
        gone = {
            name: target
            for name, target in self._partitions.items()
            if name not in targets or targets[name].topic_id != target.topic_id
        }
        self._partitions = dict(targets)
        return _topics(changed.items()), _forgotten(gone.items())

    def accept(self, response: FetchResponse, answered: Iterable[TopicPartition]) -> bool:
        """Take an answer; False when its records may not be used.

        Args:
            response: The answer.
            answered: Partitions named in it.
        """
        if response.error_code:
            if response.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND:
                self.session_id = 0
            self.epoch = 0
            return False
        if not all(name in self._partitions for name in answered):
            self.epoch = 0
            return False
        if response.session_id == 0:
            self.session_id, self.epoch = 0, 0
        elif self.epoch == 0:
            self.session_id, self.epoch = response.session_id, 1
        else:
            self.epoch = 1 if self.epoch == EPOCH_MAX else self.epoch + 1
        return True

    def fail(self) -> None:
        """The connection failed: the next request begins a session anew and ends this one."""
        self.epoch = 0


def _topics(targets: Iterable[tuple[TopicPartition, FetchTarget]]) -> list[FetchRequest.FetchTopic]:
    found: dict[tuple[str, Uuid], list[FetchRequest.FetchPartition]] = {}
    for name, target in targets:
        found.setdefault((name.topic, target.topic_id), []).append(
            FetchRequest.FetchPartition(
                partition=name.partition,
                current_leader_epoch=target.leader_epoch,
                fetch_offset=target.fetch_offset,
                partition_max_bytes=target.max_bytes,
            )
        )
    return [
        FetchRequest.FetchTopic(topic=topic, topic_id=topic_id, partitions=partitions)
        for (topic, topic_id), partitions in found.items()
    ]


def _forgotten(gone: Iterable[tuple[TopicPartition, FetchTarget]]) -> list[FetchRequest.ForgottenTopic]:
    found: dict[tuple[str, Uuid], list[int]] = {}
    for name, target in gone:
        found.setdefault((name.topic, target.topic_id), []).append(name.partition)
    return [
        FetchRequest.ForgottenTopic(topic=topic, topic_id=topic_id, partitions=partitions)
        for (topic, topic_id), partitions in found.items()
    ]
