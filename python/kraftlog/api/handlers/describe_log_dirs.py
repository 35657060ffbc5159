"""DescribeLogDirs (key 35), versions 1-5: what lies in which data directory and how much room is left.

v2: flexible. v3: a top-level error. v4: total and usable bytes (KIP-827). v5: cordoned directories (KIP-1066).
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from typing import TYPE_CHECKING

from kraftlog.errors import ErrorCode
from kraftlog.wire.messages.describe_log_dirs import DescribeLogDirsRequest, DescribeLogDirsResponse

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext
    from kraftlog.api.services import ReplicaService
    from kraftlog.storage.log_dir import LogDir

__all__ = ["handle"]

Result = DescribeLogDirsResponse.DescribeLogDirsResult
Topic = DescribeLogDirsResponse.DescribeLogDirsTopic
PartitionInfo = DescribeLogDirsResponse.DescribeLogDirsPartition


def handle(
    context: RequestContext, request: DescribeLogDirsRequest, *, replicas: ReplicaService, log_dirs: Iterable[LogDir]
) -> DescribeLogDirsResponse:
    """Describe every data directory; no topics asked for (null) means all of them."""
    wanted: set[tuple[str, int]] | None = None
    if request.topics is not None:
        wanted = {(topic.topic, index) for topic in request.topics for index in topic.partitions}
    return DescribeLogDirsResponse(results=[_describe(replicas, log_dir, wanted) for log_dir in log_dirs])


def _describe(replicas: ReplicaService, log_dir: LogDir, wanted: set[tuple[str, int]] | None) -> Result:
    if not log_dir.is_online:
        return Result(error_code=ErrorCode.KAFKA_STORAGE_ERROR, log_dir=str(log_dir.path.absolute()))
    topics: dict[str, list[PartitionInfo]] = {}
    for partition in replicas:
        if partition.log_dir is not log_dir or (
            wanted is not None and (partition.topic, partition.index) not in wanted
        ):
            continue
        lag = max(partition.high_watermark - partition.replica.log_end_offset, 0)
        topics.setdefault(partition.topic, []).append(
            PartitionInfo(partition_index=partition.index, partition_size=partition.log.size_bytes, offset_lag=lag)
        )
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
