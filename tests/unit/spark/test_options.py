"""Options of the Spark formats: what they mean, which come first, and that a mistake names its option."""

from __future__ import annotations

import pickle

import pytest

from kraftlog.spark.options import BATCH_OPTIONS, STREAM_OPTIONS, OffsetLimit, SourceOptions


def parse(**options: str) -> SourceOptions:
    return SourceOptions.parse({"path": "logs", **options})


def test_defaults_are_those_of_sparks_kafka_source() -> None:
    options = parse()
    assert options == SourceOptions(paths=("logs",))
    assert options.starting == OffsetLimit(option="startingOffsets", kind="earliest")
    assert options.ending == OffsetLimit(option="endingOffsets", kind="latest")
    assert options.fail_on_data_loss
    assert options.isolation_level == "read_uncommitted"
    assert options.end == "hw"
    assert pickle.loads(pickle.dumps(options)) == options
    stream = SourceOptions.parse({"path": "logs"}, known=STREAM_OPTIONS, streaming=True)
    assert stream.starting.kind == "latest"
    assert stream.max_trigger_delay_ms == 900_000


def test_names_are_not_case_sensitive() -> None:
    given = {
        "PATH": "a",
        "Paths": '["b", "c"]',
        "SUBSCRIBE": " t , u,",
        "failondataloss": "False",
        "KAFKA.ISOLATION.LEVEL": "READ_COMMITTED",
        "ENDOFFSET": "logend",
        "minpartitions": "7",
        "maxrecordsperpartition": "8",
        "includeHEADERS": "TRUE",
    }
    options = SourceOptions.parse(given)
    assert options.paths == ("a", "b", "c")
    assert options.topics == ("t", "u")
    assert not options.fail_on_data_loss
    assert options.isolation_level == "read_committed"
    assert options.end == "logEnd"
    assert (options.min_partitions, options.max_records_per_partition) == (7, 8)
    assert options.include_headers
    assert parse(topics="t,u").topics == ("t", "u")


