"""Every exception kraftlog raises.

KraftlogError
  KafkaError                any code of the protocol: .code, .name, .retriable
    CommitFailedError       the group gave what a consumer read to another member: .partitions
  ProtocolError             bytes or order that no version allows
    LocalProtocolError      our fault: a message that cannot be encoded as asked
    RemoteProtocolError     the peer's fault: bytes that do not decode
      UnsupportedVersionError   an API key or version that is not served
  LogError                  the log on disk
    CorruptRecordError      stored bytes are not what was written
    OffsetOutOfRangeError   outside [log_start_offset, log_end_offset]
      LogTruncationError      a consumer's position is no longer in the log (KIP-320): .diverging_offset
    LogTruncatedError       records that were read before are gone or others (KIP-320)
    PoisonedLogError        an earlier write or fsync failed; nothing is retried
    RemoteLogError          an object of a remote directory cannot be read, or is not what was listed
  NoOffsetForPartitionError no committed offset and no reset policy
  NodeClosedError           the node was stopped
  WakeupError               another thread called wakeup() of a consumer
  ClusterError              a node of a kraftlog.Cluster does not start, stop or do what was asked
  QuorumError               what was asked of a kraftlog.Quorum did not happen: .may_be_committed
    NotLeaderError          this replica does not lead: .leader_id, .leader_address
    NotCommittedError       another leader's record has the place; it will never be committed
    OutcomeUnknownError     it was proposed; whether it is or will be committed is not known
    DeadlineError           the deadline passed before (a TimeoutError, too)
    StateMachineError       the user's state machine raised; the replica has stopped
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kraftlog.error_code import ErrorCode

if TYPE_CHECKING:
    from kraftlog.types import EpochEndOffset, TopicPartition

__all__ = [
    "ClusterError",
    "CommitFailedError",
    "CorruptRecordError",
    "DeadlineError",
    "ErrorCode",
    "KafkaError",
    "KraftlogError",
    "LocalProtocolError",
    "LogError",
    "LogTruncatedError",
    "LogTruncationError",
    "NoOffsetForPartitionError",
    "NodeClosedError",
    "NotCommittedError",
    "NotLeaderError",
    "OffsetOutOfRangeError",
    "OutcomeUnknownError",
    "PoisonedLogError",
    "ProtocolError",
    "QuorumError",
    "RemoteLogError",
    "RemoteProtocolError",
    "StateMachineError",
    "UnsupportedVersionError",
    "WakeupError",
]


class KraftlogError(Exception):
    """Base of everything raised here."""


class KafkaError(KraftlogError):
    """An error code of the Kafka protocol.

    Args:
        code: The int16 code, as in the protocol's table.
        message: What happened, with values; the table's name when absent.
        record_errors: Index in the batch and reason of each refused record, for a produce response.
    """

    def __init__(self, code: int, message: str | None = None, record_errors: Sequence[tuple[int, str]] = ()) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message
        self.record_errors = record_errors

    @property
    def name(self) -> str:
        """Kafka's name of the code."""
        return ErrorCode.name_of(self.code)

    @property
    def retriable(self) -> bool:
        """Whether Kafka's clients may send the same request again."""
        return ErrorCode.is_retriable(self.code)

    def __str__(self) -> str:
        return self.name if self.message is None else f"{self.name}: {self.message}"


class CommitFailedError(KafkaError):
    """Offsets were not committed: the consumer is no longer the member that read these records.

    It was fenced, its session ended, or ``max.poll.interval.ms`` passed between two polls. Another member may read the
    records again. After the next ``poll`` the offsets of what is assigned then can be committed.

    Source: ``org.apache.kafka.clients.consumer.CommitFailedException``.

    Args:
        code: What the coordinator answered, to the commit or before.
        message: What happened.
        partitions: The partitions whose offsets were not committed.
    """

    def __init__(self, code: int, message: str | None = None, partitions: Sequence[TopicPartition] = ()) -> None:
        super().__init__(code, message)
        self.partitions = tuple(partitions)


class ProtocolError(KraftlogError):
    """Bytes or an order of messages that no version of the protocol allows."""


class LocalProtocolError(ProtocolError):
    """We were asked to send what cannot be encoded."""


class RemoteProtocolError(ProtocolError):
    """A peer sent what does not decode."""


class UnsupportedVersionError(RemoteProtocolError):
    """A request for an API or version that is not served.

    Args:
        message: What was asked for and what there is.
        api_key: As the peer sent it.
        api_version: As the peer sent it.
        correlation_id: None when the header could not be read because the key is unknown.
    """

    def __init__(self, message: str, *, api_key: int, api_version: int, correlation_id: int | None = None) -> None:
        super().__init__(message)
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id


