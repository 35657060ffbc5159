"""SASL from Kafka's keys, and what a node does not start with."""

from __future__ import annotations

import pytest

from kraftlog.node.config import ConfigError, NodeConfig
from kraftlog.security.jaas import PLAIN_MODULE, SCRAM_MODULE

PLAIN_JAAS = f'{PLAIN_MODULE} required username="node" password="n" user_node="n" user_alice="a";'
SCRAM_JAAS = f'{SCRAM_MODULE} required username="node" password="n";'
LISTENER = "listener.name.sasl_plaintext."
ALONE = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "SASL_PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
    "log.dirs": "data",
}
SASL = {"sasl.enabled.mechanisms": "PLAIN", f"{LISTENER}plain.sasl.jaas.config": PLAIN_JAAS}
SEVERAL = {
    **ALONE,
    **SASL,
    "controller.quorum.bootstrap.servers": "127.0.0.1:9093,127.0.0.1:9094",
    "security.inter.broker.protocol": "SASL_PLAINTEXT",
    "sasl.mechanism.inter.broker.protocol": "PLAIN",
}


def settings(**changes):
    return {**ALONE, **SASL, **changes}


def sasl_of(properties):
    found = NodeConfig(properties).sasl("SASL_PLAINTEXT")
    assert found is not None
    return found


def test_the_users_of_plain_and_the_defaults():
    found = sasl_of(settings())
    assert found.mechanisms == ("PLAIN",)
    assert found.passwords == {"node": "n", "alice": "a"}
    assert (found.max_reauth_ms, found.max_receive_bytes, found.failure_delay_ms) == ({}, 524288, 100)
    config = NodeConfig(settings())
    assert config.security_protocol("SASL_PLAINTEXT") == 2
    assert config.sasl("CONTROLLER") is None


def test_the_mechanisms_of_a_listener_win():
    properties = settings(**{"sasl.enabled.mechanisms": "GSSAPI", f"{LISTENER}sasl.enabled.mechanisms": "PLAIN"})
    assert sasl_of(properties).mechanisms == ("PLAIN",)


def test_a_bare_login_module_is_for_its_own_mechanism():
    properties = {**ALONE, "sasl.enabled.mechanisms": "SCRAM-SHA-512,PLAIN", "sasl.jaas.config": PLAIN_JAAS}
    found = sasl_of(properties)
    assert found.mechanisms == ("SCRAM-SHA-512", "PLAIN")
    assert found.passwords == {"node": "n", "alice": "a"}


def test_sessions_end_by_mechanism_listener_or_for_all():
    keys = {
        "connections.max.reauth.ms": "1000",
        f"{LISTENER}connections.max.reauth.ms": "2000",
        f"{LISTENER}plain.connections.max.reauth.ms": "3000",
        f"{LISTENER}scram-sha-256.connections.max.reauth.ms": "0",
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    }
    assert sasl_of(settings(**keys)).max_reauth_ms == {"PLAIN": 3000, "SCRAM-SHA-512": 2000}


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sasl.enabled.mechanisms": "PLAIN,GSSAPI"}, "sasl.enabled.mechanisms=PLAIN,GSSAPI: mechanism GSSAPI is not"),
        ({"sasl.enabled.mechanisms": "OAUTHBEARER"}, "mechanism OAUTHBEARER is not supported; supported are PLAIN"),
        ({"sasl.enabled.mechanisms": "plain"}, "mechanism plain is not supported"),
        ({f"{LISTENER}sasl.enabled.mechanisms": ""}, f"{LISTENER}sasl.enabled.mechanisms is empty"),
        ({f"{LISTENER}plain.sasl.jaas.config": "nonsense"}, f"{LISTENER}plain.sasl.jaas.config: it does not end"),
        ({f"{LISTENER}plain.sasl.jaas.config": SCRAM_JAAS}, "is not the login module of PLAIN"),
        (
            {f"{LISTENER}plain.sasl.jaas.config": f'{PLAIN_MODULE} required users="a";'},
            "has no option users that is supported",
        ),
        ({"sasl.enabled.mechanisms": "SCRAM-SHA-256", f"{LISTENER}scram-sha-256.sasl.jaas.config": PLAIN_JAAS}, "not"),
        ({"sasl.server.max.receive.size": "0"}, "sasl.server.max.receive.size"),
        ({f"{LISTENER}connections.max.reauth.ms": "soon"}, "must be an integer"),
        (
            {f"{LISTENER}plain.sasl.server.callback.handler.class": "org.example.Handler"},
            "classes of Java are not supported",
        ),
        ({"principal.builder.class": "org.example.Builder"}, "principal.builder.class=org.example.Builder"),
        ({"sasl.mechanism.inter.broker.protocol": "GSSAPI", "inter.broker.listener.name": "SASL_PLAINTEXT"}, "GSSAPI"),
        (
            {"security.inter.broker.protocol": "SASL_PLAINTEXT", "inter.broker.listener.name": "SASL_PLAINTEXT"},
            "only one of",
        ),
    ],
)
def test_a_node_does_not_start_with_what_it_cannot_do(changes, message):
    with pytest.raises(ConfigError) as refusal:
        NodeConfig(settings(**changes))
    assert message in str(refusal.value)


