"""What follows the handler behind a guard: its response, with what was refused or hidden."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import GeneratorType
from typing import TYPE_CHECKING, Any

from kraftlog.errors import ErrorCode
from kraftlog.wire.struct import Message

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.guards.access import Access
    from kraftlog.api.slices import Slices

__all__ = ["TEXTS", "Guard", "Handle", "followed_by", "passed"]

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
        response = response.result()
        if type(response) is GeneratorType:
            response = yield from response
    return (yield from change(response)) if isinstance(response, Message) else response
