"""Guards of the requests that need one operation on the cluster, as the table of the APIs names it."""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import TYPE_CHECKING, Any

from kraftlog.api.guards.answers import TEXTS, Guard, Handle, passed, refused_in_slices
from kraftlog.api.slices import Slices, in_slices, sliced
from kraftlog.controller.election_control import refuse_elections
from kraftlog.controller.quota_control import refuse_alterations
from kraftlog.controller.scram_control import refuse_credentials
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.security.operation import Operation
from kraftlog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from kraftlog.wire.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse
from kraftlog.wire.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from kraftlog.wire.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from kraftlog.wire.messages.describe_client_quotas import DescribeClientQuotasResponse
from kraftlog.wire.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
)
from kraftlog.wire.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.guards.access import Access

__all__ = [
    "alter_client_quotas",
    "alter_partition_reassignments",
    "alter_replica_log_dirs",
    "alter_user_scram_credentials",
    "create_acls",
    "delete_acls",
    "describe_client_quotas",
    "describe_user_scram_credentials",
    "elect_leaders",
    "list_partition_reassignments",
    "open_to_all",
    "operation_on_cluster",
]

_REFUSED = ErrorCode.CLUSTER_AUTHORIZATION_FAILED


def open_to_all(access: Access, context: RequestContext, request: Any, handle: Handle) -> Any:
    """Any client may ask."""
    return handle(request)


def operation_on_cluster(operation: Operation) -> Guard:
    """The guard of an API whose response has an error code of its own."""

    def guard(access: Access, context: RequestContext, request: Any, handle: Handle) -> Any:
        if not access.may_on_cluster(operation):
            raise KafkaError(_REFUSED, TEXTS[_REFUSED])
        return handle(request)

    return guard


def create_acls(access: Access, context: RequestContext, request: CreateAclsRequest, handle: Handle) -> Any:
    """ALTER; the response has errors at each ACL only."""
    if access.may_on_cluster(Operation.ALTER):
        return handle(request)
    refused = CreateAclsResponse.AclCreationResult(error_code=_REFUSED, error_message=TEXTS[_REFUSED])
    return CreateAclsResponse(results=[refused] * len(request.creations))


def delete_acls(access: Access, context: RequestContext, request: DeleteAclsRequest, handle: Handle) -> Any:
    """ALTER; the response has errors at each filter only."""
    if access.may_on_cluster(Operation.ALTER):
        return handle(request)
    refused = DeleteAclsResponse.DeleteAclsFilterResult(error_code=_REFUSED, error_message=TEXTS[_REFUSED])
    return DeleteAclsResponse(filter_results=[refused] * len(request.filters))


def elect_leaders(access: Access, context: RequestContext, request: Any, handle: Handle) -> Any:
    """ALTER; Kafka's refusal has the error at each partition, too."""
    if access.may_on_cluster(Operation.ALTER):
        return handle(request)
    refused = refuse_elections(request, KafkaError(_REFUSED, TEXTS[_REFUSED]))
    return refused if context.api_version else replace(refused, error_code=0)


@sliced
def alter_partition_reassignments(
    access: Access, context: RequestContext, request: AlterPartitionReassignmentsRequest, handle: Handle
) -> Slices[Any]:
    """ALTER; Kafka's refusal has the error at each partition, too."""
    answer = AlterPartitionReassignmentsResponse
    if access.may_on_cluster(Operation.ALTER):
        return (yield from passed(handle(request)))
    responses = yield from refused_in_slices(
        request.topics,
        lambda topic: topic.partitions,
        lambda part: answer.ReassignablePartitionResponse(
            partition_index=part.partition_index, error_code=_REFUSED, error_message=TEXTS[_REFUSED]
        ),
        lambda topic, parts: answer.ReassignableTopicResponse(name=topic.name, partitions=parts),
    )
    return answer(error_code=_REFUSED, error_message=TEXTS[_REFUSED], responses=responses)


@sliced
def list_partition_reassignments(
    access: Access, context: RequestContext, request: ListPartitionReassignmentsRequest, handle: Handle
) -> Slices[Any]:
    """DESCRIBE; Kafka's refusal repeats the partitions of the request, without replicas."""
    answer = ListPartitionReassignmentsResponse
    if access.may_on_cluster(Operation.DESCRIBE):
        return (yield from passed(handle(request)))
    topics = yield from refused_in_slices(
        request.topics or (),
        lambda topic: topic.partition_indexes,
        lambda index: answer.OngoingPartitionReassignment(partition_index=index),
        lambda topic, parts: answer.OngoingTopicReassignment(name=topic.name, partitions=parts),
    )
    return answer(error_code=_REFUSED, error_message=TEXTS[_REFUSED], topics=topics)


def alter_client_quotas(access: Access, context: RequestContext, request: Any, handle: Handle) -> Any:
    """ALTER_CONFIGS; the response has errors at each entity only."""
    if access.may_on_cluster(Operation.ALTER_CONFIGS):
        return handle(request)
    return refuse_alterations(request, KafkaError(_REFUSED, TEXTS[_REFUSED]))


def describe_client_quotas(access: Access, context: RequestContext, request: Any, handle: Handle) -> Any:
    """DESCRIBE_CONFIGS; a refusal has no list of entries."""
    if access.may_on_cluster(Operation.DESCRIBE_CONFIGS):
        return handle(request)
    return DescribeClientQuotasResponse(error_code=_REFUSED, error_message=TEXTS[_REFUSED], entries=None)


@sliced
def describe_user_scram_credentials(
    access: Access, context: RequestContext, request: DescribeUserScramCredentialsRequest, handle: Handle
) -> Slices[Any]:
    """DESCRIBE; Kafka's refusal has the error at each user, too."""
    answer = DescribeUserScramCredentialsResponse
    if access.may_on_cluster(Operation.DESCRIBE):
        return (yield from passed(handle(request)))
    results = yield from in_slices(
        answer.DescribeUserScramCredentialsResult(user=user.name, error_code=_REFUSED, error_message=TEXTS[_REFUSED])
        for user in request.users or ()
    )
    return answer(error_code=_REFUSED, error_message=TEXTS[_REFUSED], results=results)


def alter_user_scram_credentials(access: Access, context: RequestContext, request: Any, handle: Handle) -> Any:
    """ALTER; the response has errors at each user only."""
    if access.may_on_cluster(Operation.ALTER):
        return handle(request)
    return refuse_credentials(request, KafkaError(_REFUSED, TEXTS[_REFUSED]))


@sliced
def alter_replica_log_dirs(
    access: Access, context: RequestContext, request: AlterReplicaLogDirsRequest, handle: Handle
) -> Slices[Any]:
    """ALTER; the response has errors at each partition only."""
    answer = AlterReplicaLogDirsResponse
    if access.may_on_cluster(Operation.ALTER):
        return (yield from passed(handle(request)))
    results = yield from refused_in_slices(
        chain.from_iterable(directory.topics for directory in request.dirs),
        lambda topic: topic.partitions,
        lambda index: answer.AlterReplicaLogDirPartitionResult(partition_index=index, error_code=_REFUSED),
        lambda topic, parts: answer.AlterReplicaLogDirTopicResult(topic_name=topic.name, partitions=parts),
    )
    return answer(results=results)
