"""The requests that the active controller serves: one table of what each asks of ``ControllerCore``.

Every door leads through it: a request of a client or a node, one inside an Envelope, and one of this process itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from kraftlog.controller.core import ControllerCore
from kraftlog.controller.election_control import refuse_elections
from kraftlog.controller.quota_control import refuse_alterations
from kraftlog.controller.result import ControllerResult
from kraftlog.controller.scram_control import refuse_credentials
from kraftlog.controller.steps import Steps
from kraftlog.controller.topic_control import Charge
from kraftlog.errors import KafkaError
from kraftlog.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from kraftlog.wire.messages.alter_client_quotas import AlterClientQuotasRequest
from kraftlog.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from kraftlog.wire.messages.alter_partition import AlterPartitionRequest
from kraftlog.wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from kraftlog.wire.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from kraftlog.wire.messages.assign_replicas_to_dirs import AssignReplicasToDirsRequest
from kraftlog.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from kraftlog.wire.messages.broker_registration import BrokerRegistrationRequest
from kraftlog.wire.messages.controller_registration import ControllerRegistrationRequest
from kraftlog.wire.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from kraftlog.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from kraftlog.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from kraftlog.wire.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from kraftlog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from kraftlog.wire.messages.elect_leaders import ElectLeadersRequest
from kraftlog.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kraftlog.wire.messages.unregister_broker import UnregisterBrokerRequest
from kraftlog.wire.messages.update_features import UpdateFeaturesRequest
from kraftlog.wire.struct import Message

__all__ = ["OPERATIONS", "ControllerOperation", "operation_of"]

Request = TypeVar("Request", bound=Message)


@dataclass(frozen=True, slots=True)
class ControllerOperation:
    """What a request asks of the controller.

    Args:
        begin: Called with the core, the request and the monotonic clock in milliseconds. Gives the result, or the
            steps that lead to it if a request can ask for thousands of records; raises KafkaError, or its steps do.
        refuse: Makes the response that has the error at each topic or resource of the request. None for the APIs
            whose response has an error code of its own.
        begin_charged: As ``begin``, with what counts the partitions that the request creates or deletes. None for the
            APIs whose changes nobody counts.
    """

    begin: Callable[[ControllerCore, Any, int], ControllerResult[Any] | Steps[ControllerResult[Any]]]
    refuse: Callable[[Any, KafkaError], Message] | None = None
    begin_charged: Callable[[ControllerCore, Any, Charge], Steps[ControllerResult[Any]]] | None = None


def operation_of(request: Message) -> ControllerOperation:
    """The operation for a request.

    Raises:
        TypeError: The controller does not serve such requests.
    """
    operation = OPERATIONS.get(type(request))
    if operation is None:
        msg = f"the controller does not serve {type(request).__name__}"
        raise TypeError(msg)
    return operation


def _timeless(
    method: Callable[[ControllerCore, Request], ControllerResult[Any] | Steps[ControllerResult[Any]]],
    refuse: Callable[[Any, KafkaError], Message] | None = None,
) -> ControllerOperation:
    """An operation that does not depend on the clock."""
    return ControllerOperation(lambda core, request, _now_ms: method(core, request), refuse)


def _charged(
    method: Callable[[ControllerCore, Request, Charge | None], Steps[ControllerResult[Any]]],
    refuse: Callable[[Any, KafkaError], Message],
) -> ControllerOperation:
    """An operation whose changes count against a quota of the client."""
    return ControllerOperation(lambda core, request, _now_ms: method(core, request, None), refuse, method)


def _refuse_new_topics(request: CreateTopicsRequest, error: KafkaError) -> CreateTopicsResponse:
    result = CreateTopicsResponse.CreatableTopicResult
    return CreateTopicsResponse(
        topics=[result(name=topic.name, error_code=error.code, error_message=error.message) for topic in request.topics]
    )


def _refuse_deletion(request: DeleteTopicsRequest, error: KafkaError) -> DeleteTopicsResponse:
    result = DeleteTopicsResponse.DeletableTopicResult
    named = [(topic.name, topic.topic_id) for topic in request.topics]
    named += [(name, DeleteTopicsRequest.DeleteTopicState().topic_id) for name in request.topic_names]
    return DeleteTopicsResponse(
        responses=[
            result(name=name, topic_id=topic_id, error_code=error.code, error_message=error.message)
            for name, topic_id in named
        ]
    )


def _refuse_new_partitions(request: CreatePartitionsRequest, error: KafkaError) -> CreatePartitionsResponse:
    result = CreatePartitionsResponse.CreatePartitionsTopicResult
    return CreatePartitionsResponse(
        results=[
            result(name=topic.name, error_code=error.code, error_message=error.message) for topic in request.topics
        ]
    )


def _refuse_new_acls(request: CreateAclsRequest, error: KafkaError) -> CreateAclsResponse:
    result = CreateAclsResponse.AclCreationResult(error_code=error.code, error_message=error.message)
    return CreateAclsResponse(results=[result] * len(request.creations))


def _refuse_acl_filters(request: DeleteAclsRequest, error: KafkaError) -> DeleteAclsResponse:
    result = DeleteAclsResponse.DeleteAclsFilterResult(error_code=error.code, error_message=error.message)
    return DeleteAclsResponse(filter_results=[result] * len(request.filters))


def _refuse_configs(
    response: type[AlterConfigsResponse | IncrementalAlterConfigsResponse],
) -> Callable[[AlterConfigsRequest | IncrementalAlterConfigsRequest, KafkaError], Message]:
    """What answers each resource of a request with the same error; both requests have the same resources."""

    def refuse(request: AlterConfigsRequest | IncrementalAlterConfigsRequest, error: KafkaError) -> Message:
        results: list[Any] = [
            response.AlterConfigsResourceResponse(
                error_code=error.code,
                error_message=error.message,
                resource_type=resource.resource_type,
                resource_name=resource.resource_name,
            )
            for resource in request.resources
        ]
        return response(responses=results)

    return refuse


OPERATIONS: Final[Mapping[type[Message], ControllerOperation]] = {
    AllocateProducerIdsRequest: _timeless(ControllerCore.allocate_producer_ids),
    AlterClientQuotasRequest: _timeless(ControllerCore.alter_client_quotas, refuse_alterations),
    AlterConfigsRequest: _timeless(ControllerCore.alter_configs_in_steps, _refuse_configs(AlterConfigsResponse)),
    AlterPartitionRequest: _timeless(ControllerCore.alter_partition),
    AlterPartitionReassignmentsRequest: _timeless(ControllerCore.alter_partition_reassignments),
    AlterUserScramCredentialsRequest: _timeless(ControllerCore.alter_user_scram_credentials, refuse_credentials),
    AssignReplicasToDirsRequest: _timeless(ControllerCore.assign_replicas_to_dirs),
    BrokerHeartbeatRequest: ControllerOperation(ControllerCore.broker_heartbeat),
    BrokerRegistrationRequest: ControllerOperation(ControllerCore.register_broker),
    ControllerRegistrationRequest: _timeless(ControllerCore.register_controller),
    CreateAclsRequest: _timeless(ControllerCore.create_acls, _refuse_new_acls),
    CreatePartitionsRequest: _charged(ControllerCore.create_partitions_in_steps, _refuse_new_partitions),
    CreateTopicsRequest: _charged(ControllerCore.create_topics_in_steps, _refuse_new_topics),
    DeleteAclsRequest: _timeless(ControllerCore.delete_acls, _refuse_acl_filters),
    DeleteTopicsRequest: _charged(ControllerCore.delete_topics_in_steps, _refuse_deletion),
    ElectLeadersRequest: _timeless(ControllerCore.elect_leaders, refuse_elections),
    IncrementalAlterConfigsRequest: _timeless(
        ControllerCore.incremental_alter_configs_in_steps, _refuse_configs(IncrementalAlterConfigsResponse)
    ),
    UnregisterBrokerRequest: _timeless(ControllerCore.unregister_broker),
    UpdateFeaturesRequest: _timeless(ControllerCore.update_features),
}
"""What each request asks of the controller, by the class of the request."""
