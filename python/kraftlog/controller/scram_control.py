"""SCRAM credentials: setting and removing them (KIP-554, KIP-900)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final

from kraftlog.controller.image import MetadataImage, VersionedRecord
from kraftlog.controller.partition_changes import check_record_count
from kraftlog.controller.result import ControllerResult
from kraftlog.controller.steps import STEP_ITEMS, Steps
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.security.scram import ITERATIONS_MAX, ITERATIONS_MIN, MECHANISM_BY_CODE
from kraftlog.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
)
from kraftlog.wire.messages.metadata_records import RemoveUserScramCredentialRecord, UserScramCredentialRecord

__all__ = ["ScramControl", "refuse_credentials"]

_Deletion = AlterUserScramCredentialsRequest.ScramCredentialDeletion
_Upsertion = AlterUserScramCredentialsRequest.ScramCredentialUpsertion
_Result = AlterUserScramCredentialsResponse.AlterUserScramCredentialsResult
_TWICE: Final = KafkaError(
    ErrorCode.DUPLICATE_RESOURCE, "A user credential cannot be altered twice in the same request"
)


class ScramControl:
    """The operation on credentials; it reads the image and answers with records.

    Source: Kafka's ``ScramControlManager``.
    """

    def __init__(self, image: MetadataImage) -> None:
        self._image = image

    def alter_credentials(
        self, request: AlterUserScramCredentialsRequest
    ) -> Steps[ControllerResult[AlterUserScramCredentialsResponse]]:
        """Remove and set credentials; each user gets a result, with one change at most per request.

        Raises:
            KafkaError: POLICY_VIOLATION: more changes than fit one batch.
        """
        changes: dict[str, _Deletion | _Upsertion] = {}
        errors: dict[str, KafkaError] = {}
        for number, change in enumerate(_changes(request), 1):
            if number % STEP_ITEMS == 0:
                yield
            if change.name in errors:
                continue
            if changes.pop(change.name, None) is not None:
                errors[change.name] = _TWICE
                continue
            try:
                self._check(change)
            except KafkaError as error:
                errors[change.name] = error
            else:
                changes[change.name] = change
        check_record_count(len(changes))
        records: list[VersionedRecord] = []
        results: list[_Result] = []
        for number, change in enumerate(changes.values(), 1):
            if number % STEP_ITEMS == 0:
                yield
            records.append((_record(change), 0))
            results.append(_Result(user=change.name, error_message=None))
        results += _refused(errors.items())
        return ControllerResult(AlterUserScramCredentialsResponse(results=results), records)

    def _check(self, change: _Deletion | _Upsertion) -> None:
        if not self._image.metadata_version.is_scram_supported:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "The current metadata.version does not support SCRAM")
        if not change.name:
            raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Username must not be empty")
        if change.mechanism not in MECHANISM_BY_CODE:
            raise KafkaError(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "Unknown SCRAM mechanism")
        if isinstance(change, _Deletion):
            if (change.mechanism, change.name) not in self._image.security.scram:
                raise KafkaError(
                    ErrorCode.RESOURCE_NOT_FOUND, "Attempt to delete a user credential that does not exist"
                )
            return
        if change.iterations < ITERATIONS_MIN:
            raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too few iterations")
        if change.iterations > ITERATIONS_MAX:
            raise KafkaError(ErrorCode.UNACCEPTABLE_CREDENTIAL, "Too many iterations")
        if not change.salted_password:
            # Java makes no key of nothing.
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)


def _changes(request: AlterUserScramCredentialsRequest) -> Iterator[_Deletion | _Upsertion]:
    yield from request.deletions
    yield from request.upsertions


def _record(change: _Deletion | _Upsertion) -> UserScramCredentialRecord | RemoveUserScramCredentialRecord:
    if isinstance(change, _Deletion):
        return RemoveUserScramCredentialRecord(name=change.name, mechanism=change.mechanism)
    credential = MECHANISM_BY_CODE[change.mechanism].credential(
        bytes(change.salted_password), bytes(change.salt), change.iterations
    )
    return UserScramCredentialRecord(
        name=change.name,
        mechanism=change.mechanism,
        salt=credential.salt,
        stored_key=credential.stored_key,
        server_key=credential.server_key,
        iterations=credential.iterations,
    )


def _refused(errors: Iterable[tuple[str, KafkaError]]) -> list[_Result]:
    return [_Result(user=user, error_code=error.code, error_message=error.message) for user, error in errors]


def refuse_credentials(
    request: AlterUserScramCredentialsRequest, error: KafkaError
) -> AlterUserScramCredentialsResponse:
    """The same error for each user of a request."""
    users = dict.fromkeys(change.name for change in _changes(request))
    return AlterUserScramCredentialsResponse(results=_refused((user, error) for user in users))
