"""Every exception kraftlog raises.

KraftlogError
  KafkaError                any code of the protocol: .code, .name, .retriable
  ProtocolError             bytes or order that no version allows
    LocalProtocolError      our fault: a message that cannot be encoded as asked
    RemoteProtocolError     the peer's fault: bytes that do not decode
      UnsupportedVersionError   an API key or version that is not served
  LogError                  the log on disk
    CorruptRecordError      stored bytes are not what was written
    OffsetOutOfRangeError   outside [log_start_offset, log_end_offset]
    LogTruncatedError       records that were read before are gone or others (KIP-320)
    PoisonedLogError        an earlier write or fsync failed; nothing is retried
    RemoteLogError          an object of a remote directory cannot be read, or is not what was listed
  NodeClosedError           the node was stopped
"""

from __future__ import annotations

from collections.abc import Sequence

from kraftlog.error_code import ErrorCode

__all__ = [
    "CorruptRecordError",
    "ErrorCode",
    "KafkaError",
    "KraftlogError",
    "LocalProtocolError",
    "LogError",
    "LogTruncatedError",
    "NodeClosedError",
    "OffsetOutOfRangeError",
    "PoisonedLogError",
    "ProtocolError",
    "RemoteLogError",
    "RemoteProtocolError",
    "UnsupportedVersionError",
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
