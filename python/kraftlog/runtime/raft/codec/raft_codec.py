"""What each API of the replicas brings to the table."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kraftlog.raft import messages as raft
from kraftlog.types import METADATA_LOG, LogTopic
from kraftlog.wire.struct import Buffer, Message

__all__ = ["Answering", "RaftCodec"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Answering:
    """How a response has to be put.

    Args:
        version: Of the request.
        listener_name: The listener that was asked: of the leader's addresses this one is told.
        data: The records of a Fetch, or the bytes of a FetchSnapshot.
        topic: Of the log.
    """

    version: int
    listener_name: str
    data: Buffer | None = None
    topic: LogTopic = METADATA_LOG


@dataclass(frozen=True, slots=True, kw_only=True)
class RaftCodec:
    """One API, between the core's messages, free of versions, and those of the wire.

    Args:
        api_key: Of the API.
        core_request, core_response, wire_request, wire_response: The classes of its messages.
        to_wire_request: Called with the core's request, the version and the topic of the log.
        to_core_response: Called with the response, the listener whose addresses it has, and the topic; raises
            RemoteProtocolError and CorruptRecordError.
        to_core_request: Called with the request, its version and the topic; raises KafkaError. None for an API that a
            replica only asks.
        to_wire_response: Called with the core's response and how to put it; None likewise.
        lowest_version: The lowest version that can say what a request of the core says.
    """

    api_key: int
    core_request: type[raft.Request]
    core_response: type[raft.Response]
    wire_request: type[Message]
    wire_response: type[Message]
    to_wire_request: Callable[[Any, int, LogTopic], Message]
    to_core_response: Callable[[Any, str, LogTopic], raft.Response]
    to_core_request: Callable[[Any, int, LogTopic], raft.Request] | None
    to_wire_response: Callable[[Any, Answering], Message] | None
    lowest_version: Callable[[Any], int] = lambda _: 0
