"""Changes of a broker's settings while it runs: a kraftlog node takes and refuses what Apache Kafka does."""

from __future__ import annotations

from pathlib import Path

from interop.conftest import ServerFactory
from interop.harness import Server
from kraftlog.errors import ErrorCode
from kraftlog.vocabulary import ConfigResourceType
from kraftlog.wire.messages.alter_configs import AlterConfigsRequest
from kraftlog.wire.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest
from kraftlog.wire.messages.create_topics import CreateTopicsRequest
from kraftlog.wire.messages.describe_cluster import DescribeClusterRequest
from kraftlog.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from kraftlog.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from raw_client import RawClient
from waiting import until_true

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
    ("cordoned.log.dirs", ""),
    ("cordoned.log.dirs", "*"),
    ("cordoned.log.dirs", "/nowhere"),
    ("cordoned.log.dirs", "*,/nowhere"),
    ("leader.replication.throttled.rate", "5"),
    ("leader.replication.throttled.rate", "-1"),
    ("follower.replication.throttled.rate", "x"),
    ("replica.alter.log.dirs.io.max.bytes.per.second", "x"),
]
# Of a subscription to clients' metrics.
MATCHES = [
    "client_id=a",
    "client_id= a, client_source_port=1.*",
    "client_id=(?i)\\p{Alpha}(?<name>b)*+",
    "client_id",
    "client_id=",
    "client_id=a=b",
    "client_id=*",
    "client_id=a**",
    "client_id=[a",
    "client_id=(",
    "client_id=a)",
    "client_id=\\",
    "client_id=a,,client_id=b",
    "user=a",
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
        for match in MATCHES:
            change = IncrementalAlterConfigsRequest.AlterableConfig(name="match", config_operation=0, value=match)
            resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
                resource_type=ConfigResourceType.CLIENT_METRICS, resource_name="m", configs=[change]
            )
            request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=True)
            found["match", match] = client.call(request).responses[0].error_code
        tiered = CreateTopicsRequest.CreatableTopicConfig(name="remote.storage.enable", value="true")
        topic = CreateTopicsRequest.CreatableTopic(name="t", num_partitions=1, replication_factor=1, configs=[tiered])
        found["topic", "remote.storage.enable"] = client.call(CreateTopicsRequest(topics=[topic])).topics[0].error_code
    return found


class Cordoning:
    """A node with two data directories whose new replicas are kept out of one or both (KIP-1066)."""

    def __init__(self, server: Server, directories: list[Path], broker: RawClient, controller: RawClient) -> None:
        self._server, self._directories, self._broker, self._controller = server, directories, broker, controller
        self.said: list[object] = []

    def alter(self, operation: int, value: str | None, *, on_controller: bool = False) -> None:
        change = IncrementalAlterConfigsRequest.AlterableConfig(
            name="cordoned.log.dirs", config_operation=operation, value=value
        )
        resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=ConfigResourceType.BROKER, resource_name="1", configs=[change]
        )
        client = self._controller if on_controller else self._broker
        self.said.append(client.call(IncrementalAlterConfigsRequest(resources=[resource])).responses[0].error_code)

    def create(self, name: str, partitions: int, *, validate_only: bool = False) -> int:
        topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=partitions, replication_factor=1)
        request = CreateTopicsRequest(topics=[topic], timeout_ms=30_000, validate_only=validate_only)
        return self._broker.call(request).topics[0].error_code

    def until_create_says(self, name: str, partitions: int, error_code: int) -> None:
        """The next heartbeat brings it to the controller."""
        until_true(lambda: self.create(name, partitions, validate_only=True) == error_code, 30)
        assert self.create(name, partitions) == error_code
        self.said.append((name, ErrorCode.name_of(error_code)))

    def cordoned(self) -> list[str]:
        results = self._broker.call(DescribeLogDirsRequest(topics=None), 5).results
        return sorted(Path(result.log_dir).name for result in results if result.is_cordoned)

    def until_cordoned(self, *names: str) -> None:
        until_true(lambda: self.cordoned() == sorted(names), 30)
        self.said.append(names)

    def until_placed(self, topic: str, counts: list[int]) -> None:
        def placed() -> list[int]:
            return [len(list(directory.glob(f"{topic}-*"))) for directory in self._directories]

        until_true(lambda: placed() == counts, 30)
        self.said.append((topic, counts))

    def move(self, topic: str, target: Path) -> None:
        moved = AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(name=topic, partitions=[0])
        wanted = AlterReplicaLogDirsRequest.AlterReplicaLogDir(path=str(target), topics=[moved])
        response = self._broker.call(AlterReplicaLogDirsRequest(dirs=[wanted]))
        self.said.append(ErrorCode.name_of(response.results[0].partitions[0].error_code))

    def play(self) -> list[object]:
        first, second = map(str, self._directories)
        set_, delete, append, subtract = range(4)
        # What server.properties says, until AlterConfigs says something else.
        self.until_cordoned("data", "other")
        self.until_create_says("placed", 2, ErrorCode.INVALID_REPLICATION_FACTOR)
        self.alter(set_, first)
        self.until_cordoned("data")
        self.until_create_says("placed", 2, ErrorCode.NONE)
        self.until_placed("placed", [0, 2])
        self.move("placed", self._directories[0])
        self.alter(append, second)
        self.until_create_says("more", 1, ErrorCode.INVALID_REPLICATION_FACTOR)
        self.alter(append, "/nowhere")
        # A controller does not know the directories of brokers: it only takes some away.
        self.alter(set_, first, on_controller=True)
        self.until_cordoned("data")
        self.alter(set_, second, on_controller=True)
        self.alter(append, second, on_controller=True)
        self.alter(set_, "", on_controller=True)
        self.until_cordoned()
        self.until_create_says("more", 1, ErrorCode.NONE)
        self.until_placed("more", [1, 0])
        self.alter(subtract, first)
        self.move("placed", self._directories[0])
        self.alter(delete, None)
        self.until_cordoned("data", "other")
        self.alter(set_, "")
        return self.said


def cordoning(server: Server) -> list[object]:
    broker, controller = RawClient(server.bootstrap), RawClient(f"127.0.0.1:{server.controller_port}")
    with broker, controller:
        return Cordoning(server, [server.data_dir, server.home / "other"], broker, controller).play()


def test_changes_are_taken_and_refused_as_by_kafka(server_factory: ServerFactory) -> None:
    """RDLT-45, RFET-81: where replicas go, and when they may not move, if directories are cordoned."""
    found = {}
    cordoned = {}
    for kind in ("kafka", "kraftlog"):
        server = server_factory(kind, name=kind, config={"cordoned.log.dirs": "*"})
        server.config["log.dirs"] = f"{server.data_dir},{server.home / 'other'}"
        with server.running():
            cordoned[kind] = cordoning(server)
            found[kind] = answers(server.bootstrap)
    assert cordoned["kraftlog"] == cordoned["kafka"]
    assert found["kraftlog"] == found["kafka"]
    assert set(found["kafka"].values()) == {ErrorCode.NONE, ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_CONFIG}
