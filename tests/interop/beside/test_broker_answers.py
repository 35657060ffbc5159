"""What a broker answers around leader epochs and errors: kraftlog and Apache Kafka answer one script alike."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from interop.beside.broker_script import FOREIGN, NODE, PUPPET, BrokerScript
from interop.beside.group_script import GroupScript
from interop.harness import Java, KafkaServer, KraftlogServer
from kraftlog.runtime.coordinator.shard_registry import coordinator_partition
from kraftlog.wire.messages.broker_registration import BrokerRegistrationRequest
from kraftlog.wire.messages.fetch import FetchRequest
from kraftlog.wire.messages.offset_for_leader_epoch import OffsetForLeaderEpochRequest

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3
LONG_MS = 30_000
FETCH, PRODUCE = 1, 0
CONFIG = {
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "broker.session.timeout.ms": "120000",
    "default.replication.factor": "1",
    "replica.lag.time.max.ms": "120000",
    "replica.socket.timeout.ms": "1000",
    "group.coordinator.rebalance.protocols": "classic,consumer",
}


def epochs_of_a_log(script: BrokerScript) -> None:
    """A log of the epochs 0, 2 and 4, whose end the puppet has yet to fetch."""
    script.create("a", [1, 2])
    for _ in range(3):
        script.produce("a")
    script.lead("a", PUPPET)
    script.lead("a", NODE)
    for version in (4, 5, 10):
        script.list("a", LATEST, version=version)
        script.list("a", 1, version=version)
    script.list("a", EARLIEST)
    script.list("a", LATEST, replica=PUPPET)
    script.fetch("a", 3, replica=PUPPET, epoch=2, last=0)
    script.list("a", LATEST)
    script.produce("a")
    script.produce("a")
    script.fetch("a", 5, replica=PUPPET, epoch=2, last=2)
    script.lead("a", PUPPET)
    script.lead("a", NODE)
    script.produce("a")
    for version in (2, 3, 4):
        for epoch in (-1, 0, 1, 2, 3, 4, 5, 99):
            script.end_of_epoch("a", epoch, version=version)
    for replica in (-1, -2, PUPPET, FOREIGN):
        script.end_of_epoch("a", 2, replica=replica)
    script.create("late", [1, 2])
    script.lead("late", PUPPET)
    script.lead("late", NODE)
    for epoch in (0, 1, 2, 3):
        script.end_of_epoch("late", epoch)
    for version in (1, 3, 4, 10):
        script.list("a", EARLIEST, version=version)
        script.list("a", LATEST, version=version, replica=-2)
        script.list("a", LATEST, version=version)
        script.list("a", 1, version=version)
    script.unserved(23, 1)
    script.unserved(23, 0)


def epoch_check(script: BrokerScript) -> None:
    """Every epoch, of leader and follower, by consumers, followers and tools."""
    script.create("f", [1, 2])
    script.lead("f", PUPPET)
    script.create("elsewhere", [2])
    for name, epoch in (("a", 4), ("f", 1)):
        for asked in (-1, epoch - 1, epoch, epoch + 1):
            for version in (10, 12, 15, 17):
                if name == "f" and asked in (-1, epoch) and version >= 11:
                    continue  # a consumer that a follower may serve: LEPO-17
                script.fetch(name, 0, version=version, epoch=asked)
            script.fetch(name, 0, replica=PUPPET, epoch=asked)
            for replica in (-1, -2, PUPPET):
                script.list(name, LATEST, epoch=asked, replica=replica)
                script.list(name, EARLIEST, epoch=asked, replica=replica)
                script.end_of_epoch(name, 0, epoch=asked, replica=replica)
    for version in (4, 8, 10):
        script.fetch("f", 0, version=version)
        script.fetch("a", 0, version=version)
    for name, index in (("a", 9), ("elsewhere", 0), ("unknown", 0)):
        script.fetch(name, 0, index=index, version=12)
        script.fetch(name, 0, index=index)
        script.list(name, LATEST, index=index)
        script.end_of_epoch(name, 0, index=index)
        script.produce(name, index=index)
        script.produce(name, index=index, version=13)


def followers(script: BrokerScript) -> None:
    """Where a follower's log ends otherwise, and who is no follower."""
    for offset, last in ((3, 0), (4, 0), (5, 2), (6, 3), (6, 99), (7, 4), (0, -1), (5, 4), (3, -1)):
        script.fetch("a", offset, replica=PUPPET, epoch=4, last=last)
        script.list("a", LATEST)
    for offset, last in ((6, 3), (4, 0), (6, 99), (6, 4), (5, 2), (7, -1)):
        for version in (12, 17):
            script.fetch("a", offset, last=last, version=version)
    script.fetch("a", 4, version=11)
    for epoch in (-1, 3, 4, 5):
        script.fetch("a", 6, replica=FOREIGN, epoch=epoch)
        script.fetch("a", 6, replica=FOREIGN, epoch=epoch, version=14)
    script.fetch("a", 6, replica=PUPPET, epoch=4, last=4, registration=-1)
    script.fetch("a", 6, replica=PUPPET, epoch=3, last=4)
    script.list("a", LATEST)
    script.fetch("a", 6, replica=PUPPET, epoch=4, last=4)
    script.list("a", LATEST)
    script.delete_records("a", 4)
    for offset, last in ((2, 0), (2, -1), (4, 2)):
        script.fetch("a", offset, replica=PUPPET, epoch=4, last=last)
        script.fetch("a", offset, last=last)


