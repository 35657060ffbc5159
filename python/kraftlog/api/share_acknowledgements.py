"""Acknowledgements of share members, as ShareFetch and ShareAcknowledge carry them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from kraftlog.api.leader_hint import leader_addresses, leader_hint
from kraftlog.api.slices import LOOKUPS_PER_SLICE, Pauses, Slices, in_slices
from kraftlog.coordinator.share.share_key import ShareKey
from kraftlog.coordinator.share.share_partition import Acknowledgement
from kraftlog.errors import ErrorCode
from kraftlog.types import Uuid

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import ClusterService
    from kraftlog.runtime.share.share_service import ShareService

__all__ = ["Place", "acknowledge", "leader_fields", "member_problem", "node_end_points", "settled"]

Place = tuple[Uuid, int]
_MEMBER_ID_LENGTH_MAX: Final = 36
_RENEW: Final = 4
_OFFSETS_MAX: Final = 1_000_000


def member_problem(group_id: str | None, member_id: str | None) -> str | None:
    """What is wrong with the ids of a request."""
    if not group_id:
        return "GroupId can't be empty."
    if not member_id or len(member_id) > _MEMBER_ID_LENGTH_MAX:
        return "MemberId is invalid."
    return None


def acknowledge(
    shares: ShareService,
    group_id: str,
    member_id: str,
    topics: Iterable[Any],
    *,
    type_max: int,
    is_renew: bool,
) -> Slices[dict[Place, asyncio.Future[int] | int]]:
    """Take the acknowledgements of a request: the error code of each partition that has some, or a future of it.

    Args:
        shares: Takes them.
        group_id: Whose.
        member_id: Whose.
        topics: Of either request.
        type_max: The greatest type of the version.
        is_renew: Whether the request may renew locks.
    """
    outcome: dict[Place, asyncio.Future[int] | int] = {}
    pauses = Pauses()
    for topic in topics:
        if pauses.is_due():
            yield None
        for partition in topic.partitions:
            if pauses.is_due():
                yield None
            batches = partition.acknowledgement_batches
            if not batches:
                continue
            place = (topic.topic_id, partition.partition_index)
            if (yield from _is_invalid(batches, pauses, type_max=type_max, is_renew=is_renew)):
                outcome[place] = int(ErrorCode.INVALID_REQUEST)
                continue
            taken = yield from in_slices(
                Acknowledgement(b.first_offset, b.last_offset, b.acknowledge_types) for b in batches
            )
            outcome[place] = shares.acknowledge(ShareKey(group_id, *place), member_id, taken)
    return outcome


def _is_invalid(batches: Sequence[Any], pauses: Pauses, *, type_max: int, is_renew: bool) -> Slices[bool]:
    end = -1
    for batch in batches:
        if pauses.is_due():
            yield None
        first, last, types = batch.first_offset, batch.last_offset, batch.acknowledge_types
        count = last - first + 1
        if first > last or first < end or not types:
            return True
        if len(types) > 1 and len(types) != count:
            return True
        for begin in range(0, len(types), LOOKUPS_PER_SLICE):
            if begin:
                yield None
            some = types[begin : begin + LOOKUPS_PER_SLICE]
            if any(not 0 <= kind <= type_max or (kind == _RENEW and not is_renew) for kind in some):
                return True
        end = last
    return False


async def settled(outcome: Mapping[Place, asyncio.Future[int] | int]) -> dict[Place, int]:
    """The error code of each partition once all are known."""
    codes: dict[Place, int] = {}
    pauses = Pauses(LOOKUPS_PER_SLICE)
    for place, code in outcome.items():
        if pauses.is_due():
            await asyncio.sleep(0)
        codes[place] = code if isinstance(code, int) else await code
    return codes


def leader_fields(
    cluster: ClusterService, place: Place, error_code: int, leaders: set[int], leader_class: Any
) -> dict[str, Any]:
    """The field with the leader where the error is one that it helps with; notes who that is."""
    hint = leader_hint(cluster.image, *place, error_code)
    if hint is None:
        return {}
    leaders.add(hint.leader_id)
    return {"current_leader": leader_class(leader_id=hint.leader_id, leader_epoch=hint.leader_epoch)}


def node_end_points(
    cluster: ClusterService, context: RequestContext, leaders: set[int], end_point_class: Any
) -> list[Any]:
    """Where those leaders are reached."""
    return [
        end_point_class(node_id=address.broker_id, host=address.host, port=address.port, rack=address.rack)
        for address in leader_addresses(cluster.image, leaders, context.listener_name)
    ]
