"""IncrementalAlterConfigs, API key 44, versions 0-1 (KIP-339): SET, DELETE, APPEND, SUBTRACT.

Levels of this broker's loggers (KIP-412) are set here and now; everything else is a record of the metadata log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from kraftlog.api.combined_answer import transform
from kraftlog.api.logger_levels import LEVELS, ROOT, logger_levels, set_logger_level, unset_logger_level
from kraftlog.api.slices import ENTRIES_PER_SLICE, Slices, counted_in_slices, sliced
from kraftlog.controller.dynamic_broker_configs import CORDONED_LOG_DIRS, check_cordoned_by_controller
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.vocabulary import ConfigResourceType
from kraftlog.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import (
        ClusterService,
        ControllerService,
        DynamicSettingsService,
        ForwardingService,
    )

__all__ = ["check_broker", "handle", "handle_on_controller"]

SET, DELETE, APPEND, SUBTRACT = range(4)

_Resource = IncrementalAlterConfigsRequest.AlterConfigsResource
_Result = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse


_Answer = Slices[IncrementalAlterConfigsResponse | asyncio.Future[IncrementalAlterConfigsResponse]]


@sliced
def handle(
    context: RequestContext,
    request: IncrementalAlterConfigsRequest,
    *,
    cluster: ClusterService,
    controller: ControllerService,
    dynamic_settings: DynamicSettingsService,
    forwarding: ForwardingService,
) -> _Answer:
    """Change settings; answered when the changes are committed and in force on this node."""

    def check(resource: _Resource) -> None:
        check_broker(cluster, resource.resource_name)
        changes = {config.name: _changed_value(cluster, resource, config) for config in resource.configs}
        dynamic_settings.check(changes, per_broker=bool(resource.resource_name))

    def submit(wanted: IncrementalAlterConfigsRequest) -> asyncio.Future[IncrementalAlterConfigsResponse]:
        return forwarding.send(context, wanted) or controller.submit_request(wanted)

    return (yield from _alter(cluster, submit, request, check))


@sliced
def handle_on_controller(
    context: RequestContext,
    request: IncrementalAlterConfigsRequest,
    *,
    cluster: ClusterService,
    controller: ControllerService,
) -> _Answer:
    """Change settings; the broker that a setting is for has checked it, unless a client asks the controller itself."""

    def check(resource: _Resource) -> None:
        for config in resource.configs:
            if config.name == CORDONED_LOG_DIRS and config.config_operation in {SET, APPEND}:
                current = cluster.image.configs.get(resource.resource_type, resource.resource_name)
                check_cordoned_by_controller(current.get(config.name), config.value)

    is_checked = context.peer.is_forwarded
    return (yield from _alter(cluster, controller.submit_request, request, (lambda _: None) if is_checked else check))


def _alter(
    cluster: ClusterService,
    submit: Callable[[IncrementalAlterConfigsRequest], asyncio.Future[IncrementalAlterConfigsResponse]],
    request: IncrementalAlterConfigsRequest,
    check_broker_resource: Callable[[_Resource], None],
) -> _Answer:
    counts = yield from counted_in_slices(
        (resource.resource_type, resource.resource_name) for resource in request.resources
    )
    results: list[_Result] = []
    forwarded: list[_Resource] = []
    for number, resource in enumerate(request.resources, 1):
        if not number % ENTRIES_PER_SLICE:
            yield None
        try:
            if counts[resource.resource_type, resource.resource_name] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            if resource.resource_type == ConfigResourceType.BROKER_LOGGER:
                _alter_loggers(cluster, resource, validate_only=request.validate_only)
                results.append(_result(resource, ErrorCode.NONE, None))
                continue
            if resource.resource_type == ConfigResourceType.BROKER:
                check_broker_resource(resource)
            forwarded.append(resource)
        except KafkaError as error:
            results.append(_result(resource, error.code, error.message))
    if not forwarded:
        return IncrementalAlterConfigsResponse(responses=results)
    wanted = request if len(forwarded) == len(request.resources) else replace(request, resources=forwarded)
    return transform(
        submit(wanted),
        lambda response: replace(response, responses=[*results, *response.responses]),
    )


def _changed_value(
    cluster: ClusterService, resource: _Resource, config: IncrementalAlterConfigsRequest.AlterableConfig
) -> str | None:
    """What is to be checked of a change: of the one list that depends on its elements, all of them."""
    if config.config_operation == DELETE:
        return None
    if config.name != CORDONED_LOG_DIRS or config.config_operation == SET:
        return config.value
    if config.config_operation == SUBTRACT:
        return None
    current = cluster.image.configs.get(resource.resource_type, resource.resource_name).get(config.name)
    return config.value if current is None else f"{current},{config.value}"


def _result(resource: _Resource, error_code: int, message: str | None) -> _Result:
    return _Result(
        error_code=error_code,
        error_message=message,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def check_broker(cluster: ClusterService, name: str) -> None:
    """A broker takes changes for all brokers and for itself; clients send those for others to the others."""
    if name.removeprefix("-").isdecimal() and int(name) != cluster.node_id:
        msg = f"Unexpected broker id, expected {cluster.node_id}, but received {name}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, msg)


def _alter_loggers(cluster: ClusterService, resource: _Resource, *, validate_only: bool) -> None:
    name = resource.resource_name
    if not name.removeprefix("-").isdecimal():
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}")
    if int(name) != cluster.node_id:
        msg = f"Unexpected node id. Expected {cluster.node_id}, but received {name}"
        raise KafkaError(ErrorCode.INVALID_REQUEST, msg)
    known = logger_levels()
    for config in resource.configs:
        _check_logger(config, known)
    if validate_only:
        return
    for config in resource.configs:
        if config.config_operation == SET:
            set_logger_level(config.name, config.value or "")
        else:
            unset_logger_level(config.name)


def _check_logger(config: IncrementalAlterConfigsRequest.AlterableConfig, known: dict[str, str]) -> None:
    """What Kafka's ``ConfigAdminManager.validateLogLevelConfigs`` checks."""
    if config.config_operation not in {SET, DELETE}:
        name = {2: "APPEND", 3: "SUBTRACT"}.get(config.config_operation, str(config.config_operation))
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{name} operation is not allowed for the BROKER_LOGGER resource")
    if config.name not in known:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Logger {config.name} does not exist!")
    if config.config_operation == SET and config.value not in LEVELS:
        msg = (
            f"Cannot set the log level of {config.name} to {config.value} as it is not a supported log level. "
            f"Valid log levels are {', '.join(sorted(LEVELS))}"
        )
        raise KafkaError(ErrorCode.INVALID_CONFIG, msg)
    if config.config_operation == DELETE and config.name == ROOT:
        msg = f"Removing the log level of the {ROOT} logger is not allowed"
        raise KafkaError(ErrorCode.INVALID_REQUEST, msg)
