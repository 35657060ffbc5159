"""SASL on a connection, as a state machine: what may follow what, and what else ends it."""

from __future__ import annotations

from functools import partial

import pytest

from kraftlog.errors import ErrorCode
from kraftlog.security.sasl import Credentials
from kraftlog.security.sasl_plain import PlainServer
from kraftlog.security.sasl_scram import ScramServer, scram_messages
from kraftlog.security.scram import MECHANISM_BY_NAME
from kraftlog.transport.sasl_session import Authenticated, Failed, Passed, Replied, SaslSession
from kraftlog.wire.frame import decode_response, encode_request
from kraftlog.wire.messages.api_versions import ApiVersionsRequest
from kraftlog.wire.messages.metadata import MetadataRequest
from kraftlog.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from kraftlog.wire.messages.sasl_handshake import SaslHandshakeRequest

SHA_512 = MECHANISM_BY_NAME["SCRAM-SHA-512"]
SALTED = SHA_512.salted_password("secret", b"salt", 4096)
USERS = {"alice": SHA_512.credential(SALTED, b"salt", 4096)}
SERVERS = {
    "PLAIN": partial(PlainServer, {"alice": "secret", "bob": "secret"}),
    "SCRAM-SHA-512": partial(ScramServer, SHA_512, USERS.get),
}
ALICE = b"\0alice\0secret"
GENERIC = "Authentication failed during authentication due to invalid credentials with SASL mechanism "


def session(**max_reauth_ms):
    return SaslSession(SERVERS, {name.replace("_", "-"): value for name, value in max_reauth_ms.items()})


def frame_of(request, version):
    return b"".join(map(bytes, encode_request(request.API_KEY, version, 7, "test", request)))[4:]


def handshake(mechanism="PLAIN", version=1):
    return frame_of(SaslHandshakeRequest(mechanism=mechanism), version)


def token(data, version=2):
    return frame_of(SaslAuthenticateRequest(auth_bytes=data), version)


def answer_of(step, api_key, version):
    """The response in a step; checks the size and the correlation id before it."""
    data = b"".join(map(bytes, step.outputs))
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    correlation_id, response = decode_response(api_key, version, data[4:])
    assert correlation_id == 7
    return response


def authenticated(connection, now_s=0.0, mechanism="PLAIN", data=ALICE, version=2):
    assert isinstance(connection.receive(handshake(mechanism), now_s), Replied)
    step = connection.receive(token(data, version), now_s)
    assert isinstance(step, Authenticated), step
    assert connection.is_authenticated
    return step


@pytest.mark.parametrize("version", [0, 1, 2])
def test_a_client_authenticates_with_plain(version):
    connection = session()
    step = connection.receive(handshake(), 0.0)
    assert isinstance(step, Replied)
    response = answer_of(step, 17, 1)
    assert (response.error_code, tuple(response.mechanisms)) == (0, ("PLAIN", "SCRAM-SHA-512"))
    assert not connection.is_authenticated
    step = connection.receive(token(ALICE, version), 0.0)
    assert isinstance(step, Authenticated)
    assert step.user == "alice"
    response = answer_of(step, 36, version)
    assert (response.error_code, response.error_message, bytes(response.auth_bytes)) == (0, "", b"")
    assert response.session_lifetime_ms == 0
    assert isinstance(connection.receive(frame_of(MetadataRequest(), 12), 1e9), Passed)


def test_a_client_authenticates_with_scram():
    connection = session()
    connection.receive(handshake("SCRAM-SHA-512"), 0.0)
    client = scram_messages(Credentials("alice", "secret"), SHA_512)
    step = connection.receive(token(next(client)), 0.0)
    assert isinstance(step, Replied)
    final = client.send(bytes(answer_of(step, 36, 2).auth_bytes))
    step = connection.receive(token(final), 0.0)
    assert isinstance(step, Authenticated)
    with pytest.raises(StopIteration):
        client.send(bytes(answer_of(step, 36, 2).auth_bytes))


def test_tokens_are_bare_after_handshake_version_0():
    connection = session()
    assert answer_of(connection.receive(handshake(version=0), 0.0), 17, 0).error_code == 0
    step = connection.receive(ALICE, 0.0)
    assert isinstance(step, Authenticated)
    assert b"".join(step.outputs) == b"\0\0\0\0"

    connection = session()
    connection.receive(handshake("SCRAM-SHA-512", version=0), 0.0)
    client = scram_messages(Credentials("alice", "secret"), SHA_512)
    challenge = b"".join(connection.receive(next(client), 0.0).outputs)
    assert int.from_bytes(challenge[:4], "big") == len(challenge) - 4
    assert isinstance(connection.receive(client.send(challenge[4:]), 0.0), Authenticated)


