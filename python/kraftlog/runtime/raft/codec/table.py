"""The APIs of the replicas, and the translation of any of their messages."""

from __future__ import annotations

from typing import Final

from kraftlog.raft import messages as raft
from kraftlog.runtime.raft.codec import (
    add_raft_voter,
    api_versions,
    begin_quorum_epoch,
    end_quorum_epoch,
    fetch,
    fetch_snapshot,
    remove_raft_voter,
    update_raft_voter,
    vote,
)
from kraftlog.runtime.raft.codec.raft_codec import Answering, RaftCodec
from kraftlog.types import METADATA_LOG, LogTopic
from kraftlog.wire.struct import Buffer, Message

__all__ = [
    "CODECS",
    "api_key_of",
    "lowest_version",
    "to_core_request",
    "to_core_response",
    "to_wire_request",
    "to_wire_response",
]

CODECS: Final[tuple[RaftCodec, ...]] = (
    fetch.CODEC,
    api_versions.CODEC,
    vote.CODEC,
    begin_quorum_epoch.CODEC,
    end_quorum_epoch.CODEC,
    fetch_snapshot.CODEC,
    add_raft_voter.CODEC,
    remove_raft_voter.CODEC,
    update_raft_voter.CODEC,
)
_BY_CORE_REQUEST: Final = {codec.core_request: codec for codec in CODECS}
_BY_CORE_RESPONSE: Final = {codec.core_response: codec for codec in CODECS}
_BY_WIRE_REQUEST: Final = {codec.wire_request: codec for codec in CODECS}
_BY_WIRE_RESPONSE: Final = {codec.wire_response: codec for codec in CODECS}


def api_key_of(request: raft.Request) -> int:
    """The API key of what the core asks."""
    return _BY_CORE_REQUEST[type(request)].api_key


def lowest_version(request: raft.Request) -> int:
    """The lowest version that can say what ``request`` says."""
    return _BY_CORE_REQUEST[type(request)].lowest_version(request)


def to_wire_request(request: raft.Request, version: int, topic: LogTopic = METADATA_LOG) -> Message:
    """The request as ``version`` of its API has it.

    Args:
        request: What the core asks.
        version: At least ``lowest_version(request)``.
        topic: Of the log.
    """
    return _BY_CORE_REQUEST[type(request)].to_wire_request(request, version, topic)


def to_core_request(request: Message, version: int, topic: LogTopic = METADATA_LOG) -> raft.Request:
    """The request free of versions; fields that ``version`` lacks have the schema's defaults.

    Raises:
        KafkaError: It does not ask about the one partition of ``topic``: INVALID_REQUEST, of FetchSnapshot
            UNKNOWN_TOPIC_OR_PARTITION.
        TypeError: Replicas do not answer such requests.
    """
    codec = _BY_WIRE_REQUEST.get(type(request))
    if codec is None or codec.to_core_request is None:
        msg = f"{type(request).__name__} is no request to a replica"
        raise TypeError(msg)
    return codec.to_core_request(request, version, topic)


def to_wire_response(
    response: raft.Response,
    *,
    version: int,
    listener_name: str,
    data: Buffer | None = None,
    topic: LogTopic = METADATA_LOG,
) -> Message:
    """The answer as ``version`` of its API has it; the arguments are those of ``Answering``.

    Raises:
        TypeError: Replicas do not give such answers.
    """
    codec = _BY_CORE_RESPONSE[type(response)]
    if codec.to_wire_response is None:
        msg = f"the core does not answer with {type(response).__name__}"
        raise TypeError(msg)
    answering = Answering(version=version, listener_name=listener_name, data=data, topic=topic)
    return codec.to_wire_response(response, answering)


def to_core_response(response: Message, *, listener_name: str, topic: LogTopic = METADATA_LOG) -> raft.Response:
    """The answer free of versions; an address in it is that of ``listener_name``.

    Raises:
        RemoteProtocolError: Not the one partition that was asked about.
        CorruptRecordError: The records have a wrong checksum, or are none.
        TypeError: It answers no request of a replica.
    """
    codec = _BY_WIRE_RESPONSE.get(type(response))
    if codec is None:
        msg = f"{type(response).__name__} answers no request of a replica"
        raise TypeError(msg)
    return codec.to_core_response(response, listener_name, topic)
