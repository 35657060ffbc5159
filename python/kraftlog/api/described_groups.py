"""What the requests that describe groups of one kind have in common."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

from kraftlog.api.cluster_view import GROUP_OPERATIONS
from kraftlog.api.combined_answer import gather, gather_in_slices
from kraftlog.api.slices import LARGE_ENTRIES, Slices, in_slices
from kraftlog.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    import asyncio

    from kraftlog.api.services import GroupService
    from kraftlog.coordinator.group.group_shard import GroupShard

__all__ = ["describe_groups"]

# A question to a shard is an event of its own, with its times and a future.
_ASKED_PER_SLICE: Final = 32


def describe_groups(
    groups: GroupService,
    request: Any,
    *,
    is_served: bool,
    group_class: Callable[..., Any],
    ask: Callable[[GroupShard, asyncio.Future[Any], str], None],
    answer: Callable[[Sequence[Any]], Any],
) -> Slices[Any]:
    """Ask the shard of each group of a request, and put the answers together in its order.

    Args:
        groups: The group coordinator.
        request: Names the groups, and says whether the operations that the client may do are wanted.
        is_served: Otherwise each group gets UNSUPPORTED_VERSION.
        group_class: One group of the response.
        ask: Has a shard complete the future with what it knows of the group of that name.
        answer: Makes the response of its groups.
    """
    names = list(request.group_ids)

    def described(name: str) -> Any:
        if not is_served:
            return group_class(group_id=name, error_code=ErrorCode.UNSUPPORTED_VERSION)
        if not name:
            return group_class(group_id=name, error_code=ErrorCode.INVALID_GROUP_ID)
        try:
            runner = groups.runner(name)
        except KafkaError as error:
            return group_class(group_id=name, error_code=error.code)
        return runner.ask(lambda shard, future, _now_ms: ask(shard, future, name))

    def failed(error: KafkaError, index: int) -> Any:
        return group_class(group_id=names[index], error_code=error.code)

    def with_operations(group: Any) -> Any:
        wanted = request.include_authorized_operations and not group.error_code
        return replace(group, authorized_operations=GROUP_OPERATIONS) if wanted else group

    asked = yield from in_slices((described(name) for name in names), _ASKED_PER_SLICE)
    if len(asked) > LARGE_ENTRIES:
        found = yield from gather_in_slices(asked, failed)
        return answer((yield from in_slices(map(with_operations, found))))
    return gather(asked, failed, lambda found: answer([with_operations(group) for group in found]))
