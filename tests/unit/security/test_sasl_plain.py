"""PLAIN as a server takes it (RFC 4616)."""

from __future__ import annotations

import pytest

from kraftlog.security.sasl import Credentials, SaslError
from kraftlog.security.sasl_plain import PlainServer, plain_messages

PASSWORDS = {"alice": "secret", "zoë": "pä ss"}
PARTS = "Invalid SASL/PLAIN response: expected 3 tokens, got "
INVALID = "Authentication failed: Invalid username or password"


@pytest.mark.parametrize(("user", "password"), PASSWORDS.items())
def test_a_client_with_the_password_is_that_user(user, password):
    server = PlainServer(PASSWORDS)
    assert not server.is_complete
    assert server.evaluate(next(plain_messages(Credentials(user, password)))) == b""
    assert (server.is_complete, server.user) == (True, user)


def test_the_authorization_id_may_be_the_user():
    server = PlainServer(PASSWORDS)
    server.evaluate(b"alice\0alice\0secret")
    assert server.user == "alice"


@pytest.mark.parametrize(
    ("token", "told"),
    [
        (b"\0alice\0wrong", INVALID),
        (b"\0bob\0secret", INVALID),
        (b"\0zo\xc3\xab\0secret", INVALID),
        (b"\0\0secret", "Authentication failed: username not specified"),
        (b"\0alice\0", "Authentication failed: password not specified"),
        (
            b"bob\0alice\0secret",
            "Authentication failed: Client requested an authorization id that is different from username",
        ),
        # The password is checked first: who does not know it learns nothing.
        (b"bob\0alice\0wrong", INVALID),
        (b"", PARTS + "1"),
        (b"alice\0secret", PARTS + "2"),
        (b"\0alice\0secret\0", PARTS + "4"),
        (b"\0" * 1000, PARTS + "4"),
        (b"\xff\xfe\0\xff", PARTS + "2"),
        (b"\0\xff\0\xff", INVALID),
    ],
)
def test_everybody_else_is_refused(token, told):
    server = PlainServer(PASSWORDS)
    with pytest.raises(SaslError) as refusal:
        server.evaluate(token)
    assert refusal.value.client_message == told
    assert not server.is_complete


def test_a_second_message_is_refused():
    server = PlainServer(PASSWORDS)
    server.evaluate(b"\0alice\0secret")
    with pytest.raises(SaslError, match="after the only one"):
        server.evaluate(b"\0alice\0secret")


def test_a_password_is_in_no_text():
    assert "secret" not in repr(Credentials("alice", "secret"))
