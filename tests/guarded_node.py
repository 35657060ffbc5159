"""A broker with an authorizer, its operator, and a client that may do what it was granted.

Clients are told apart by their addresses: the operator has 127.0.0.1, others any of 127.0.0.0/8, which only Linux has.
With ``PLAIN`` they authenticate as users, too.
"""

from __future__ import annotations

import time
from typing import Any, Final

import kraftlog
from kraftlog._kraftlog import encode_batch
from kraftlog.security.operation import Operation, PatternType, Permission, ResourceKind
from kraftlog.types import Uuid
from kraftlog.wire.messages.create_acls import CreateAclsRequest
from kraftlog.wire.messages.create_topics import CreateTopicsRequest
from kraftlog.wire.messages.delete_acls import DeleteAclsRequest
from kraftlog.wire.messages.delete_topics import DeleteTopicsRequest
from kraftlog.wire.messages.fetch import FetchRequest
from kraftlog.wire.messages.produce import ProduceRequest
from raw_client import RawClient

__all__ = ["GUARDED", "OPERATOR", "PLAIN", "STRANGER", "GuardedNode", "fetch"]

OPERATOR, STRANGER = "127.0.0.1", "127.0.0.2"
GUARDED: Final[dict[str, Any]] = {
    "authorizer_class_name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    # Until the operator has its ACLs; afterwards each kind of resource has some.
    "allow_everyone_if_no_acl_found": True,
}


# The user "operator" and users who have their name as password.
PLAIN: Final = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
    "sasl.enabled.mechanisms": "PLAIN",
    "sasl.jaas.config": "org.apache.kafka.common.security.plain.PlainLoginModule required "
    + " ".join(f'user_{user}="{user}"' for user in ("operator", "alice", "bob"))
    + ";",
}
_ANONYMOUS: Final = "ANONYMOUS"


class GuardedNode:
    """A broker with an authorizer, its operator, and a client that may do what it was granted.

    Args:
        broker: The node; it belongs to the caller.
        operator: User of the operator and of the stranger, with the configuration ``PLAIN``.
    """

    def __init__(self, broker: kraftlog.Broker, operator: str = _ANONYMOUS) -> None:
        self.bootstrap_servers = broker.bootstrap_servers
        self.operator = self.connect(OPERATOR, operator)
        self.stranger = self.connect(STRANGER, operator)
        self.ids: dict[str, Uuid] = {}
        for kind, name in (
            (ResourceKind.TOPIC, "*"),
            (ResourceKind.GROUP, "*"),
            (ResourceKind.CLUSTER, "kafka-cluster"),
        ):
            self.grant(Operation.ALL, kind, name, host=OPERATOR, user=operator)

    def close(self) -> None:
        self.operator.sock.close()
        self.stranger.sock.close()

    def connect(self, host: str, user: str = _ANONYMOUS) -> RawClient:
        client = RawClient(self.bootstrap_servers, source=host)
        if user != _ANONYMOUS:
            assert client.authenticate(user, user).error_code == 0
        return client

    def grant(
        self,
        operation: Operation,
        kind: ResourceKind,
        name: str,
        *,
        user: str = _ANONYMOUS,
        host: str = STRANGER,
        pattern: PatternType = PatternType.LITERAL,
        permission: Permission = Permission.ALLOW,
    ) -> None:
        creation = CreateAclsRequest.AclCreation(
            resource_type=kind,
            resource_name=name,
            resource_pattern_type=pattern,
            principal=f"User:{user}",
            host=host,
            operation=operation,
            permission_type=permission,
        )
        (result,) = self.operator.call(CreateAclsRequest(creations=[creation])).results
        assert result.error_code == 0

    def revoke(
        self,
        kind: ResourceKind,
        name: str,
        *,
        user: str | None = None,
        host: str = STRANGER,
        pattern: PatternType = PatternType.LITERAL,
        operation: Operation = Operation.ANY,
        permission: Permission = Permission.ANY,
    ) -> None:
        one = DeleteAclsRequest.DeleteAclsFilter(
            resource_type_filter=kind,
            resource_name_filter=name,
            pattern_type_filter=pattern,
            principal_filter=None if user is None else f"User:{user}",
            host_filter=host,
            operation=operation,
            permission_type=permission,
        )
        (result,) = self.operator.call(DeleteAclsRequest(filters=[one])).filter_results
        assert result.matching_acls

    def create(self, *names: str) -> None:
        topics = [
            CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names
        ]
        for topic in self.operator.call(CreateTopicsRequest(topics=topics, timeout_ms=10_000)).topics:
            assert topic.error_code == 0
            self.ids[topic.name] = topic.topic_id
            # The topic is committed; its log may still be opened.
            deadline = time.monotonic() + 30
            while self.operator.call(fetch(topic.topic_id), 13).responses[0].partitions[0].error_code:
                assert time.monotonic() < deadline, topic.name
                time.sleep(0.01)

    def delete(self, name: str) -> None:
        state = DeleteTopicsRequest.DeleteTopicState(name=name)
        (result,) = self.operator.call(DeleteTopicsRequest(topics=[state], timeout_ms=10_000), 6).responses
        assert result.error_code == 0

    def produce(self, client: RawClient, name: str, *, acks: int = -1) -> int:
        data = ProduceRequest.PartitionProduceData(
            index=0, records=encode_batch([(time.time_ns() // 1_000_000, None, b"v", [])])
        )
        topic = ProduceRequest.TopicProduceData(name=name, partition_data=[data])
        request = ProduceRequest(acks=acks, timeout_ms=5_000, topic_data=[topic])
        if not acks:
            client.send(request, 11)
            return 0
        code: int = client.call(request, 11).responses[0].partition_responses[0].error_code
        return code


def fetch(topic_id: Uuid, *, session_id: int = 0, epoch: int = 0, named: bool = True) -> FetchRequest:
    partition = FetchRequest.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1 << 20)
    topic = FetchRequest.FetchTopic(topic_id=topic_id, partitions=[partition])
    return FetchRequest(
        replica_id=-1,
        max_bytes=1 << 20,
        session_id=session_id,
        session_epoch=epoch,
        topics=[topic] if named else [],
    )
