"""BeginQuorumEpoch (key 53), versions 0-1: a new leader says that it leads.

v1: flexible, directory ids and the leader's addresses (KIP-853).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import RaftService
    from kraftlog.wire.messages.begin_quorum_epoch import BeginQuorumEpochRequest
    from kraftlog.wire.struct import Message

__all__ = ["handle"]


def handle(context: RequestContext, request: BeginQuorumEpochRequest, *, raft: RaftService) -> asyncio.Future[Message]:
    """Give it to this node's replica."""
    return raft.handle_request(request, version=context.api_version, listener_name=context.listener_name)
