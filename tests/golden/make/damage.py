"""Make ``damaged/``: sound batches with one defect each, named by the case; verdicts by Kafka (``java/Rows.java``).

The same source, case and batch give the same bytes, but for the cases of ``RANDOM``, which follow from the seed.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import google_crc32c

from golden.make.rows import answers, write_rows
from interop.harness import Java

PROGRAM = str(Path(__file__).parent / "java" / "Rows.java")

# Where the fields of a batch header begin (DefaultRecordBatch).
LENGTH, LEADER_EPOCH, MAGIC, CRC, ATTRIBUTES, LAST_OFFSET_DELTA = 8, 12, 16, 17, 21, 23
BASE_TIMESTAMP, MAX_TIMESTAMP, PRODUCER_ID, PRODUCER_EPOCH, BASE_SEQUENCE, COUNT, BODY = 27, 35, 43, 51, 53, 57, 61

INT32_MAX, INT32_MIN, INT64_MIN = 2**31 - 1, -(2**31), -(2**63)

Row = dict[str, Any]
Edit = Callable[[bytes], bytes]


def batches_of(data: bytes) -> list[bytes]:
    """The batches of a sound log."""
    found, position = [], 0
    while position < len(data):
        size = struct.unpack_from(">i", data, position + LENGTH)[0] + 12
        found.append(data[position : position + size])
        position += size
    return found


def put(form: str, place: int, *values: int) -> Edit:
    """Writes numbers, in the form of struct."""

    def edit(batch: bytes) -> bytes:
        data = struct.pack(">" + form, *values)
        return batch[:place] + data + batch[place + len(data) :]

    return edit


def add(form: str, place: int, difference: int) -> Edit:
    """Changes one number by so much."""
    return lambda batch: put(form, place, struct.unpack_from(">" + form, batch, place)[0] + difference)(batch)


def flip(place: int, bit: int) -> Edit:
    """Changes one bit."""
    return lambda batch: batch[:place] + bytes([batch[place] ^ (1 << bit)]) + batch[place + 1 :]


def with_body(make: Edit) -> Edit:
    """Replaces what follows the header; the length field follows."""

    def edit(batch: bytes) -> bytes:
        changed = batch[:BODY] + make(batch[BODY:])
        return put("i", LENGTH, len(changed) - 12)(changed)

    return edit


def with_right_checksum(batch: bytes) -> bytes:
    """The batch with the CRC-32C of its bytes."""
    return put("I", CRC, google_crc32c.value(batch[ATTRIBUTES:]))(batch)


# One batch, its checksum left as it was: either these fields lie before it, or it is what is damaged.
UNCHECKED: dict[str, Edit] = {
    "attributes-bit-no-crc-fix": flip(ATTRIBUTES + 1, 0),
    "length-minus-1": put("i", LENGTH, -1),
    "length-min": put("i", LENGTH, INT32_MIN),
    "length-max": put("i", LENGTH, INT32_MAX),
    "length-64mib": put("i", LENGTH, 64 << 20),
    "length-plus-1": add("i", LENGTH, 1),
    "length-less-1": add("i", LENGTH, -1),
    **{f"length-{length}": put("i", LENGTH, length) for length in (0, 1, 13, 14, 48, 49)},
    **{f"magic-{magic}": put("b", MAGIC, magic) for magic in (0, 1, 3, 127, -1, -128)},
    "leader-epoch-other": put("i", LEADER_EPOCH, 77),
    "leader-epoch-minus-1": put("i", LEADER_EPOCH, -1),
    "base-offset-negative": put("q", 0, -5),
}
# One batch, its checksum made right again.
CHECKED: dict[str, Edit] = {
    "count-plus-1": add("i", COUNT, 1),
    "count-less-1": add("i", COUNT, -1),
    "count-0": put("i", COUNT, 0),
    "count-minus-1": put("i", COUNT, -1),
    "count-max": put("i", COUNT, INT32_MAX),
    "last-offset-delta-plus-5": add("i", LAST_OFFSET_DELTA, 5),
    "last-offset-delta-less-1": add("i", LAST_OFFSET_DELTA, -1),
    "last-offset-delta-minus-9": put("i", LAST_OFFSET_DELTA, -9),
    "last-offset-delta-max": put("i", LAST_OFFSET_DELTA, INT32_MAX),
    **{
        f"codec-{codec}": (lambda batch, codec=codec: put("B", 22, batch[22] & 0xF8 | codec)(batch))
        for codec in (5, 6, 7)
    },
    "codec-none": lambda batch: put("B", 22, batch[22] & 0xF8)(batch),
    "codec-other": lambda batch: put("B", 22, batch[22] & 0xF8 | ((batch[22] & 7) + 1) % 5)(batch),
    "attribute-reserved-bits": lambda batch: put("B", 21, batch[21] | 0x7F)(batch),
    "attribute-sign-bit": lambda batch: put("B", 21, batch[21] | 0x80)(batch),
    "attribute-control": lambda batch: put("B", 22, batch[22] | 0x20)(batch),
    "attribute-transactional": lambda batch: put("B", 22, batch[22] | 0x10)(batch),
    "attribute-delete-horizon": lambda batch: put("B", 22, batch[22] | 0x40)(batch),
    "attribute-log-append": lambda batch: put("B", 22, batch[22] | 0x08)(batch),
    "max-timestamp-low": put("q", MAX_TIMESTAMP, 5),
    "max-timestamp-minus-1": put("q", MAX_TIMESTAMP, -1),
    "base-timestamp-min": put("q", BASE_TIMESTAMP, INT64_MIN),
    "producer-id-without-epoch": put("qhi", PRODUCER_ID, 4242, -1, -1),
    "sequence-gap": add("i", BASE_SEQUENCE, 10),
    "sequence-negative": put("i", BASE_SEQUENCE, -2),
    "body-empty": with_body(lambda _: b""),
    "body-cut": with_body(lambda body: body[: len(body) // 2]),
    "body-less-1": with_body(lambda body: body[:-1]),
    "body-plus-3": with_body(lambda body: body + b"\0\0\0"),
    "body-zeros": with_body(lambda _: bytes(40)),
    "body-first-byte": with_body(lambda body: bytes([body[0] ^ 0x55]) + body[1:]),
    "body-last-byte": with_body(lambda body: body[:-1] + bytes([body[-1] ^ 1])),
    "body-bytes-4-8": with_body(lambda body: body[:4] + bytes(byte ^ 0x5A for byte in body[4:8]) + body[8:]),
    "body-middle": with_body(
        lambda body: body[: len(body) // 2] + bytes([body[len(body) // 2] ^ 0x33]) + body[len(body) // 2 + 1 :]
    ),
    "record-length-zero": with_body(lambda body: b"\0" + body),
    "record-length-negative": with_body(lambda body: b"\x01" + body),
    "record-length-overflow": with_body(lambda body: b"\xff" * 6 + body),
    "record-length-huge": with_body(lambda body: b"\xfe\xff\xff\xff\x0f" + body),
    "record-length-plus-1": with_body(lambda body: bytes([body[0] + 2]) + body[1:]),
    "record-length-less-1": with_body(lambda body: bytes([body[0] - 2]) + body[1:]),
}


def record(data: bytes) -> bytes:
    """A record of these bytes behind its length."""
    return bytes([2 * len(data)]) + data


# One record in place of all: attributes, timestamp delta, offset delta, key, value, headers. Most keys are null.
RECORDS: dict[str, bytes] = {
    "record-key-length-minus-2": record(b"\0\0\0\x03\x01\0"),
    "record-key-too-long": record(b"\0\0\0\x7ea\x02v\0"),
    "record-value-length-minus-2": record(b"\0\0\0\x01\x03\0"),
    "record-headers-minus-1": record(b"\0\0\0\x01\x01\x01"),
    "record-headers-too-many": record(b"\0\0\0\x01\x01\x14"),
    "record-header-null-key": record(b"\0\0\0\x01\x01\x02\x01\x01"),
    "record-header-null-value": record(b"\0\0\0\x01\x01\x02\x02h\x01"),
    "record-header-key-not-utf8": record(b"\0\0\0\x01\x01\x02\x04\xff\xfe\x01"),
    "record-timestamp-overflow": record(b"\0" + b"\xff" * 10 + b"\x01\0\x01\x01\0"),
    "record-offset-delta-overflow": record(b"\0\0" + b"\xff" * 5 + b"\x7f\x01\x01\0"),
    "record-offset-delta-negative": record(b"\0\0\x03\x01\x01\0"),
    "record-offset-delta-beyond-last": record(b"\0\0\x64\x01\x01\0"),
    "record-attributes-set": record(b"\x7f\0\0\x01\x01\0"),
}
# The same in a control batch: key is version and type, value is version and coordinator epoch.
CONTROLS: dict[str, bytes] = {
    "control-commit": record(b"\0\0\0\x08\0\0\0\x01\x0c\0\0\0\0\0\x07\0"),
    "control-type-99": record(b"\0\0\0\x08\0\0\0\x63\x0c\0\0\0\0\0\x07\0"),
    "control-version-5": record(b"\0\0\0\x08\0\x05\0\x01\x0c\0\0\0\0\0\x07\0"),
    "control-version-minus-1": record(b"\0\0\0\x08\xff\xff\0\x01\x0c\0\0\0\0\0\x07\0"),
    "control-key-short": record(b"\0\0\0\x02\0\x0c\0\0\0\0\0\x07\0"),
    "control-key-null": record(b"\0\0\0\x01\x0c\0\0\0\0\0\x07\0"),
    "control-value-short": record(b"\0\0\0\x08\0\0\0\x01\x04\0\0\0"),
}
RANDOM = ("body-random", "crc-bit", "crc-bit-last", "garbage-tail", "payload-bit")
PREFIXES = (1, 4, 8, 11, 12, 16, 17, 21, 40, 60, 61)
WHOLE = (
    "clean",
    "truncated-1",
    "truncated-body",
    *(f"truncated-keep-{count}" for count in PREFIXES),
    "empty",
    "one-byte",
    "only-zeros",
    "zero-tail-16",
    "zero-tail-100",
    "zero-tail-4096",
    "zeroed-last-batch",
    "zeroed-last-body",
    "first-offset-below-name",
    "base-offset-gap",
    "base-offset-jump-once",
    "base-offset-lower",
    "base-offset-over-int",
    "leader-epoch-lower-later",
    "leader-epoch-rising",
    "length-over-next",
    "swapped-batches",
    "repeated-batch",
)
CASES = (*WHOLE, *UNCHECKED, *CHECKED, *RECORDS, *CONTROLS, *RANDOM)


def single_record(batch: bytes, body: bytes, *, is_control: bool) -> bytes:
    """The batch with one record, uncompressed."""
    attributes = batch[22] & 0xF8 | (0x20 if is_control else 0)
    edits = [put("B", 22, attributes), put("i", LAST_OFFSET_DELTA, 0), put("i", COUNT, 1), with_body(lambda _: body)]
    if is_control:
        edits.append(put("qhi", PRODUCER_ID, 99, 3, -1))
    for edit in edits:
        batch = edit(batch)
    return with_right_checksum(batch)


def damage(source: bytes, case: str, edited: int, chance: random.Random) -> bytes:
    """The bytes of a segment with one defect.

    Args:
        source: Sound batches, at least four.
        case: One of ``CASES``.
        edited: Which batch, where the defect is in one.
        chance: For the cases of ``RANDOM``.
    """
    batches = batches_of(source)
    one = batches[edited]
    if case in UNCHECKED:
        batches[edited] = UNCHECKED[case](one)
    elif case in CHECKED:
        batches[edited] = with_right_checksum(CHECKED[case](one))
    elif case in RECORDS or case in CONTROLS:
        batches[edited] = single_record(one, {**RECORDS, **CONTROLS}[case], is_control=case in CONTROLS)
    elif case in RANDOM:
        return b"".join(randomly(batches, case, edited, chance))
    else:
        return whole(source, batches, case, edited)
    return b"".join(batches)


def randomly(batches: list[bytes], case: str, edited: int, chance: random.Random) -> list[bytes]:
    """The cases whose bytes follow from the seed."""
    one = batches[edited]
    if case == "garbage-tail":
        return [*batches, chance.randbytes(70)]
    if case == "crc-bit-last":
        return [*batches[:-1], flip(CRC + chance.randrange(4), chance.randrange(8))(batches[-1])]
    if case == "crc-bit":
        one = flip(CRC + chance.randrange(4), chance.randrange(8))(one)
    elif case == "payload-bit":
        one = flip(chance.randrange(BODY, len(one)), chance.randrange(8))(one)
    else:
        noise = chance.randbytes(40)
        one = with_right_checksum(with_body(lambda _: noise)(one))
    return [*batches[:edited], one, *batches[edited + 1 :]]


def whole(source: bytes, batches: list[bytes], case: str, edited: int) -> bytes:
    """The cases that are about more than one batch, or about the end of the file."""
    last = batches[-1]
    before_last = source[: -len(last)]
    if case.startswith("truncated-keep-"):
        return before_last + last[: int(case.rpartition("-")[2])]
    if case.startswith("zero-tail-"):
        return source + bytes(int(case.rpartition("-")[2]))
    match case:
        case "clean":
            return source
        case "truncated-1":
            return source[:-1]
        case "truncated-body":
            return before_last + last[: (len(last) + BODY - 1) // 2]
        case "empty":
            return b""
        case "one-byte":
            return source[:1]
        case "only-zeros":
            return bytes(200)
        case "zeroed-last-batch":
            return before_last + bytes(len(last))
        case "zeroed-last-body":
            return before_last + last[:BODY] + bytes(len(last) - BODY)
        case "first-offset-below-name":
            batches[0] = add("q", 0, -1)(batches[0])
        case "base-offset-gap":
            batches[edited:] = [add("q", 0, 1000)(batch) for batch in batches[edited:]]
        case "base-offset-lower":
            batches[edited] = put("q", 0, struct.unpack_from(">q", source)[0])(batches[edited])
        case "base-offset-jump-once":
            batches[edited] = add("q", 0, 100_000)(batches[edited])
        case "base-offset-over-int":
            offset = struct.unpack_from(">q", batches[0])[0] + INT32_MAX + 6
            batches[edited] = put("q", 0, offset)(batches[edited])
        case "leader-epoch-lower-later":
            batches = [put("i", LEADER_EPOCH, 50 - number)(batch) for number, batch in enumerate(batches)]
        case "leader-epoch-rising":
            batches = [put("i", LEADER_EPOCH, 3 + number // 2)(batch) for number, batch in enumerate(batches)]
        case "length-over-next":
            following = batches[edited + 1]
            batches[edited] = add("i", LENGTH, len(following))(batches[edited])
        case "swapped-batches":
            batches[edited : edited + 2] = reversed(batches[edited : edited + 2])
        case "repeated-batch":
            batches.insert(edited, batches[edited])
        case _:
            raise AssertionError(case)
    return b"".join(batches)


def write(java: Java, sources: dict[str, tuple[int, bytes]], folder: Path, seed: int) -> None:
    """Write every case of every source below ``folder``, and ``expected.jsonl``.

    Args:
        java: Kafka's jars.
        sources: By name, the base offset and the batches of a sound segment.
        folder: The new ``damaged/``.
        seed: Chooses the batches, and decides the cases of ``RANDOM``.
    """
    rows: list[Row] = []
    for source, (base_offset, data) in sources.items():
        for case in CASES:
            chance = random.Random(f"{seed} {source} {case}")
            edited = chance.randint(1, len(batches_of(data)) - 2)
            path = folder / source / case / f"{base_offset:020}.log"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(damage(data, case, edited, chance))
            name = path.relative_to(folder).as_posix()
            rows.append({"file": name, "case": case, "source": source, "editedBatch": edited})
    verdicts = judged(java, [folder / row["file"] for row in rows])
    write_rows(folder / "expected.jsonl", [{**row, **verdict} for row, verdict in zip(rows, verdicts, strict=True)])


def judged(java: Java, files: Sequence[Path]) -> list[Row]:
    """What Kafka's classes find in files."""
    return answers(java, PROGRAM, "damaged", [str(path) for path in files])
