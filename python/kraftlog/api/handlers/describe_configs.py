"""DescribeConfigs, API key 32, versions 1-4 (KIP-133).

1   sources instead of "is default", synonyms on demand (KIP-226)
3   types, documentation on demand (KIP-569): one sentence per key, none for loggers
4   flexible
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING

from kraftlog.api.config_view import ConfigView
from kraftlog.api.slices import Pauses, Slices, sliced, unique_in_slices
from kraftlog.controller.topic_name import topic_name_problem
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.vocabulary import ConfigResourceType
from kraftlog.wire.messages.describe_configs import DescribeConfigsRequest, DescribeConfigsResponse

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import ClusterService
    from kraftlog.api.settings import ApiSettings

__all__ = ["handle"]

_Entry = DescribeConfigsResponse.DescribeConfigsResourceResult
_Result = DescribeConfigsResponse.DescribeConfigsResult
_Resource = DescribeConfigsRequest.DescribeConfigsResource

# Resources share the entries of their settings; a filter looks at some forty of them, or 250 of a broker.
_RESOURCES_PER_SLICE = 16


@sliced
def handle(
    context: RequestContext, request: DescribeConfigsRequest, *, cluster: ClusterService, settings: ApiSettings
) -> Slices[DescribeConfigsResponse]:
    """Show settings of topics, brokers, broker loggers and groups."""
    view = ConfigView(
        cluster.node_id,
        settings.properties,
        cluster.image,
        has_synonyms=request.include_synonyms,
        has_documentation=request.include_documentation,
    )
    pauses = Pauses(_RESOURCES_PER_SLICE)
    results: list[_Result] = []
    for resource in request.resources:
        if pauses.is_due():
            yield None
        wanted: Collection[str] | None = None
        if resource.configuration_keys:  # an empty list means all, as in Kafka
            wanted = yield from unique_in_slices(resource.configuration_keys)
        results.append(_describe(cluster, view, resource, wanted))
    return DescribeConfigsResponse(results=results)


def _describe(
    cluster: ClusterService,
    view: ConfigView,
    resource: _Resource,
    wanted: Collection[str] | None,
) -> _Result:
    try:
        entries = _entries(cluster, view, resource)
    except KafkaError as error:
        return _Result(
            error_code=error.code,
            error_message=error.message or "",
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
        )
    if wanted is not None:
        entries = [entry for entry in entries if entry.name in wanted]
    return _Result(
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=entries,
    )


def _entries(cluster: ClusterService, view: ConfigView, resource: _Resource) -> Sequence[_Entry]:
    name = resource.resource_name
    match resource.resource_type:
        case ConfigResourceType.TOPIC:
            reason = topic_name_problem(name)
            if reason is not None:
                raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, reason)
            if cluster.image.topics.by_name(name) is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            return view.topic(name)
        case ConfigResourceType.BROKER if not name:
            return view.cluster_default()
        case ConfigResourceType.BROKER:
            _check_broker_id(cluster, name, or_empty=True)
            return view.broker()
        case ConfigResourceType.BROKER_LOGGER:
            if not name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
            _check_broker_id(cluster, name, or_empty=False)
            return view.loggers()
        case ConfigResourceType.GROUP:
            if not name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
            return view.group(name)
        case ConfigResourceType.CLIENT_METRICS:
            if not name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty")
            return view.client_metrics(name)
        case other:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {other}")


def _check_broker_id(cluster: ClusterService, name: str, *, or_empty: bool) -> None:
    expected = cluster.node_id
    try:
        broker_id = int(name)
    except ValueError:
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}") from None
    if broker_id != expected:
        wanted = f"{expected} or empty string," if or_empty else str(expected)
        msg = f"Unexpected broker id, expected {wanted} but received {name}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, msg)
