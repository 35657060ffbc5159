"""Changes of a broker's settings while it runs: a kraftlog node takes and refuses what Apache Kafka does."""

from __future__ import annotations

from interop.conftest import ServerFactory
from kraftlog.errors import ErrorCode
from kraftlog.vocabulary import ConfigResourceType
from kraftlog.wire.messages.alter_configs import AlterConfigsRequest
from kraftlog.wire.messages.create_topics import CreateTopicsRequest
from kraftlog.wire.messages.describe_cluster import DescribeClusterRequest
from kraftlog.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from raw_client import RawClient

CHANGES = [
    ("num.io.threads", "16"),
    ("num.io.threads", "4"),
    ("num.io.threads", "17"),
    ("num.io.threads", "3"),
    ("num.io.threads", "0"),
    ("num.io.threads", "x"),
    ("num.network.threads", "1"),
    ("num.network.threads", "7"),
    ("num.replica.fetchers", "3"),
    ("num.recovery.threads.per.data.dir", "5"),
    ("background.threads", "21"),
    ("log.cleaner.threads", "2"),
    ("log.cleaner.threads", "3"),
    ("log.cleaner.dedupe.buffer.size", "5"),
    ("max.connections", "5"),
    ("max.connections", "-1"),
    ("max.connection.creation.rate", "5"),
    ("max.connection.creation.rate", "-1"),
    ("listener.name.plaintext.max.connections", "5"),
    ("listener.name.plaintext.max.connections", "0"),
    ("listener.name.plaintext.max.connection.creation.rate", "5"),
    ("listener.name.plaintext.max.connection.creation.rate", "0"),
    ("listener.name.nowhere.max.connections", "5"),
    ("max.connections.per.ip", "5"),
    ("max.connections.per.ip", "0"),
    ("max.connections.per.ip.overrides", "127.0.0.1:3"),
    ("max.connections.per.ip.overrides", "nonsense"),
    ("max.connections.per.ip.overrides", "127.0.0.1:x"),
    ("message.max.bytes", "-1"),
    ("producer.id.expiration.ms", "5"),
    ("log.retention.ms", "5"),
    ("log.retention.hours", "5"),
    ("log.local.retention.ms", "999999999999"),
    ("log.message.timestamp.type", "x"),
    ("unclean.leader.election.enable", "true"),
    ("broker.id", "4"),
    ("advertised.listeners", "PLAINTEXT://h:1"),
    ("ssl.keystore.location", "/x"),
    ("listeners", "FOO://127.0.0.1:1"),
    ("no.such.key", "1"),
]


def answers(bootstrap: str) -> dict[tuple[str, ...], int]:
    """The error code of each change, by request, level, key and value; nothing is changed."""
    found: dict[tuple[str, ...], int] = {}
    with RawClient(bootstrap, timeout_s=30) as client:
        broker_id = str(client.call(DescribeClusterRequest()).brokers[0].broker_id)
        for level, name in (("cluster", ""), ("broker", broker_id)):
            for key, value in CHANGES:
                change = IncrementalAlterConfigsRequest.AlterableConfig(name=key, config_operation=0, value=value)
                resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
                    resource_type=ConfigResourceType.BROKER, resource_name=name, configs=[change]
                )
                request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=True)
                found["incremental", level, key, value] = client.call(request).responses[0].error_code
                whole = AlterConfigsRequest.AlterConfigsResource(
                    resource_type=ConfigResourceType.BROKER,
                    resource_name=name,
                    configs=[AlterConfigsRequest.AlterableConfig(name=key, value=value)],
                )
                older = AlterConfigsRequest(resources=[whole], validate_only=True)
                found["whole", level, key, value] = client.call(older).responses[0].error_code
        tiered = CreateTopicsRequest.CreatableTopicConfig(name="remote.storage.enable", value="true")
        topic = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=1, replication_factor=1, configs=[tiered])
        found["topic", "remote.storage.enable"] = client.call(CreateTopicsRequest(topics=[topic])).topics[0].error_code
    return found


def test_changes_are_taken_and_refused_as_by_kafka(server_factory: ServerFactory) -> None:
    found = {}
    for kind in ("kafka", "kraftlog"):
        server = server_factory(kind, name=kind)
        with server.running():
            found[kind] = answers(server.bootstrap)
    assert found["kraftlog"] == found["kafka"]
    assert set(found["kafka"].values()) == {ErrorCode.NONE, ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_CONFIG}
