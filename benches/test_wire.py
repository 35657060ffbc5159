"""Messages to and from bytes, beside kafka-python and, where it is installed, kio.

Expected: a field costs 10 to 20 ns (an object and a slot), a struct 40 ns more, a slice of records 150 ns: under
0.6 us for a one-partition request, its records left where they are.

    python -m pytest benches/test_wire.py --benchmark-enable --benchmark-group-by=group
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import pytest

from kraftlog.types import Uuid
from kraftlog.wire.frame import decode_request, encode_request, encode_response
from kraftlog.wire.messages.fetch import FetchRequest, FetchResponse
from kraftlog.wire.messages.metadata import MetadataResponse
from kraftlog.wire.messages.produce import ProduceRequest

TOPIC_ID = Uuid(bytes(range(1, 17)))


def fetch_request(partitions: int) -> FetchRequest:
    wanted = [
        FetchRequest.FetchPartition(partition=index, fetch_offset=123_456, partition_max_bytes=1 << 20)
        for index in range(partitions)
    ]
    return FetchRequest(
        max_wait_ms=500,
        min_bytes=1,
        max_bytes=50 << 20,
        session_id=77,
        session_epoch=5,
        topics=[FetchRequest.FetchTopic(topic_id=TOPIC_ID, partitions=wanted)],
    )


def fetch_response(partitions: int) -> FetchResponse:
    given = [
        FetchResponse.PartitionData(
            partition_index=index,
            high_watermark=123_460,
            last_stable_offset=123_460,
            log_start_offset=0,
            aborted_transactions=None,
            records=bytes(1000),
        )
        for index in range(partitions)
    ]
    return FetchResponse(
        session_id=77, responses=[FetchResponse.FetchableTopicResponse(topic_id=TOPIC_ID, partitions=given)]
    )


def produce_request(partitions: int) -> ProduceRequest:
    given = [ProduceRequest.PartitionProduceData(index=index, records=bytes(1000)) for index in range(partitions)]
    return ProduceRequest(
        acks=-1,
        timeout_ms=30_000,
        topic_data=[ProduceRequest.TopicProduceData(topic_id=TOPIC_ID, partition_data=given)],
    )


# name: (api key, version, message)
CASES: dict[str, tuple[int, int, Callable[[int], Any]]] = {
    "FetchRequest": (1, 17, fetch_request),
    "FetchResponse": (1, 17, fetch_response),
    "ProduceRequest": (0, 13, produce_request),
}
PARTITIONS = pytest.mark.parametrize("partitions", [1, 100], ids="{} partitions".format)
DECODED = pytest.mark.parametrize("name", ["FetchRequest", "ProduceRequest"])


def note(benchmark: Any, what: str, name: str, partitions: int, size: int) -> None:
    benchmark.group = f"{what} {name}, {partitions} partitions"
    benchmark.extra_info.update(bytes=size, messages=1, partitions=partitions)


def kio_class(name: str) -> Any:
    module = pytest.importorskip(f"kio.schema.{'fetch.v17' if name[0] == 'F' else 'produce.v13'}.request")
    if name.endswith("Response"):
        module = pytest.importorskip("kio.schema.fetch.v17.response")
    return getattr(module, name)


def kafka_python_class(name: str) -> Any:
    pytest.importorskip("kafka")
    from kafka.protocol import consumer, producer

    found = getattr(producer if name.startswith("Produce") else consumer, name, None)
    if found is None:
        pytest.skip(f"this kafka-python has no {name}")
    return found


# --- bytes to message ---


@PARTITIONS
@DECODED
def test_decode(benchmark: Any, name: str, partitions: int) -> None:
    _, version, make = CASES[name]
    message = make(partitions)
    data = message.encode(version)
    note(benchmark, "decode", name, partitions, len(data))
    decoded = benchmark(type(message).decode, data, version)
    assert decoded.encode(version) == data


@PARTITIONS
@DECODED
def test_decode_frame(benchmark: Any, name: str, partitions: int) -> None:
    key, version, make = CASES[name]
    frame = b"".join(bytes(part) for part in encode_request(key, version, 1, "bench", make(partitions)))[4:]
    note(benchmark, "decode", name, partitions, len(frame))
    header, _ = benchmark(decode_request, frame)
    assert header.client_id == "bench"


@PARTITIONS
@DECODED
def test_decode_kio(benchmark: Any, name: str, partitions: int) -> None:
    serial = pytest.importorskip("kio.serial")
    read = serial.entity_reader(kio_class(name))
    _, version, make = CASES[name]
    data = make(partitions).encode(version)
    note(benchmark, "decode", name, partitions, len(data))
    benchmark(read, data, 0)


@PARTITIONS
@DECODED
def test_decode_kafka_python(benchmark: Any, name: str, partitions: int) -> None:
    cls = kafka_python_class(name)
    _, version, make = CASES[name]
    data = make(partitions).encode(version)
    note(benchmark, "decode", name, partitions, len(data))
    benchmark(lambda: cls.decode(data, version=version))


# --- message to bytes ---


@PARTITIONS
def test_encode_response(benchmark: Any, partitions: int) -> None:
    key, version, make = CASES["FetchResponse"]
    message = make(partitions)
    note(benchmark, "encode", "FetchResponse", partitions, len(message.encode(version)))
    benchmark(encode_response, key, version, 1, message)


@PARTITIONS
def test_encode_kio(benchmark: Any, partitions: int) -> None:
    serial = pytest.importorskip("kio.serial")
    cls = kio_class("FetchResponse")
    _, version, make = CASES["FetchResponse"]
    data = make(partitions).encode(version)
    message = serial.entity_reader(cls)(data, 0)[0]
    write = serial.entity_writer(cls)
    note(benchmark, "encode", "FetchResponse", partitions, len(data))
    benchmark(lambda: write(io.BytesIO(), message))


@PARTITIONS
def test_encode_kafka_python(benchmark: Any, partitions: int) -> None:
    cls = kafka_python_class("FetchResponse")
    _, version, make = CASES["FetchResponse"]
    data = make(partitions).encode(version)
    message = cls.decode(data, version=version)
    message._header = None  # what its own connection sets
    note(benchmark, "encode", "FetchResponse", partitions, len(data))
    benchmark(lambda: message.encode(version=version))


# --- the dataclasses themselves ---


def test_build_fetch_response(benchmark: Any) -> None:
    note(benchmark, "build", "FetchResponse", 1, 0)
    benchmark(fetch_response, 1)


def test_decode_metadata_response(benchmark: Any) -> None:
    """What a client of a large cluster pays: 10 000 partitions."""
    partitions = [
        MetadataResponse.MetadataResponsePartition(partition_index=index, leader_id=1, replica_nodes=[1, 2, 3])
        for index in range(100)
    ]
    topics = [MetadataResponse.MetadataResponseTopic(name=f"t{n}", partitions=partitions) for n in range(100)]
    data = MetadataResponse(topics=topics).encode(12)
    note(benchmark, "decode", "MetadataResponse", 10_000, len(data))
    benchmark(MetadataResponse.decode, data, 12)
