"""Bytes from anybody: a decode ends with a message or a RemoteProtocolError, soon, and in bounded memory."""

from __future__ import annotations

import contextlib
import random
import struct
import tracemalloc

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlog._kraftlog import decode_prefix
from kraftlog.errors import RemoteProtocolError
from kraftlog.wire import records
from kraftlog.wire.frame import FrameReader, decode_request, decode_response
from kraftlog.wire.registry import API_BY_KEY
from wire_facts import GOLDEN, message_classes, rows

SEEDS = range(8)
CLASSES = sorted(message_classes().items())
# What one byte of a message may cost in memory: an empty struct in an array is the dearest.
MEMORY_PER_BYTE = 300
MEMORY_FIXED = 256 * 1024


def frames_of_kafka() -> list[tuple[int, int, bytes]]:
    """(api key, version, body) of every request of the golden rows."""
    found = []
    for path in sorted((GOLDEN / "wire/api").glob("*.jsonl.gz")):
        requests = (row for row in rows(path) if row["kind"] == "request")
        served = (row for row in requests if API_BY_KEY[row["apiKey"]].serves(row["version"]))
        found += [(row["apiKey"], row["version"], bytes.fromhex(row["hex"])) for row in served]
    return found


def damage(rng: random.Random, body: bytes) -> bytes:
    """One to three edits of the kinds that find holes."""
    data = bytearray(body)
    for _ in range(rng.randint(1, 3)):
        position = rng.randrange(len(data) + 1)
        kind = rng.randrange(6)
        if kind == 0:
            del data[position:]
        elif kind == 1 and data:
            data[position % len(data)] = rng.randrange(256)
        elif kind == 2:
            data[position:position] = rng.randbytes(rng.randrange(1, 9))
        elif kind == 3:
            data[position : position + 4] = struct.pack(">i", rng.choice([-1, -2, 1 << 16, 1 << 24, 0x7FFFFFFF]))
        elif kind == 4:
            data[position : position + 5] = rng.choice([b"\xff\xff\xff\xff\x07", b"\xff\xff\xff\xff\x0f", b"\xff" * 5])
        else:
            data[position : position + rng.randrange(9)] = b""
    return bytes(data)


@pytest.mark.parametrize("seed", SEEDS)
def test_damaged_requests_end_as_a_message_or_the_peers_fault(seed):
    rng = random.Random(f"damaged {seed}")
    frames = frames_of_kafka()
    for _ in range(3000):
        key, version, body = rng.choice(frames)
        header = struct.pack(">hhih", key, version, rng.randrange(1 << 31), -1)
        header += b"\0" * (API_BY_KEY[key].request_header_version(version) - 1)
        with contextlib.suppress(RemoteProtocolError):
            decode_request(header + damage(rng, body))


@pytest.mark.parametrize("seed", SEEDS)
def test_random_bytes_as_any_message(seed):
    rng = random.Random(f"random {seed}")
    for _ in range(200):
        for _name, cls in CLASSES:
            version = rng.randint(*cls.VERSIONS)
            data = rng.randbytes(rng.choice([0, 1, 2, 5, 17, 60])) if rng.random() < 0.5 else bytes(rng.randrange(40))
            try:
                message, position = decode_prefix(cls, data, version)
            except RemoteProtocolError:
                continue
            assert position <= len(data)
            again, _ = decode_prefix(cls, message.encode(version), version)
            assert again.encode(version) == message.encode(version)


def test_every_truncation_of_a_request_is_the_peers_fault_or_shorter():
    chosen = {}
    for key, version, body in frames_of_kafka():
        if len(body) < 3000:
            chosen[key, version] = body
    for (key, version), body in chosen.items():
        cls = API_BY_KEY[key].request
        for end in range(len(body)):
            with pytest.raises(RemoteProtocolError):
                cls.decode(body[:end], version)


@given(data=st.binary(max_size=400))
@settings(max_examples=400, deadline=None)
def test_any_bytes_as_frame_or_record(data):
    for read in (
        decode_request,
        lambda d: decode_response(3, 9, d),
        records.decode_metadata_record,
        lambda d: records.decode_control_record(d[:4], d[4:]),
        lambda d: records.decode_coordinator_key("group", d),
        lambda d: records.decode_coordinator_value("group", 1, d),
        FrameReader(1000).feed,
    ):
        with contextlib.suppress(RemoteProtocolError):
            read(data)


def peak_of(cls, data, version):
    tracemalloc.start()
    try:
        decode_prefix(cls, data, version)
    except RemoteProtocolError:
        pass
    finally:
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
    return peak


def test_memory_stays_in_proportion_to_the_bytes():
    """The dearest message of each class: as many of the smallest elements as the bytes can claim."""
    worst = (0.0, "")
    for name, cls in CLASSES:
        for version in range(cls.VERSIONS[0], cls.VERSIONS[1] + 1):
            for data in (
                bytes(5000),
                b"\x7f" + bytes(5000),
                b"\xff\x26" + bytes(5000),
                b"\0\0\x03\xe8" + bytes(5000),
                (b"\xff\x0e" + bytes(8)) * 500,
                (b"\0\0\0\x10" + bytes(4)) * 600,
            ):
                peak = peak_of(cls, data, version)
                assert peak < MEMORY_FIXED + MEMORY_PER_BYTE * len(data), (name, version, data[:4].hex(), peak)
                worst = max(worst, (peak / len(data), f"{name} v{version}"))
    assert worst[0] > 1


@pytest.mark.parametrize("claim", [b"\x7f\xff\xff\xff", b"\x00\xff\xff\xff", b"\x00\x10\x00\x00"])
def test_claimed_counts_reserve_nothing(claim):
    metadata = message_classes()["MetadataRequest"]
    assert peak_of(metadata, claim + b"\0\1a" * 10, 0) < 16384
    fetch = message_classes()["FetchRequest"]
    assert peak_of(fetch, bytes(16) + claim, 4) < 16384
