"""Every exception kraftlog raises.

    KraftlogError
      KafkaError                any code of the protocol: .code, .name, .retriable
      ProtocolError             bytes or order that no version allows
        LocalProtocolError      our fault: a message that cannot be encoded as asked
        RemoteProtocolError     the peer's fault: bytes that do not decode
      LogError                  the log on disk
        CorruptRecordError      stored bytes are not what was written
        OffsetOutOfRangeError   outside [log_start_offset, log_end_offset]
        PoisonedLogError        an earlier write or fsync failed; nothing is retried
      NodeClosedError           the node was stopped
"""

from __future__ import annotations

__all__ = [
    "CorruptRecordError",
    "KafkaError",
    "KraftlogError",
    "LocalProtocolError",
    "LogError",
    "NodeClosedError",
    "OffsetOutOfRangeError",
    "PoisonedLogError",
    "ProtocolError",
    "RemoteProtocolError",
]


class KraftlogError(Exception):
    """Base of everything raised here."""


class KafkaError(KraftlogError):
    """An error code of the Kafka protocol.

    Args:
        code: The int16 code, as in the protocol's table.
        message: What happened, with values; the table's name when absent.
    """

    def __init__(self, code: int, message: str | None = None) -> None:
        super().__init__(code, message)
        self.code = code
        self.message = message


class ProtocolError(KraftlogError):
    """Bytes or an order of messages that no version of the protocol allows."""


class LocalProtocolError(ProtocolError):
    """We were asked to send what cannot be encoded."""


class RemoteProtocolError(ProtocolError):
    """A peer sent what does not decode."""


class LogError(KraftlogError):
    """The log on disk."""


class CorruptRecordError(LogError):
    """Stored bytes are not what was written; the text names file, position and both values."""


class OffsetOutOfRangeError(LogError):
    """An offset outside ``[log_start_offset, log_end_offset]``."""


class PoisonedLogError(LogError):
    """An earlier write or fsync of this log failed; every later call says so."""


class NodeClosedError(KraftlogError):
    """The node was stopped."""
