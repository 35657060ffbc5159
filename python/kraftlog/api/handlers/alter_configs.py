"""AlterConfigs, API key 33, versions 0-2 (KIP-133): what a resource's settings are to be altogether.

Older than IncrementalAlterConfigs and still spoken by older clients.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from kraftlog.api.combined_answer import transform
from kraftlog.api.handlers.incremental_alter_configs import check_broker
from kraftlog.api.slices import ENTRIES_PER_SLICE, Slices, counted_in_slices, sliced
from kraftlog.controller.dynamic_broker_configs import CORDONED_LOG_DIRS, check_cordoned_by_controller
from kraftlog.errors import KafkaError
from kraftlog.vocabulary import ConfigResourceType
from kraftlog.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import (
        ClusterService,
        ControllerService,
        DynamicSettingsService,
        ForwardingService,
    )

__all__ = ["handle", "handle_on_controller"]

_Resource = AlterConfigsRequest.AlterConfigsResource
_Result = AlterConfigsResponse.AlterConfigsResourceResponse
_Answer = Slices[AlterConfigsResponse | asyncio.Future[AlterConfigsResponse]]


@sliced
def handle(
    context: RequestContext,
    request: AlterConfigsRequest,
    *,
    cluster: ClusterService,
    controller: ControllerService,
    dynamic_settings: DynamicSettingsService,
    forwarding: ForwardingService,
) -> _Answer:
    """Replace settings; answered when that is committed and in force on this node."""

    def check(resource: _Resource) -> None:
        if resource.resource_type == ConfigResourceType.BROKER:
            check_broker(cluster, resource.resource_name)
            changes = {config.name: config.value for config in resource.configs}
            dynamic_settings.check(changes, per_broker=bool(resource.resource_name))

    def submit(wanted: AlterConfigsRequest) -> asyncio.Future[AlterConfigsResponse]:
        return forwarding.send(context, wanted) or controller.submit_request(wanted)

    return (yield from _alter(submit, request, check))


@sliced
def handle_on_controller(
    context: RequestContext,
    request: AlterConfigsRequest,
    *,
    cluster: ClusterService,
    controller: ControllerService,
) -> _Answer:
    """Replace settings; the broker that a setting is for has checked it, unless a client asks the controller itself."""

    def check(resource: _Resource) -> None:
        for config in resource.configs:
            if config.name == CORDONED_LOG_DIRS and resource.resource_type == ConfigResourceType.BROKER:
                current = cluster.image.configs.get(resource.resource_type, resource.resource_name)
                check_cordoned_by_controller(current.get(config.name), config.value)

    checked = (lambda _: None) if context.peer.is_forwarded else check
    return (yield from _alter(controller.submit_request, request, checked))


def _alter(
    submit: Callable[[AlterConfigsRequest], asyncio.Future[AlterConfigsResponse]],
    request: AlterConfigsRequest,
    check: Callable[[_Resource], None],
) -> _Answer:
    counts = yield from counted_in_slices(
        (resource.resource_type, resource.resource_name) for resource in request.resources
    )
    results: list[_Result] = []
    wanted: list[_Resource] = []
    for number, resource in enumerate(request.resources, 1):
        if not number % ENTRIES_PER_SLICE:
            yield None
        try:
            # The controller refuses a resource that occurs twice.
            if counts[resource.resource_type, resource.resource_name] == 1:
                check(resource)
            wanted.append(resource)
        except KafkaError as error:
            results.append(
                _Result(
                    error_code=error.code,
                    error_message=error.message,
                    resource_type=resource.resource_type,
                    resource_name=resource.resource_name,
                )
            )
    if not wanted:
        return AlterConfigsResponse(responses=results)
    rest = request if len(wanted) == len(request.resources) else replace(request, resources=wanted)
    return transform(
        submit(rest),
        lambda response: replace(response, responses=[*results, *response.responses]),
    )
