"""FetchSnapshot (key 59), versions 0-1: a piece of a checkpoint of the metadata log (KIP-630).

v1: the asking replica's directory id, the leader's address in the answer (KIP-853).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraftlog.api.slices import ENTRIES_PER_SLICE, Slices, in_slices, sliced
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.wire.messages.fetch_snapshot import FetchSnapshotRequest, FetchSnapshotResponse

if TYPE_CHECKING:
    import asyncio

    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import RaftService
    from kraftlog.wire.struct import Message

__all__ = ["handle"]


@sliced
def handle(
    context: RequestContext, request: FetchSnapshotRequest, *, raft: RaftService
) -> Slices[FetchSnapshotResponse | asyncio.Future[Message]]:
    """Give it to this node's replica; another partition than the metadata's is unknown."""
    try:
        return raft.handle_request(request, version=context.api_version, listener_name=context.listener_name)
    except KafkaError as error:
        if error.code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise
        return (yield from _unknown(request, error.code))


def _unknown(request: FetchSnapshotRequest, error_code: int) -> Slices[FetchSnapshotResponse]:
    topics = []
    for number, topic in enumerate(request.topics, 1):
        if not number % ENTRIES_PER_SLICE:
            yield None
        partitions = yield from in_slices(
            FetchSnapshotResponse.PartitionSnapshot(
                index=partition.partition, error_code=error_code, unaligned_records=b""
            )
            for partition in topic.partitions
        )
        topics.append(FetchSnapshotResponse.TopicSnapshot(name=topic.name, partitions=partitions))
    return FetchSnapshotResponse(topics=topics)
