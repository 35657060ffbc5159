"""Make ``kraft/captures.jsonl``: exchanges by plain sockets with a standalone node on its two listeners.

The questions are the same in each run but for the topic, the port, directory and snapshot ids. Kafka's classes write
the requests and read the responses (``java/Wire.java``).
"""

from __future__ import annotations

import gzip
import json
import socket
import struct
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from golden.make import wire
from golden.make.cluster import METADATA, Node
from golden.make.rows import answers
from interop.harness import Java

FACTS = Path(__file__).resolve().parents[1] / "protocol-facts.json.gz"
CLIENT_ID = b"golden"
CORRELATION_ID = 77
METADATA_TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"
UNKNOWN_DIRECTORY_ID = "_____________________w"
NO_UUID = "AAAAAAAAAAAAAAAAAAAAAA"
TIMEOUT_S = 20
# The default of ReplicaState, and the tagged field with it.
CONSUMER = {"replicaEpoch": -1, "replicaId": -1}
CONSUMER_TAG = bytes.fromhex("01 01 0d ffffffff ffffffffffffffff 00")

Row = dict[str, Any]

# Requests that no encoder writes: what each is, and its bytes.
RAW = (
    ("ApiVersions version 5", "00120005000000050003616263000461626304312e3000"),
    ("ApiVersions version 99", "00120063000000050003616263000461626304312e3000"),
    (
        "ApiVersions version 3 with a software name that is not allowed",
        "00120003000000060003616263000461206204312e3000",
    ),
    ("unknown api key 999", "03e70000000000070003616263"),
    ("Metadata version 99", "0003006300000008000361626300000000000000000000"),
    ("StopReplica version 0 (removed)", "000500000000000900036162630000000000000000000000000000000000000000"),
    ("Produce version 2 (removed)", "000000020000000a00036162630000000000000000000000000000000000000000"),
    ("three bytes only", "001200"),
    ("negative array length in Metadata version 4", "000300040000000b0003616263fffffffe01"),
    ("bytes left over after ApiVersions version 0", "001200000000000c00036162636a756e6b"),
)


@dataclass(frozen=True)
class Place:
    """What questions name of the node that is asked.

    Args:
        topic: A topic with records in partition 0.
        controller_port: Of the controller listener.
        directory_id: Of the node.
        epoch: Of the metadata quorum.
        snapshot: End offset of a snapshot of that epoch.
    """

    topic: str
    controller_port: int
    directory_id: str
    epoch: int
    snapshot: int


def question(listener: str, api: str, version: int, **fields: Any) -> Row:
    """A request with these fields; the others have their defaults."""
    return {"api": api, "version": version, "listener": listener, "requestJson": fields}


def questions(place: Place) -> Iterator[Row]:
    """Every question, in the order in which the node is asked; a raw one has ``what`` and ``requestHex``."""
    for listener in ("broker", "controller"):
        yield from about_versions(listener)
        yield from about_cluster(listener)
    yield from about_topics(place.topic)
    yield from fetches(place)
    yield from snapshot_fetches(place)
    yield from votes(place)
    yield from voter_changes(place)
    # The last: the node gives up its leadership for an election that nobody wins.
    yield vote(2, place.epoch + 1, 1_000_000, place.epoch, preVote=True)
    yield question("controller", "DescribeQuorum", 2, topics=metadata_partition())


def metadata_partition(topic: str = "__cluster_metadata", **fields: Any) -> list[Row]:
    return [{"partitions": [{"partitionIndex": 0, **fields}], "topicName": topic}]


def about_versions(listener: str) -> Iterator[Row]:
    for version in range(5):
        software = {"clientSoftwareName": "golden", "clientSoftwareVersion": "1.0"} if version >= 3 else {}
        yield question(listener, "ApiVersions", version, **software)
    for what, data in RAW:
        yield {"what": what, "listener": listener, "requestHex": data}


def about_cluster(listener: str) -> Iterator[Row]:
    for version in range(3):
        yield question(listener, "DescribeQuorum", version, topics=metadata_partition())
    yield question(listener, "DescribeQuorum", 2, topics=metadata_partition("other"))
    yield question(listener, "DescribeCluster", 0)
    for version in (1, 2):
        for end_point in (1, 2):
            yield question(listener, "DescribeCluster", version, endpointType=end_point)
    resource = {"configurationKeys": ["log.retention.ms"], "resourceName": "1", "resourceType": 4}
    yield question(listener, "DescribeConfigs", 4, resources=[resource])


