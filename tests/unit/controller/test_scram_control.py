"""Setting and removing SCRAM credentials; errors and words are those of Kafka's ScramControlManager."""

from __future__ import annotations

from typing import Any

import pytest

from kraftlog.controller.operations import operation_of
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.security.scram import MECHANISM_BY_NAME
from kraftlog.wire.messages.alter_user_scram_credentials import AlterUserScramCredentialsRequest
from kraftlog.wire.messages.metadata_records import RemoveUserScramCredentialRecord, UserScramCredentialRecord
from metadata_fixture import Cluster, one_broker

SHA_256, SHA_512 = 1, 2
TWICE = (ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request")


def upsertion(name: str = "alice", mechanism: int = SHA_256, **changes: Any) -> Any:
    values = {"iterations": 4096, "salt": b"salt", "salted_password": b"salted", **changes}
    return AlterUserScramCredentialsRequest.ScramCredentialUpsertion(name=name, mechanism=mechanism, **values)


def deletion(name: str = "alice", mechanism: int = SHA_256) -> Any:
    return AlterUserScramCredentialsRequest.ScramCredentialDeletion(name=name, mechanism=mechanism)


def alter(cluster: Cluster, *changes: Any) -> dict[str, tuple[int, str | None]]:
    kind = AlterUserScramCredentialsRequest.ScramCredentialDeletion
    request = AlterUserScramCredentialsRequest(
        deletions=[change for change in changes if isinstance(change, kind)],
        upsertions=[change for change in changes if not isinstance(change, kind)],
    )
    response = cluster.ask(request)
    found = {result.user: (result.error_code, result.error_message) for result in response.results}
    assert len(found) == len(response.results)
    return found


def test_a_credential_becomes_a_record_with_the_keys_of_rfc_5802() -> None:
    cluster = one_broker()
    mechanism = MECHANISM_BY_NAME["SCRAM-SHA-512"]
    salted = mechanism.salted_password("secret", b"salt", 8192)
    assert alter(cluster, upsertion("a", SHA_512, salted_password=salted, iterations=8192)) == {"a": (0, None)}
    (record,) = cluster.records
    assert record == UserScramCredentialRecord(
        name="a",
        mechanism=SHA_512,
        salt=b"salt",
        stored_key=mechanism.hash(mechanism.client_key(salted)),
        server_key=mechanism.server_key(salted),
        iterations=8192,
    )
    assert cluster.image.security.scram[SHA_512, "a"] == record


def test_a_user_has_a_credential_of_each_mechanism() -> None:
    cluster = one_broker()
    alter(cluster, upsertion(mechanism=SHA_256))
    alter(cluster, upsertion(mechanism=SHA_512))
    assert alter(cluster, deletion(mechanism=SHA_256)) == {"alice": (0, None)}
    assert cluster.records == [RemoveUserScramCredentialRecord(name="alice", mechanism=SHA_256)]
    assert set(cluster.image.security.scram) == {(SHA_512, "alice")}


@pytest.mark.parametrize(
    ("change", "error"),
    [
        (upsertion(""), (ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")),
        (deletion(""), (ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")),
        (upsertion(mechanism=0), (ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")),
        (deletion(mechanism=3), (ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")),
        (upsertion(iterations=4095), (ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")),
        (upsertion(iterations=-1), (ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")),
        (upsertion(iterations=16385), (ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")),
        (upsertion(salted_password=b""), (ErrorCode.UNKNOWN_SERVER_ERROR, None)),
        (
            deletion(mechanism=SHA_512),
            (ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"),
        ),
    ],
)
def test_a_change_that_is_refused_leaves_the_others_alone(change: Any, error: tuple[int, str | None]) -> None:
    cluster = one_broker()
    alter(cluster, upsertion("alice", SHA_256))
    assert alter(cluster, change, upsertion("bob")) == {change.name: error, "bob": (0, None)}
    assert [record.name for record in cluster.records] == ["bob"]


@pytest.mark.parametrize(
    "changes",
    [
        (upsertion(mechanism=SHA_256), upsertion(mechanism=SHA_512)),
        (upsertion(), upsertion(), upsertion()),
        (deletion(), deletion()),
        (deletion(), upsertion(mechanism=SHA_512)),
    ],
)
def test_a_user_is_changed_once_per_request(changes: tuple[Any, ...]) -> None:
    cluster = one_broker()
    alter(cluster, upsertion())
    assert alter(cluster, *changes) == {"alice": TWICE}
    assert not cluster.records


def test_too_many_changes_are_none() -> None:
    cluster = one_broker()
    with pytest.raises(KafkaError) as refusal:
        alter(cluster, *(upsertion(str(number)) for number in range(10_001)))
    assert refusal.value.code == ErrorCode.POLICY_VIOLATION
    assert not cluster.image.security.scram


def test_a_refusal_names_each_user_once() -> None:
    request = AlterUserScramCredentialsRequest(deletions=[deletion("a")], upsertions=[upsertion("a"), upsertion("b")])
    refuse = operation_of(request).refuse
    assert refuse is not None
    response: Any = refuse(request, KafkaError(ErrorCode.NOT_CONTROLLER, "elsewhere"))
    assert [(result.user, result.error_code) for result in response.results] == [("a", 41), ("b", 41)]
