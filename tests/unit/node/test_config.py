"""NodeConfig: Kafka's keys and defaults, and what a node refuses to start with."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftlog.node.config import ConfigError, NodeConfig, environment_overrides, parse_overrides
from kraftlog.security.principal import Principal
from kraftlog.transport.listener import EndPoint, parse_end_points

MINIMAL = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "PLAINTEXT://:9092,CONTROLLER://:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "localhost:9093",
    "log.dirs": "/data/a,/data/b",
}


def config(**changes: str | None) -> NodeConfig:
    values = dict(MINIMAL)
    for name, value in changes.items():
        key = name.replace("_", ".")
        if value is None:
            values.pop(key, None)
        else:
            values[key] = value
    return NodeConfig(values)


def test_defaults_are_kafkas_with_types() -> None:
    node_config = config()
    assert node_config.get("socket.request.max.bytes") == 104857600
    assert node_config.get("auto.create.topics.enable") is True
    assert node_config.get("log.retention.ms") is None
    assert node_config.get("log.cleanup.policy") == ("delete",)
    assert node_config.get("log.flush.on.ack") is True


def test_listeners_without_host_bind_to_loopback() -> None:
    assert config().listeners == (
        EndPoint("PLAINTEXT", "127.0.0.1", 9092),
        EndPoint("CONTROLLER", "127.0.0.1", 9093),
    )
    assert [broker_listener.listener_name for broker_listener in config().broker_listeners] == ["PLAINTEXT"]


def test_log_dirs_first_one_holds_metadata() -> None:
    assert config().log_dirs == (Path("/data/a"), Path("/data/b"))
    assert config().metadata_log_dir == Path("/data/a")
    assert config(metadata_log_dir="/meta").metadata_log_dir == Path("/meta")


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"process_roles": None}, "process.roles is not set"),
        ({"process_roles": "broker,zookeeper"}, "zookeeper"),
        ({"node_id": None}, "node.id is not set"),
        ({"node_id": "-3"}, "node.id"),
        ({"node_id": "x"}, "node.id"),
        ({"cordoned.log.dirs": "/data/c"}, "Missing entries : /data/c"),
        ({"cordoned.log.dirs": "*,/data/a"}, "must not contain other values"),
        ({"listeners": "PLAINTEXT://:9092"}, "controller.listener.names=CONTROLLER"),
        ({"listeners": "CONTROLLER://:9093"}, "only controller listeners"),
        ({"listeners": "PLAINTEXT:9092,CONTROLLER://:9093"}, "NAME://host:port"),
        ({"listeners": "PLAINTEXT://:9093,CONTROLLER://:9093"}, "different port"),
        ({"listeners": "PLAINTEXT://:70000,CONTROLLER://:9093"}, "70000"),
        (
            {"listeners": "SSL://:9092,CONTROLLER://:9093"},
            "must be set for a listener with SSL",
        ),
        ({"listeners": "OTHER://:9092,CONTROLLER://:9093"}, "no security protocol defined"),
        ({"controller_listener_names": None}, "controller.listener.names is not set"),
        ({"controller_quorum_bootstrap_servers": None}, "controller.quorum.bootstrap.servers"),
        ({"controller_quorum_voters": "1localhost:9093"}, "id@host:port"),
        ({"controller_quorum_voters": "2@localhost:9093"}, "must name node.id=1, as process.roles=broker,controller"),
        (
            {
                "process_roles": "broker",
                "listeners": "PLAINTEXT://:9092",
                "controller_quorum_voters": "1@localhost:9093",
            },
            "must not name node.id=1, as process.roles=broker",
        ),
        ({"advertised_listeners": "OTHER://x:1"}, "not one of listeners"),
        # Nothing of these is read before the node has opened its logs.
        ({"controller_quorum_election_timeout_ms": "-1"}, "controller.quorum.election.timeout.ms"),
        ({"controller_quorum_fetch_timeout_ms": "-1"}, "controller.quorum.fetch.timeout.ms"),
        ({"controller_quorum_election_backoff_max_ms": "-1"}, "controller.quorum.election.backoff.max.ms"),
        ({"controller_quorum_append_linger_ms": "-1"}, "controller.quorum.append.linger.ms"),
        ({"controller_quorum_request_timeout_ms": "-1"}, "controller.quorum.request.timeout.ms"),
        ({"controller_quorum_retry_backoff_ms": "-1"}, "controller.quorum.retry.backoff.ms"),
        ({"controller_quorum_fetch_max_bytes": "0"}, "controller.quorum.fetch.max.bytes"),
        ({"controller_quorum_fetch_snapshot_max_bytes": "0"}, "controller.quorum.fetch.snapshot.max.bytes"),
        ({"controller_quorum_fetch_wait_max_ms": "0"}, "controller.quorum.fetch.wait.max.ms"),
        (
            {"controller_quorum_fetch_wait_max_ms": "2000"},
            "wait.max.ms=2000 must be less than controller.quorum.fetch.timeout.ms=2000",
        ),
        (
            {"controller_quorum_fetch_wait_max_ms": "2000", "controller_quorum_fetch_timeout_ms": "3000"},
            "wait.max.ms=2000 must be less than controller.quorum.request.timeout.ms=2000",
        ),
        ({"controller_quorum_auto_join_enable": "maybe"}, "controller.quorum.auto.join.enable"),
        ({"metadata_log_segment_bytes": "8388607"}, "metadata.log.segment.bytes"),
        ({"metadata_max_idle_interval_ms": "-1"}, "metadata.max.idle.interval.ms"),
        ({"metadata_log_max_snapshot_interval_ms": "-1"}, "metadata.log.max.snapshot.interval.ms"),
        ({"metadata_log_max_record_bytes_between_snapshots": "0"}, "metadata.log.max.record.bytes.between.snapshots"),
        ({"num_network_threads": "some"}, "num.network.threads"),
        ({"listeners": "PLAINTEXT://0.0.0.0:9092,CONTROLLER://:9093"}, "nonroutable"),
        ({"log_dirs": "/a,/a"}, "twice"),
        ({"authorizer_class_name": "org.example.Mine"}, "org.example.Mine is not supported; set org.apache.kafka"),
        ({"super_users": "User:a;bob"}, "'bob' is no principal"),
        ({"super_users": "User:"}, "'User:' is no principal"),
    ],
)
def test_refused_configuration_says_what_is_wrong(changes: dict[str, str | None], words: str) -> None:
    with pytest.raises(ConfigError, match=words):
        config(**changes)


def test_standard_authorizer_and_its_settings_are_read() -> None:
    standard = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
    with_authorizer = config(
        authorizer_class_name=standard, super_users=" User:CN=a,O=b ;; User:c:d", allow_everyone_if_no_acl_found="True"
    )
    assert with_authorizer.has_authorizer
    assert with_authorizer.super_users == {Principal("User", "CN=a,O=b"), Principal("User", "c:d")}
    assert with_authorizer.allows_everyone_without_acls
    assert with_authorizer.unknown_keys == []
    without = config(authorizer_class_name="")
    assert (without.has_authorizer, without.super_users, without.allows_everyone_without_acls) == (False, set(), False)
    assert not config(allow_everyone_if_no_acl_found="yes").allows_everyone_without_acls


def test_controller_listener_that_is_not_advertised_is_reached_where_it_listens() -> None:
    assert config(advertised_listeners="PLAINTEXT://example.org:1").advertised_listeners == (
        EndPoint("PLAINTEXT", "example.org", 1),
        EndPoint("CONTROLLER", "127.0.0.1", 9093),
    )


def test_controller_listener_is_plaintext_unless_the_map_is_given() -> None:
    assert config().protocol_by_listener["CONTROLLER"] == "PLAINTEXT"
    with pytest.raises(ConfigError, match="CONTROLLER"):
        config(listener_security_protocol_map="PLAINTEXT:PLAINTEXT")


def test_unknown_keys_are_listed() -> None:
    assert config(no_such_key="1", advertised_host_name="x").unknown_keys == ["advertised.host.name", "no.such.key"]
    only_at_run_time = "leader.replication.throttled.rate"
    assert config(**{only_at_run_time: "1"}).unknown_keys == [only_at_run_time]


def test_overrides_need_an_equals_sign() -> None:
    assert parse_overrides(["a.b=c=d", "e="]) == {"a.b": "c=d", "e": ""}
    with pytest.raises(ConfigError, match="key=value"):
        parse_overrides(["a.b"])


def test_environment_gives_known_keys_only() -> None:
    environment = {"KAFKA_NODE_ID": "7", "KAFKA_HEAP_OPTS": "-Xmx1g", "KAFKA_LOG_DIRS": "/d", "PATH": "/bin"}
    assert environment_overrides(environment) == {"node.id": "7", "log.dirs": "/d"}


def test_load_lays_overrides_over_the_file(tmp_path: Path) -> None:
    path = tmp_path / "server.properties"
    path.write_text("\n".join(f"{key}={value}" for key, value in MINIMAL.items()))
    assert NodeConfig.load(path, ["node.id=9"]).node_id == 9
    with pytest.raises(ConfigError, match="cannot read"):
        NodeConfig.load(tmp_path / "absent")


def test_an_ipv6_address_is_written_in_brackets() -> None:
    (end_point,) = parse_end_points("listeners", "PLAINTEXT://[::1]:9092")
    assert end_point == EndPoint("PLAINTEXT", "::1", 9092)
    assert (end_point.address, str(end_point)) == ("[::1]:9092", "PLAINTEXT://[::1]:9092")
