"""EndQuorumEpoch (key 54), versions 0-1: a leader says that it resigns.

v1: flexible, directory ids of the preferred candidates and the leader's addresses (KIP-853).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio

    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import RaftService
    from kraftlog.wire.messages.end_quorum_epoch import EndQuorumEpochRequest
    from kraftlog.wire.struct import Message

__all__ = ["handle"]


def handle(context: RequestContext, request: EndQuorumEpochRequest, *, raft: RaftService) -> asyncio.Future[Message]:
    """Give it to this node's replica."""
    return raft.handle_request(request, version=context.api_version, listener_name=context.listener_name)