def between_high_watermark_and_end(script: BrokerScript) -> None:
    """Nothing to read, and no error."""
    script.produce("a")
    for offset in (3, 4, 5, 6, 7, 8, -1, 1 << 40):
        for version in (10, 12, 17):
            script.fetch("a", offset, version=version)


def waiting_fetches(script: BrokerScript) -> None:
    """They end when the leader changes, whatever time is left."""
    script.create("w", [1, 2])
    waiting = [
        (
            version,
            epoch,
            script.later(script.fetch_request("w", 0, 0, version=version, epoch=epoch, wait_ms=LONG_MS), version),
        )
        for version, epoch in ((10, 0), (17, 0), (10, -1))
    ]
    by_puppet = script.later(script.fetch_request("w", 0, 0, version=17, replica=PUPPET, epoch=0, wait_ms=LONG_MS), 17)
    time.sleep(0.3)
    began = time.monotonic()
    script.lead("w", PUPPET)
    for version, epoch, client in waiting:
        answer = script.answer_of(client, FETCH, version)
        script.note(f"waiting fetch v{version} in epoch {epoch}", script.fetched(answer, version))
    script.note("the puppet's", script.fetched(script.answer_of(by_puppet, FETCH, 17), 17))
    script.note("in time", time.monotonic() - began < LONG_MS / 3000)


def produce_errors(script: BrokerScript) -> None:
    """What a leader refuses, and who is none."""
    for version in (3, 9, 10, 12, 13):
        script.produce("f", version=version)
    for acks in (2, -2):
        script.produce("a", acks=acks)
    script.produce("f", acks=0)
    script.produce("a", acks=0, records=script.batch(b"v")[:-1] + b"!")
    sound = script.batch(b"v", b"w")
    for what, records in {
        "crc": sound[:-1] + bytes([sound[-1] ^ 1]),
        "cut": sound[:-3],
        "size": sound[:8] + b"\0\0\1\0" + sound[12:],
        "magic 1": sound[:16] + b"\1" + sound[17:],
        "magic 0": sound[:16] + b"\0" + sound[17:],
        "magic 3": sound[:16] + b"\3" + sound[17:],
        "two": sound + sound,
        "empty": b"",
    }.items():
        script.produce("a", records=records, what=what)
    script.create("compacted", [1], cleanup_policy="compact", message_timestamp_after_max_ms="1000")
    script.produce("compacted", what="no key", version=7)
    script.produce("compacted", what="no key", version=8)
    ahead = int(time.time() * 1000) + 3_600_000
    script.produce("compacted", records=script.batch(b"v", key=b"k", timestamp=ahead), what="ahead")
    script.create("small", [1], max_message_bytes="100")
    script.produce("small", records=script.batch(bytes(200)), what="large")
    script.create("slow", [1, 2])
    script.produce("slow", acks=-1, timeout_ms=200)
    script.fetch("slow", 0)
    script.fetch("slow", 1, replica=PUPPET, epoch=0, last=0)
    script.fetch("slow", 0)


def sequences(script: BrokerScript) -> None:
    """Five batches are remembered."""
    script.create("sequences", [1])

    def produce(sequence: int, epoch: int = 1) -> None:
        records = script.batch(b"v", producer_id=4711, producer_epoch=epoch, base_sequence=sequence)
        script.produce("sequences", records=records, what=f"sequence {sequence} of epoch {epoch}")

    for sequence in (0, 1, 2, 3, 4, 5, 6, 6, 2, 1, 8):
        produce(sequence)
    produce(7, epoch=0)
    produce(3, epoch=2)
    produce(0, epoch=2)


def sessions(script: BrokerScript) -> None:
    """Unknown, out of order, and with other names of topics."""
    request = script.fetch_request("a", 0, 6, session=(0, 0))
    opened = script.ask(request, 17)
    script.note("a session", opened.session_id != 0)
    for session_id, epoch in ((opened.session_id + 10, 1), (opened.session_id, 7)):
        asked = FetchRequest(session_id=session_id, session_epoch=epoch, max_wait_ms=0, max_bytes=1 << 20)
        script.note(f"epoch {epoch}", script.fetched(script.ask(asked, 17), 17))
    opened = script.ask(script.fetch_request("a", 0, 6, session=(0, 0), version=12), 12)
    asked = FetchRequest(session_id=opened.session_id, session_epoch=1, max_wait_ms=0, max_bytes=1 << 20)
    script.note("other names", script.fetched(script.ask(asked, 17), 17))


