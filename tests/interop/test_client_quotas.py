"""Client quotas with Kafka's tools and directories: a kraftlog node and Apache Kafka do and say the same."""

from __future__ import annotations

import re
import sys
import time
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from interop.harness import Java, KafkaServer, KraftlogServer, Server, copy_of
from interop.story import story
from interop.tool_runs import Said, run_kafka
from kraftlog.errors import ErrorCode
from kraftlog.wire.messages.alter_client_quotas import AlterClientQuotasRequest
from kraftlog.wire.messages.api_versions import ApiVersionsRequest
from kraftlog.wire.messages.create_topics import CreateTopicsRequest
from kraftlog.wire.messages.describe_client_quotas import DescribeClientQuotasRequest
from raw_client import RawClient
from waiting import until_true

CONFIG_COMMAND = "kafka.admin.ConfigCommand"
# Each line is run on one node and then on the other.
RUNS = """
--describe --entity-type users
--alter --entity-type users --entity-name alice --add-config producer_byte_rate=1024,consumer_byte_rate=2048
--alter --entity-type users --entity-default --add-config request_percentage=12.5
--alter --entity-type clients --entity-name c-1 --add-config controller_mutation_rate=0.5
--alter --entity-type clients --entity-default --add-config producer_byte_rate=99
--alter --user alice --client c-1 --add-config producer_byte_rate=7
--alter --user-defaults --client-defaults --add-config consumer_byte_rate=8
--alter --entity-type ips --entity-name 192.0.2.1 --add-config connection_creation_rate=5
--alter --entity-type ips --entity-default --add-config connection_creation_rate=50
--alter --entity-type users --entity-name alice --add-config connection_creation_rate=5
--alter --entity-type users --entity-name alice --add-config producer_byte_rate=0
--alter --entity-type users --entity-name alice --add-config producer_byte_rate=1.5
--alter --entity-type users --entity-name alice --delete-config request_percentage
--describe --entity-type users
--describe --entity-type users --entity-name alice
--describe --entity-type users --entity-default
--describe --entity-type clients
--describe --entity-type clients --entity-name c-1
--describe --user alice --client c-1
--describe --entity-type users --entity-type clients
--describe --entity-type ips
--describe --ip 192.0.2.1
--alter --entity-type users --entity-name alice --delete-config producer_byte_rate
--alter --entity-type users --entity-name alice --delete-config consumer_byte_rate
--describe --entity-type users --entity-name alice
""".strip().splitlines()

_Alter, _Describe = AlterClientQuotasRequest, DescribeClientQuotasRequest
EXACT, DEFAULT, ANY = 0, 1, 2


def comparable(said: Said) -> tuple[int, list[str], list[str]]:
    """Kafka prints entities, and the values of each, in the order of a hash map."""
    lines = [" ".join(sorted(line.replace(",", " ").split())) for line in said.out.splitlines()]
    errors = [re.sub(r"127\.0\.0\.1:\d+", "SERVER", line) for line in said.err.strip().splitlines()]
    return said.code, sorted(lines), errors[:2]


def test_config_command_does_and_prints_what_it_does_with_kafka(tmp_path: Path, java: Java) -> None:
    nodes = [KafkaServer(tmp_path / "kafka", java), KraftlogServer(tmp_path / "kraftlog")]
    said = []
    try:
        for node in nodes:
            node.start()
            runs = [["--bootstrap-server", node.bootstrap, *line.split()] for line in RUNS]
            said.append(run_kafka(java, CONFIG_COMMAND, runs))
    finally:
        for node in nodes:
            node.kill()
    wrong = [
        f"{line}\n  Kafka:    {comparable(kafkas)}\n  kraftlog: {comparable(own)}"
        for line, kafkas, own in zip(RUNS, *said, strict=True)
        if comparable(kafkas) != comparable(own)
    ]
    assert not wrong, "\n".join(wrong)
    assert any("producer_byte_rate=1024.0" in run.out for run in said[0])


@pytest.mark.parametrize("first", ["kafka", "kraftlog"])
def test_quotas_of_one_product_are_those_of_the_other_on_its_directory(tmp_path: Path, java: Java, first: str) -> None:
    nodes: list[Server] = [KafkaServer(tmp_path / "kafka", java), KraftlogServer(tmp_path / "kraftlog")]
    source, target = nodes if first == "kafka" else reversed(nodes)
    adding = [line for line in RUNS[:9] if line.startswith("--alter")]
    try:
        source.start()
        run_kafka(java, CONFIG_COMMAND, [["--bootstrap-server", source.bootstrap, *line.split()] for line in adding])
        listed = everything(source)
        source.stop()
        copy_of(source, target)
        target.start()
        assert everything(target) == listed
    finally:
        for node in nodes:
            node.kill()
    assert len(listed) == 3 + len(adding)


def everything(node: Server) -> list[Any]:
    with RawClient(node.bootstrap) as client:
        return answer_of(client.call(_Describe(components=[], strict=False)))


