"""A kraftlog broker follows Apache Kafka's controllers and writes the same bytes; and the reverse."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from interop.beside.asks import describe_request
from interop.beside.cluster import METADATA, Broker, Controller, ask, eventually, metadata_files, status
from interop.harness import Java, Server, environment_flag
from interop.kafka_tools import dump
from kraftlog.storage.dynamic_voter import DynamicVoter
from kraftlog.storage.meta_properties import random_uuid
from kraftlog.types import NodeId
from kraftlog.wire.messages.create_topics import CreateTopicsRequest

all_of_it = pytest.mark.skipif(
    not environment_flag("KRAFTLOG_BESIDE"), reason="`.ci/dev beside` runs the rest: it starts many JVMs"
)
SNAPSHOTS = {"metadata.log.max.record.bytes.between.snapshots": "3000", "metadata.max.idle.interval.ms": "20"}


def quorum_seen_by(server: Server) -> Any:
    try:
        return ask(server, describe_request()).topics[0].partitions[0]
    except (OSError, AssertionError):
        return None


def end_offset(leader: Server, node_id: int) -> int:
    """How far a replica is, as the leader knows; -1 for one it does not know."""
    partition = quorum_seen_by(leader)
    if partition is None:
        return -1
    ends = {
        current_voter.replica_id: current_voter.log_end_offset
        for current_voter in [*partition.current_voters, *partition.observers]
    }
    return ends.get(node_id, -1)


def catches_up(leader: Any, observer: Any) -> None:
    """The observer gets to where the leader is now."""
    eventually(lambda: end_offset(leader, leader.node_id) > 0, "nobody leads")
    wanted = end_offset(leader, leader.node_id)
    eventually(lambda: end_offset(leader, observer.node_id) >= wanted, f"{observer.node_id} does not get to {wanted}")


def leader_of(controllers: Sequence[Any]) -> Any:
    """The controller that says that it leads and has committed something."""
    found: list[Any] = []

    def is_led() -> bool:
        for controller in controllers:
            partition = quorum_seen_by(controller)
            if partition is not None and partition.leader_id == controller.node_id and partition.high_watermark > 0:
                found.append(controller)
        return bool(found)

    eventually(is_led, "nobody leads")
    return found[0]


def create_topics(controller: Server) -> None:
    """Write something into the metadata log."""
    topics = [
        CreateTopicsRequest.CreatableTopic(name=f"t{n}", num_partitions=3, replication_factor=1) for n in range(4)
    ]
    made = ask(controller, CreateTopicsRequest(topics=topics, timeout_ms=60_000))
    assert [topic.error_code for topic in made.topics] == [0] * 4, made


def same_bytes(observer: Any, leader: Any) -> None:
    """What the observer has is what the leader has, from the place where its log begins."""
    ours, theirs = metadata_files(observer), metadata_files(leader)
    whole = b"".join(theirs.values())
    assert ours
    for name, data in ours.items():
        if name in theirs:
            assert theirs[name].startswith(data), name
        else:
            assert data in whole, name  # begins where a snapshot ended, in the middle of a segment of Kafka's
        assert data, name


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_broker_of_ours_follows_a_kafka_controller_through_a_restart_and_a_snapshot(tmp_path: Path, java: Java) -> None:
    kafka = Controller("kafka", tmp_path / "k1", java, 1)
    first = Broker("kraftlog", tmp_path / "b5", java, 5, kafka.bootstrap)
    late = Broker("kraftlog", tmp_path / "b6", java, 6, kafka.bootstrap)
    try:
        kafka.start()
        first.start()
        topics = [
            CreateTopicsRequest.CreatableTopic(name=f"t{n}", num_partitions=3, replication_factor=1) for n in range(4)
        ]
        made = ask(kafka, CreateTopicsRequest(topics=topics, timeout_ms=30_000))
        assert [topic.error_code for topic in made.topics] == [0] * 4, made
        catches_up(kafka, first)
        assert status(java, kafka.bootstrap)[5][0] == "Observer"

        kafka.stop()
        kafka.config.update(SNAPSHOTS)
        kafka.start()
        catches_up(kafka, first)
        eventually(lambda: len(metadata_files(kafka, ".checkpoint")) > 2, "it takes no snapshot")
        late.start()
        catches_up(kafka, late)
        for follower in (first, late):
            follower.stop()
            assert not follower.errors_logged()
        kafka.stop()
        same_bytes(first, kafka)
        same_bytes(late, kafka)
        loaded, taken = metadata_files(late, ".checkpoint"), metadata_files(kafka, ".checkpoint")
        name = min(loaded)
        assert int(name.split("-")[0]) > 0
        assert loaded[name] == taken[name]
        assert min(metadata_files(late)) == f"{name.split('-')[0]}.log"
    finally:
        for process in (first, late, kafka):
            process.kill()


@pytest.mark.timeout(900)
@all_of_it
def test_broker_of_ours_follows_from_one_kafka_controller_to_the_other(tmp_path: Path, java: Java) -> None:
    kafkas = [Controller("kafka", tmp_path / f"k{number}", java, number) for number in (1, 2)]
    keys = [
        DynamicVoter(node_id=NodeId(kafka.node_id), host="127.0.0.1", port=kafka.port, directory_id=random_uuid())
        for kafka in kafkas
    ]
    initial = ",".join(f"{key.node_id}@{key.host}:{key.port}:{key.directory_id}" for key in keys)
    for kafka in kafkas:
        kafka.format_arguments = ("--initial-controllers", initial)
        kafka.bootstrap_servers = ",".join(each.bootstrap for each in kafkas)
    ours = Broker("kraftlog", tmp_path / "b5", java, 5, kafkas[0].bootstrap_servers)
    try:
        for kafka in kafkas:
            kafka.launch()
        for kafka in kafkas:
            eventually(kafka.answers, f"{kafka.node_id} does not answer")
        ours.start()
        seen: list[int] = []
        for _ in range(2):
            leader = leader_of(kafkas)
            seen.append(leader.node_id)
            if len(seen) == 1:
                create_topics(leader)
            catches_up(leader, ours)
            if len(seen) == 1:
                leader.stop()  # hands over
                leader.start()
        assert seen[0] != seen[1], "the leader that stopped leads again"
        ours.stop()
        assert not ours.errors_logged()
        for kafka in kafkas:
            kafka.stop()
        same_bytes(ours, next(kafka for kafka in kafkas if kafka.node_id == seen[1]))
    finally:
        for process in (ours, *kafkas):
            process.kill()


@pytest.mark.timeout(900)
@all_of_it
def test_kafka_broker_follows_a_controller_of_ours(tmp_path: Path, java: Java) -> None:
    ours = Controller("kraftlog", tmp_path / "c1", java, 1)
    kafka = Broker("kafka", tmp_path / "b7", java, 7, ours.bootstrap)
    try:
        ours.start()
        kafka.start()  # it answers once it is registered and knows the metadata
        create_topics(ours)
        catches_up(ours, kafka)
        assert status(java, ours.bootstrap)[7][0] == "Observer"
        kafka.stop()
        ours.stop()
        assert not ours.errors_logged()
        same_bytes(kafka, ours)
        theirs = [kafka.data_dir / METADATA / name for name in metadata_files(kafka)]
        assert "TOPIC_RECORD" in dump(java, theirs, "--cluster-metadata-decoder")
    finally:
        kafka.kill()
        ours.kill()
