"""Creating and deleting ACLs; errors and words are those of Kafka's AclApis and AclControlManager."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlog.controller.operations import operation_of
from kraftlog.controller.steps import finish_steps
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.security.operation import Operation, PatternType, Permission, ResourceKind
from kraftlog.wire.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from kraftlog.wire.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from kraftlog.wire.messages.metadata_records import AccessControlEntryRecord, RemoveAccessControlEntryRecord
from metadata_fixture import Cluster, one_broker

READ = {
    "resource_type": ResourceKind.TOPIC,
    "resource_name": "orders",
    "resource_pattern_type": PatternType.LITERAL,
    "principal": "User:alice",
    "host": "*",
    "operation": Operation.READ,
    "permission_type": Permission.ALLOW,
}
ANY = {
    "resource_type_filter": ResourceKind.ANY,
    "resource_name_filter": None,
    "pattern_type_filter": PatternType.ANY,
    "principal_filter": None,
    "host_filter": None,
    "operation": Operation.ANY,
    "permission_type": Permission.ANY,
}


def create(cluster: Cluster, *creations: dict[str, Any]) -> CreateAclsResponse:
    request = CreateAclsRequest(
        creations=[CreateAclsRequest.AclCreation(**{**READ, **creation}) for creation in creations]
    )
    response: CreateAclsResponse = cluster.ask(request)
    return response


def delete(cluster: Cluster, *filters: dict[str, Any]) -> DeleteAclsResponse:
    request = DeleteAclsRequest(filters=[DeleteAclsRequest.DeleteAclsFilter(**{**ANY, **each}) for each in filters])
    response: DeleteAclsResponse = cluster.ask(request)
    return response


def errors(response: CreateAclsResponse) -> list[tuple[int, str | None]]:
    return [(result.error_code, result.error_message) for result in response.results]


def test_created_acls_become_records_with_ids_of_their_own() -> None:
    cluster = one_broker()
    response = create(cluster, {}, {"operation": Operation.WRITE, "host": "192.0.2.1"})
    assert errors(response) == [(0, None), (0, None)]
    first, second = cluster.records
    assert first == AccessControlEntryRecord(
        id=first.id,
        resource_type=ResourceKind.TOPIC,
        resource_name="orders",
        pattern_type=PatternType.LITERAL,
        principal="User:alice",
        host="*",
        operation=Operation.READ,
        permission_type=Permission.ALLOW,
    )
    assert (second.operation, second.host) == (Operation.WRITE, "192.0.2.1")
    assert first.id != second.id
    assert cluster.versions == [0, 0]
    assert set(cluster.image.security.acls) == {first.id, second.id}


def test_acl_that_exists_or_occurs_twice_is_written_once() -> None:
    cluster = one_broker()
    create(cluster, {})
    response = create(cluster, {}, {"host": "h"}, {"host": "h"}, {})
    assert errors(response) == [(0, None)] * 4
    assert [record.host for record in cluster.records] == ["h"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"resource_type": ResourceKind.ANY}, "Invalid resourceType ANY"),
        ({"resource_type": 99}, "Invalid resourceType UNKNOWN"),
        ({"resource_pattern_type": PatternType.ANY}, "Invalid patternType ANY"),
        ({"resource_pattern_type": PatternType.MATCH}, "Invalid patternType MATCH"),
        ({"resource_pattern_type": -1}, "Invalid patternType UNKNOWN"),
        ({"operation": Operation.ANY}, "Invalid operation ANY"),
        ({"operation": 16}, "Invalid operation UNKNOWN"),
        ({"permission_type": Permission.ANY}, "Invalid permissionType ANY"),
        ({"permission_type": 4}, "Invalid permissionType UNKNOWN"),
        ({"resource_name": ""}, "Invalid empty resource name"),
        ({"resource_type": ResourceKind.CLUSTER}, "The only valid name for the CLUSTER resource is kafka-cluster"),
        (
            {"principal": "alice"},
            "Could not parse principal from `alice` (no colon is present separating the principal type from the "
            "principal name)",
        ),
    ],
)
def test_refused_acl_leaves_the_others_of_its_request(change: dict[str, Any], message: str) -> None:
    cluster = one_broker()
    response = create(cluster, {"host": "before"}, change, {"host": "after"})
    assert errors(response) == [(0, None), (ErrorCode.INVALID_REQUEST, message), (0, None)]
    assert [record.host for record in cluster.records] == ["before", "after"]


def test_cluster_is_a_resource_under_its_one_name() -> None:
    cluster = one_broker()
    response = create(cluster, {"resource_type": ResourceKind.CLUSTER, "resource_name": "kafka-cluster"})
    assert errors(response) == [(0, None)]


@pytest.mark.parametrize("count", [10_000, 10_001])
def test_more_acls_than_a_request_may_create_are_refused(count: int) -> None:
    cluster = one_broker()
    creations = [CreateAclsRequest.AclCreation(**{**READ, "resource_name": str(name)}) for name in range(count)]
    request = CreateAclsRequest(creations=creations)
    if count == 10_000:
        cluster.ask(request)
        assert len(cluster.records) == count
        return
    with pytest.raises(KafkaError) as raised:
        cluster.ask(request)
    assert raised.value.code == ErrorCode.POLICY_VIOLATION
    assert raised.value.message == "Unable to perform excessively large batch operation."
    refuse = operation_of(request).refuse
    assert refuse is not None
    response: Any = refuse(request, raised.value)
    assert len(response.results) == count
    assert {result.error_code for result in response.results} == {ErrorCode.POLICY_VIOLATION}


def test_more_acls_than_a_request_may_delete_are_kept() -> None:
    cluster = one_broker()
    for half in range(2):
        names = range(half * 6000, (half + 1) * 6000)
        creations = [CreateAclsRequest.AclCreation(**{**READ, "resource_name": str(name)}) for name in names]
        cluster.ask(CreateAclsRequest(creations=creations))
    with pytest.raises(KafkaError, match="Cannot remove more than 10000 acls in a single delete operation") as raised:
        delete(cluster, {})
    assert raised.value.code == ErrorCode.INVALID_REQUEST
    assert len(cluster.image.security.acls) == 12_000
    request = DeleteAclsRequest(filters=[DeleteAclsRequest.DeleteAclsFilter()] * 2)
    refuse = operation_of(request).refuse
    assert refuse is not None
    response: Any = refuse(request, raised.value)
    assert [result.error_code for result in response.filter_results] == [ErrorCode.INVALID_REQUEST] * 2


def some_acls() -> Cluster:
    cluster = one_broker()
    prefixed = {"resource_pattern_type": PatternType.PREFIXED}
    create(
        cluster,
        {"resource_name": "orders", "host": "literal"},
        {"resource_name": "*", "host": "wildcard"},
        {"resource_name": "ord", "host": "prefix", **prefixed},
        {"resource_name": "orders", "host": "same", **prefixed},
        {"resource_name": "ordering", "host": "other", **prefixed},
        {"resource_type": ResourceKind.GROUP, "host": "group", "principal": "User:bob"},
        {"resource_name": "x", "host": "denied", "operation": Operation.ALL, "permission_type": Permission.DENY},
    )
    return cluster


@pytest.mark.parametrize(
    ("acl_filter", "hosts"),
    [
        ({}, ["literal", "wildcard", "prefix", "same", "other", "group", "denied"]),
        ({"resource_type_filter": ResourceKind.GROUP}, ["group"]),
        ({"principal_filter": "User:bob"}, ["group"]),
        ({"principal_filter": "User:*"}, []),
        ({"host_filter": "prefix"}, ["prefix"]),
        ({"operation": Operation.ALL}, ["denied"]),
        ({"permission_type": Permission.DENY}, ["denied"]),
        ({"resource_name_filter": "orders"}, ["literal", "same", "group"]),
        ({"resource_name_filter": "orders", "pattern_type_filter": PatternType.LITERAL}, ["literal", "group"]),
        ({"pattern_type_filter": PatternType.PREFIXED}, ["prefix", "same", "other"]),
        (
            {"resource_name_filter": "orders", "pattern_type_filter": PatternType.MATCH},
            ["literal", "wildcard", "prefix", "same", "group"],
        ),
        ({"resource_name_filter": "*", "pattern_type_filter": PatternType.MATCH}, ["wildcard"]),
        (
            {"resource_name_filter": None, "pattern_type_filter": PatternType.MATCH, "operation": Operation.ALL},
            ["denied"],
        ),
    ],
)
def test_filter_deletes_what_it_matches(acl_filter: dict[str, Any], hosts: list[str]) -> None:
    cluster = some_acls()
    ids = {acl.host: acl.id for acl in cluster.image.security.acls.values()}
    (result,) = delete(cluster, acl_filter).filter_results
    assert (result.error_code, result.error_message) == (0, None)
    assert [acl.host for acl in result.matching_acls] == hosts
    assert [acl.error_code for acl in result.matching_acls] == [0] * len(hosts)
    assert cluster.records == [RemoveAccessControlEntryRecord(id=ids[host]) for host in hosts]
    assert set(cluster.image.security.acls) == set(ids.values()) - {ids[host] for host in hosts}


def test_acl_of_two_filters_is_named_twice_and_deleted_once() -> None:
    cluster = some_acls()
    unknown = {"operation": 77}
    first, second, third, fourth = delete(
        cluster, {"host_filter": "denied"}, unknown, {"resource_type_filter": 77}, {"host_filter": "denied"}
    ).filter_results
    assert len(first.matching_acls) == len(fourth.matching_acls) == 1
    assert (second.error_code, second.error_message) == (ErrorCode.INVALID_REQUEST, "Unknown entryFilter.")
    assert (third.error_code, third.error_message) == (ErrorCode.INVALID_REQUEST, "Unknown patternFilter.")
    assert len(cluster.records) == 1


def test_large_requests_take_many_steps() -> None:
    cluster = one_broker()
    names = [CreateAclsRequest.AclCreation(**{**READ, "resource_name": str(name)}) for name in range(1000)]
    steps = cluster.core.create_acls(CreateAclsRequest(creations=names))
    assert sum(1 for _ in steps) >= 1000 // 32
    cluster.ask(CreateAclsRequest(creations=names))
    filters = [DeleteAclsRequest.DeleteAclsFilter(**{**ANY, "resource_name_filter": "none"})] * 100
    assert sum(1 for _ in cluster.core.delete_acls(DeleteAclsRequest(filters=filters))) >= 100
    result = finish_steps(cluster.core.delete_acls(DeleteAclsRequest(filters=filters)))
    assert not result.records
