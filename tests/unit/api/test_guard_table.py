"""Every API has a guard, and nobody's request passes one without an ACL."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from interop.beside.field_walk import facts_of, variants
from kraftlog.api.cluster_view import GROUP_OPERATIONS, TOPIC_OPERATIONS
from kraftlog.api.context import RequestContext
from kraftlog.api.guards.access import Access
from kraftlog.api.guards.guard_table import GUARDS, guarded
from kraftlog.api.handler_table import APIS, STOP_REPLICA_KEY
from kraftlog.api.slices import ENTRIES_PER_SLICE, at_once
from kraftlog.controller.image import MetadataImage
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.security.authorizer import Authorizer
from kraftlog.security.operation import ResourceKind
from kraftlog.security.principal import ANONYMOUS
from kraftlog.transport.exchange import CloseConnection, PeerContext
from kraftlog.types import Uuid
from kraftlog.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from kraftlog.wire.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
from kraftlog.wire.registry import API_BY_KEY
from kraftlog.wire.struct import Message

# ApiVersions is open to all; the others are asked for what there is, of which a guard shows what may be seen.
SHOWN_IN_PARTS = {"ApiVersions", "DescribeCluster", "ListGroups", "ListTransactions", "Metadata"}
PEER = PeerContext("PLAINTEXT", False, ANONYMOUS, "192.0.2.1", "192.0.2.1:9")


def context_of(key: int, version: int) -> RequestContext:
    return RequestContext(key, version, 1, "c", PEER)


def ended(answer: Any) -> Any:
    return at_once(answer) if hasattr(answer, "send") else answer


def test_each_api_has_a_guard() -> None:
    assert set(GUARDS) == set(APIS)


@pytest.mark.parametrize("key", sorted(APIS))
def test_who_may_do_nothing_reaches_no_handler(key: int) -> None:
    api = API_BY_KEY[key]
    if api.name in SHOWN_IN_PARTS:
        return
    low, high = api.request.VERSIONS if api.is_removed else (api.min_version, api.max_version)
    for version in range(low, high + 1):
        values = {"acks": -1, "replicaId": -1, "sessionEpoch": -1}
        (plain, *_) = variants(api.request, version, values)
        request = plain.make(Uuid.ZERO if key in {1, 0} else Uuid(b"no-topic-has-it!"))
        handled: list[Any] = []

        def handle(_context: RequestContext, left: Any, handled: list[Any] = handled) -> Any:
            handled.append(left)
            return None

        image = SimpleNamespace(image=MetadataImage())
        handler: Any = guarded(key, handle, Authorizer(), image)  # type: ignore[arg-type]
        try:
            answer = ended(handler(context_of(key, version), request))
        except KafkaError as error:
            assert error.code in range(29, 32) or error.code == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
            assert not handled
            continue
        # What is left of a request of which each part was refused has no part any more.
        for left in handled:
            lengths = [count for at, count in facts_of(left) if at.endswith(".length") and at.count(".") == 1]
            topics_by_id = version >= 13 and key in {0, 1}
            assert sum(lengths) == 0 or topics_by_id or _names_unknown_ids(left), (api.name, version, left)
        assert handled or isinstance(answer, Message | CloseConnection)


def _names_unknown_ids(request: Any) -> bool:
    """Whether the topics of a request have ids that no topic has: there is nothing to refuse and nothing to give."""
    topics = getattr(request, "topics", None) or getattr(request, "topic_data", None) or ()
    return bool(topics) and all(getattr(topic, "topic_id", Uuid.ZERO) != Uuid.ZERO for topic in topics)


def test_stop_replica_needs_cluster_action() -> None:
    """STOP-15."""
    handler: Any = guarded(
        STOP_REPLICA_KEY,
        lambda _context, _request: StopReplicaResponse(),
        Authorizer(),
        SimpleNamespace(image=None),  # type: ignore[arg-type]
    )
    with pytest.raises(KafkaError) as refused:
        handler(context_of(STOP_REPLICA_KEY, 4), StopReplicaRequest())
    assert refused.value.code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    allowing = Authorizer(super_users=[ANONYMOUS])
    handler = guarded(
        STOP_REPLICA_KEY,
        lambda _context, _request: StopReplicaResponse(),
        allowing,
        SimpleNamespace(image=None),  # type: ignore[arg-type]
    )
    assert handler(context_of(STOP_REPLICA_KEY, 4), StopReplicaRequest()) == StopReplicaResponse()


def test_operations_are_those_that_the_client_may_do() -> None:
    """CGRP-91 with an authorizer."""
    access = Access(Authorizer(super_users=[ANONYMOUS]), ANONYMOUS, "192.0.2.1", MetadataImage())
    assert access.operations(ResourceKind.TOPIC, "t") == TOPIC_OPERATIONS
    assert access.operations(ResourceKind.GROUP, "g") == GROUP_OPERATIONS
    nothing = Access(Authorizer(), ANONYMOUS, "192.0.2.1", MetadataImage())
    assert nothing.operations(ResourceKind.TOPIC, "t") == 0


def test_a_large_refusal_gives_up_the_loop() -> None:
    """One topic with ten thousand partitions: its refusal is made in slices, as any other answer of that size."""
    partitions = [ListOffsetsRequest.ListOffsetsPartition(partition_index=index) for index in range(10_000)]
    request = ListOffsetsRequest(topics=[ListOffsetsRequest.ListOffsetsTopic(name="a", partitions=partitions)])
    image: Any = SimpleNamespace(image=MetadataImage())
    handler: Any = guarded(2, lambda _context, left: ListOffsetsResponse(topics=left.topics), Authorizer(), image)
    slices = handler(context_of(2, 7), request)
    assert sum(1 for _ in slices) > 10_000 // (2 * ENTRIES_PER_SLICE)