def frames(script: BrokerScript) -> None:
    """Other connections live."""
    script.raw("a negative size", b"\xff\xff\xff\xff")
    script.raw("a size above socket.request.max.bytes", (200 << 20).to_bytes(4, "big"))
    script.raw("an unknown key", b"\0\0\0\x0a" + b"\x7f\x00\0\0\0\0\0\0\xff\xff")
    script.raw("a short header", b"\0\0\0\x03abc")
    for api_key, version in ((0, 2), (1, 3), (3, 14), (5, 3), (2, 0)):
        script.unserved(api_key, version)
    script.unknown_api_versions()
    script.trailing(script.fetch_request("a", 0, 6), 17, "fetch")
    script.trailing(OffsetForLeaderEpochRequest(), 4, "end of epoch")
    script.list("a", EARLIEST)


def groups(script: BrokerScript) -> None:
    """Two of four coordinators are the puppet."""
    script.puppets.create("__consumer_offsets", [1], [2], [1], [2])
    mine, foreign = (
        next(f"g{number}" for number in range(99) if coordinator_partition(f"g{number}", 4) % 2 == half)
        for half in (0, 1)
    )
    group = GroupScript(script, mine)
    group.wait_until_loaded()
    GroupScript(script, foreign).heartbeat(1, "m")
    GroupScript(script, foreign).commit("a")
    group.heartbeat(1, "nobody")
    group.commit("a", 5, "nobody")
    group.commit("a", epoch=4)
    group.commit("a", epoch=-1, index=0, version=5)
    group.committed("a")
    group.commit("a", epoch=4)
    group.committed("a")
    group.commit("unknown")
    group.commit("a", metadata="m" * 5000)
    group.join()
    group.commit("a", 1, group.member_id)
    group.sync()
    group.commit("a", 1, group.member_id)
    group.commit("a", 1, "nobody")
    for generation in (0, 1, 2):
        group.heartbeat(generation, group.member_id)
        group.commit("a", generation, group.member_id)


def leaderless(script: BrokerScript) -> None:
    """The puppet is fenced, a third has no listener."""
    script.create("pair", [1, 2], min_insync_replicas="2")
    request = script.produce_request("pair", 0, script.batch(b"v"), acks=-1, timeout_ms=1500)
    waiting = script.later(request, 12)
    script.create("alone", [2])
    time.sleep(0.3)
    script.puppets.beat(PUPPET, want_fence=True)
    answer = script.answer_of(waiting, PRODUCE, 12)
    script.note("produce while the in-sync set shrinks", script.produced(answer, 12))
    script.produce("pair", acks=-1)
    script.produce("pair", acks=1)
    script.list("pair", LATEST)
    extra = BrokerRegistrationRequest.Listener(name="EXTRA", host="127.0.0.1", port=9)
    script.puppets.live(3, listeners=[extra])
    script.create("hidden", [3])
    for version in (4, 5, 6, 12):
        script.metadata("alone", version)
        script.metadata("hidden", version)
    script.produce("alone")


SCRIPT = (
    epochs_of_a_log,
    epoch_check,
    followers,
    between_high_watermark_and_end,
    waiting_fetches,
    produce_errors,
    sequences,
    sessions,
    frames,
    groups,
    leaderless,
)


def play(kind: str, home: Path, java: Java) -> dict[str, list[str]]:
    """The lines of each part of the script."""
    config = CONFIG if kind == "kafka" else {**CONFIG, "kraftlog.data.path": kind, "log.flush.on.ack": "false"}
    server: Any = KafkaServer(home, java, config) if kind == "kafka" else KraftlogServer(home, config)
    said: dict[str, list[str]] = {}
    with server.running():
        script = BrokerScript(server)
        script.puppets.live(PUPPET)
        for part in SCRIPT:
            script.lines = []
            part(script)
            said[part.__name__] = script.lines
        script.close()
    return said


@pytest.mark.spec("LEPO-01", "LEPO-02", "LEPO-03", "LEPO-04", "LEPO-05", "LEPO-06", "LEPO-07", "LEPO-08", "LEPO-10")
@pytest.mark.spec("LEPO-11", "LEPO-12", "LEPO-13", "LEPO-14", "LEPO-15", "LEPO-16", "LEPO-18", "LEPO-19", "LEPO-20")
@pytest.mark.spec("LEPO-21", "LEPO-22", "LEPO-23", "LEPO-24", "LEPO-26", "LEPO-27", "LEPO-28", "LEPO-29", "LEPO-31")
@pytest.mark.spec("LEPO-37", "LEPO-40", "LEPO-46")
@pytest.mark.spec("CERR-01", "CERR-02", "CERR-03", "CERR-04", "CERR-05", "CERR-06", "CERR-07", "CERR-08", "CERR-09")
@pytest.mark.spec("CERR-11", "CERR-12", "CERR-14", "CERR-15", "CERR-16", "CERR-18", "CERR-19", "CERR-20", "CERR-28")
@pytest.mark.spec("CERR-29")
@pytest.mark.slow
def test_broker_answers_as_kafka_does(tmp_path: Path, java: Java) -> None:
    kafka = play("kafka", tmp_path / "kafka", java)
    for kind in ("native", "python"):
        kraftlog = play(kind, tmp_path / kind, java)
        for part, lines in kafka.items():
            assert kraftlog[part] == lines, (kind, part)
