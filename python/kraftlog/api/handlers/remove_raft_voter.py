"""RemoveRaftVoter (key 81), versions 0: make a voter an observer (KIP-853)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import RaftService
    from kraftlog.wire.messages.remove_raft_voter import RemoveRaftVoterRequest
    from kraftlog.wire.struct import Message

__all__ = ["handle"]


def handle(context: RequestContext, request: RemoveRaftVoterRequest, *, raft: RaftService) -> asyncio.Future[Message]:
    """Give it to this node's replica."""
    return raft.handle_request(request, version=context.api_version, listener_name=context.listener_name)
