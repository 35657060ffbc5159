"""What follows the handler behind a guard: its response, with what was refused or hidden."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from types import GeneratorType
from typing import TYPE_CHECKING, Any

from kraftlog.api.slices import Pauses, in_slices
from kraftlog.errors import ErrorCode, NodeClosedError
from kraftlog.wire.struct import Message

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.guards.access import Access
    from kraftlog.api.slices import Slices

__all__ = ["TEXTS", "Guard", "Handle", "followed_by", "passed", "refused_in_slices"]

Handle = Callable[[Any], Any]
"""Handles a request, or what a guard left of it."""

Guard = Callable[["Access", "RequestContext", Any, Handle], Any]
"""Answers a request itself, or has it handled; like a handler it may return a future or slices."""

# What Kafka says of these errors where a response has room for a text.
TEXTS = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED: "Topic authorization failed.",
    ErrorCode.GROUP_AUTHORIZATION_FAILED: "Group authorization failed.",
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED: "Cluster authorization failed.",
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED: "The transactional id authorization failed.",
}


def passed(response: Any) -> Slices[Any]:
    """A handler's response as it is, its slices run."""
    yield from ()
    return (yield from response) if type(response) is GeneratorType else response


def refused_in_slices(
    topics: Iterable[Any],
    parts_of: Callable[[Any], Iterable[Any]],
    part: Callable[[Any], Any],
    whole: Callable[[Any, list[Any]], Any],
) -> Slices[list[Any]]:
    """What stands in a response for topics that are refused.

    Args:
        topics: Of the request.
        parts_of: The partitions of one of them.
        part: What stands for a partition.
        whole: What stands for a topic, given what stands for its partitions.
    """
    results: list[Any] = []
    pauses = Pauses()
    for topic in topics:
        if pauses.is_due():
            yield None
        results.append(whole(topic, (yield from in_slices(map(part, parts_of(topic))))))
    return results


def followed_by(response: Any, change: Callable[[Any], Slices[Any]]) -> Slices[Any]:
    """What ``change`` makes of a handler's response, once that is there.

    A response that the active controller has encoded, an error and a reason to close go on as they are.
    """
    if type(response) is GeneratorType:
        response = yield from response
    while isinstance(response, asyncio.Future):
        if not response.done():
            yield None  # the first value of slices is not waited for
            yield response
        if response.cancelled():
            raise NodeClosedError("the node is stopping")  # an answer, where CancelledError would end the scheduler
        response = response.result()
        if type(response) is GeneratorType:
            response = yield from response
    return (yield from change(response)) if isinstance(response, Message) else response
