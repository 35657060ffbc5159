"""Frames: headers of every version, unsupported requests, and the reader that cuts a connection's bytes."""

from __future__ import annotations

import random
import struct

import pytest

from kraftlog.errors import LocalProtocolError, RemoteProtocolError, UnsupportedVersionError
from kraftlog.wire import frame as wire_frame
from kraftlog.wire.api_table import APIS
from kraftlog.wire.frame import FrameReader, decode_request, decode_response, encode_request, encode_response
from kraftlog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kraftlog.wire.messages.fetch import FetchResponse
from kraftlog.wire.messages.metadata import MetadataResponse
from kraftlog.wire.messages.produce import ProduceRequest
from kraftlog.wire.registry import API_BY_KEY
from wire_facts import GOLDEN, rows


def test_registry_has_the_versions_and_headers_of_the_facts():
    import gzip
    import json

    with gzip.open(GOLDEN / "protocol-facts.json.gz") as file:
        apis = json.load(file)["apis"]
    assert [api["key"] for api in apis] == [row[0] for row in APIS]
    for expected in apis:
        api = API_BY_KEY[expected["key"]]
        assert api.name == expected["name"]
        if not expected["valid"]:
            assert not any(api.serves(version) for version in range(20))
            continue
        assert (api.min_version, api.max_version) == (expected["min"], expected["maxStable"])
        assert list(api.listeners) == expected["listeners"]
        versions = range(expected["min"], expected["max"] + 1)
        assert [api.request_header_version(version) for version in versions] == expected["requestHeaderVersions"]
        assert [api.response_header_version(version) for version in versions] == expected["responseHeaderVersions"]


def served_rows():
    for path in sorted((GOLDEN / "wire/api").glob("*.jsonl.gz")):
        for row in rows(path):
            api = API_BY_KEY[row["apiKey"]]
            if row["sample"] == 0 and api.serves(row["version"]):
                yield api, row


def test_every_served_request_and_response_goes_through_a_frame():
    for api, row in served_rows():
        version, body = row["version"], bytes.fromhex(row["hex"])
        if row["kind"] == "request":
            request = api.request.decode(body, version)
            parts = encode_request(api.key, version, 77, "someone", request)
            frame = b"".join(bytes(part) for part in parts)
            assert frame.endswith(body)
            assert int.from_bytes(frame[:4], "big") == len(frame) - 4
            header, decoded = decode_request(frame[4:])
            assert (header.request_api_key, header.request_api_version) == (api.key, version)
            assert (header.correlation_id, header.client_id) == (77, "someone")
            assert decoded == request
        else:
            response = api.response.decode(body, version)
            frame = b"".join(bytes(part) for part in encode_response(api.key, version, 78, response))
            assert int.from_bytes(frame[:4], "big") == len(frame) - 4
            assert decode_response(api.key, version, frame[4:]) == (78, response)


def test_request_header_rows_decode_before_a_body():
    for row in rows(GOLDEN / "wire/headers.jsonl.gz"):
        if row["api"] != "RequestHeader" or row["sample"] == 4:
            continue
        key, version = (0, 3) if row["version"] == 1 else (18, 3)
        data = bytearray.fromhex(row["hex"])
        struct.pack_into(">hh", data, 0, key, version)
        body = ApiVersionsRequest() if key == 18 else ProduceRequest()
        header, _ = decode_request(bytes(data) + body.encode(version))
        assert header.client_id == row["json"]["clientId"]
        assert header.correlation_id == row["json"]["correlationId"]


def test_unknown_api_key_is_refused_without_reading_the_header():
    with pytest.raises(UnsupportedVersionError) as caught:
        decode_request(struct.pack(">hhih", 999, 0, 5, -1))
    assert (caught.value.api_key, caught.value.correlation_id) == (999, None)


