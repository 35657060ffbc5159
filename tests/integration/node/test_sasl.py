"""SASL of a live node, frame by frame: what a client may send, what it gets, and what others see of it."""

from __future__ import annotations

import logging
import time

import pytest

import kraftlog
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.node.config import ConfigError
from kraftlog.security.operation import Operation, PatternType, Permission, ResourceKind
from kraftlog.security.sasl import Credentials
from kraftlog.security.sasl_scram import scram_messages
from kraftlog.security.scram import MECHANISM_BY_CODE, MECHANISM_BY_NAME
from kraftlog.wire.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from kraftlog.wire.messages.api_versions import ApiVersionsRequest
from kraftlog.wire.messages.create_acls import CreateAclsRequest
from kraftlog.wire.messages.describe_acls import DescribeAclsRequest
from kraftlog.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from kraftlog.wire.messages.metadata import MetadataRequest
from kraftlog.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from kraftlog.wire.messages.sasl_handshake import SaslHandshakeRequest
from raw_client import RawClient
from waiting import until_true

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
STANDARD = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
CONFIG = {
    "listeners": "SASL_PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
    "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
    "sasl.jaas.config": f'{PLAIN_MODULE} required user_alice="secret" user_admin="admin";',
}
GENERIC = "Authentication failed during authentication due to invalid credentials with SASL mechanism "
MECHANISMS = ["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


def sasl(client, user, password, mechanism="PLAIN"):
    """Authenticate; the last answer."""
    handshake = client.call(SaslHandshakeRequest(mechanism=mechanism))
    assert (handshake.error_code, list(handshake.mechanisms)) == (0, MECHANISMS)
    if mechanism == "PLAIN":
        return client.call(SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{password}".encode()))
    messages = scram_messages(Credentials(user, password), MECHANISM_BY_NAME[mechanism])
    answer = client.call(SaslAuthenticateRequest(auth_bytes=next(messages)))
    if answer.error_code:
        return answer
    answer = client.call(SaslAuthenticateRequest(auth_bytes=messages.send(bytes(answer.auth_bytes))))
    if not answer.error_code:
        with pytest.raises(StopIteration):
            messages.send(bytes(answer.auth_bytes))
    return answer


def connected(broker, user="admin", password="admin", mechanism="PLAIN"):
    client = RawClient(broker.bootstrap_servers)
    answer = sasl(client, user, password, mechanism)
    assert answer.error_code == 0, answer
    return client


def set_password(client, user, password, code, iterations=4096):
    salted = MECHANISM_BY_CODE[code].salted_password(password, b"salt", iterations)
    response = client.call(
        AlterUserScramCredentialsRequest(
            upsertions=[
                AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
                    name=user, mechanism=code, iterations=iterations, salt=b"salt", salted_password=salted
                )
            ]
        )
    )
    assert [result.error_code for result in response.results] == [0]


@pytest.fixture(scope="module", params=["native", "python"])
def broker(request):
    """On the native path a connection changes its owner behind the last token, on the other one it does not."""
    with kraftlog.Broker(config={**CONFIG, "kraftlog.data.path": request.param}) as running:
        running.create_topic("t")
        yield running


def test_plain_opens_the_connection(broker):
    with RawClient(broker.bootstrap_servers) as client:
        keys = {api.api_key for api in client.call(ApiVersionsRequest(), 2).api_keys}
        assert {17, 36, 51} <= keys
        assert sasl(client, "alice", "secret").error_code == 0
        assert [topic.name for topic in client.call(MetadataRequest(topics=None)).topics] == ["t"]


def test_a_large_request_is_taken_after_authentication(broker):
    with connected(broker) as client:
        names = [MetadataRequest.MetadataRequestTopic(name=f"{number:0200d}") for number in range(4000)]
        assert len(client.call(MetadataRequest(topics=names, allow_auto_topic_creation=False)).topics) == 4000


@pytest.mark.parametrize("mechanism", MECHANISMS)
@pytest.mark.parametrize(("user", "password"), [("alice", "wrong"), ("nobody", "secret")])
def test_a_wrong_password_is_answered_after_a_while_and_closes(broker, mechanism, user, password):
    with connected(broker) as admin:
        for code in MECHANISM_BY_CODE:
            set_password(admin, "alice", "secret", code)
    with RawClient(broker.bootstrap_servers) as client:
        began_s = time.monotonic()
        answer = sasl(client, user, password, mechanism)
        assert time.monotonic() - began_s >= 0.1
        assert answer.error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
        assert answer.error_message == (
            "Authentication failed: Invalid username or password" if mechanism == "PLAIN" else GENERIC + mechanism
        )
        assert client.is_closed_by_peer()


def test_a_failed_authentication_is_logged_with_the_user_and_no_password(broker, caplog):
    with caplog.at_level(logging.WARNING, "kraftlog.transport"), RawClient(broker.bootstrap_servers) as client:
        sasl(client, "alice", "wr0ng")
        assert client.is_closed_by_peer()
    (line,) = (record.getMessage() for record in caplog.records if "PLAIN" in record.getMessage())
    assert "127.0.0.1" in line
    assert "wr0ng" not in caplog.text


def test_nothing_is_served_before_authentication(broker):
    for request in (MetadataRequest(topics=None), SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret")):
        with RawClient(broker.bootstrap_servers) as client:
            client.send(request, request.VERSIONS[1])
            assert client.is_closed_by_peer()


def test_requests_behind_a_token_are_served_if_it_is_right(broker):
    for password in ("secret", "wrong"):
        with RawClient(broker.bootstrap_servers) as client:
            client.send(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            client.send(SaslAuthenticateRequest(auth_bytes=f"\0alice\0{password}".encode()), 2)
            client.send(MetadataRequest(topics=None), 12)
            assert client.receive(17, 1)[1].error_code == 0
            if password == "secret":
                assert client.receive(36, 2)[1].error_code == 0
                assert [topic.name for topic in client.receive(3, 12)[1].topics] == ["t"]
            else:
                assert client.receive(36, 2)[1].error_code == ErrorCode.SASL_AUTHENTICATION_FAILED
                assert client.is_closed_by_peer()


def test_a_large_frame_before_authentication_closes(broker):
    with RawClient(broker.bootstrap_servers) as client:
        client.sock.sendall((524_289).to_bytes(4, "big"))
        assert client.is_closed_by_peer()


def test_a_second_handshake_is_refused_and_the_session_goes_on(broker):
    with connected(broker) as client:
        assert client.call(SaslHandshakeRequest(mechanism="PLAIN")).error_code == ErrorCode.ILLEGAL_SASL_STATE
        answer = client.call(SaslAuthenticateRequest(auth_bytes=b"\0alice\0secret"))
        assert answer.error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert client.call(MetadataRequest(topics=None)).topics


def test_a_listener_without_sasl_knows_no_authentication():
    with kraftlog.Broker() as plain, RawClient(plain.bootstrap_servers) as client:
        assert client.call(SaslHandshakeRequest(mechanism="PLAIN")).error_code == ErrorCode.ILLEGAL_SASL_STATE
        assert client.call(ApiVersionsRequest(), 2).error_code == 0


@pytest.mark.parametrize("code", [1, 2])
def test_a_scram_user_is_set_described_and_removed(broker, code):
    mechanism = MECHANISM_BY_CODE[code].name
    with connected(broker) as admin:
        set_password(admin, "carol", "first", code)
        connected(broker, "carol", "first", mechanism).sock.close()
        set_password(admin, "carol", "second", code, 8192)
        connected(broker, "carol", "second", mechanism).sock.close()
        asked = DescribeUserScramCredentialsRequest(users=[DescribeUserScramCredentialsRequest.UserName(name="carol")])
        (result,) = admin.call(asked).results
        assert [(info.mechanism, info.iterations) for info in result.credential_infos] == [(code, 8192)]
        removal = AlterUserScramCredentialsRequest.ScramCredentialDeletion(name="carol", mechanism=code)
        response = admin.call(AlterUserScramCredentialsRequest(deletions=[removal]))
        assert [result.error_code for result in response.results] == [0]
    with RawClient(broker.bootstrap_servers) as client:
        assert sasl(client, "carol", "second", mechanism).error_code == ErrorCode.SASL_AUTHENTICATION_FAILED


def test_credentials_are_there_after_a_restart_when_the_listener_opens(tmp_path):
    with kraftlog.Broker(tmp_path, config=CONFIG) as broker, connected(broker) as admin:
        set_password(admin, "carol", "secret", 1)
    with kraftlog.Broker(tmp_path, config=CONFIG) as broker:
        connected(broker, "carol", "secret", "SCRAM-SHA-256").sock.close()


def test_acls_judge_by_the_user(tmp_path):
    config = {**CONFIG, "authorizer.class.name": STANDARD, "super.users": "User:admin"}
    with kraftlog.Broker(tmp_path, config=config) as broker, connected(broker) as admin:
        broker.create_topic("t")
        creation = CreateAclsRequest.AclCreation(
            resource_type=ResourceKind.TOPIC,
            resource_name="t",
            resource_pattern_type=PatternType.LITERAL,
            principal="User:carol",
            host="*",
            operation=Operation.DESCRIBE,
            permission_type=Permission.ALLOW,
        )
        assert admin.call(CreateAclsRequest(creations=[creation])).results[0].error_code == 0
        set_password(admin, "carol", "secret", 2)
        with (
            connected(broker, "carol", "secret", "SCRAM-SHA-512") as carol,
            connected(broker, "alice", "secret") as alice,
        ):
            assert [topic.name for topic in carol.call(MetadataRequest(topics=None)).topics] == ["t"]
            assert not alice.call(MetadataRequest(topics=None)).topics
            assert alice.call(DescribeAclsRequest()).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
            response = alice.call(
                AlterUserScramCredentialsRequest(
                    upsertions=[AlterUserScramCredentialsRequest.ScramCredentialUpsertion(name="alice")]
                )
            )
            assert [result.error_code for result in response.results] == [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]


def test_a_session_ends_and_its_connection_with_it():
    config = {**CONFIG, "listener.name.sasl_plaintext.plain.connections.max.reauth.ms": 1}
    with kraftlog.Broker(config=config) as broker, RawClient(broker.bootstrap_servers) as client:
        assert sasl(client, "alice", "secret").session_lifetime_ms == 1

        def is_closed():
            client.send(MetadataRequest(topics=[]), 12)
            try:
                client.receive(3, 12)
            except ConnectionError:
                return True
            return False

        until_true(is_closed)


def test_a_client_authenticates_again():
    with kraftlog.Broker(config={**CONFIG, "connections.max.reauth.ms": 600_000}) as broker:
        broker.create_topic("t")
        with connected(broker) as client:
            answer = sasl(client, "admin", "admin")
            assert (answer.error_code, answer.session_lifetime_ms) == (0, 600_000)
            assert client.call(MetadataRequest(topics=None)).topics
        with connected(broker) as client:
            answer = sasl(client, "alice", "secret")
            assert answer.error_message == (
                "Cannot change principals during re-authentication from User.admin: User.alice"
            )
            assert client.is_closed_by_peer()


def test_the_client_of_this_package_authenticates(broker):
    settings = {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{PLAIN_MODULE} required username="alice" password="secret";',
    }
    with kraftlog.Producer({"bootstrap.servers": broker.bootstrap_servers, **settings}) as producer:
        producer.send("t", b"value")
        producer.flush()
    wrong = {**settings, "sasl.jaas.config": f'{PLAIN_MODULE} required username="alice" password="wrong";'}
    with pytest.raises(KafkaError, match="Invalid username or password"):
        kraftlog.read(broker.bootstrap_servers, "t", config=wrong)


def test_a_broker_without_users_does_not_start():
    with pytest.raises(ConfigError, match="GSSAPI"), kraftlog.Broker(config={"listeners": CONFIG["listeners"]}):
        pass