def answer_of(response: Any) -> list[Any]:
    """A response without the order of its parts, which is that of a hash map in Kafka."""
    entries = []
    for entry in response.entries or ():
        entity = sorted((part.entity_type, part.entity_name or "(default)") for part in entry.entity)
        if hasattr(entry, "values"):
            entries.append((entity, sorted((value.key, value.value) for value in entry.values)))
        else:
            entries.append((entity, entry.error_code, entry.error_message))
    if hasattr(response, "error_code"):
        return [response.error_code, response.error_message, response.entries is None, *sorted(entries)]
    return sorted(entries)


def alteration(
    entity: list[tuple[str, str | None]], *ops: tuple[str, float | None]
) -> AlterClientQuotasRequest.EntryData:
    return _Alter.EntryData(
        entity=[_Alter.EntityData(entity_type=kind, entity_name=name) for kind, name in entity],
        ops=[_Alter.OpData(key=key, value=value or 0.0, remove=value is None) for key, value in ops],
    )


def requests() -> list[Any]:
    rate = ("producer_byte_rate", 1.0)
    alice: list[tuple[str, str | None]] = [("user", "alice")]
    entries = [
        alteration(alice, rate, ("consumer_byte_rate", 5.0)),
        alteration([("user", None), ("client-id", "c")], ("request_percentage", 0.25)),
        alteration([("client-id", None)], ("controller_mutation_rate", 3.5)),
        alteration([("ip", None)], ("connection_creation_rate", 4.0)),
        alteration([("ip", "::1")], ("connection_creation_rate", 2.0)),
    ]
    refused = [
        alteration([], rate),
        alteration([("user", "")], rate),
        alteration([("group", "g")], rate),
        alteration([("user", "u"), ("ip", "192.0.2.1")], rate),
        alteration([("user", "u1")], ("connection_creation_rate", 1.0)),
        alteration([("ip", "192.0.2.2")], rate),
        alteration([("user", "u2")], ("nothing", 1.0)),
        alteration([("user", "u3")], ("producer_byte_rate", 0.0)),
        alteration([("user", "u4")], ("producer_byte_rate", -1.0)),
        alteration([("user", "u5")], ("producer_byte_rate", 1.5)),
        alteration([("user", "u6")], ("producer_byte_rate", 1e19)),
        alteration([("ip", "192.0.2.3")], ("connection_creation_rate", 3e9)),
        alteration([("user", "u7")], rate, ("nothing", None)),
        alteration([("user", "u8"), ("client-id", "c")], rate, rate),
        alteration([("user", "u9")], rate),
        alteration([("user", "u9")], ("producer_byte_rate", 2.0)),
        alteration([("user", "first"), ("user", "second")], rate),
    ]
    filters = [
        [],
        [("user", EXACT, "alice")],
        [("user", DEFAULT, None)],
        [("user", ANY, None)],
        [("client-id", ANY, None)],
        [("user", ANY, None), ("client-id", EXACT, "c")],
        [("client-id", DEFAULT, None)],
        [("ip", ANY, None)],
        [("ip", EXACT, "::1")],
        [("", EXACT, "x")],
        [("group", EXACT, "x")],
        [("user", EXACT, None)],
        [("user", DEFAULT, "x")],
        [("user", ANY, "x")],
        [("user", 9, "x")],
        [("user", ANY, None), ("user", ANY, None)],
        [("ip", ANY, None), ("user", ANY, None)],
    ]
    describing = [
        _Describe(
            components=[
                _Describe.ComponentData(entity_type=kind, match_type=match, match=name) for kind, match, name in parts
            ],
            strict=strict,
        )
        for parts in filters
        for strict in (False, True)
    ]
    return [
        _Alter(entries=entries, validate_only=True),
        _Describe(components=[], strict=False),
        _Alter(entries=entries),
        *(_Alter(entries=[entry]) for entry in refused[:-3]),
        _Alter(entries=refused[-3:]),
        _Alter(entries=[]),
        *describing,
        _Alter(entries=[alteration(alice, ("producer_byte_rate", None), ("consumer_byte_rate", 6.0))]),
        _Describe(components=[], strict=False),
    ]


def test_a_node_answers_about_quotas_as_kafka_does(tmp_path: Path, java: Java) -> None:
    nodes = [KafkaServer(tmp_path / "kafka", java), KraftlogServer(tmp_path / "kraftlog")]
    asked = requests()
    answers: list[list[Any]] = []
    try:
        for node in nodes:
            node.start()
            with RawClient(node.bootstrap) as client:
                answers.append([answer_of(client.call(request, version)) for request in asked for version in (0, 1)])
    finally:
        for node in nodes:
            node.kill()
    wrong = [
        f"{request}\n  Kafka:    {kafkas}\n  kraftlog: {own}"
        for request, kafkas, own in zip([each for each in asked for _ in (0, 1)], *answers, strict=True)
        if kafkas != own
    ]
    assert not wrong, "\n".join(wrong)