def test_the_default_mechanism_and_missing_users_are_refused_by_name():
    with pytest.raises(ConfigError, match=r"sasl.enabled.mechanisms is not set: mechanism GSSAPI is not supported"):
        NodeConfig(ALONE)
    with pytest.raises(ConfigError, match=r"listener.name.sasl_plaintext.plain.sasl.jaas.config must be set"):
        NodeConfig({**ALONE, "sasl.enabled.mechanisms": "PLAIN"})


def test_no_refusal_shows_a_password():
    jaas = f'{PLAIN_MODULE} required user_alice="hunter2" hunter=hunter2'
    with pytest.raises(ConfigError) as refusal:
        NodeConfig(settings(**{f"{LISTENER}plain.sasl.jaas.config": jaas}))
    assert "hunter2" not in str(refusal.value)


def test_the_user_as_which_a_node_connects_to_brokers():
    config = NodeConfig(SEVERAL)
    assert config.inter_broker_listener_name == "SASL_PLAINTEXT"
    security = config.peer_security("SASL_PLAINTEXT")
    assert security is not None
    assert security.tls is None
    assert security.login is not None
    assert (security.login.mechanism, security.login.credentials.username) == ("PLAIN", "node")
    assert config.peer_security("CONTROLLER") is None


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256"}, "scram-sha-256.sasl.jaas.config must be set"),
        (
            {"sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-256", "sasl.jaas.config": SCRAM_JAAS},
            "must be one of sasl.enabled.mechanisms=PLAIN",
        ),
        (
            {f"{LISTENER}plain.sasl.jaas.config": f'{PLAIN_MODULE} required user_alice="a";'},
            "username and password must be set",
        ),
        (
            {"listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT"},
            "listener.name.controller.plain.sasl.jaas.config must be set",
        ),
        (
            {
                "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
                "listener.name.controller.plain.sasl.jaas.config": PLAIN_JAAS,
            },
            "sasl.mechanism.controller.protocol is not set: mechanism GSSAPI",
        ),
        (
            {
                "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
                "listener.name.controller.sasl.enabled.mechanisms": "SCRAM-SHA-256",
                "listener.name.controller.scram-sha-256.sasl.jaas.config": SCRAM_JAAS,
                "sasl.mechanism.controller.protocol": "SCRAM-SHA-256",
            },
            "use PLAIN between controllers",
        ),
    ],
)
def test_one_of_several_nodes_needs_a_user(changes, message):
    with pytest.raises(ConfigError) as refusal:
        NodeConfig({**SEVERAL, **changes})
    assert message in str(refusal.value)


def test_a_broker_may_connect_to_controllers_with_scram():
    properties = {
        **SEVERAL,
        "process.roles": "broker",
        "listeners": "SASL_PLAINTEXT://127.0.0.1:9092",
        "listener.security.protocol.map": "SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
        "sasl.mechanism.controller.protocol": "SCRAM-SHA-512",
        "listener.name.controller.scram-sha-512.sasl.jaas.config": SCRAM_JAAS,
    }
    security = NodeConfig(properties).peer_security("CONTROLLER")
    assert security is not None
    assert security.login is not None
    assert security.login.mechanism == "SCRAM-SHA-512"
