"""DescribeClientQuotas, API key 48, versions 0-1 (KIP-546): quotas as the metadata log has them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from kraftlog.api.slices import ENTRIES_PER_SLICE, LOOKUPS_PER_SLICE, Slices, sliced
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.wire.messages.describe_client_quotas import DescribeClientQuotasRequest, DescribeClientQuotasResponse

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import ClusterService
    from kraftlog.controller.security_image import QuotaEntity

__all__ = ["handle"]

EXACT, DEFAULT, ANY = 0, 1, 2
_MATCH_NAMES = {EXACT: "MATCH_TYPE_EXACT", DEFAULT: "MATCH_TYPE_DEFAULT", ANY: "MATCH_TYPE_SPECIFIED"}
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
    entries: list[DescribeClientQuotasResponse.EntryData] = []
    for number, (entity, values) in enumerate(list(cluster.image.security.client_quotas.items()), 1):
        if not number % ENTRIES_PER_SLICE:
            yield None
        if _matches(entity, request.components, strict=request.strict):
            entries.append(_entry(entity, values))
    return DescribeClientQuotasResponse(entries=entries)


def _entry(entity: QuotaEntity, values: Mapping[str, float]) -> DescribeClientQuotasResponse.EntryData:
    response = DescribeClientQuotasResponse
    return response.EntryData(
        entity=[response.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        values=[response.ValueData(key=key, value=value) for key, value in values.items()],
    )


def _check(components: Sequence[_Component]) -> Slices[None]:
    """Refuse what Kafka's ``ClientQuotasImage.describe`` refuses, in its words.

    Raises:
        KafkaError: INVALID_REQUEST, or UNSUPPORTED_VERSION for a type of entities that there is not.
    """
    seen: set[str] = set()
    for number, component in enumerate(components, 1):
        if not number % LOOKUPS_PER_SLICE:
            yield None
        kind = component.entity_type
        if not kind:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Invalid empty entity type.")
        if kind in seen:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Entity type {kind} cannot appear more than once in the filter."
            )
        if kind not in _ENTITY_TYPES:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        seen.add(kind)
        if component.match_type == EXACT and component.match is None:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, "Request specified MATCH_TYPE_EXACT, but set match string to null."
            )
        if component.match_type not in _MATCH_NAMES:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown match type {component.match_type}")
        if component.match_type != EXACT and component.match is not None:
            name = _MATCH_NAMES[component.match_type]
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Request specified {name}, but also specified a match string.")
    if "ip" in seen and len(seen) > 1:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "Invalid entity filter component combination. IP filter component should not be used with user or clientId"
            " filter component.",
        )


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
