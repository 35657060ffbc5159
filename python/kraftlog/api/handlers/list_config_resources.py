"""ListConfigResources, API key 74, versions 0-1 (KIP-1000).

1   resources of all kinds (KIP-1142); before, client metrics subscriptions only
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraftlog.errors import ErrorCode
from kraftlog.vocabulary import ConfigResourceType
from kraftlog.wire.messages.list_config_resources import ListConfigResourcesRequest, ListConfigResourcesResponse

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import ClusterService

__all__ = ["handle"]

ALL_KINDS_VERSION = 1


def handle(
    context: RequestContext, request: ListConfigResourcesRequest, *, cluster: ClusterService
) -> ListConfigResourcesResponse:
    """List what settings can be asked about."""
    kinds: set[int] = {ConfigResourceType.CLIENT_METRICS}
    if context.api_version >= ALL_KINDS_VERSION:
        kinds = set(request.resource_types) or set(ConfigResourceType)
        if not kinds <= set(ConfigResourceType):
            return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return ListConfigResourcesResponse(
        config_resources=[
            ListConfigResourcesResponse.ConfigResource(resource_name=name, resource_type=kind)
            for kind in sorted(kinds)
            for name in _names(cluster, kind)
        ]
    )


def _names(cluster: ClusterService, kind: int) -> list[str]:
    image = cluster.image
    if kind == ConfigResourceType.TOPIC:
        return sorted(topic.name for topic in image.topics.all())
    if kind in {ConfigResourceType.BROKER, ConfigResourceType.BROKER_LOGGER}:
        return [str(broker_id) for broker_id, broker in sorted(image.cluster.brokers.items()) if not broker.fenced]
    return sorted(name for resource_type, name in image.configs.resources() if resource_type == kind)
