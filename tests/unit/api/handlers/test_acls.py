"""CreateAcls, DeleteAcls and DescribeAcls as a client sees them."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlog.api.context import RequestContext
from kraftlog.api.handlers.create_acls import handle as create
from kraftlog.api.handlers.delete_acls import handle as delete
from kraftlog.api.handlers.describe_acls import handle as describe
from kraftlog.errors import ErrorCode
from kraftlog.security.authorizer import Authorizer
from kraftlog.security.operation import Operation, PatternType, Permission, ResourceKind
from kraftlog.security.principal import ANONYMOUS, Principal
from kraftlog.transport.exchange import CloseConnection, PeerContext
from kraftlog.types import Uuid
from kraftlog.wire.messages.create_acls import CreateAclsRequest
from kraftlog.wire.messages.delete_acls import DeleteAclsRequest
from kraftlog.wire.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse
from kraftlog.wire.messages.metadata_records import AccessControlEntryRecord

from .conftest import HandlerNode

ANY = {
    "resource_type_filter": ResourceKind.ANY,
    "resource_name_filter": None,
    "pattern_type_filter": PatternType.ANY,
    "principal_filter": None,
    "host_filter": None,
    "operation": Operation.ANY,
    "permission_type": Permission.ANY,
}
CREATION = {"resource_type": 2, "resource_name": "t", "principal": "User:a", "operation": 3, "permission_type": 3}


def rows(response: DescribeAclsResponse) -> list[tuple[int, str, int, str, str, int, int]]:
    assert (response.error_code, response.error_message) == (0, None)
    return sorted(
        (
            resource.resource_type,
            resource.resource_name,
            resource.pattern_type,
            acl.principal,
            acl.host,
            acl.operation,
            acl.permission_type,
        )
        for resource in response.resources
        for acl in resource.acls
    )


def context() -> RequestContext:
    return RequestContext(29, 3, 1, "test", PeerContext("PLAINTEXT", False, ANONYMOUS, "127.0.0.1", "127.0.0.1:1"))


@pytest.mark.parametrize("listener", ["PLAINTEXT", "CONTROLLER"])
def test_acls_that_kafka_wrote_are_listed_and_judge(golden_node: HandlerNode, listener: str) -> None:
    """The metadata log is Apache Kafka's; the rows are what its maker asked Kafka's admin client for."""
    image = golden_node.metadata.image
    authorizer = Authorizer()
    authorizer.replace(image.security.acls.values())
    golden_node.services["authorizer"] = authorizer
    listed = rows(golden_node.ask(DescribeAclsRequest(**ANY), 3, listener=listener))
    assert len(listed) == len(image.security.acls) > 0
    resources = {(ResourceKind(kind).name, name, PatternType(pattern).name) for kind, name, pattern, *_ in listed}
    assert ("GROUP", "*", "LITERAL") in resources
    assert ("TOPIC", "pre-", "PREFIXED") in resources
    for kind, name, _, who, host, operation, permission in listed:
        if operation == Operation.ALL:
            continue
        principal = Principal(*who.split(":", 1))
        where = "127.0.0.1" if host == "*" else host
        is_allowed = authorizer.is_allowed(principal, where, Operation(operation), ResourceKind(kind), name)
        assert is_allowed is (permission == Permission.ALLOW)


def test_without_authorizer_each_api_says_so(golden_node: HandlerNode) -> None:
    response: Any = golden_node.ask(DescribeAclsRequest(**ANY), 3)
    assert (response.error_code, response.error_message, response.resources) == (
        ErrorCode.SECURITY_DISABLED,
        "No Authorizer is configured on the broker",
        (),
    )
    creation = CreateAclsRequest.AclCreation(**CREATION)
    created: Any = golden_node.ask(CreateAclsRequest(creations=[creation] * 2), 3)
    deletion = DeleteAclsRequest.DeleteAclsFilter(**ANY)
    deleted: Any = golden_node.ask(DeleteAclsRequest(filters=[deletion] * 2), 3)
    for results in (created.results, deleted.filter_results):
        assert [(result.error_code, result.error_message) for result in results] == [
            (ErrorCode.SECURITY_DISABLED, "No Authorizer is configured.")
        ] * 2


def test_element_of_zero_closes_the_connection() -> None:
    """As in Kafka, whose request classes refuse it before anything is handled."""
    nothing: Any = None
    for field in ("resource_type", "resource_pattern_type", "operation", "permission_type"):
        creation = CreateAclsRequest.AclCreation(**{**CREATION, field: 0})
        answer: Any = create(context(), CreateAclsRequest(creations=[creation]), controller=nothing, authorizer=None)
        assert isinstance(answer, CloseConnection)
    for field in ("resource_type_filter", "pattern_type_filter", "operation", "permission_type"):
        unknown: dict[str, Any] = {**ANY, field: 0}
        request = DeleteAclsRequest(filters=[DeleteAclsRequest.DeleteAclsFilter(**unknown)])
        answer = delete(context(), request, controller=nothing, authorizer=None)
        assert isinstance(answer, CloseConnection)
        answer = describe(context(), DescribeAclsRequest(**unknown), cluster=nothing, authorizer=None)
        assert isinstance(answer, CloseConnection)


def test_many_acls_are_described_in_slices(golden_node: HandlerNode) -> None:
    for number in range(3000):
        golden_node.replay(
            AccessControlEntryRecord(
                id=Uuid(number.to_bytes(16, "little")),
                resource_type=ResourceKind.TOPIC,
                resource_name=f"topic-{number % 1500}",
                pattern_type=PatternType.LITERAL,
                principal=f"User:{number}",
                host="*",
                operation=Operation.READ,
                permission_type=Permission.ALLOW,
            )
        )
    request = DescribeAclsRequest(**{**ANY, "operation": Operation.READ, "host_filter": "*"})
    cluster: Any = golden_node.metadata
    slices: Any = describe(context(), request, cluster=cluster, authorizer=Authorizer())
    steps = 1
    while True:
        try:
            next(slices)
        except StopIteration as end:
            response = end.value
            break
        steps += 1
    assert steps >= 3000 // 64
    assert {f"User:{number}" for number in range(3000)} <= {row[3] for row in rows(response)}
