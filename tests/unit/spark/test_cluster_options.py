"""Options of a read from a cluster: which are known, which are settings of the consumer, which are refused."""

from __future__ import annotations

import pytest

from kraftlog.spark.cluster_options import ClusterOptions, is_cluster_read
from kraftlog.spark.cluster_plan import ClusterRange, split

WHERE = {"kafka.bootstrap.servers": "b:9092", "subscribe": "t"}


def test_settings_of_the_consumer_and_options_of_the_query_are_told_apart():
    given = {
        **WHERE,
        "kafka.security.protocol": "SASL_SSL",
        "kafka.sasl.password": "secret",
        "kafka.isolation.level": "read_committed",
        "failondataloss": "false",
        "minPartitions": "3",
        "groupIdPrefix": "ignored",
    }
    found = ClusterOptions.parse(given)
    assert found.settings == {"bootstrap.servers": "b:9092", "security.protocol": "SASL_SSL", "sasl.password": "secret"}
    assert (found.source.isolation_level, found.source.fail_on_data_loss) == ("read_committed", False)
    assert (found.source.min_partitions, found.source.topics) == (3, ("t",))
    assert "secret" not in repr(found)
    assert is_cluster_read(given)
    assert not is_cluster_read({"path": "x"})


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"path": "x"}, "option path is about log directories"),
        ({"endOffset": "hw"}, "option endOffset is about log directories"),
        ({"kafka.auto.offset.reset": "latest"}, "option kafka.auto.offset.reset cannot be given"),
        ({"kafka.nothing": "1"}, "unknown settings of a consumer: nothing"),
        ({"nothing": "1"}, "unknown option nothing"),
        ({"assign": '{"t": [0]}'}, "one of the options subscribe, topics, subscribePattern, assign must be given"),
        ({"columns": "batchPosition"}, "column batchPosition is a position in a file"),
        ({"startingOffsets": "latest"}, "cannot be latest in a batch query"),
        ({"kafka.bootstrap.servers": ""}, "bootstrap.servers must be set"),
    ],
)
def test_a_wrong_option_is_named(options, message):
    with pytest.raises(ValueError, match=message.replace(".", r"\.").replace("+", r"\+")):
        ClusterOptions.parse({**WHERE, **options})


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, [(0, 10), (5, 105)]),
        ({"minPartitions": "4"}, [(0, 10), (5, 38), (38, 71), (71, 105)]),
        ({"maxRecordsPerPartition": "60"}, [(0, 10), (5, 55), (55, 105)]),
    ],
)
def test_ranges_are_cut_as_the_options_say(options, expected):
    source = ClusterOptions.parse({**WHERE, **options}).source
    ranges = [ClusterRange("t", 0, 0, 10), ClusterRange("t", 1, 7, 7), ClusterRange("t", 2, 5, 105)]
    assert [(found.start_offset, found.end_offset) for found in split(source, ranges)] == expected