@pytest.mark.parametrize(("key", "version"), [(0, 2), (0, 14), (4, 1), (5, 5), (6, 0), (22, 6), (1, -1)])
def test_unserved_version_is_refused_with_its_correlation_id(key, version):
    header = struct.pack(">hhih", key, version, 5, -1) + bytes(8)
    with pytest.raises(UnsupportedVersionError, match="is not served") as caught:
        decode_request(header)
    assert (caught.value.api_key, caught.value.api_version, caught.value.correlation_id) == (key, version, 5)


def test_api_versions_of_a_later_client_can_be_answered_in_version_0():
    with pytest.raises(UnsupportedVersionError) as caught:
        decode_request(struct.pack(">hhih", 18, 99, 5, -1) + b"\0" + b"whatever a later version has")
    error = caught.value
    assert (error.api_key, error.api_version, error.correlation_id) == (18, 99, 5)
    answer = ApiVersionsResponse(error_code=35, api_keys=[ApiVersionsResponse.ApiVersion(api_key=18, max_version=4)])
    frame = b"".join(encode_response(18, 0, 5, answer))
    assert frame == struct.pack(">iihihhh", 16, 5, 35, 1, 18, 0, 4)


def test_response_header_of_api_versions_is_always_version_0():
    frame = b"".join(encode_response(18, 4, 5, ApiVersionsResponse()))
    assert frame[4:] == struct.pack(">i", 5) + ApiVersionsResponse().encode(4)


@pytest.mark.parametrize("data", [b"", b"\0", b"\0\x12\0", b"\0\x12\0\3\0\0", b"\0\x12\0\3\0\0\0\1\0\5ab"])
def test_truncated_header_is_the_peers_fault(data):
    with pytest.raises(RemoteProtocolError):
        decode_request(data)


def test_bytes_after_a_request_are_ignored():
    """As Kafka does; librdkafka sends some after Metadata v13 for all topics."""
    frame = b"".join(encode_request(18, 0, 1, None, ApiVersionsRequest()))
    header, request = decode_request(frame[4:] + b"abc")
    assert (header.correlation_id, request) == (1, ApiVersionsRequest())


def test_records_are_a_view_of_the_frame():
    data = ProduceRequest(
        topic_data=[
            ProduceRequest.TopicProduceData(
                name="t", partition_data=[ProduceRequest.PartitionProduceData(records=b"0123456789")]
            )
        ]
    )
    frame = bytearray(b"".join(encode_request(0, 9, 1, None, data)))
    del frame[:4]
    _, request = decode_request(frame)
    assert isinstance(request, ProduceRequest)
    records = request.topic_data[0].partition_data[0].records
    assert isinstance(records, memoryview)
    position = frame.index(b"0123")
    frame[position] = ord("x")
    assert bytes(records) == b"x123456789"


class Slice:
    """Stands for a file slice: it says its size, and nobody may read it."""

    nbytes = 5000

    def __buffer__(self, flags):
        raise AssertionError("read before it is sent")


def test_file_slices_stay_items_of_the_response():
    file_slice, view = Slice(), memoryview(b"abc")
    partitions = [FetchResponse.PartitionData(partition_index=n, records=r) for n, r in enumerate((file_slice, view))]
    response = FetchResponse(responses=[FetchResponse.FetchableTopicResponse(topic="t", partitions=partitions)])
    parts = encode_response(1, 12, 9, response)
    assert [part for part in parts if not isinstance(part, bytes)] == [file_slice, view]
    sizes = [5000 if part is file_slice else len(part) for part in parts]
    assert int.from_bytes(parts[0][:4], "big") == sum(sizes) - 4


def test_value_out_of_range_names_the_field():
    response = FetchResponse(responses=[FetchResponse.FetchableTopicResponse(partitions=[None])])  # type: ignore[list-item]
    with pytest.raises(LocalProtocolError, match=r"FetchResponse v12 responses.partitions"):
        encode_response(1, 12, 9, response)
    with pytest.raises(LocalProtocolError, match="ApiVersionsResponse v0 error_code"):
        encode_response(18, 0, 1, ApiVersionsResponse(error_code=40000))


def test_unknown_api_key_cannot_be_answered():
    with pytest.raises(LocalProtocolError, match="no API key 999"):
        encode_response(999, 0, 1, ApiVersionsResponse())


