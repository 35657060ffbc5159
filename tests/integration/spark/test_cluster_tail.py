"""The tail of a cluster for a streaming query, on a node of this process and without a JVM."""

from __future__ import annotations

import pytest

import kraftlog
from kraftlog.errors import OffsetOutOfRangeError

pytest.importorskip("pyspark")
pytest.importorskip("pyarrow")

from kraftlog.spark.cluster_options import ClusterOptions
from kraftlog.spark.cluster_plan import read_cluster_ranges
from kraftlog.spark.cluster_source import ClusterTail
from kraftlog.spark.stream_offsets import Position, StreamOffset
from kraftlog.spark.stream_tail import BatchLimit


def fill(node, topic, count):
    with kraftlog.Producer(bootstrap_servers=node.bootstrap_servers) as producer:
        for number in range(count):
            producer.send(topic, b"%d" % number, partition=0)


def test_batches_cover_each_offset_once_up_to_the_target():
    with kraftlog.Broker() as node:
        node.create_topic("grown")
        fill(node, "grown", 100)
        given = {"kafka.bootstrap.servers": node.bootstrap_servers, "subscribePattern": "gr.*"}
        options = ClusterOptions.parse({**given, "startingOffsets": "earliest"}, streaming=True)
        tail = ClusterTail(options)
        at = tail.initial()
        tail.fix_target()
        fill(node, "grown", 30)
        node.create_topic("grows-later")
        sizes = []
        for _ in range(4):
            end = StreamOffset.from_json(tail.latest(at, BatchLimit(most=40)).to_json())
            tasks = tail.plan(at, end)
            sizes.append(
                sum(batch.num_rows for task in tasks for batch in read_cluster_ranges(options, ["value"], task))
            )
            at = end
        assert sizes == [40, 40, 20, 0]
        assert at.positions == {("grown", 0): Position(100)}
        assert tail.available().positions["grown", 0] == Position(130)
        fill(node, "grows-later", 5)
        end = ClusterTail(options).latest(at, BatchLimit())
        assert end.positions == {("grown", 0): Position(130), ("grows-later", 0): Position(5)}
        assert ClusterTail(options).latest(at, BatchLimit(least=1000)) == at  # waits for maxTriggerDelay
        beyond = StreamOffset({("grown", 0): Position(500)})
        with pytest.raises(OffsetOutOfRangeError, match="grown-0 was read up to 500, and ends at 130 now"):
            ClusterTail(options).latest(beyond, BatchLimit())
