"""SASL, frame by frame: a kraftlog node answers right and wrong clients as Apache Kafka does.

Each case opens a connection and sends frames; what comes back is compared: responses, and whether the connection is
closed. Nonces of SCRAM differ, and the order in which Kafka lists mechanisms is that of a hash set.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from interop.harness import Java
from interop.sasl_servers import PASSWORD, PASSWORDS, USER, Sasl, SaslKafka, SaslKraftlog
from kraftlog.security.sasl import Credentials
from kraftlog.security.sasl_scram import scram_messages
from kraftlog.security.scram import MECHANISM_BY_NAME
from kraftlog.wire.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from kraftlog.wire.messages.api_versions import ApiVersionsRequest
from kraftlog.wire.messages.describe_user_scram_credentials import DescribeUserScramCredentialsRequest
from kraftlog.wire.messages.metadata import MetadataRequest
from kraftlog.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from kraftlog.wire.messages.sasl_handshake import SaslHandshakeRequest
from raw_client import RawClient

RIGHT = f"\0{USER}\0{PASSWORD}".encode()
SESSION_MS = 600_000


class Dialogue:
    """A connection and what was heard on it."""

    def __init__(self, port: int) -> None:
        self.client = RawClient(f"127.0.0.1:{port}")
        self.heard: list[Any] = []

    def ask(self, request: Any, version: int) -> Any:
        """The response, or None once the connection is closed."""
        try:
            response = self.client.call(request, version)
        except (ConnectionError, TimeoutError) as error:
            self.heard.append(type(error).__name__ if isinstance(error, TimeoutError) else "closed")
            return None
        self.heard.append(described(response))
        return response

    def handshake(self, mechanism: str = "PLAIN", version: int = 1) -> None:
        self.ask(SaslHandshakeRequest(mechanism=mechanism), version)

    def token(self, data: bytes, version: int = 2) -> bytes:
        response = self.ask(SaslAuthenticateRequest(auth_bytes=data), version)
        return b"" if response is None else bytes(response.auth_bytes)

    def bare(self, data: bytes) -> bytes:
        """Send a frame of these bytes, and receive one."""
        try:
            self.client.sock.sendall(len(data).to_bytes(4, "big") + data)
            size = int.from_bytes(self.client._exactly(4), "big")
            answer = self.client._exactly(size)
        except ConnectionError:
            self.heard.append("closed")
            return b""
        self.heard.append(len(answer) > 0)
        return answer

    def scram(self, mechanism: str, password: str, user: str = USER, version: int = 2) -> None:
        messages = scram_messages(Credentials(user, password), MECHANISM_BY_NAME[mechanism])
        challenge = self.token(next(messages), version)
        if challenge:
            self.token(messages.send(challenge), version)


def described(response: Any) -> Any:
    if hasattr(response, "mechanisms"):
        return response.error_code, sorted(response.mechanisms)
    if hasattr(response, "session_lifetime_ms"):
        lifetime_ms = response.session_lifetime_ms
        return response.error_code, response.error_message, bool(response.auth_bytes), lifetime_ms
    if hasattr(response, "brokers"):
        return len(response.brokers)
    return response.error_code


def _case(*steps: Callable[[Dialogue], object]) -> tuple[Callable[[Dialogue], object], ...]:
    return steps


def metadata(dialogue: Dialogue) -> None:
    dialogue.ask(MetadataRequest(topics=[]), 12)


def shake(mechanism: str = "PLAIN", version: int = 1) -> Callable[[Dialogue], object]:
    return lambda dialogue: dialogue.handshake(mechanism, version)


def token(data: bytes, version: int = 2) -> Callable[[Dialogue], object]:
    return lambda dialogue: dialogue.token(data, version)


def bare(data: bytes) -> Callable[[Dialogue], object]:
    return lambda dialogue: dialogue.bare(data)


def versions(version: int = 3, name: str = "raw") -> Callable[[Dialogue], object]:
    request = ApiVersionsRequest(client_software_name=name, client_software_version="1")
    return lambda dialogue: dialogue.ask(request, version)


def scram(mechanism: str, password: str, user: str = USER) -> Callable[[Dialogue], object]:
    return lambda dialogue: dialogue.scram(mechanism, password, user)


CASES = {
    **{f"right password, version {version}": _case(shake(), token(RIGHT, version), metadata) for version in (0, 1, 2)},
    **{
        f"{mechanism} {password}": _case(shake(mechanism), scram(mechanism, password), metadata)
        for mechanism in ("SCRAM-SHA-256", "SCRAM-SHA-512")
        for password in (PASSWORDS[mechanism], "wrong")
    },
    "scram: unknown user": _case(shake("SCRAM-SHA-256"), scram("SCRAM-SHA-256", "x", "nobody"), metadata),
    "scram: user of plain": _case(shake("SCRAM-SHA-512"), scram("SCRAM-SHA-512", "node", "node"), metadata),
    "scram: not a message": _case(shake("SCRAM-SHA-256"), token(b"nonsense"), metadata),
    "scram: channel binding": _case(shake("SCRAM-SHA-256"), token(b"y,,n=alice,r=abc"), metadata),
    "scram: another authorization id": _case(shake("SCRAM-SHA-256"), token(b"n,a=bob,n=alice,r=abc")),
    "scram: authorization id": _case(shake("SCRAM-SHA-256"), token(b"n,a=alice,n=alice,r=abc")),
    "scram: not ASCII": _case(shake("SCRAM-SHA-256"), token("n,,n=älice,r=abc".encode())),
    "scram: extension": _case(shake("SCRAM-SHA-256"), token(b"n,,n=alice,r=abc,ext=value")),
    "scram: token": _case(shake("SCRAM-SHA-256"), token(b"n,,n=alice,r=abc,tokenauth=true")),
    "scram: another nonce": _case(
        shake("SCRAM-SHA-256"), token(b"n,,n=alice,r=abc"), token(b"c=biws,r=abc,p=AAAA"), metadata
    ),
    "scram: no proof": _case(shake("SCRAM-SHA-256"), token(b"n,,n=alice,r=abc"), token(b"c=biws"), metadata),
    "plain: wrong password": _case(shake(), token(b"\0alice\0wrong"), metadata),
    "plain: unknown user": _case(shake(), token(b"\0bob\0wrong")),
    "plain: no user": _case(shake(), token(b"\0\0secret")),
    "plain: no password": _case(shake(), token(b"\0alice\0")),
    "plain: another authorization id": _case(shake(), token(b"bob\0alice\0" + PASSWORD.encode())),
    "plain: authorization id": _case(shake(), token(b"alice\0alice\0" + PASSWORD.encode())),
    "plain: two parts": _case(shake(), token(b"alice\0secret")),
    "plain: four parts": _case(shake(), token(RIGHT + b"\0")),
    "plain: nothing": _case(shake(), token(b"")),
    "unknown mechanism": _case(shake("GSSAPI"), shake()),
    "unknown mechanism, version 0": _case(shake("plain", 0), shake()),
    "versions, then right": _case(versions(), shake(), token(RIGHT), metadata),
    "versions 0": _case(versions(0), shake(), token(RIGHT), versions(0), metadata),
    "versions twice": _case(versions(), versions(0), shake()),
    "versions refused, then asked again": _case(versions(3, "?"), versions(), shake(), token(RIGHT)),
    "metadata first": _case(metadata),
    "metadata after versions": _case(versions(), metadata),
    "token first": _case(token(RIGHT)),
    "handshake twice": _case(shake(), shake()),
    "versions after handshake": _case(shake(), versions(0)),
    "bare token first": _case(bare(RIGHT)),
    "http": _case(bare(b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n")),
    "bare tokens": _case(shake("PLAIN", 0), bare(RIGHT), metadata),
    "bare tokens, wrong": _case(shake("PLAIN", 0), bare(b"\0alice\0wrong")),
    "bare tokens, no tokens": _case(shake("PLAIN", 0), bare(b"x")),
    "bare tokens where requests are due": _case(shake(), bare(RIGHT)),
    "handshake after authentication": _case(shake(), token(RIGHT), shake(), token(RIGHT), metadata),
    "token after authentication": _case(shake(), token(RIGHT), token(RIGHT), metadata),
    "versions after authentication": _case(shake(), token(RIGHT), versions(0), versions(0), metadata),
}
AGAIN = {
    "again": _case(shake(), token(RIGHT), shake(), token(RIGHT), metadata),
    "again with version 0": _case(shake(), token(RIGHT, 0), shake(), token(RIGHT, 0), metadata),
    "again with scram": _case(
        *(shake("SCRAM-SHA-256"), scram("SCRAM-SHA-256", "scram"), shake("SCRAM-SHA-256")),
        *(scram("SCRAM-SHA-256", "scram"), metadata),
    ),
    "again as another": _case(shake(), token(RIGHT), shake(), token(b"\0node\0node"), metadata),
    "again with another mechanism": _case(
        shake(), token(RIGHT), shake("SCRAM-SHA-256"), token(b"n,,n=alice,r=abc"), metadata
    ),
    "again with an unknown mechanism": _case(shake(), token(RIGHT), shake("GSSAPI"), metadata),
    "again with a wrong password": _case(shake(), token(RIGHT), shake(), token(b"\0alice\0wrong"), metadata),
    "again with nonsense": _case(shake(), token(RIGHT), shake(), token(b"x"), metadata),
    "again, and another handshake": _case(shake(), token(RIGHT), shake(), shake(), metadata),
    "again at once": _case(shake(), token(RIGHT), shake(), token(RIGHT), shake(), metadata),
    "token without handshake": _case(shake(), token(RIGHT), token(RIGHT), metadata),
}


@pytest.fixture(scope="module")
def servers(java: Java, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Sasl, Sasl]]:
    # Sessions of one listener end, so that clients may authenticate again; those of the other do not.
    config = {"listener.name.sasl_plaintext.connections.max.reauth.ms": str(SESSION_MS)}
    home: Path = tmp_path_factory.mktemp("sasl")
    more = {**config, "inter.broker.listener.name": "PLAINTEXT"}
    pair: tuple[Sasl, Sasl] = (SaslKafka(home / "kafka", java, more), SaslKraftlog(home / "kraftlog", more))
    try:
        for server in pair:
            server.start()
        yield pair
    finally:
        for server in pair:
            server.kill()


def heard(port: int, steps: tuple[Callable[[Dialogue], object], ...]) -> list[Any]:
    dialogue = Dialogue(port)
    with dialogue.client:
        for step in steps:
            step(dialogue)
            if dialogue.heard and dialogue.heard[-1] == "closed":
                break
    return dialogue.heard


@pytest.mark.slow
def test_every_dialogue_goes_as_with_kafka(servers: tuple[Sasl, Sasl]) -> None:
    wrong = []
    for name, steps in {**CASES, **AGAIN}.items():
        of_kafka, of_kraftlog = (heard(server.port, steps) for server in servers)
        if of_kafka != of_kraftlog:
            wrong.append(f"{name}\n  Kafka:    {of_kafka}\n  kraftlog: {of_kraftlog}")
    assert not wrong, "\n".join(wrong)


def test_a_listener_without_sasl_answers_as_kafka_does(servers: tuple[Sasl, Sasl]) -> None:
    for steps in (_case(shake(), metadata), _case(shake(version=0), metadata), _case(token(RIGHT), metadata)):
        of_kafka, of_kraftlog = (heard(server.plain_port, steps) for server in servers)
        assert of_kafka == of_kraftlog


def upsertion(name: str, mechanism: int, iterations: int = 4096, salted: bytes = b"salted") -> Any:
    return AlterUserScramCredentialsRequest.ScramCredentialUpsertion(
        name=name, mechanism=mechanism, iterations=iterations, salt=b"salt", salted_password=salted
    )


def deletion(name: str, mechanism: int) -> Any:
    return AlterUserScramCredentialsRequest.ScramCredentialDeletion(name=name, mechanism=mechanism)


CHANGES: list[tuple[list[Any], list[Any]]] = [
    ([], []),
    ([], [upsertion("a", 1), upsertion("b", 2, 16384)]),
    ([], [upsertion("a", 1, 8192)]),
    ([], [upsertion("c", 1), upsertion("c", 2)]),
    ([], [upsertion("c", 1), upsertion("c", 1), upsertion("c", 1)]),
    ([deletion("a", 1)], [upsertion("a", 2)]),
    ([deletion("a", 1), deletion("a", 1)], []),
    ([deletion("a", 2), deletion("nobody", 1), deletion("", 1), deletion("d", 9)], [upsertion("e", 1)]),
    ([], [upsertion("", 1), upsertion("f", 0), upsertion("g", 3), upsertion("h", 1, 4095), upsertion("i", 1, 16385)]),
    ([], [upsertion("j", 1, -1), upsertion("k", 1, 4096, b"")]),
    ([deletion("b", 2)], []),
    ([deletion("b", 2)], []),
]


def test_credentials_are_changed_and_described_as_with_kafka(servers: tuple[Sasl, Sasl]) -> None:
    said: list[list[Any]] = []
    for server in servers:
        with RawClient(f"127.0.0.1:{server.plain_port}") as client:
            answers: list[Any] = []
            for deletions, upsertions in CHANGES:
                request = AlterUserScramCredentialsRequest(deletions=deletions, upsertions=upsertions)
                results = client.call(request).results
                answers.append(
                    sorted((result.user, result.error_code, result.error_message or "") for result in results)
                )
            for names in (None, ["a"], ["a", "a"], ["nobody", "e", ""]):
                users = None if names is None else [DescribeUserScramCredentialsRequest.UserName(name=n) for n in names]
                described = client.call(DescribeUserScramCredentialsRequest(users=users))
                answers.append(
                    (
                        described.error_code,
                        sorted(
                            (
                                result.user,
                                result.error_code,
                                result.error_message or "",
                                sorted((info.mechanism, info.iterations) for info in result.credential_infos),
                            )
                            for result in described.results
                        ),
                    )
                )
            said.append(answers)
    assert said[0] == said[1]