def about_topics(topic: str) -> Iterator[Row]:
    for version in (0, 1, 4, 9, 12, 13):
        yield question("broker", "Metadata", version, topics=[{"name": topic}])
    yield question("broker", "Metadata", 12, topics=None)
    yield question("broker", "Metadata", 12, topics=[{"name": "no-such-topic"}])
    yield question(
        "broker", "DescribeTopicPartitions", 0, cursor=None, responsePartitionLimit=10, topics=[{"name": topic}]
    )
    yield question("broker", "FindCoordinator", 0, key="some-group", keyType=0)
    for version in (4, 6):
        yield question("broker", "FindCoordinator", version, coordinatorKeys=["some-group"], keyType=0)
    for timestamp in (-1, -2, -3, -4, -5, 5):
        partition = {"currentLeaderEpoch": -1, "partitionIndex": 0, "timestamp": timestamp}
        asked = [{"name": topic, "partitions": [partition]}]
        yield question("broker", "ListOffsets", 10, replicaId=-1, timeoutMs=1000, topics=asked)
    for epoch in (-1, 0, 1, 50):
        partition = {"currentLeaderEpoch": -1, "leaderEpoch": epoch, "partition": 0}
        asked = [{"partitions": [partition], "topic": topic}]
        yield question("broker", "OffsetForLeaderEpoch", 4, replicaId=-1, topics=asked)


def fetch(listener: str, version: int, topic: Row, epoch: int, offset: int, last_epoch: int, **fields: Any) -> Row:
    partition = {
        "currentLeaderEpoch": epoch,
        "fetchOffset": offset,
        "lastFetchedEpoch": last_epoch,
        "logStartOffset": -1,
        "partition": 0,
        "partitionMaxBytes": 1_000_000,
    }
    sizes = {"maxBytes": 1_000_000, "maxWaitMs": 100, "minBytes": 0}
    return question(listener, "Fetch", version, **sizes, **fields, topics=[{"partitions": [partition], **topic}])


def fetches(place: Place) -> Iterator[Row]:
    """Of a topic and of the metadata log, by an observer with the id 50."""
    for epoch, offset in ((-1, 0), (0, 0), (-1, 2), (-1, 1_000_000), (99, 0)):
        yield fetch("broker", 12, {"topic": place.topic}, epoch, offset, -1)
    current = place.epoch
    for version in range(12, 19):
        topic = {"topic": "__cluster_metadata"} if version == 12 else {"topicId": METADATA_TOPIC_ID}
        replica = {"replicaId": 50} if version < 15 else {"replicaState": {"replicaEpoch": -1, "replicaId": 50}}
        yield fetch("controller", version, topic, current, 0, 0, **replica)
    topic = {"topicId": METADATA_TOPIC_ID}
    for epoch, offset, last_epoch in (
        (current, 5, current),
        (current, 1_000_000, current),
        (current, 3, 0),
        (-1, 0, 0),
        (current + 5, 0, 0),
        (current - 1, 0, 0),
        (current, 0, current + 7),
    ):
        observer = {"replicaEpoch": -1, "replicaId": 50}
        yield fetch("controller", 17, topic, epoch, offset, last_epoch, replicaState=observer)
    yield fetch("controller", 17, topic, current, 0, 0, replicaState=CONSUMER)


def snapshot_fetches(place: Place) -> Iterator[Row]:
    known = (place.snapshot, place.epoch)
    for (end_offset, epoch), position, most in (
        ((1_000_000, place.epoch), 0, 1_000_000),
        ((0, 0), 0, 1_000_000),
        (known, 0, 1_000_000),
        (known, 0, 1000),
        (known, 1000, 1000),
        (known, 100, 50),
        (known, 10_000_000, 1000),
    ):
        partition = {
            "currentLeaderEpoch": place.epoch,
            "partition": 0,
            "position": position,
            "snapshotId": {"endOffset": end_offset, "epoch": epoch},
        }
        topics = [{"name": "__cluster_metadata", "partitions": [partition]}]
        for version in (0, 1):
            yield question("controller", "FetchSnapshot", version, maxBytes=most, replicaId=50, topics=topics)


def vote(version: int, epoch: int, offset: int, last_epoch: int, cluster_id: str | None = None, **fields: Any) -> Row:
    candidate = {"lastOffset": offset, "lastOffsetEpoch": last_epoch, "replicaEpoch": epoch, "replicaId": 9, **fields}
    return question("controller", "Vote", version, clusterId=cluster_id, topics=metadata_partition(**candidate))


