"""DescribeClientQuotas, API key 48, versions 0-1 (KIP-546): quotas as the metadata log has them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kraftlog.api.slices import LOOKUPS_PER_SLICE, Slices, sliced
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.wire.messages.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import ClusterService
    from kraftlog.controller.security_image import QuotaEntity

__all__ = ["handle"]

EXACT, DEFAULT, ANY = 0, 1, 2
_ENTITY_TYPES = frozenset({"user", "client-id", "ip"})

_Component = DescribeClientQuotasRequest.ComponentData


@sliced
def handle(
    context: RequestContext, request: DescribeClientQuotasRequest, *, cluster: ClusterService
) -> Slices[DescribeClientQuotasResponse]:
    """List quotas of entities that have every component asked for, and no other when the filter is strict."""
    try:
        yield from _check(request.components)
    except KafkaError as error:
        return DescribeClientQuotasResponse(error_code=error.code, error_message=error.message, entries=None)
    return DescribeClientQuotasResponse(
        entries=[
            DescribeClientQuotasResponse.EntryData(
                entity=[
                    DescribeClientQuotasResponse.EntityData(entity_type=kind, entity_name=name) for kind, name in entity
                ],
                values=[DescribeClientQuotasResponse.ValueData(key=key, value=value) for key, value in values.items()],
            )
            for entity, values in cluster.image.security.client_quotas.items()
            if _matches(entity, request.components, strict=request.strict)
        ],
    )


def _check(components: Sequence[_Component]) -> Slices[None]:
    seen: set[str] = set()
    unknown: str | None = None
    for number, component in enumerate(components, 1):
        if not number % LOOKUPS_PER_SLICE:
            yield None
        if not component.entity_type:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Unexpected empty entity type")
        if component.entity_type in seen:
            msg = f"Duplicate filter component entity type {component.entity_type}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, msg)
        seen.add(component.entity_type)
        if component.entity_type not in _ENTITY_TYPES and (unknown is None or component.entity_type < unknown):
            unknown = component.entity_type
        if component.match_type not in {EXACT, DEFAULT, ANY}:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown match type {component.match_type}")
        if component.match_type == EXACT and component.match is None:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "Request specified MATCH_TYPE_EXACT, but set the match string to null."
            )
        if component.match_type != EXACT and component.match is not None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "A match string goes with an exact match only.")
    if "ip" in seen and len(seen) > 1:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST, "Invalid entity filter component combination: ip with user or client-id"
        )
    if unknown is not None:
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Custom entity type {unknown!r} is not supported")


def _matches(entity: QuotaEntity, components: Sequence[_Component], *, strict: bool) -> bool:
    parts = dict(entity)
    if strict and len(parts) != len(components):
        return False
    for component in components:
        if component.entity_type not in parts:
            return False
        name = parts[component.entity_type]
        if component.match_type == EXACT and name != component.match:
            return False
        if component.match_type == DEFAULT and name is not None:
            return False
    return True