def test_a_time_comes_before_times_by_partition_and_those_before_offsets() -> None:
    offsets, times = '{"t": {"0": 5, "1": -2}}', '{"t": {"0": 9}}'
    assert parse(startingOffsets=offsets).starting.by_partition == {("t", 0): 5, ("t", 1): -2}
    by_time = parse(startingOffsets=offsets, startingOffsetsByTimestamp=times)
    assert by_time.starting.kind == "timestamps"
    assert by_time.starting.by_partition == {("t", 0): 9}
    by_one = parse(startingOffsets=offsets, startingOffsetsByTimestamp=times, startingTimestamp="77")
    assert by_one.starting == OffsetLimit(option="startingTimestamp", kind="timestamp", timestamp=77)
    assert parse(endingOffsets=times, endingTimestamp="3").ending.timestamp == 3
    assert parse(startingOffsetsByTimestampStrategy="LATEST").timestamp_strategy == "latest"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"subscribe": "t", "assign": '{"t": [0]}'}, "only one of the options .* not subscribe and assign"),
        ({"subscribe": " , "}, "option subscribe names no value"),
        ({"subscribePattern": " "}, "option subscribePattern is empty"),
        ({"subscribePattern": "a("}, "option subscribePattern must be a regular expression"),
        ({"assign": "t-0"}, "option assign must be JSON such as"),
        ({"assign": "{}"}, "option assign must be JSON such as"),
        ({"assign": '{"t": ["0"]}'}, "option assign must be JSON such as"),
        ({"assign": '{"t": [true]}'}, "option assign must be JSON such as"),
        ({"paths": "b"}, "option paths must be JSON such as"),
        ({"paths": '{"b": 1}'}, "option paths must be a JSON list"),
        ({"path": ""}, "option path is missing"),
        ({"startingOffsets": "first"}, "option startingOffsets must be earliest, latest or JSON such as"),
        ({"startingOffsets": '{"t": {"0": 1}'}, "option startingOffsets must be JSON such as"),
        ({"startingOffsets": '{"t": 3}'}, "option startingOffsets must be JSON such as"),
        ({"startingOffsets": '{"t": {"x": 3}}'}, "option startingOffsets must be JSON such as"),
        ({"startingOffsets": '{"t": {"0": 3.5}}'}, "option startingOffsets: 3.5 of t-0 must be a whole number from -2"),
        ({"startingOffsets": '{"t": {"0": -3}}'}, "option startingOffsets: -3 of t-0"),
        ({"startingOffsets": '{"t": {"0": 1}, "t": {"0": 2}}'}, "option startingOffsets has a name twice"),
        ({"startingOffsets": '{"t": {"0": 1, "00": 2}}'}, "option startingOffsets names t-0 twice"),
        ({"startingOffsets": "latest"}, "option startingOffsets cannot be latest in a batch query"),
        ({"startingOffsets": '{"t": {"0": -1}}'}, r"startingOffsets: t-0 cannot be -1 \(latest\) in a batch query"),
        ({"endingOffsets": "earliest"}, "option endingOffsets cannot be earliest in a batch query"),
        ({"endingOffsets": '{"t": {"0": -2}}'}, r"endingOffsets: t-0 cannot be -2 \(earliest\)"),
        ({"startingOffsets": '{"t": {"0": 9}}', "endingOffsets": '{"t": {"0": 8}}'}, "9 of t-0 is after 8 of endingO"),
        ({"startingOffsets": '{"t": {"0": 9}}', "endingOffsets": '{"t": {"1": 9}}'}, "name different partitions"),
        ({"startingTimestamp": "5", "endingTimestamp": "4"}, "option startingTimestamp 5 is after endingTimestamp 4"),
        ({"startingTimestamp": "now"}, "option startingTimestamp must be a whole number, not 'now'"),
        ({"startingTimestamp": "-1"}, "option startingTimestamp must be between 0"),
        ({"startingTimestamp": str(2**63)}, "option startingTimestamp must be between 0 and"),
        ({"startingOffsetsByTimestamp": '{"t": {"0": -1}}'}, "option startingOffsetsByTimestamp: -1 of t-0"),
        ({"startingOffsetsByTimestampStrategy": "earliest"}, "Strategy is error or latest, not 'earliest'"),
        ({"minPartitions": "0"}, "option minPartitions must be between 1"),
        ({"maxRecordsPerPartition": "1e6"}, "option maxRecordsPerPartition must be a whole number"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "8"}, "minOffsetsPerTrigger 9 is more than"),
        ({"maxTriggerDelay": "soon"}, "option maxTriggerDelay must be a time such as"),
        ({"includeHeaders": "yes"}, "option includeHeaders must be true or false"),
        ({"dataLossReport": "r"}, "option dataLossReport has nothing to report without failOnDataLoss=false"),
        ({"failOnDataLoss": "maybe"}, "option failOnDataLoss must be true or false"),
        ({"endOffset": "lso"}, "option endOffset is hw or logEnd, not 'lso'"),
        ({"kafka.isolation.level": "serializable"}, "option kafka.isolation.level is read_uncommitted or read_comm"),
        ({"fromTimestamp": "5", "toTimestamp": "4"}, "option fromTimestamp 5 is after toTimestamp 4"),
        ({"splitBytes": "0"}, "option splitBytes must be between 1"),
        ({"includeHeader": "true"}, "unknown option includeHeader: there are path, paths, subscribe"),
        ({"kafka.bootstrap.servers": "b:9092"}, "kafka.bootstrap.servers is about a connection to Kafka brokers; this"),
        ({"kafka.group.id": "g"}, "option kafka.group.id is about a connection"),
        ({"groupIdPrefix": "g"}, "option groupIdPrefix is about a connection"),
        ({"fetchOffset.numRetries": "3"}, "option fetchOffset.numRetries is about a connection"),
    ],
)
def test_a_mistake_names_its_option(options: dict[str, str], text: str) -> None:
    with pytest.raises(ValueError, match=text):
        parse(**options)


def test_a_path_is_needed() -> None:
    with pytest.raises(ValueError, match="option path is missing"):
        SourceOptions.parse({})


def test_a_format_knows_its_own_options_only() -> None:
    with pytest.raises(ValueError, match="unknown option columns, endOffset: there are path, checkCrc"):
        SourceOptions.parse({"path": "a", "endOffset": "hw", "columns": "key"}, known=("path", "checkCrc"))
    assert SourceOptions.parse({"path": "a", "checkCrc": "true"}, known=("path", "checkCrc")).paths == ("a",)
    with pytest.raises(ValueError, match="unknown option endingOffsets"):
        SourceOptions.parse({"path": "a", "endingOffsets": "latest"}, known=STREAM_OPTIONS, streaming=True)
    with pytest.raises(ValueError, match="which this format does not make"):
        SourceOptions.parse({"path": "a", "kafka.isolation.level": "read_committed"}, known=("path",))
    assert set(STREAM_OPTIONS) < set(BATCH_OPTIONS)


def test_a_stream_may_start_at_the_latest_offsets() -> None:
    given = {"path": "a", "startingOffsets": '{"t": {"0": -1}}', "maxTriggerDelay": "30s", "maxOffsetsPerTrigger": "5"}
    options = SourceOptions.parse(given, known=STREAM_OPTIONS, streaming=True)
    assert options.starting.by_partition == {("t", 0): -1}
    assert options.max_trigger_delay_ms == 30_000
    assert options.trigger_options_given()
    assert not parse().trigger_options_given()
