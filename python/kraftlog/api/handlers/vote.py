"""Vote (key 52), versions 0-2: a candidate asks for this voter's vote, or whether it would get it.

v1: directory ids, the leader's address in the answer (KIP-853). v2: pre-vote (KIP-996).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import RaftService
    from kraftlog.wire.messages.vote import VoteRequest
    from kraftlog.wire.struct import Message

__all__ = ["handle"]


def handle(context: RequestContext, request: VoteRequest, *, raft: RaftService) -> asyncio.Future[Message]:
    """Give it to this node's replica."""
    return raft.handle_request(request, version=context.api_version, listener_name=context.listener_name)