def test_a_bare_token_that_fails_has_no_answer():
    connection = session()
    connection.receive(handshake(version=0), 0.0)
    step = connection.receive(b"\0alice\0wrong", 0.0)
    assert isinstance(step, Failed)
    assert not step.outputs
    assert step.is_delayed


@pytest.mark.parametrize(
    ("mechanism", "data", "message"),
    [
        ("PLAIN", b"\0alice\0wrong", "Authentication failed: Invalid username or password"),
        ("PLAIN", b"nonsense", "Invalid SASL/PLAIN response: expected 3 tokens, got 1"),
        ("SCRAM-SHA-512", b"n,,n=nobody,r=abc", GENERIC + "SCRAM-SHA-512"),
        ("SCRAM-SHA-512", ALICE, GENERIC + "SCRAM-SHA-512"),
    ],
)
@pytest.mark.parametrize("version", [0, 2])
def test_a_failure_is_answered_late_and_ends_the_connection(mechanism, data, message, version):
    connection = session()
    connection.receive(handshake(mechanism), 0.0)
    step = connection.receive(token(data, version), 0.0)
    assert isinstance(step, Failed)
    assert step.is_delayed
    response = answer_of(step, 36, version)
    assert (response.error_code, response.error_message) == (ErrorCode.SASL_AUTHENTICATION_FAILED, message)
    assert isinstance(connection.receive(token(ALICE), 0.0), Failed)


def test_a_mechanism_that_is_not_enabled_is_answered_with_those_that_are():
    connection = session()
    step = connection.receive(handshake("GSSAPI"), 0.0)
    assert isinstance(step, Failed)
    response = answer_of(step, 17, 1)
    assert response.error_code == ErrorCode.UNSUPPORTED_SASL_MECHANISM
    assert tuple(response.mechanisms) == ("PLAIN", "SCRAM-SHA-512")
    assert isinstance(connection.receive(handshake(), 0.0), Failed)


def test_versions_may_be_asked_once_and_again_only_if_they_were_refused():
    connection = session()
    for error_code in (ErrorCode.UNSUPPORTED_VERSION, ErrorCode.NONE):
        assert isinstance(connection.receive(frame_of(ApiVersionsRequest(), 3), 0.0), Passed)
        connection.versions_answered(error_code)
    assert isinstance(connection.receive(frame_of(ApiVersionsRequest(), 3), 0.0), Failed)

    connection = session()
    connection.receive(frame_of(ApiVersionsRequest(), 3), 0.0)
    connection.versions_answered(0)
    authenticated(connection)


@pytest.mark.parametrize(
    "frame",
    [
        frame_of(MetadataRequest(), 12),
        token(ALICE),
        ALICE,
        b"",
        b"\0",
        b"GET / HTTP/1.1",
        b"\0\x11\0\x02" + bytes(8),  # SaslHandshake version 2
        b"\0\x11\xff\xff" + bytes(8),
        b"\0\x11\0\x01\0\0\0\0\0\0\x7f\xff",  # a mechanism that is not there
        b"\x7f\xff" + bytes(10),
    ],
)
def test_any_other_first_frame_ends_the_connection(frame):
    connection = session()
    step = connection.receive(frame, 0.0)
    assert isinstance(step, Failed)
    assert not step.outputs
    assert isinstance(connection.receive(handshake(), 0.0), Failed)


def test_a_request_that_belongs_before_tokens_is_an_illegal_state():
    for request, version in ((SaslHandshakeRequest(mechanism="PLAIN"), 1), (ApiVersionsRequest(), 3)):
        connection = session()
        connection.receive(handshake(), 0.0)
        step = connection.receive(frame_of(request, version), 0.0)
        assert isinstance(step, Failed)
        assert answer_of(step, request.API_KEY, version).error_code == ErrorCode.ILLEGAL_SASL_STATE


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        ALICE[:5],
        b"\0\x24\0\x03" + bytes(8),  # SaslAuthenticate version 3
        b"\0\x24\0\0\0\0\0\0\0\0\x7f\xff\xff\xff",  # a token that is not there
        b"\0\x24\0\0\0\0\0\0\0\0\xff\xff\xff\xff",  # or null
        frame_of(MetadataRequest(), 12),
        b"\0\x11\0\x7f" + bytes(20),  # a version of SaslHandshake that does not exist
    ],
)
def test_bytes_that_are_no_token_end_the_connection(frame):
    connection = session()
    connection.receive(handshake(), 0.0)
    step = connection.receive(frame, 0.0)
    assert isinstance(step, Failed)
    assert not step.outputs


