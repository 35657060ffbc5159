"""Fields that several APIs of the replicas have: keys, addresses, the one partition, the leader."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from kraftlog.errors import ErrorCode, KafkaError, RemoteProtocolError
from kraftlog.raft.voter_set import Endpoint, find_endpoint, has_distinct_listeners
from kraftlog.runtime.raft.codec.raft_codec import Answering
from kraftlog.types import Epoch, LogTopic, NodeId, ReplicaKey, Uuid
from kraftlog.wire.struct import Message

__all__ = [
    "answered_partition",
    "asked_partition",
    "check_count",
    "distinct_endpoints",
    "endpoints_of",
    "leader_endpoint",
    "leader_fields",
    "node_endpoints",
    "node_or_none",
    "node_or_unknown",
    "optional_key",
    "text_of",
    "wire_endpoints",
]

_ENTRIES_MAX = 1_000
# What Kafka's answers say where there is nothing more to say.
_DEFAULT_TEXTS: dict[int, str] = {
    ErrorCode.NOT_LEADER_OR_FOLLOWER: (
        "For requests intended only for the leader, this error indicates that the broker is not the current leader. "
        "For requests intended for any replica, this error indicates that the broker is not a replica of the "
        "topic partition."
    ),
    ErrorCode.REQUEST_TIMED_OUT: "The request timed out.",
    ErrorCode.BROKER_NOT_AVAILABLE: "The broker is not available.",
    ErrorCode.DUPLICATE_VOTER: "The voter is already part of the set of voters.",
    ErrorCode.VOTER_NOT_FOUND: "The voter is not part of the set of voters.",
}


def asked_partition(topics: Sequence[Any], topic: LogTopic) -> Any:
    """The one partition that a request of the elections is about.

    Raises:
        KafkaError: INVALID_REQUEST: it is about another one, or about several.
    """
    if len(topics) != 1 or topics[0].topic_name != topic.name or len(topics[0].partitions) != 1:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    partition = topics[0].partitions[0]
    if partition.partition_index != 0:
        raise KafkaError(ErrorCode.INVALID_REQUEST)
    return partition


def answered_partition(response: Message, topic: LogTopic, topics: Sequence[tuple[str, Sequence[Any]]]) -> Any:
    """The one partition that a response is about, of its topics with their partitions.

    Raises:
        RemoteProtocolError: It is about another one, or about several.
    """
    if len(topics) != 1 or topics[0][0] != topic.name or len(topics[0][1]) != 1:
        msg = f"a {type(response).__name__} without exactly the partition {topic.name}-0"
        raise RemoteProtocolError(msg)
    return topics[0][1][0]


def optional_key(node_id: int, directory_id: Uuid) -> ReplicaKey | None:
    """The replica key; None for a negative id."""
    return None if node_id < 0 else ReplicaKey(NodeId(node_id), directory_id)


def endpoints_of(listeners: Sequence[Any]) -> tuple[Endpoint, ...]:
    """Addresses of a request.

    Raises:
        KafkaError: INVALID_REQUEST: more than any node has; the core handles a request as one event.
    """
    check_count(listeners)
    return tuple(Endpoint(listener.name, listener.host, listener.port) for listener in listeners)


def check_count(entries: Sequence[Any]) -> None:
    """Refuse what names more listeners or replicas than a quorum has.

    Raises:
        KafkaError: INVALID_REQUEST.
    """
    if len(entries) > _ENTRIES_MAX:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{len(entries)} entries, more than {_ENTRIES_MAX}")


def distinct_endpoints(listeners: Sequence[Any]) -> tuple[Endpoint, ...]:
    """Addresses of a request of the elections.

    Raises:
        KafkaError: INVALID_REQUEST: a listener occurs twice.
    """
    found = endpoints_of(listeners)
    if not has_distinct_listeners(found):
        raise KafkaError(ErrorCode.INVALID_REQUEST, "a listener has a duplicate name")
    return found


def wire_endpoints(kind: Any, endpoints: Iterable[Endpoint]) -> tuple[Any, ...]:
    """Addresses as structs of the class ``kind``."""
    return tuple(kind(name=endpoint.name, host=endpoint.host, port=endpoint.port) for endpoint in endpoints)


def node_or_unknown(node_id: NodeId | None) -> int:
    """The id as the wire has it, -1 when unknown."""
    return -1 if node_id is None else node_id


def node_or_none(node_id: int) -> NodeId | None:
    """The id as the core has it, None when unknown."""
    return None if node_id < 0 else NodeId(node_id)


def leader_endpoint(response: Any, listener_name: str) -> Endpoint | None:
    """Where the leader of a core's response listens, of the listener that was asked."""
    return None if response.leader_id is None else find_endpoint(response.leader_endpoints, listener_name)


def node_endpoints(kind: Any, response: Any, answering: Answering) -> tuple[Any, ...]:
    """The tagged field NodeEndpoints, in the responses that have it from version 1 on."""
    endpoint = leader_endpoint(response, answering.listener_name) if answering.version >= 1 else None
    if endpoint is None:
        return ()
    return (kind.NodeEndpoint(node_id=node_or_unknown(response.leader_id), host=endpoint.host, port=endpoint.port),)


def leader_fields(leader_id: int, leader_epoch: int, endpoints: Iterable[Any], listener_name: str) -> dict[str, Any]:
    """The leader as responses of the core have it, from a response of the wire and its NodeEndpoints."""
    found = next((endpoint for endpoint in endpoints if endpoint.node_id == leader_id), None)
    return {
        "leader_id": node_or_none(leader_id),
        "leader_epoch": Epoch(max(leader_epoch, 0)),
        "leader_endpoints": () if found is None else (Endpoint(listener_name, found.host, found.port),),
    }


def text_of(response: Any) -> str | None:
    """The error message of a response about voters; an empty one of the core stands for none."""
    if not response.top_level_error_code or response.error_message == "":
        return None
    code = response.top_level_error_code
    return response.error_message or _DEFAULT_TEXTS.get(code, ErrorCode.name_of(code))
