"""DescribeCluster, API key 60, versions 0-2.

1   endpoint type (KIP-919): brokers on a broker listener, controllers on a controller listener
2   fenced brokers on demand (KIP-1073)
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraftlog.api.cluster_view import CLUSTER_OPERATIONS, reachable_brokers, some_broker_id
from kraftlog.errors import ErrorCode
from kraftlog.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import ClusterService, ControllerService, RaftService

__all__ = ["handle"]

BROKERS, CONTROLLERS = 1, 2
NAMES = {BROKERS: "BROKER", CONTROLLERS: "CONTROLLER"}
UNKNOWN_OPERATIONS = -(2**31)


def handle(
    context: RequestContext,
    request: DescribeClusterRequest,
    *,
    cluster: ClusterService,
    raft: RaftService,
    controller: ControllerService,
) -> DescribeClusterResponse:
    """Say who the brokers, or the controllers, are."""
    here = CONTROLLERS if context.is_controller_listener else BROKERS
    if request.endpoint_type not in NAMES:
        return DescribeClusterResponse(
            error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
            error_message=f"Unsupported endpoint type {request.endpoint_type}",
        )
    if request.endpoint_type != here:
        return DescribeClusterResponse(
            # Version 0 asks without a type, so it cannot have got it wrong.
            error_code=ErrorCode.MISMATCHED_ENDPOINT_TYPE if context.api_version > 0 else ErrorCode.INVALID_REQUEST,
            error_message=(
                f"The request was sent to an endpoint of type {NAMES[here]}, "
                f"but we wanted an endpoint of type {NAMES[request.endpoint_type]}"
            ),
        )
    operations = CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else UNKNOWN_OPERATIONS
    if here == CONTROLLERS:
        return DescribeClusterResponse(
            endpoint_type=here,
            cluster_id=cluster.cluster_id,
            controller_id=raft.describe_quorum().leader_id,
            brokers=_controllers(cluster, controller, context.listener_name),
            cluster_authorized_operations=operations,
        )
    image = cluster.image
    found = reachable_brokers(image, context.listener_name, include_fenced=request.include_fenced_brokers)
    return DescribeClusterResponse(
        endpoint_type=here,
        cluster_id=cluster.cluster_id,
        controller_id=some_broker_id(image, cluster.node_id),
        brokers=[
            DescribeClusterResponse.DescribeClusterBroker(
                broker_id=broker.broker_id,
                host=broker.host,
                port=broker.port,
                rack=broker.rack,
                is_fenced=broker.is_fenced,
            )
            for broker in found
        ],
        cluster_authorized_operations=operations,
    )


def _controllers(
    cluster: ClusterService, controller: ControllerService, listener_name: str
) -> list[DescribeClusterResponse.DescribeClusterBroker]:
    """Controllers that registered an endpoint on the listener the question came in on."""
    return [
        DescribeClusterResponse.DescribeClusterBroker(broker_id=node_id, host=end_point.host, port=end_point.port)
        for node_id, controller in sorted(cluster.image.cluster.controllers.items())
        for end_point in controller.end_points
        if end_point.name == listener_name
    ]