def test_what_a_peer_sent_is_cut_in_the_log():
    connection = session()
    step = connection.receive(handshake("x" * 30_000), 0.0)
    assert isinstance(step, Failed)
    assert len(step.reason) < 300
    connection = session()
    connection.receive(handshake("SCRAM-SHA-512"), 0.0)
    step = connection.receive(token(b"n,,n=" + b"u" * 300_000 + b",r=a"), 0.0)
    assert isinstance(step, Failed)
    assert len(step.reason) < 300


def test_a_session_that_ends_is_told_to_the_client_and_ends_the_connection():
    connection = session(PLAIN=2000)
    step = authenticated(connection, 10.0)
    assert answer_of(step, 36, 2).session_lifetime_ms == 2000
    request = frame_of(MetadataRequest(), 12)
    assert isinstance(connection.receive(request, 12.0), Passed)
    step = connection.receive(request, 12.001)
    assert isinstance(step, Failed)
    assert not step.outputs


def test_an_old_client_is_told_nothing_but_its_session_ends_too():
    connection = session(PLAIN=2000)
    authenticated(connection, 10.0, version=0)
    assert isinstance(connection.receive(frame_of(MetadataRequest(), 12), 13.0), Failed)


@pytest.mark.parametrize("now_s", [11.0, 13.0])
def test_a_client_authenticates_again_before_or_after_its_session_has_ended(now_s):
    connection = session(PLAIN=2000)
    authenticated(connection, 10.0)
    assert isinstance(connection.receive(handshake(), now_s), Replied)
    assert not connection.is_authenticated
    step = connection.receive(token(ALICE), now_s)
    assert isinstance(step, Authenticated)
    assert answer_of(step, 36, 2).session_lifetime_ms == 2000
    assert isinstance(connection.receive(frame_of(MetadataRequest(), 12), now_s + 2), Passed)


def test_nobody_authenticates_again_within_a_second_or_without_an_end_of_the_session():
    connection = session(PLAIN=60_000)
    authenticated(connection, 10.0)
    authenticated(connection, 10.5)
    # The dispatcher answers ILLEGAL_SASL_STATE, and the session goes on.
    assert isinstance(connection.receive(handshake(), 11.4), Passed)
    authenticated(connection, 11.5)

    connection = session()
    authenticated(connection)
    assert isinstance(connection.receive(handshake(), 100.0), Passed)


def test_what_is_left_of_a_session_counts_from_the_last_authentication():
    connection = session(PLAIN=60_000)
    assert connection.left_s(0.0) is None
    authenticated(connection, 10.0)
    assert [connection.left_s(now_s) for now_s in (10.0, 69.5, 70.0, 99.0)] == [60.0, 0.5, 0.0, 0.0]
    authenticated(connection, 30.0)
    assert connection.left_s(30.0) == 60.0

    connection = session()
    authenticated(connection)
    assert connection.left_s(0.0) is None, "it does not end"


def test_nobody_becomes_another_user():
    connection = session(PLAIN=60_000)
    authenticated(connection)
    connection.receive(handshake(), 5.0)
    step = connection.receive(token(b"\0bob\0secret"), 5.0)
    assert isinstance(step, Failed)
    assert answer_of(step, 36, 2).error_message == (
        "Cannot change principals during re-authentication from User.alice: User.bob"
    )


def test_a_wrong_password_of_re_authentication_is_named_so():
    connection = session(SCRAM_SHA_512=60_000)
    connection.receive(handshake("SCRAM-SHA-512"), 0.0)
    client = scram_messages(Credentials("alice", "secret"), SHA_512)
    challenge = answer_of(connection.receive(token(next(client)), 0.0), 36, 2).auth_bytes
    assert isinstance(connection.receive(token(client.send(bytes(challenge))), 0.0), Authenticated)
    connection.receive(handshake("SCRAM-SHA-512"), 5.0)
    step = connection.receive(token(b"nonsense"), 5.0)
    assert isinstance(step, Failed)
    assert "during re-authentication" in answer_of(step, 36, 2).error_message


def test_nobody_authenticates_again_with_another_mechanism():
    connection = session(PLAIN=60_000)
    authenticated(connection)
    assert answer_of(connection.receive(handshake("SCRAM-SHA-512"), 5.0), 17, 1).error_code == 0
    step = connection.receive(token(b"n,,n=alice,r=abc"), 5.0)
    assert isinstance(step, Failed)
    assert not step.outputs


def test_an_unknown_mechanism_of_re_authentication_has_no_answer():
    connection = session(PLAIN=60_000)
    authenticated(connection)
    step = connection.receive(handshake("GSSAPI"), 5.0)
    assert isinstance(step, Failed)
    assert not step.outputs


def test_only_tokens_may_follow_the_handshake_of_re_authentication():
    connection = session(PLAIN=60_000)
    authenticated(connection)
    connection.receive(handshake(), 5.0)
    assert isinstance(connection.receive(frame_of(MetadataRequest(), 12), 5.0), Failed)
