"""UpdateRaftVoter (key 82), versions 0: a voter says where it listens and what it supports (KIP-853)."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import RaftService
    from kraftlog.wire.messages.update_raft_voter import UpdateRaftVoterRequest
    from kraftlog.wire.struct import Message

__all__ = ["handle"]


def handle(context: RequestContext, request: UpdateRaftVoterRequest, *, raft: RaftService) -> asyncio.Future[Message]:
    """Give it to this node's replica."""
    return raft.handle_request(request, version=context.api_version, listener_name=context.listener_name)
