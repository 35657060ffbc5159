"""SCRAM, both sides: the examples of RFC 5802 and RFC 7677, each other, and messages of somebody else."""

from __future__ import annotations

import base64

import pytest

from kraftlog.errors import KafkaError
from kraftlog.security.sasl import Credentials, SaslError
from kraftlog.security.sasl_scram import ScramServer, scram_messages
from kraftlog.security.scram import MECHANISM_BY_NAME, ScramCredential, ScramMechanism

SHA_1 = ScramMechanism("SCRAM-SHA-1", 0, "sha1")
SHA_256 = MECHANISM_BY_NAME["SCRAM-SHA-256"]
SHA_512 = MECHANISM_BY_NAME["SCRAM-SHA-512"]
# Section 5 of RFC 5802 and section 3 of RFC 7677: user "user", password "pencil".
EXAMPLES = [
    (
        SHA_1,
        "fyko+d2lbbFgONRv9qkxdawL",
        "3rfcNHYJY1ZVvWVs7j",
        "QSXCR+Q6sek8bf92",
        "v0X8v3Bz2T0CJGbJQyF0X+HI4Ts=",
        "rmF9pqV8S7suAoZWja4dJRkFsKQ=",
    ),
    (
        SHA_256,
        "rOprNGfwEbeRWgbNEkqO",
        "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0",
        "W22ZaJ0SNY7soEsUEjb6gQ==",
        "dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ=",
        "6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=",
    ),
]


def credential(mechanism, password="pencil", salt=b"salt", iterations=4096):
    return mechanism.credential(mechanism.salted_password(password, salt, iterations), salt, iterations)


def server_of(mechanism, users, nonce=None):
    return ScramServer(mechanism, users.get, nonce)


@pytest.mark.parametrize(("mechanism", "client_nonce", "server_nonce", "salt", "proof", "verifier"), EXAMPLES)
def test_the_example_of_the_rfc(mechanism, client_nonce, server_nonce, salt, proof, verifier):
    stored = credential(mechanism, salt=base64.b64decode(salt))
    server = server_of(mechanism, {"user": stored}, server_nonce)
    client = scram_messages(Credentials("user", "pencil"), mechanism, client_nonce)
    first = next(client)
    assert first == f"n,,n=user,r={client_nonce}".encode()
    challenge = server.evaluate(first)
    assert challenge == f"r={client_nonce}{server_nonce},s={salt},i=4096".encode()
    final = client.send(challenge)
    assert final == f"c=biws,r={client_nonce}{server_nonce},p={proof}".encode()
    assert not server.is_complete
    assert server.evaluate(final) == b"v=" + verifier.encode()
    assert (server.is_complete, server.user) == (True, "user")


@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512])
@pytest.mark.parametrize(("user", "password"), [("alice", "secret"), ("a=b,c", 'pa,ss=word"'), ("u", "pä ss")])
def test_client_and_server_agree(mechanism, user, password):
    server = server_of(mechanism, {user: credential(mechanism, password, iterations=8192)})
    client = scram_messages(Credentials(user, password), mechanism)
    final = server.evaluate(client.send(server.evaluate(next(client))))
    with pytest.raises(StopIteration):
        client.send(final)
    assert (server.is_complete, server.user) == (True, user)


@pytest.mark.parametrize("mechanism", [SHA_256, SHA_512])
def test_a_wrong_password_is_refused(mechanism):
    server = server_of(mechanism, {"user": credential(mechanism)})
    client = scram_messages(Credentials("user", "pencils"), mechanism)
    final = client.send(server.evaluate(next(client)))
    with pytest.raises(SaslError, match="does not prove") as refusal:
        server.evaluate(final)
    assert refusal.value.client_message is None
    assert not server.is_complete


def test_a_credential_of_the_other_mechanism_is_of_no_use():
    server = server_of(SHA_512, {"user": credential(SHA_256)})
    client = scram_messages(Credentials("user", "pencil"), SHA_512)
    final = client.send(server.evaluate(next(client)))
    with pytest.raises(SaslError):
        server.evaluate(final)


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"n,,",
        b"y,,n=user,r=abc",  # channel binding
        b"p=tls-unique,,n=user,r=abc",
        b"n,,m=must,n=user,r=abc",  # a mandatory extension
        b"n,,n=,r=abc",
        b"n,,n=us=er,r=abc",
        b"n,,n=user,r=",
        b"n,,n=user,r=a b",
        b"n,,n=us\xc3\xa9r,r=abc",
        b"n,,n=user,r=abc,tokenauth=true",
        b"n,,n=user,r=abc,",
        b"n,,n=nobody,r=abc",
        b"n=user,r=abc",
        b"\0user\0pencil",
        b"n,,n=user,r=abc" + b",a=b" * 50_000 + b",",
    ],
)
def test_a_first_message_that_is_none_is_refused(first):
    server = server_of(SHA_256, {"user": credential(SHA_256)})
    with pytest.raises(SaslError) as refusal:
        server.evaluate(first)
    assert refusal.value.client_message is None


