"""Creating and deleting ACLs."""

from __future__ import annotations

from random import Random
from typing import Final

from kraftlog.controller.image import MetadataImage, VersionedRecord
from kraftlog.controller.new_uuid import new_uuid
from kraftlog.controller.partition_changes import MAX_RECORDS_PER_OPERATION, check_record_count
from kraftlog.controller.result import ControllerResult
from kraftlog.controller.steps import STEP_ITEMS, Steps
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.security.acl_filter import AclFilter
from kraftlog.security.operation import CLUSTER_NAME, Operation, PatternType, Permission, ResourceKind
from kraftlog.types import Uuid
from kraftlog.wire.messages.create_acls import CreateAclsRequest, CreateAclsResponse
from kraftlog.wire.messages.delete_acls import DeleteAclsRequest, DeleteAclsResponse
from kraftlog.wire.messages.metadata_records import AccessControlEntryRecord, RemoveAccessControlEntryRecord

__all__ = ["AclControl"]

_COMPARED_PER_STEP: Final = 512

_Creation = CreateAclsRequest.AclCreation
_Creations = dict[tuple[object, ...], _Creation]
_Created = CreateAclsResponse.AclCreationResult
_FilterResult = DeleteAclsResponse.DeleteAclsFilterResult


class AclControl:
    """The operations on ACLs; they read the image and answer with records.

    Source: Kafka's ``AclApis`` and ``AclControlManager``.
    """

    def __init__(self, image: MetadataImage, rng: Random) -> None:
        self._image = image
        self._rng = rng

    def create_acls(self, request: CreateAclsRequest) -> Steps[ControllerResult[CreateAclsResponse]]:
        """Create ACLs; each gets its own result, in the order of the request. One that exists is no error.

        Raises:
            KafkaError: POLICY_VIOLATION if there are more than ``MAX_RECORDS_PER_OPERATION`` new ones.
        """
        results: list[_Created] = []
        new: _Creations = {}
        for number, creation in enumerate(request.creations, 1):
            if number % STEP_ITEMS == 0:
                yield
            try:
                _check_creation(creation)
            except KafkaError as error:
                results.append(_Created(error_code=error.code, error_message=error.message))
                continue
            new[_key(creation, creation.resource_pattern_type)] = creation
            results.append(_Created(error_message=None))
        yield from self._drop_existing(new)
        check_record_count(len(new))
        records: list[VersionedRecord] = []
        for number, creation in enumerate(new.values(), 1):
            if number % STEP_ITEMS == 0:
                yield
            record = AccessControlEntryRecord(
                id=self._new_acl_id(),
                resource_type=creation.resource_type,
                resource_name=creation.resource_name,
                pattern_type=creation.resource_pattern_type,
                principal=creation.principal,
                host=creation.host,
                operation=creation.operation,
                permission_type=creation.permission_type,
            )
            records.append((record, 0))
        return ControllerResult(CreateAclsResponse(results=results), records)

    def delete_acls(self, request: DeleteAclsRequest) -> Steps[ControllerResult[DeleteAclsResponse]]:
        """Delete the ACLs that a filter matches; each filter gets its own result, which names them.

        An ACL that several filters match is named by each and deleted once.

        Raises:
            KafkaError: INVALID_REQUEST if more than ``MAX_RECORDS_PER_OPERATION`` match. Nothing is deleted.
        """
        results: list[_FilterResult] = []
        records: dict[Uuid, VersionedRecord] = {}
        matched_count = 0
        for number, wanted in enumerate(request.filters, 1):
            if number % STEP_ITEMS == 0:
                yield
            acl_filter = AclFilter.of(wanted)
            if acl_filter.has_unknown_pattern or acl_filter.has_unknown_entry:
                what = "patternFilter" if acl_filter.has_unknown_pattern else "entryFilter"
                results.append(_FilterResult(error_code=ErrorCode.INVALID_REQUEST, error_message=f"Unknown {what}."))
                continue
            matching = []
            for compared, acl in enumerate(self._image.security.acls.values(), 1):
                if compared % _COMPARED_PER_STEP == 0:
                    yield
                if not acl_filter.matches(acl):
                    continue
                matching.append(_matching_acl(acl))
                matched_count += 1
                if matched_count % STEP_ITEMS == 0:
                    yield
                records[acl.id] = (RemoveAccessControlEntryRecord(id=acl.id), 0)
                if len(records) > MAX_RECORDS_PER_OPERATION:
                    raise KafkaError(
                        ErrorCode.INVALID_REQUEST,
                        f"Cannot remove more than {MAX_RECORDS_PER_OPERATION} acls in a single delete operation.",
                    )
            results.append(_FilterResult(error_message=None, matching_acls=matching))
        return ControllerResult(DeleteAclsResponse(filter_results=results), list(records.values()))

    def _drop_existing(self, new: _Creations) -> Steps[None]:
        for number, acl in enumerate(self._image.security.acls.values(), 1):
            if number % _COMPARED_PER_STEP == 0:
                yield
            if not new:
                return
            new.pop(_key(acl, acl.pattern_type), None)

    def _new_acl_id(self) -> Uuid:
        while True:
            acl_id = new_uuid(self._rng)
            if acl_id not in self._image.security.acls:
                return acl_id


def _check_creation(creation: _Creation) -> None:
    """Refuse what cannot be an ACL.

    Raises:
        KafkaError: INVALID_REQUEST.
    """
    kind = ResourceKind(creation.resource_type)
    pattern_type = PatternType(creation.resource_pattern_type)
    operation = Operation(creation.operation)
    permission = Permission(creation.permission_type)
    problem = None
    if kind is ResourceKind.CLUSTER and creation.resource_name != CLUSTER_NAME:
        problem = f"The only valid name for the CLUSTER resource is {CLUSTER_NAME}"
    elif not creation.resource_name:
        problem = "Invalid empty resource name"
    elif kind in (ResourceKind.UNKNOWN, ResourceKind.ANY):
        problem = f"Invalid resourceType {kind.name}"
    elif pattern_type not in (PatternType.LITERAL, PatternType.PREFIXED):
        problem = f"Invalid patternType {pattern_type.name}"
    elif operation in (Operation.UNKNOWN, Operation.ANY):
        problem = f"Invalid operation {operation.name}"
    elif permission not in (Permission.DENY, Permission.ALLOW):
        problem = f"Invalid permissionType {permission.name}"
    elif ":" not in creation.principal:
        problem = (
            f"Could not parse principal from `{creation.principal}` "
            "(no colon is present separating the principal type from the principal name)"
        )
    if problem is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, problem)


def _key(acl: _Creation | AccessControlEntryRecord, pattern_type: int) -> tuple[object, ...]:
    """What two ACLs share if they are the same."""
    return (
        acl.resource_type,
        acl.resource_name,
        pattern_type,
        acl.principal,
        acl.host,
        acl.operation,
        acl.permission_type,
    )


def _matching_acl(acl: AccessControlEntryRecord) -> DeleteAclsResponse.DeleteAclsMatchingAcl:
    return DeleteAclsResponse.DeleteAclsMatchingAcl(
        error_message=None,
        resource_type=acl.resource_type,
        resource_name=acl.resource_name,
        pattern_type=acl.pattern_type,
        principal=acl.principal,
        host=acl.host,
        operation=acl.operation,
        permission_type=acl.permission_type,
    )
