"""Topics as Metadata answers them, kept until the metadata changes.

Building the answer for a topic of thousands of partitions costs some ten milliseconds of the event loop, encoding it
less than one. Clients that are refused by many partitions, such as those of a topic that was just created, repeat
Metadata for the whole topic while the metadata stays what it is.
"""

from __future__ import annotations

from collections.abc import Callable

from kraftlog.api.cluster_view import view_partition
from kraftlog.controller.image import MetadataImage
from kraftlog.controller.topic_image import TopicImage
from kraftlog.errors import ErrorCode
from kraftlog.types import Uuid
from kraftlog.wire.messages.metadata import MetadataResponse

__all__ = ["TopicViews"]

LISTENER_NOT_FOUND_VERSION = 6

_Partition = MetadataResponse.MetadataResponsePartition


class TopicViews:
    """The partitions of topics for clients on one listener.

    The memory is bounded by the partitions of the cluster, once per listener name and form of the answer; all of it is
    given back at the next change of the metadata.

    Args:
        gone: Gives brokers whose process has ended although the metadata has them as live; another set if it changed.
    """

    def __init__(self, gone: Callable[[], frozenset[int]] = frozenset) -> None:
        self._find_gone = gone
        self._gone: frozenset[int] = frozenset()
        self._image: MetadataImage | None = None
        self._offset = -1
        self._partitions: dict[tuple[Uuid, str, bool], tuple[_Partition, ...]] = {}

    def partitions(
        self, image: MetadataImage, topic: TopicImage, listener_name: str, api_version: int
    ) -> tuple[_Partition, ...]:
        """The partitions of ``topic`` in order of their indexes.

        Args:
            image: The committed metadata; every change of it moves its offset.
            topic: One of the image.
            listener_name: Where the client asks.
            api_version: Of Metadata; below 6 LISTENER_NOT_FOUND is answered as LEADER_NOT_AVAILABLE.
        """
        gone = self._find_gone()
        if image is not self._image or image.offset != self._offset or gone != self._gone:
            self._image, self._offset, self._gone = image, image.offset, gone
            self._partitions.clear()
        key = (topic.topic_id, listener_name, api_version < LISTENER_NOT_FOUND_VERSION)
        found = self._partitions.get(key)
        if found is None:
            found = tuple(
                _partition(image, topic, index, listener_name, gone, is_old=key[2])
                for index in sorted(topic.partitions)
            )
            self._partitions[key] = found
        return found


def _partition(
    image: MetadataImage, topic: TopicImage, index: int, listener_name: str, gone: frozenset[int], *, is_old: bool
) -> _Partition:
    partition = topic.partitions[index]
    view = view_partition(image, partition, listener_name, gone)
    error_code = view.error_code
    if is_old and error_code == ErrorCode.LISTENER_NOT_FOUND:
        error_code = ErrorCode.LEADER_NOT_AVAILABLE
    return _Partition(
        error_code=error_code,
        partition_index=index,
        leader_id=view.leader_id,
        leader_epoch=view.leader_epoch,
        replica_nodes=partition.replicas,
        isr_nodes=partition.isr,
        offline_replicas=view.offline_replicas,
    )