def votes(place: Place) -> Iterator[Row]:
    epoch = place.epoch
    for version in range(3):
        yield vote(version, epoch, 10, epoch)
    yield vote(2, epoch, 10, epoch, preVote=True)
    yield vote(2, epoch - 1, 10, epoch)
    yield vote(2, epoch, 10, epoch + 1)
    yield vote(2, epoch, 0, epoch, "wrong", preVote=True)
    stale = metadata_partition(leaderEpoch=epoch - 1, leaderId=77)
    for version in (0, 1):
        for api in ("BeginQuorumEpoch", "EndQuorumEpoch"):
            yield question("controller", api, version, topics=stale)


def voter_changes(place: Place) -> Iterator[Row]:
    """Each is refused."""

    def end_point(name: str, port: int) -> list[Row]:
        return [{"host": "127.0.0.1", "name": name, "port": port}]

    here = end_point("CONTROLLER", place.controller_port)
    update = {
        "clusterId": None,
        "currentLeaderEpoch": place.epoch,
        "kRaftVersionFeature": {"maxSupportedVersion": 1, "minSupportedVersion": 0},
        "listeners": here,
        "voterId": 99,
    }
    unknown = {"voterDirectoryId": UNKNOWN_DIRECTORY_ID, "voterId": 99}
    voter = {"voterDirectoryId": place.directory_id, "voterId": 1}
    yield question("controller", "RemoveRaftVoter", 0, clusterId=None, voterId=99)
    yield question("controller", "AddRaftVoter", 1, clusterId=None, listeners=here, timeoutMs=2000, voterId=1)
    yield question("controller", "UpdateRaftVoter", 0, **update)
    for cluster_id, replica in ((None, unknown), ("wrong", unknown), (None, voter)):
        yield question("controller", "RemoveRaftVoter", 0, clusterId=cluster_id, **replica)
    for version in (0, 1):
        for replica, listeners in (
            (voter, here),
            (unknown, end_point("CONTROLLER", 1)),
            (unknown, end_point("OTHER", 1)),
        ):
            fields = {"clusterId": None, "timeoutMs": 1500}
            yield question("controller", "AddRaftVoter", version, listeners=listeners, **fields, **replica)
    yield question("controller", "UpdateRaftVoter", 0, **update, voterDirectoryId=UNKNOWN_DIRECTORY_ID)


def tables() -> tuple[dict[str, Row], dict[str, Row]]:
    """Schemas of requests and rows of APIs by name, from the facts."""
    facts = json.loads(gzip.decompress(FACTS.read_bytes()))
    requests = {
        schema["name"].removesuffix("Request"): schema for schema in facts["schemas"] if schema["kind"] == "request"
    }
    return requests, {api["name"]: api for api in facts["apis"] if api["valid"]}


def complete(fields: Sequence[Row], given: Mapping[str, Any], version: int, structs: Mapping[str, Any]) -> Row:
    """The fields of a request in a version, with defaults where none is given."""
    row = {}
    for fact in fields:
        if not wire.in_range(fact["versions"], version):
            continue
        name, kind = fact["name"], fact["type"]
        inner = fact.get("fields") or structs.get(kind.removeprefix("[]"))
        if name not in given:
            if not wire.in_range(fact.get("tagged"), version):
                row[name] = default(fact, version, inner, structs)
        elif inner is None or given[name] is None:
            row[name] = given[name]
        elif kind.startswith("[]"):
            row[name] = [complete(inner, item, version, structs) for item in given[name]]
        else:
            row[name] = complete(inner, given[name], version, structs)
    return row


def default(fact: Row, version: int, inner: Sequence[Row] | None, structs: Mapping[str, Any]) -> Any:
    """What a field is when nothing is said of it."""
    kind, text = fact["type"], fact.get("default")
    if text == "null":
        return None
    if kind.startswith("[]"):
        return []
    if inner is not None:
        return complete(inner, {}, version, structs)
    match kind:
        case "bool":
            return text in {"true", True}
        case "string" | "bytes":
            return text or ""
        case "uuid":
            return NO_UUID
        case "float64":
            return float(text or 0)
    return int(str(text or 0), 0)


