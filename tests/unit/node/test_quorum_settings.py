"""Every key of the metadata quorum changes something, or is refused."""

from __future__ import annotations

import pytest

from kraftlog.config_table import broker_configs
from kraftlog.node.config import ConfigError, NodeConfig
from kraftlog.node.quorum_settings import metadata_log_config, raft_config
from kraftlog.raft.voter_set import Endpoint
from kraftlog.types import Uuid

PROPERTIES = {
    "process.roles": "controller",
    "node.id": "1",
    "listeners": "A://127.0.0.1:9093,B://127.0.0.1:9094",
    "controller.listener.names": "A,B",
    "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT",
    "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
    "log.dirs": "/nowhere",
}


def config(**changes):
    return NodeConfig({**PROPERTIES, **{name.replace("_", "."): text for name, text in changes.items()}})


def raft(node_config):
    return raft_config(
        node_config,
        cluster_id="c",
        directory_id=Uuid(bytes([1] * 16)),
        end_points=node_config.advertised_listeners,
    )


RAFT_KEYS = {
    "controller.quorum.election.timeout.ms": ("election_timeout_ms", 1000),
    "controller.quorum.fetch.timeout.ms": ("fetch_timeout_ms", 2000),
    "controller.quorum.election.backoff.max.ms": ("election_backoff_max_ms", 1000),
    "controller.quorum.append.linger.ms": ("append_linger_ms", 25),
    "controller.quorum.request.timeout.ms": ("request_timeout_ms", 2000),
    "controller.quorum.retry.backoff.ms": ("retry_backoff_ms", 20),
    "controller.quorum.fetch.max.bytes": ("fetch_max_bytes", 1_048_576),
    "controller.quorum.fetch.snapshot.max.bytes": ("fetch_snapshot_max_bytes", 1_048_576),
}
LOG_KEYS = {
    "metadata.log.segment.bytes": ("segment_bytes", 1_073_741_824),
    "metadata.log.segment.ms": ("segment_ms", 604_800_000),
    "metadata.max.retention.bytes": ("retention_bytes", 104_857_600),
    "metadata.max.retention.ms": ("retention_ms", 604_800_000),
}


@pytest.mark.parametrize("key", RAFT_KEYS)
def test_a_timer_or_bound_of_the_quorum_reaches_the_core(key):
    name, default = RAFT_KEYS[key]
    assert getattr(raft(config()), name) == default
    assert getattr(raft(config(**{key: "12345"})), name) == 12345
    for wrong in ("-1", "x"):
        with pytest.raises(ConfigError, match=key):
            raft(config(**{key: wrong}))


def test_the_longest_wait_of_a_fetch_reaches_the_core():
    key = "controller.quorum.fetch.wait.max.ms"
    assert raft(config()).fetch_max_wait_ms == 500
    assert raft(config(**{key: "1999"})).fetch_max_wait_ms == 1999
    # Kafka's replicas ask for 500 with any timeout: without the key, nothing is compared.
    assert raft(config(controller_quorum_fetch_timeout_ms="400")).fetch_max_wait_ms == 500


@pytest.mark.parametrize("key", LOG_KEYS)
def test_a_setting_of_the_metadata_log_reaches_it(key):
    name, default = LOG_KEYS[key]
    assert getattr(metadata_log_config(config()), name) == default
    assert getattr(metadata_log_config(config(**{key: "9000000"})), name) == 9_000_000
    with pytest.raises(ConfigError, match=key):
        metadata_log_config(config(**{key: "x"}))


def test_auto_join_is_off_unless_asked_for_and_never_a_brokers():
    assert not raft(config()).auto_join
    assert raft(config(controller_quorum_auto_join_enable="true")).auto_join
    broker = {
        "process.roles": "broker",
        "listeners": "PLAINTEXT://127.0.0.1:9092",
        "listener.security.protocol.map": "A:PLAINTEXT,B:PLAINTEXT,PLAINTEXT:PLAINTEXT",
        "controller.quorum.auto.join.enable": "true",
    }
    found = raft(config(**broker))
    assert (found.auto_join, found.can_become_voter, found.local_endpoints) == (False, False, ())


def test_listeners_of_the_controller_are_told_in_full_and_the_first_is_used():
    found = raft(config(controller_listener_names="B,A", controller_quorum_bootstrap_servers="h:1,[::1]:2"))
    assert found.listener_name == "B"
    assert set(found.local_endpoints) == {Endpoint("A", "127.0.0.1", 9093), Endpoint("B", "127.0.0.1", 9094)}
    assert found.bootstrap_servers == (Endpoint("B", "h", 1), Endpoint("B", "::1", 2))


def test_no_key_of_the_quorum_is_left_out_here():
    elsewhere = {
        "controller.quorum.voters",  # test_endpoints
        "controller.quorum.bootstrap.servers",
        "controller.quorum.auto.join.enable",
        "controller.quorum.fetch.wait.max.ms",
    }
    known = {name for name in broker_configs() if name.startswith("controller.quorum.")}
    assert known == set(RAFT_KEYS) | elsewhere
    assert set(LOG_KEYS) <= set(broker_configs())