def test_another_authorization_id_is_refused_by_name():
    server = server_of(SHA_256, {"user": credential(SHA_256)})
    with pytest.raises(SaslError) as refusal:
        server.evaluate(b"n,a=root,n=user,r=abc")
    assert "different from username" in str(refusal.value.client_message)


def finished(server, change, *, header=b"n,,"):
    """Send the right final message after ``change`` to it."""
    first = header + b"n=user,r=abc"
    challenge = server.evaluate(first)
    nonce = challenge.split(b",")[0][2:]
    unproved = b"c=%b,r=%b" % (base64.b64encode(header), nonce)
    salted = SHA_256.salted_password("pencil", b"salt", 4096)
    client_key = SHA_256.client_key(salted)
    signature = SHA_256.hmac(SHA_256.hash(client_key), b"n=user,r=abc,%b,%b" % (challenge, unproved))
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    return server.evaluate(change(unproved + b",p=" + base64.b64encode(proof)))


def test_the_authorization_id_may_be_the_user():
    server = server_of(SHA_256, {"user": credential(SHA_256)})
    assert finished(server, lambda final: final, header=b"n,a=user,").startswith(b"v=")


@pytest.mark.parametrize(
    "change",
    [
        lambda _: b"",
        lambda final: final.replace(b"r=abc", b"r=abd"),
        lambda final: final.replace(b"r=abc", b"r=abc,x=y,r=abc"),
        lambda final: final[: final.index(b"r=") + 5] + final[final.index(b",p=") :],  # the client's nonce alone
        lambda final: final.replace(b"c=biws", b"c=eSws"),
        lambda final: final.replace(b"c=biws", b"c="),
        lambda final: final[: final.index(b",p=")],
        lambda final: final[: final.index(b"p=")] + b"p=",
        lambda final: final[: final.index(b"p=")] + b"p=AAAA",
        lambda final: final + b"=",
        lambda final: final + b",x=y",
        lambda final: final.replace(b",p=", b",x=y,p="),  # not signed
    ],
)
def test_a_final_message_that_is_changed_is_refused(change):
    server = server_of(SHA_256, {"user": credential(SHA_256)})
    with pytest.raises(SaslError):
        finished(server, change)
    assert not server.is_complete


def test_each_server_has_another_nonce():
    users = {"user": credential(SHA_256)}
    challenges = {server_of(SHA_256, users).evaluate(b"n,,n=user,r=abc") for _ in range(10)}
    assert len(challenges) == 10


def test_a_message_after_the_last_is_refused():
    server = server_of(SHA_256, {"user": credential(SHA_256)})
    finished(server, lambda final: final)
    with pytest.raises(SaslError, match="after the last"):
        server.evaluate(b"n,,n=user,r=abc")


def test_a_credential_with_too_few_iterations_is_refused():
    server = server_of(SHA_256, {"user": credential(SHA_256, iterations=4095)})
    with pytest.raises(SaslError, match="4095 iterations"):
        server.evaluate(b"n,,n=user,r=abc")


@pytest.mark.parametrize(
    ("challenge", "reason"),
    [
        (b"r=abcdef,s=c2FsdA==,i=4095", "4095 iterations"),
        (b"r=abcdef,s=c2FsdA==,i=1000001", "1000001 iterations"),
        (b"r=abcdef,s=c2FsdA==,i=x", "cannot be read"),
        (b"r=abcdef,s=?,i=4096", "cannot be read"),
        (b"r=abc,s=c2FsdA==,i=4096", "nonce"),
        (b"r=xyzdef,s=c2FsdA==,i=4096", "nonce"),
        (b"e=unknown-user", "unknown-user"),
        (b"\xff", "not one of SCRAM"),
    ],
)
def test_a_client_refuses_a_server_that_breaks_the_protocol(challenge, reason):
    client = scram_messages(Credentials("user", "pencil"), SHA_256, "abc")
    next(client)
    with pytest.raises(KafkaError, match=reason):
        client.send(challenge)


def test_a_client_refuses_a_server_that_does_not_know_the_password():
    client = scram_messages(Credentials("user", "pencil"), SHA_256, "abc")
    next(client)
    client.send(b"r=abcdef,s=c2FsdA==,i=4096")
    with pytest.raises(KafkaError, match="does not prove"):
        client.send(b"v=" + base64.b64encode(bytes(32)))


def test_keys_are_in_no_text():
    shown = repr(ScramCredential(b"SALT", b"STORED", b"SERVER", 4096))
    assert not any(word in shown for word in ("SALT", "STORED", "SERVER"))
