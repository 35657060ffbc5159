"""Odd values in every field of a request: kraftlog answers them with the error codes of Apache Kafka.

Both servers get the same requests in the same order, so that both are in the same state. ``KRAFTLOG_FIELD_WALK=all``
walks all versions of the APIs.
"""

from __future__ import annotations

import os
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from interop.beside.field_walk import facts_of, variants
from interop.harness import Java, KafkaServer, KraftlogServer, Server
from kraftlog.errors import ErrorCode
from kraftlog.types import Uuid
from kraftlog.wire.messages.create_topics import CreateTopicsRequest
from kraftlog.wire.messages.find_coordinator import FindCoordinatorRequest
from kraftlog.wire.messages.init_producer_id import InitProducerIdRequest
from kraftlog.wire.messages.offset_fetch import OffsetFetchRequest
from kraftlog.wire.registry import API_BY_KEY
from raw_client import RawClient

ALL_VERSIONS = os.environ.get("KRAFTLOG_FIELD_WALK") == "all"
CONFIG = {
    "auto.create.topics.enable": "false",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "share.coordinator.state.topic.min.isr": "1",
    "share.coordinator.state.topic.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
}
GROUP, TRANSACTION, TOPIC = "g", "t", "a"
VALUES: dict[str, Any] = {
    "groupId": GROUP,
    "groups": GROUP,
    "groupIds": GROUP,
    "groupsNames": GROUP,
    "memberId": "",
    "name": TOPIC,
    "numPartitions": 1,
    "protocolType": "consumer",
    "replicaId": -1,
    "replicationFactor": 1,
    "timeoutMs": 5_000,
    "topic": TOPIC,
    "topicName": TOPIC,
    "transactionTimeoutMs": 5_000,
    "transactionalId": TRANSACTION,
    "transactionalIds": TRANSACTION,
    "v3AndBelowTransactionalId": TRANSACTION,
}
# In this order; those that change what the others are about come last.
APIS = (
    "ListOffsets",
    "OffsetForLeaderEpoch",
    "FindCoordinator",
    "InitProducerId",
    "AddPartitionsToTxn",
    "AddOffsetsToTxn",
    "TxnOffsetCommit",
    "EndTxn",
    "DescribeProducers",
    "DescribeTransactions",
    "OffsetFetch",
    "Heartbeat",
    "SyncGroup",
    "LeaveGroup",
    "DescribeGroups",
    "OffsetDelete",
    "ConsumerGroupHeartbeat",
    "ConsumerGroupDescribe",
    "ShareGroupHeartbeat",
    "DescribeConfigs",
    "ElectLeaders",
    "AlterPartitionReassignments",
    "ListPartitionReassignments",
    "DeleteRecords",
    "DescribeTopicPartitions",
    "OffsetCommit",
    "CreatePartitions",
    "CreateTopics",
    "IncrementalAlterConfigs",
)
BUSY = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
# Where Kafka answers otherwise, by API and request: why kraftlog does not follow.
KAFKAS_OWN = {
    r"AddPartitionsToTxn \S+ transactions empty": "Kafka never answers",
    r"(DeleteRecords|ListOffsets|OffsetCommit|TxnOffsetCommit) .*partitions empty": (
        "Kafka leaves out a topic without partitions"
    ),
    r"(CreateTopics|DeleteRecords|ListOffsets) .* twice": "Kafka answers once for what is named twice",
    r"ListOffsets \S+ isolation_level = (-?\d{2,}|-1)": "Kafka's own exception becomes UNKNOWN_SERVER_ERROR",
    r"(AlterPartitionReassignments|CreatePartitions|CreateTopics|ElectLeaders) \S+ timeout_ms = 1$": (
        "how much is done in a millisecond is chance"
    ),
    r"(AlterPartitionReassignments|CreatePartitions|CreateTopics|ElectLeaders) \S+ timeout_ms = -": (
        "Kafka takes a negative time-out for one that has passed; kraftlog does what it is asked"
    ),
}


class Asked:
    """One of the servers, with the topic and the coordinators that the requests are about."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.client = RawClient(server.bootstrap, timeout_s=15)
        topic = CreateTopicsRequest.CreatableTopic(name=TOPIC, num_partitions=2, replication_factor=1)
        created = self.client.call(CreateTopicsRequest(topics=[topic], timeout_ms=15_000))
        self.topic_id: Uuid = created.topics[0].topic_id
        for key_type, key in ((0, GROUP), (1, TRANSACTION)):
            self.client.call(FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key]))
        self.ask(InitProducerIdRequest(transactional_id=TRANSACTION, transaction_timeout_ms=5_000), 4)
        self.ask(OffsetFetchRequest(group_id=GROUP, topics=None), 5)

    def ask(self, request: Any, version: int) -> dict[str, int] | str:
        """Error codes and lengths of the answer; asked again while a coordinator loads."""
        deadline = time.monotonic() + 30
        while True:
            try:
                facts = dict(facts_of(self.client.call(request, version)))
            except (ConnectionError, TimeoutError) as error:
                self.client.sock.close()
                self.client = RawClient(self.server.bootstrap, timeout_s=15)
                return "no answer" if isinstance(error, TimeoutError) else "closed"
            if time.monotonic() > deadline or not BUSY & set(facts.values()):
                return facts
            time.sleep(0.1)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory, java: Java) -> Iterator[tuple[Asked, Asked]]:
    home: Path = tmp_path_factory.mktemp("walk")
    ours, kafka = KraftlogServer(home / "kraftlog", CONFIG), KafkaServer(home / "kafka", java, CONFIG)
    with ours.running(), kafka.running():
        yield Asked(ours), Asked(kafka)


def differences(ours: Asked, kafka: Asked, name: str, version: int, message: Any) -> Iterator[str]:
    for variant in variants(message, version, VALUES):
        said = f"{name} v{version} {variant.label}"
        if any(re.match(pattern, said) for pattern in KAFKAS_OWN):
            continue
        answers = [asked.ask(variant.make(asked.topic_id), version) for asked in (ours, kafka)]
        if answers[0] != answers[1]:
            yield f"{said}: {answers[0]}, Kafka {answers[1]}"


@pytest.mark.timeout(900)
@pytest.mark.parametrize("name", APIS)
def test_odd_fields_get_kafkas_error_codes(both: tuple[Asked, Asked], name: str) -> None:
    ours, kafka = both
    (api,) = [api for api in API_BY_KEY.values() if api.name == name]
    lowest = api.min_version if ALL_VERSIONS else api.max_version
    found = [
        line
        for version in range(lowest, api.max_version + 1)
        for line in differences(ours, kafka, name, version, api.request)
    ]
    assert not found, "\n".join(found)
    assert not ours.server.errors_logged()