def requests(java: Java, asked: Sequence[Row]) -> list[bytes]:
    """The bytes of questions, header and body, without the size in front."""
    schemas, apis = tables()
    encoded = [row for row in asked if "api" in row]
    bodies = iter(
        answers(
            java,
            wire.PROGRAM,
            "write",
            [
                {
                    "api": f"{row['api']}Request",
                    "version": row["version"],
                    "json": complete(
                        schemas[row["api"]]["fields"],
                        row["requestJson"],
                        row["version"],
                        schemas[row["api"]].get("structs", {}),
                    ),
                }
                for row in encoded
            ],
        )
    )
    found = []
    for row in asked:
        if "api" not in row:
            found.append(bytes.fromhex(row["requestHex"]))
            continue
        header = struct.pack(">hhih", apis[row["api"]]["key"], row["version"], CORRELATION_ID, len(CLIENT_ID))
        tags = b"\0" if header_version(apis, row, "request") == 2 else b""
        body = bytes.fromhex(next(bodies)["hex"])
        if row["requestJson"].get("replicaState") == CONSUMER:
            # Kafka's writer leaves out a tagged field that has its default; in place of "no tags" this one is sent.
            body = body[:-1] + CONSUMER_TAG
        found.append(header + CLIENT_ID + tags + body)
    return found


def header_version(apis: Mapping[str, Row], row: Row, kind: str) -> int:
    """Of the request or the response."""
    api = apis[row["api"]]
    return int(api[f"{kind}HeaderVersions"][row["version"] - api["min"]])


def exchange(port: int, request: bytes) -> tuple[str, bytes | None]:
    """How a connection ended, and the response without its size."""
    with socket.create_connection(("127.0.0.1", port), timeout=TIMEOUT_S) as link:
        link.sendall(struct.pack(">i", len(request)) + request)
        try:
            size = read_exactly(link, 4)
            data = size and read_exactly(link, struct.unpack(">i", size)[0])
        except TimeoutError:
            return "timeout", None
        except ConnectionResetError:
            return "closed", None
    return ("ok", data) if data else ("closed", None)


def read_exactly(link: socket.socket, count: int) -> bytes | None:
    """So many bytes; None when the peer closes before."""
    data = b""
    while len(data) < count:
        piece = link.recv(count - len(data))
        if not piece:
            return None
        data += piece
    return data


def rows(java: Java, asked: Sequence[Row], sent: Sequence[bytes], got: Sequence[tuple[str, bytes | None]]) -> list[Row]:
    """The rows of exchanges, responses read by Kafka."""
    _, apis = tables()
    readable = [(row, data) for row, (_, data) in zip(asked, got, strict=True) if "api" in row and data is not None]
    bodies = [
        {
            "api": f"{row['api']}Response",
            "version": row["version"],
            "hex": data[4 + header_version(apis, row, "response") :].hex(),
        }
        for row, data in readable
    ]
    read = iter(answers(java, wire.PROGRAM, "read", bodies))
    # Kafka writes again what it read: so many bytes were not part of the message.
    again = iter(answers(java, wire.PROGRAM, "malformed", bodies))
    found = []
    for row, request, (outcome, data) in zip(asked, sent, got, strict=True):
        made: Row = {
            **row,
            "outcome": outcome,
            "requestHex": request.hex(),
            "responseHex": None if data is None else data.hex(),
        }
        if "api" in row:
            made["apiKey"] = apis[row["api"]]["key"]
            made["requestHeaderVersion"] = header_version(apis, row, "request")
            made["responseHeaderVersion"] = header_version(apis, row, "response")
            if data is not None:
                made["responseJson"] = next(read)["json"]
                made["bytesLeft"] = next(again)["remaining"]
        found.append(dict(sorted(made.items())))
    return found


def captured(java: Java, node: Node, topic: str, described: Row) -> list[Row]:
    """Ask a standalone node everything, one connection after the other.

    Args:
        java: Kafka's jars.
        node: It runs, and has a snapshot of its current epoch.
        topic: Has records in partition 0.
        described: The quorum, as ``Operations.java`` describes it.
    """
    quorum = described["quorum"]
    epoch = quorum["leaderEpoch"]
    snapshots = sorted((node.data_dir / METADATA).glob(f"*-{epoch:010}.checkpoint"))
    place = Place(
        topic,
        node.controller_port,
        quorum["voters"][0]["directoryId"],
        epoch,
        int(snapshots[0].name.partition("-")[0]),
    )
    asked = list(questions(place))
    ports = {"broker": node.port, "controller": node.controller_port}
    sent = requests(java, asked)
    got = [exchange(ports[row["listener"]], data) for row, data in zip(asked, sent, strict=True)]
    return rows(java, asked, sent, got)