class LogError(KraftlogError):
    """The log on disk."""


class CorruptRecordError(LogError):
    """Stored bytes are not what was written; the text names file, position and both values."""


class OffsetOutOfRangeError(LogError):
    """An offset outside ``[log_start_offset, log_end_offset]``."""


class LogTruncationError(OffsetOutOfRangeError):
    """A consumer's position is no longer in the log: the records before it were truncated, others may stand there.

    The position stays where it is: seek to ``diverging_offset`` to read the new history. Source: KIP-320.

    Args:
        partition: Which partition.
        position: Offset that the consumer would have read next.
        position_epoch: Leader epoch of the last record it read; None when it is not known.
        diverging_offset: The first offset at which the log differs from what was read, with the leader epoch of the
            records before it; None when the leader knows no common epoch, or when the position was stored by an earlier
            process, so that it is not known what that process had read.
    """

    def __init__(
        self,
        partition: TopicPartition,
        position: int,
        position_epoch: int | None,
        diverging_offset: EpochEndOffset | None,
    ) -> None:
        where = "at an offset that is not known"
        if diverging_offset is not None:
            where = f"at offset {diverging_offset.end_offset} (leader epoch {diverging_offset.epoch})"
        super().__init__(
            f"{partition}: the log was truncated: the position {position} (leader epoch {position_epoch}) diverges "
            f"from it {where}"
        )
        self.partition = partition
        self.position = position
        self.position_epoch = position_epoch
        self.diverging_offset = diverging_offset


class NoOffsetForPartitionError(KraftlogError):
    """A partition has no committed offset, and ``auto.offset.reset=none``.

    Args:
        partition: Which partition.
    """

    def __init__(self, partition: TopicPartition) -> None:
        super().__init__(f"{partition}: no offset is committed, and auto.offset.reset=none")
        self.partition = partition


class LogTruncatedError(LogError):
    """A log was truncated below an offset that was read before; the text names it and both leader epochs."""


class PoisonedLogError(LogError):
    """An earlier write or fsync of this log failed; every later call says so."""


class RemoteLogError(LogError):
    """An object of a remote directory cannot be read, or is not the one that was listed.

    The text names its URL, the byte position, and the offset of the next record. Transient errors were retried before.
    """


class NodeClosedError(KraftlogError):
    """The node was stopped."""


class WakeupError(KraftlogError):
    """``wakeup`` ended a ``poll`` of a consumer, on whose thread it was not called."""


class ClusterError(KraftlogError):
    """A node of a ``kraftlog.Cluster`` does not start, stop or do what was asked; the text has its last output."""


class QuorumError(KraftlogError):
    """What was asked of a ``kraftlog.Quorum`` did not happen, as far as this replica knows.

    Args:
        message: What happened.
        may_be_committed: False: the commands have no effect and never will. True: they may have been, or may yet be.
    """

    def __init__(self, message: str, *, may_be_committed: bool = False) -> None:
        super().__init__(message)
        self.may_be_committed = may_be_committed


class NotLeaderError(QuorumError):
    """This replica does not lead and was not to ask the leader; nothing was proposed.

    Args:
        leader_id: The leader, None when it is not known.
        leader_address: Its ``host:port``, None when it is not known.
    """

    def __init__(self, leader_id: int | None, leader_address: str | None) -> None:
        where = "nobody is known to" if leader_id is None else f"{leader_id} at {leader_address} does"
        super().__init__(f"this replica does not lead; {where}")
        self.leader_id = leader_id
        self.leader_address = leader_address


class NotCommittedError(QuorumError):
    """Leadership changed and another record was committed in the place of the proposal: it has no effect."""


class OutcomeUnknownError(QuorumError):
    """The commands were proposed, or sent to the leader; whether they are or will be committed is not known."""

    def __init__(self, message: str) -> None:
        super().__init__(message, may_be_committed=True)


class DeadlineError(QuorumError, TimeoutError):
    """The deadline passed; ``may_be_committed`` says whether the commands had been proposed."""


class LeadershipTransferError(QuorumError):
    """Leadership was to go to one voter, and another one was elected.

    Args:
        message: What happened.
        leader_id: The one that was elected.
    """

    def __init__(self, message: str, leader_id: int | None) -> None:
        super().__init__(message)
        self.leader_id = leader_id


class TooManyCallsError(QuorumError):
    """As many calls wait as may; nothing was proposed (``max_waiting_calls`` of the quorum)."""


class SessionExpiredError(QuorumError):
    """The quorum has forgotten a session, whose commands it can no longer tell from new ones.

    ``may_be_committed`` is true if the commands had been sent before.
    """


class StateMachineError(QuorumError):
    """The state machine raised: this replica stopped, as it would from here on differ from the others."""
