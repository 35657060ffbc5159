"""What a client may do with ACLs of each kind: kraftlog answers it as Apache Kafka does.

Both servers have the same ACLs and get the same requests: one of each API and version from a client at 127.0.0.2,
about a topic, a group and a transactional id that exist. The client at 127.0.0.1 may do everything.
``KRAFTLOG_ACCESS_WALK=all`` walks all versions.

Behaviours: CERR-30, CPRT-47, LEPO-25, RPC-04, CGRP-09, CGRP-76, CGRP-88, NGRP-02, NGRP-86, SHGR-06, SHGR-66, SHGR-78,
TXNC-05, TXNC-28, TXNC-44, TXNC-55, TXNC-87, TXNC-116.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from interop.beside.field_walk import facts_of, variants
from interop.harness import Java, KafkaServer, KraftlogServer, Server
from kraftlog._kraftlog import encode_batch
from kraftlog.errors import ErrorCode
from kraftlog.security.operation import Operation, PatternType, Permission, ResourceKind
from kraftlog.types import Uuid
from kraftlog.vocabulary import ConfigResourceType
from kraftlog.wire.messages.create_acls import CreateAclsRequest
from kraftlog.wire.messages.create_topics import CreateTopicsRequest
from kraftlog.wire.messages.delete_acls import DeleteAclsRequest
from kraftlog.wire.messages.find_coordinator import FindCoordinatorRequest
from kraftlog.wire.messages.init_producer_id import InitProducerIdRequest
from kraftlog.wire.messages.metadata import MetadataRequest
from kraftlog.wire.messages.offset_commit import OffsetCommitRequest
from kraftlog.wire.registry import API_BY_KEY
from raw_client import RawClient

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has all of 127.0.0.0/8")

ALL_VERSIONS = os.environ.get("KRAFTLOG_ACCESS_WALK") == "all"
CONFIG = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    # Until the first ACLs are there; afterwards each kind of resource has some.
    "allow.everyone.if.no.acl.found": "true",
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
OPERATOR, STRANGER = "127.0.0.1", "127.0.0.2"
GROUP, TRANSACTION, TOPIC = "g", "t", "a"
REFUSALS = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
BUSY = {ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR}
VALUES: dict[str, Any] = {
    "acks": -1,
    "configName": "retention.ms",
    "operation": Operation.READ,
    "permissionType": Permission.ALLOW,
    "resourcePatternType": PatternType.LITERAL,
    "patternTypeFilter": PatternType.LITERAL,
    "resourceTypeFilter": ResourceKind.GROUP,
    "principal": "User:nobody",
    "principalFilter": "User:nobody",
    "host": "192.0.2.1",
    "hostFilter": "192.0.2.1",
    "configurationKeys": "retention.ms",
    "count": 1,
    "groupId": GROUP,
    "groups": GROUP,
    "groupIds": GROUP,
    "groupsNames": GROUP,
    "key": GROUP,
    "coordinatorKeys": GROUP,
    "allowAutoTopicCreation": False,
    "includeClusterAuthorizedOperations": True,
    "includeTopicAuthorizedOperations": True,
    "includeAuthorizedOperations": True,
    "maxBytes": 1 << 20,
    "partitionMaxBytes": 1 << 20,
    "memberId": "",
    "name": TOPIC,
    "numPartitions": 1,
    "protocolType": "consumer",
    "records": encode_batch([(1_000, None, b"v", [])]),
    "replicaId": -1,
    "replicationFactor": 1,
    "resourceName": TOPIC,
    "resourceType": ConfigResourceType.TOPIC,
    "responsePartitionLimit": 10,
    "sessionEpoch": -1,
    "subscribedTopicNames": TOPIC,
    "timeoutMs": 5_000,
    "topic": TOPIC,
    "topicName": TOPIC,
    "transactionTimeoutMs": 5_000,
    "transactionalId": TRANSACTION,
    "transactionalIds": TRANSACTION,
    "v3AndBelowTransactionalId": TRANSACTION,
}
# APIs and the other resources that their requests can be about.
MORE_VALUES: dict[str, Sequence[Mapping[str, Any]]] = {
    "FindCoordinator": (
        {"keyType": 1, "key": TRANSACTION, "coordinatorKeys": TRANSACTION},
        {"keyType": 2, "key": f"{GROUP}:{Uuid.ZERO}:0", "coordinatorKeys": f"{GROUP}:{Uuid.ZERO}:0"},
    ),
    "InitProducerId": ({"transactionalId": None},),
    "Produce": ({"transactionalId": None},),
    "DescribeConfigs": (
        {"resourceType": ConfigResourceType.GROUP, "resourceName": GROUP},
        {"resourceType": ConfigResourceType.BROKER, "resourceName": "1"},
    ),
    "IncrementalAlterConfigs": (
        {"resourceType": ConfigResourceType.GROUP, "resourceName": GROUP},
        {"resourceType": ConfigResourceType.BROKER, "resourceName": "1"},
    ),
    "Fetch": ({"replicaId": 7},),
    "ConsumerGroupHeartbeat": ({"memberId": "m-1"},),
    "ShareGroupHeartbeat": ({"memberId": "m-1", "groupId": "s"},),
}
# In this order; those that change what the others are about come last.
BROKER_APIS = (
    "Metadata",
    "DescribeTopicPartitions",
    "DescribeCluster",
    "ListOffsets",
    "OffsetForLeaderEpoch",
    "Fetch",
    "FindCoordinator",
    "DescribeProducers",
    "DescribeConfigs",
    "DescribeLogDirs",
    "DescribeClientQuotas",
    "AlterClientQuotas",
    "DescribeUserScramCredentials",
    "DescribeAcls",
    "DescribeQuorum",
    "DescribeTransactions",
    "ListTransactions",
    "ListPartitionReassignments",
    "ListConfigResources",
    "ListGroups",
    "DescribeGroups",
    "ConsumerGroupDescribe",
    "ShareGroupDescribe",
    "DescribeShareGroupOffsets",
    "OffsetFetch",
    "Heartbeat",
    "SyncGroup",
    "LeaveGroup",
    "ConsumerGroupHeartbeat",
    "ShareGroupHeartbeat",
    "ShareFetch",
    "ShareAcknowledge",
    "AlterShareGroupOffsets",
    "ReadShareGroupState",
    "ReadShareGroupStateSummary",
    "InitializeShareGroupState",
    "WriteShareGroupState",
    "DeleteShareGroupState",
    "Produce",
    "InitProducerId",
    "AddPartitionsToTxn",
    "AddOffsetsToTxn",
    "TxnOffsetCommit",
    "EndTxn",
    "WriteTxnMarkers",
    "OffsetCommit",
    "OffsetDelete",
    "DeleteShareGroupOffsets",
    "DeleteRecords",
    "AlterReplicaLogDirs",
    "AlterUserScramCredentials",
    "ElectLeaders",
    "AlterPartitionReassignments",
    "CreatePartitions",
    "CreateTopics",
    "IncrementalAlterConfigs",
    "CreateAcls",
    "DeleteAcls",
    "UpdateFeatures",
    "UnregisterBroker",
)
CONTROLLER_APIS = (
    "Fetch",
    "FetchSnapshot",
    "Vote",
    "BeginQuorumEpoch",
    "EndQuorumEpoch",
    "DescribeQuorum",
    "UpdateRaftVoter",
    "AddRaftVoter",
    "RemoveRaftVoter",
    "AlterPartition",
    "BrokerHeartbeat",
    "BrokerRegistration",
    "AllocateProducerIds",
    "ControllerRegistration",
    "AssignReplicasToDirs",
    "Envelope",
    "DescribeCluster",
    "ElectLeaders",
    "UnregisterBroker",
    "UpdateFeatures",
    "DescribeAcls",
    "AlterUserScramCredentials",
    "CreateAcls",
    "DeleteAcls",
    "IncrementalAlterConfigs",
    "CreateTopics",
    "CreatePartitions",
    "DeleteTopics",
)
_OP, _ON = Operation, ResourceKind
CLUSTER = (_ON.CLUSTER, "kafka-cluster")
Grant = tuple[Operation, ResourceKind, str]
GRANTS: dict[str, Sequence[Grant]] = {
    "nothing": (),
    "describe": (
        (_OP.DESCRIBE, _ON.TOPIC, TOPIC),
        (_OP.DESCRIBE, _ON.GROUP, GROUP),
        (_OP.READ, _ON.GROUP, "s"),
        (_OP.DESCRIBE, _ON.TRANSACTIONAL_ID, TRANSACTION),
    ),
    "the group": ((_OP.READ, _ON.GROUP, GROUP), (_OP.DELETE, _ON.GROUP, GROUP)),
    "the topic": ((_OP.READ, _ON.TOPIC, TOPIC), (_OP.WRITE, _ON.TOPIC, TOPIC)),
    "the transactional id": ((_OP.WRITE, _ON.TRANSACTIONAL_ID, TRANSACTION),),
    "the id and the group": ((_OP.WRITE, _ON.TRANSACTIONAL_ID, TRANSACTION), (_OP.READ, _ON.GROUP, GROUP)),
    "what the cluster shows": ((_OP.DESCRIBE, *CLUSTER), (_OP.DESCRIBE_CONFIGS, *CLUSTER)),
    "the topic's settings": ((_OP.ALTER_CONFIGS, _ON.TOPIC, TOPIC), (_OP.ALTER, _ON.TOPIC, TOPIC)),
}
HARMLESS_ON_CONTROLLERS = ("nothing", "describe", "the topic's settings")


class Asked:
    """One of the servers, with the topic, group and transactional id that the requests are about."""

    def __init__(self, server: Server) -> None:
        self.server = server
        self.operator = RawClient(server.bootstrap, timeout_s=30)
        self._clients: dict[str, RawClient] = {}
        self._marker = 0
        everything = [(_OP.ALL, kind, "*") for kind in (_ON.TOPIC, _ON.GROUP, _ON.TRANSACTIONAL_ID)]
        self.allow(OPERATOR, [*everything, (_OP.ALL, *CLUSTER)])
        self._wait_until_applied()
        topic = CreateTopicsRequest.CreatableTopic(name=TOPIC, num_partitions=2, replication_factor=1)
        created = self.operator.call(CreateTopicsRequest(topics=[topic], timeout_ms=15_000))
        self.topic_id: Uuid = created.topics[0].topic_id
        for key_type, key in ((0, GROUP), (1, TRANSACTION)):
            self.operator.call(FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key]))
        made = InitProducerIdRequest(transactional_id=TRANSACTION, transaction_timeout_ms=60_000)
        self._until_there(made, 4)
        partition = OffsetCommitRequest.OffsetCommitRequestPartition(partition_index=0, committed_offset=0)
        offsets = OffsetCommitRequest.OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])
        self._until_there(OffsetCommitRequest(group_id=GROUP, topics=[offsets]), 9)

    def _until_there(self, request: Any, version: int) -> None:
        """Ask until the coordinator is there."""
        deadline = time.monotonic() + 30
        while BUSY & set(dict(facts_of(self.operator.call(request, version))).values()):
            assert time.monotonic() < deadline, request
            time.sleep(0.1)

    def allow(self, host: str, grants: Sequence[Grant]) -> None:
        creations = [
            CreateAclsRequest.AclCreation(
                resource_type=kind,
                resource_name=name,
                resource_pattern_type=PatternType.LITERAL,
                principal="User:ANONYMOUS",
                host=host,
                operation=operation,
                permission_type=Permission.ALLOW,
            )
            for operation, kind, name in grants
        ]
        results = self.operator.call(CreateAclsRequest(creations=creations)).results
        assert not any(result.error_code for result in results), results

    def grant(self, grants: Sequence[Grant]) -> None:
        """The stranger gets these ACLs instead of those it had."""
        mine = DeleteAclsRequest.DeleteAclsFilter(
            resource_type_filter=ResourceKind.ANY,
            resource_name_filter=None,
            pattern_type_filter=PatternType.ANY,
            principal_filter=None,
            host_filter=STRANGER,
            operation=Operation.ANY,
            permission_type=Permission.ANY,
        )
        self.operator.call(DeleteAclsRequest(filters=[mine]))
        self.allow(STRANGER, grants)
        self._wait_until_applied()

    def _wait_until_applied(self) -> None:
        """One more ACL, for a topic of its own: a server that has applied it has applied those before it, too."""
        self._marker += 1
        name = f"marker-{self._marker}"
        self.allow(STRANGER, [(_OP.DESCRIBE, _ON.TOPIC, name)])
        request = MetadataRequest(
            topics=[MetadataRequest.MetadataRequestTopic(name=name)], allow_auto_topic_creation=False
        )
        deadline = time.monotonic() + 30
        with RawClient(self.server.bootstrap, source=STRANGER) as client:
            while client.call(request, 9).topics[0].error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                assert time.monotonic() < deadline, name
                time.sleep(0.02)

    def ask(self, request: Any, version: int, *, of_controller: bool = False) -> dict[str, int] | str:
        """What the stranger is told: error codes, lengths, allowed operations and names."""
        port = self.server.controller_port if of_controller else self.server.port
        where = f"127.0.0.1:{port}"
        if where not in self._clients:
            self._clients[where] = RawClient(where, timeout_s=15, source=STRANGER)
        try:
            return dict(shown(self._clients[where].call(request, version)))
        except (ConnectionError, TimeoutError) as error:
            self._clients.pop(where).sock.close()
            return "no answer" if isinstance(error, TimeoutError) else "closed"

    def close(self) -> None:
        for client in (self.operator, *self._clients.values()):
            client.sock.close()


def shown(response: Any) -> Iterator[tuple[str, int]]:
    """Error codes and lengths; in the order of the fields."""
    yield from facts_of(response)
    for name in ("cluster_authorized_operations", "topic_authorized_operations", "authorized_operations"):
        for index, part in enumerate((response, *getattr(response, "topics", ()), *getattr(response, "groups", ()))):
            if hasattr(part, name):
                yield f".{name}[{index}]", getattr(part, name)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory, java: Java) -> Iterator[tuple[Asked, Asked]]:
    home: Path = tmp_path_factory.mktemp("access")
    ours, kafka = KraftlogServer(home / "kraftlog", CONFIG), KafkaServer(home / "kafka", java, CONFIG)
    with ours.running(), kafka.running():
        asked = Asked(ours), Asked(kafka)
        yield asked
        for each in asked:
            each.close()


def requests(name: str, *, all_versions: bool = ALL_VERSIONS) -> Iterator[tuple[str, int, Any]]:
    """Label, version and what makes the request: plain ones, and those for all topics where there are such."""
    (api,) = [api for api in API_BY_KEY.values() if api.name == name]
    versions = range(api.min_version, api.max_version + 1)
    if not all_versions:
        versions = sorted({api.min_version, api.max_version})
    for version in versions:
        for changed in ({}, *MORE_VALUES.get(name, ())):
            for variant in variants(api.request, version, {**VALUES, **changed}):
                is_of_all = variant.label in {"topics null", "topics empty"} and not changed
                # What the directories of the two hold besides is in no order.
                if variant.label == "plain" or (is_of_all and name != "DescribeLogDirs"):
                    yield f"{name} v{version} {variant.label} {changed or ''}", version, variant.make


@pytest.mark.timeout(900)
@pytest.mark.parametrize("grants", GRANTS)
def test_each_api_of_a_broker_answers_as_kafkas(both: tuple[Asked, Asked], grants: str) -> None:
    wrong = []
    refusals = 0
    for asked in both:
        asked.grant(GRANTS[grants])
    for name in BROKER_APIS:
        for label, version, make in requests(name):
            answers = [asked.ask(make(asked.topic_id), version) for asked in both]
            refusals += isinstance(answers[1], dict) and bool(REFUSALS & set(answers[1].values()))
            if answers[0] != answers[1]:
                wrong.append(f"{label}: {answers[0]}, Kafka {answers[1]}")
    assert not wrong, "\n".join(wrong)
    assert refusals > 20
    assert not both[0].server.errors_logged()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("grants", ["the topic", "the transactional id"])
def test_what_was_allowed_before_is_answered_as_kafkas_until_the_acl_is_gone(
    both: tuple[Asked, Asked], grants: str
) -> None:
    """I/O threads serve the second of two equal requests, if the first one was allowed."""
    wrong = []
    for granted in (GRANTS[grants], (), GRANTS[grants]):
        for asked in both:
            asked.grant(granted)
        for name in ("Fetch", "Produce"):
            for label, version, make in requests(name, all_versions=True):
                for number in range(2):
                    answers = [asked.ask(make(asked.topic_id), version) for asked in both]
                    if answers[0] != answers[1]:
                        wrong.append(f"{label}, number {number}: {answers[0]}, Kafka {answers[1]}")
    assert not wrong, "\n".join(wrong)
    assert not both[0].server.errors_logged()


@pytest.mark.timeout(900)
@pytest.mark.parametrize("grants", HARMLESS_ON_CONTROLLERS)
def test_each_api_of_a_controller_answers_as_kafkas(both: tuple[Asked, Asked], grants: str) -> None:
    wrong = []
    for asked in both:
        asked.grant(GRANTS[grants])
    for name in CONTROLLER_APIS:
        for label, version, make in requests(name):
            answers = [asked.ask(make(asked.topic_id), version, of_controller=True) for asked in both]
            if answers[0] != answers[1]:
                wrong.append(f"{label}: {answers[0]}, Kafka {answers[1]}")
    assert not wrong, "\n".join(wrong)
