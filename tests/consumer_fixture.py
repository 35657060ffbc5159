"""A consumer's core with a cluster of plain values."""

from __future__ import annotations

from kraftlog.client.state.consumer_core import ConsumerCore
from kraftlog.client.state.core_context import ConsumerOptions
from kraftlog.client.state.request import ConsumerRequest, RequestKind
from kraftlog.types import TopicPartition, Uuid
from kraftlog.wire.messages.fetch import FetchResponse
from kraftlog.wire.messages.list_offsets import ListOffsetsResponse
from kraftlog.wire.messages.metadata import MetadataResponse
from kraftlog.wire.messages.offset_for_leader_epoch import OffsetForLeaderEpochResponse

T0 = TopicPartition("t", 0)
T1 = TopicPartition("t", 1)
TOPIC_ID = Uuid(b"i" * 16)
OTHER_ID = Uuid(b"j" * 16)


def metadata(*partitions, topic_id=TOPIC_ID, nodes=(1, 2, 3), topic_error=0, error_code=0):
    """Metadata with (leader id, leader epoch) of each partition of ``t``."""
    return MetadataResponse(
        brokers=[MetadataResponse.MetadataResponseBroker(node_id=node, host="h", port=node) for node in nodes],
        cluster_id="c",
        error_code=error_code,
        topics=[
            MetadataResponse.MetadataResponseTopic(
                name="t",
                topic_id=topic_id,
                error_code=topic_error,
                partitions=[
                    MetadataResponse.MetadataResponsePartition(
                        partition_index=index, leader_id=leader, leader_epoch=epoch, replica_nodes=[1, 2, 3]
                    )
                    for index, (leader, epoch) in enumerate(partitions)
                ],
            )
        ],
    )


def fetch_answer(*partitions, session_id=0, error_code=0, endpoints=()):
    return FetchResponse(
        session_id=session_id,
        error_code=error_code,
        node_endpoints=endpoints,
        responses=[
            FetchResponse.FetchableTopicResponse(topic="t", topic_id=TOPIC_ID, partitions=list(partitions)),
        ]
        if partitions
        else [],
    )


def fetched(index=0, **fields):
    return FetchResponse.PartitionData(**{"partition_index": index, "high_watermark": 100, **fields})


def epoch_end(*ends):
    """(partition, error code, leader epoch, end offset) of OffsetForLeaderEpoch."""
    return OffsetForLeaderEpochResponse(
        topics=[
            OffsetForLeaderEpochResponse.OffsetForLeaderTopicResult(
                topic="t",
                partitions=[
                    OffsetForLeaderEpochResponse.EpochEndOffset(
                        partition=index, error_code=code, leader_epoch=epoch, end_offset=end
                    )
                    for index, code, epoch, end in ends
                ],
            )
        ]
    )


def listed(index=0, offset=0, epoch=-1, error_code=0):
    return ListOffsetsResponse(
        topics=[
            ListOffsetsResponse.ListOffsetsTopicResponse(
                name="t",
                partitions=[
                    ListOffsetsResponse.ListOffsetsPartitionResponse(
                        partition_index=index, offset=offset, leader_epoch=epoch, error_code=error_code
                    )
                ],
            )
        ]
    )


class Scene:
    """A core whose clock and answers the test moves.

    Args:
        reset: The reset policy.
        versions: Version of OffsetForLeaderEpoch per node: None for a node that was never connected to.
    """

    def __init__(self, reset="earliest", versions=4, **options):
        self.versions = versions
        self.core = ConsumerCore(ConsumerOptions(reset=reset, **options), lambda _node, _api: self.versions)
        self.core.is_polled = True
        self.now_ms = 1_000_000
        self.sent: list[ConsumerRequest] = []

    def turn(self, after_ms=0):
        """The requests of the next turn."""
        self.now_ms += after_ms
        self.sent = self.core.next_requests(self.now_ms)
        return self.sent

    def of_kind(self, kind):
        return [request for request in self.sent if request.kind is kind]

    def only(self, kind):
        (request,) = self.of_kind(kind)
        return request

    def answer(self, request, response, version=13):
        self.core.handle_answer(request, response, version, self.now_ms)

    def update(self, *partitions, version=13, after_ms=200, **fields):
        """One exchange of metadata."""
        self.core.metadata.is_update_wanted = True
        self.turn(after_ms)
        self.answer(self.only(RequestKind.METADATA), metadata(*partitions, **fields), version)

    @property
    def position(self):
        return self.core.position(T0)

    @property
    def state(self):
        return self.core.subscription.get(T0)


def fetching(offset=10, epoch=3, leader=(1, 3), **options):
    """A scene that fetches ``t-0`` at an offset whose last record had ``epoch``."""
    scene = Scene(**options)
    scene.core.is_polled = False
    scene.core.assign([T0])
    scene.update(leader)
    scene.core.is_polled = True
    if epoch is None:
        scene.core.seek(T0, offset, None)
    else:
        scene.core.seek(T0, offset, epoch)
        scene.turn()
        scene.answer(scene.only(RequestKind.VALIDATION), epoch_end((0, 0, epoch, 1000)))
    return scene