# --- FrameReader ---

LIMIT = 4 << 20


def stream_of(rng):
    sizes = [0, 1, 5, 100, 65531, 65532, 65533, 65536, 70000, 1 << 20, (1 << 20) + 1, 3 << 20, LIMIT]
    frames = [rng.randbytes(rng.choice([*sizes, rng.randrange(1 << 18)])) for _ in range(rng.randrange(1, 8))]
    return frames, b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)


@pytest.mark.parametrize("seed", range(30))
@pytest.mark.parametrize("face", ["feed", "buffer"])
def test_frame_reader_cuts_at_any_boundary(face, seed):
    rng = random.Random(f"{face} {seed}")
    frames, stream = stream_of(rng)
    reader, found, position = FrameReader(LIMIT), [], 0
    largest = rng.choice([1000, 65536, 1 << 21]) if len(stream) > 300_000 else rng.choice([1, 3, 1000, 1 << 21])
    while position < len(stream):
        count = rng.randint(1, largest)
        if face == "feed":
            found += reader.feed(stream[position : position + count])
        else:
            buffer = reader.get_buffer(count)
            assert len(buffer)
            count = min(count, len(buffer), len(stream) - position)
            buffer[:count] = stream[position : position + count]
            found += reader.buffer_updated(count)
        position += count
    assert [bytes(frame) for frame in found] == frames
    assert reader.pending_bytes == 0


@pytest.mark.parametrize("size", [-1, -(1 << 31), LIMIT + 1, (1 << 31) - 1])
def test_frame_reader_refuses_a_size_and_names_it(size):
    with pytest.raises(RemoteProtocolError, match=f"a frame of {size} bytes"):
        FrameReader(LIMIT).feed(struct.pack(">i", size))


def test_frame_reader_limit_can_be_raised():
    reader = FrameReader(10)
    reader.set_max_frame_bytes(20)
    assert reader.max_frame_bytes == 20
    assert reader.feed(struct.pack(">i", 20) + bytes(20)) == [bytes(20)]


def test_frame_reader_gives_a_large_frame_the_memory_of_the_one_before():
    """It doubled from 1 MiB for each frame, and copied what had arrived each time."""
    size = 5 << 20
    reader = FrameReader(100 << 20)
    reader.feed(struct.pack(">i", size) + bytes(size - 1))
    assert reader.missing_bytes == 1
    assert reader.feed(b"x") == [bytes(size - 1) + b"x"]
    assert reader.missing_bytes == 0
    reader.feed(struct.pack(">i", 80 << 20) + b"begin")
    assert reader.missing_bytes == (80 << 20) - 5
    assert len(reader.get_buffer(-1)) == size - 5


def test_frame_reader_memory_follows_what_arrived():
    """A size alone reserves nothing that is touched; a hundred such connections stay small."""
    import psutil

    process = psutil.Process()
    before = process.memory_info().rss
    readers = [FrameReader(100 << 20) for _ in range(100)]
    for reader in readers:
        assert reader.feed(struct.pack(">i", 100 << 20) + b"begin") == []
        assert len(reader.get_buffer(-1)) <= 1 << 20
        assert reader.pending_bytes == 9
    assert process.memory_info().rss - before < 64 << 20


def test_bytes_behind_a_response_are_ignored_with_one_warning(caplog, monkeypatch):
    """Kafka's client ignores such bytes; librdkafka's mock cluster sends one behind each Metadata answer."""
    monkeypatch.setattr(wire_frame, "_LEFTOVER_KEYS", set())
    frame = b"".join(map(bytes, encode_response(3, 13, 7, MetadataResponse(cluster_id="c"))))[4:]
    for _ in range(2):
        correlation_id, answer = decode_response(3, 13, frame + b"\0")
        assert (correlation_id, answer.cluster_id) == (7, "c")
    assert [found.getMessage() for found in caplog.records] == [
        f"MetadataResponse v13: 1 of its {len(frame) + 1} bytes are not part of it and are ignored"
    ]
