"""DescribeLogDirs (key 35), versions 1-5: what lies in which data directory and how much room is left.

v2: flexible. v3: a top-level error. v4: total and usable bytes (KIP-827). v5: cordoned directories (KIP-1066).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import replace
from typing import TYPE_CHECKING

from kraftlog.api.slices import LOOKUPS_PER_SLICE, Pauses, Slices, sliced
from kraftlog.errors import ErrorCode
from kraftlog.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import ClusterService, ReplicaService
    from kraftlog.storage.log_dir import LogDir

__all__ = ["handle"]

Result = DescribeLogDirsResponse.DescribeLogDirsResult
Topic = DescribeLogDirsResponse.DescribeLogDirsTopic
PartitionInfo = DescribeLogDirsResponse.DescribeLogDirsPartition


@sliced
def handle(
    context: RequestContext,
    request: DescribeLogDirsRequest,
    *,
    cluster: ClusterService,
    replicas: ReplicaService,
    log_dirs: Iterable[LogDir],
) -> Slices[DescribeLogDirsResponse]:
    """Describe every data directory; no topics asked for (null) means all of them."""
    wanted: set[tuple[str, int]] | None = None
    if request.topics is not None:
        wanted = yield from _wanted(replicas, request.topics)
    results = []
    has_cordoned = cluster.image.metadata_version.is_cordoned_log_dirs_supported
    for log_dir in log_dirs:
        result = yield from _describe(replicas, log_dir, wanted)
        results.append(replace(result, is_cordoned=True) if log_dir.is_cordoned and has_cordoned else result)
    return DescribeLogDirsResponse(results=results)


def _wanted(
    replicas: ReplicaService, topics: Iterable[DescribeLogDirsRequest.DescribableLogDirTopic]
) -> Slices[set[tuple[str, int]]]:
    """What a request names, as far as this node has it."""
    wanted: set[tuple[str, int]] = set()
    pauses = Pauses(LOOKUPS_PER_SLICE)
    for topic in topics:
        if pauses.is_due():
            yield None
        for index in topic.partitions:
            if pauses.is_due():
                yield None
            if replicas.get_by_name(topic.topic, index) is not None:
                wanted.add((topic.topic, index))
    return wanted


def _describe(replicas: ReplicaService, log_dir: LogDir, wanted: set[tuple[str, int]] | None) -> Slices[Result]:
    if not log_dir.is_online:
        return Result(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=str(log_dir.path.absolute()))
    topics: dict[str, list[PartitionInfo]] = {}
    pauses = Pauses()
    for partition in list(replicas):
        if pauses.is_due():
            yield None
        if wanted is not None and (partition.topic, partition.index) not in wanted:
            continue
        future = partition.future
        if partition.log_dir is log_dir:
            lag = max(partition.high_watermark - partition.replica.log_end_offset, 0)
            info = PartitionInfo(
                partition_index=partition.index, partition_size=partition.log.size_bytes, offset_lag=lag
            )
        elif future is not None and future.log_dir is log_dir:
            info = PartitionInfo(
                partition_index=partition.index,
                partition_size=future.log.size_bytes,
                offset_lag=partition.replica.log_end_offset - future.log.log_end_offset,
                is_future_key=True,
            )
        else:
            continue
        topics.setdefault(partition.topic, []).append(info)
    try:
        space = os.statvfs(log_dir.path)
    except OSError:
        return Result(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=str(log_dir.path))
    return Result(
        log_dir=str(log_dir.path.absolute()),
        topics=[Topic(name=name, partitions=partitions) for name, partitions in topics.items()],
        total_bytes=space.f_frsize * space.f_blocks,
        usable_bytes=space.f_frsize * space.f_bavail,
    )
