"""DescribeConfigs, API key 32, versions 1-4 (KIP-133).

1   sources instead of "is default", synonyms on demand (KIP-226)
3   types, documentation on demand (KIP-569): one sentence per key, none for loggers
4   flexible
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from kraftlog.api.config_view import ConfigSource, ConfigView
from kraftlog.api.logger_levels import logger_levels
from kraftlog.api.slices import Slices, sliced, unique_in_slices
from kraftlog.config_table import ConfigType, config_description
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

# Each has some forty entries.
_RESOURCES_PER_SLICE = 2


@sliced
def handle(
    context: RequestContext, request: DescribeConfigsRequest, *, cluster: ClusterService, settings: ApiSettings
) -> Slices[DescribeConfigsResponse]:
    """Show settings of topics, brokers, broker loggers and groups."""
    view = ConfigView(cluster.node_id, settings.properties, cluster.image)
    results: list[_Result] = []
    for number, resource in enumerate(request.resources, 1):
        if not number % _RESOURCES_PER_SLICE:
            yield None
        wanted: Collection[str] | None = None
        if resource.configuration_keys is not None:
            wanted = yield from unique_in_slices(resource.configuration_keys)
        results.append(_describe(cluster, view, request, resource, wanted))
    return DescribeConfigsResponse(results=results)


def _describe(
    cluster: ClusterService,
    view: ConfigView,
    request: DescribeConfigsRequest,
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
    if not request.include_synonyms:
        entries = [replace(entry, synonyms=()) for entry in entries]
    if request.include_documentation and resource.resource_type != ConfigResourceType.BROKER_LOGGER:
        entries = [replace(entry, documentation=config_description(entry.name)) for entry in entries]
    return _Result(
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=entries,
    )


def _entries(cluster: ClusterService, view: ConfigView, resource: _Resource) -> list[_Entry]:
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
            return [_logger_entry(logger, level) for logger, level in logger_levels().items()]
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


def _logger_entry(logger: str, level: str) -> _Entry:
    return _Entry(
        name=logger,
        value=level,
        config_source=ConfigSource.DYNAMIC_BROKER_LOGGER,
        config_type=ConfigType.STRING,
        documentation=None,
    )