@pytest.mark.spec("CERR-36")
def test_changes_above_the_quota_end_as_they_do_with_kafka(tmp_path: Path, java: Java) -> None:
    """Codes and texts are equal, and the times to wait are, but for what the requests took."""
    nodes = [KafkaServer(tmp_path / "kafka", java), KraftlogServer(tmp_path / "kraftlog")]
    answers: list[list[tuple[int, str | None, int]]] = []
    try:
        for node in nodes:
            node.start()
            with RawClient(node.bootstrap) as operator:
                limit = alteration([("client-id", "maker")], ("controller_mutation_rate", 0.01))
                operator.call(_Alter(entries=[limit]))
            until_refused(node)
            answers.append([create(node, "strict", 7), create(node, "strict", 6), create(node, "permissive", 5)])
    finally:
        for node in nodes:
            node.kill()
    assert answers[0] == answers[1]
    refused = (ErrorCode.THROTTLING_QUOTA_EXCEEDED, None, 3)
    assert answers[0] == [refused, refused, (0, None, 6)]


def until_refused(node: Server) -> None:
    """Kafka answers before its quotas have changed. The first topic after that overdraws the bucket."""
    numbers = count()
    until_true(lambda: create(node, f"t-{next(numbers)}", 7)[0])


def create(node: Server, name: str, version: int) -> tuple[int, str | None, int]:
    """Code and text of a new topic with two partitions, and the minutes to wait."""
    topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=2, replication_factor=1)
    with RawClient(node.bootstrap, timeout_s=60) as client:
        response = client.call(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), version, client_id="maker")
    (result,) = response.topics
    return result.error_code, result.error_message, round(response.throttle_time_ms / 60_000)


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has all of 127.0.0.0/8")
def test_connections_above_the_quota_of_their_address_are_held_and_closed_as_by_kafka(
    tmp_path: Path, java: Java
) -> None:
    """Ten in ten seconds pass; the others are closed after a second or a little more, and count for nothing."""
    nodes = [KafkaServer(tmp_path / "kafka", java), KraftlogServer(tmp_path / "kraftlog")]
    served: list[list[bool]] = []
    held_s: list[float] = []
    try:
        for node in nodes:
            node.start()
            with RawClient(node.bootstrap) as operator:
                limit = alteration([("ip", "127.0.0.2")], ("connection_creation_rate", 1.0))
                operator.call(_Alter(entries=[limit]))
                # Kafka answers before its quotas have changed. What came until then is forgotten after eleven seconds.
                until_true(lambda node=node: not connects(node))
                time.sleep(11.5)
                clients = [RawClient(node.bootstrap, source="127.0.0.2") for _ in range(14)]
                began_s = time.monotonic()
                served.append([is_served(client) for client in clients])
                held_s.append(time.monotonic() - began_s)
                assert is_served(operator)
            for client in clients:
                client.sock.close()
    finally:
        for node in nodes:
            node.kill()
    assert served[0] == served[1] == [True] * 10 + [False] * 4
    # Kafka looks at them every half a second.
    assert all(0.9 < held < 2.5 for held in held_s), held_s


def connects(node: Server) -> bool:
    with RawClient(node.bootstrap, source="127.0.0.2") as client:
        return is_served(client)


def is_served(client: RawClient) -> bool:
    try:
        return client.call(ApiVersionsRequest(), 0).error_code == 0
    except ConnectionError:
        return False


def test_the_page_of_quotas_does_what_it_says(tmp_path: Path, java: Java) -> None:
    with story(tmp_path / "story", java) as told:
        told.read("client-quotas.md")


def test_librdkafka_is_told_to_wait_and_delivers_everything(tmp_path: Path) -> None:
    from confluent_kafka import Producer

    node = KraftlogServer(tmp_path / "kraftlog")
    waits: list[float] = []
    failed: list[Any] = []
    with node.running():
        with RawClient(node.bootstrap) as operator:
            limit = alteration([("client-id", "loader")], ("producer_byte_rate", 25_000.0))
            operator.call(_Alter(entries=[limit]))
            topic = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=1, replication_factor=1)
            operator.call(CreateTopicsRequest(topics=[topic], timeout_ms=30_000))
        producer = Producer(
            {
                "bootstrap.servers": node.bootstrap,
                "client.id": "loader",
                "batch.num.messages": 1,
                "throttle_cb": lambda event: waits.append(event.throttle_time),
            }
        )
        for _ in range(15):
            producer.produce("t", bytes(20_000), on_delivery=lambda error, _: failed.append(error) if error else None)
        assert producer.flush(60) == 0
    assert not failed
    # 300 000 bytes within ten seconds that allow 250 000: the last ones wait for up to two seconds.
    assert 0.5 < max(waits) < 5
