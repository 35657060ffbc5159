"""Changing client quotas."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from ipaddress import ip_address
from operator import itemgetter
from typing import Final

from kraftlog.controller.image import MetadataImage, VersionedRecord
from kraftlog.controller.partition_changes import check_record_count
from kraftlog.controller.result import ControllerResult
from kraftlog.controller.security_image import QuotaEntity
from kraftlog.controller.steps import STEP_ITEMS, Steps
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.wire.messages.alter_client_quotas import AlterClientQuotasRequest, AlterClientQuotasResponse
from kraftlog.wire.messages.metadata_records import ClientQuotaRecord

__all__ = ["QuotaControl", "refuse_alterations"]

_USER_KEYS: Final[Mapping[str, float | None]] = {
    "producer_byte_rate": 2**63 - 1,
    "consumer_byte_rate": 2**63 - 1,
    "request_percentage": None,
    "controller_mutation_rate": None,
}
_IP_KEYS: Final[Mapping[str, float | None]] = {"connection_creation_rate": 2**31 - 1}
"""Largest value of the keys that take integers; None for those that take fractions."""

_ENTITY_TYPES: Final = frozenset({"user", "client-id", "ip"})
_TYPE_NAMES: Final[Mapping[float, str]] = {2**63 - 1: "a LONG", 2**31 - 1: "an INT"}
_LARGEST_FRACTION: Final = 1e-6  # of a value that counts as an integer

_Entity = Sequence[AlterClientQuotasRequest.EntityData]
_Answered = AlterClientQuotasResponse.EntryData


class QuotaControl:
    """The operation on client quotas; it reads the image and answers with records.

    Source: Kafka's ``ClientQuotaControlManager`` and ``AlterClientQuotasRequest.entries``.
    """

    def __init__(self, image: MetadataImage) -> None:
        self._image = image

    def alter_client_quotas(
        self, request: AlterClientQuotasRequest
    ) -> Steps[ControllerResult[AlterClientQuotasResponse]]:
        """Set and remove quotas; each entity gets its own result, in the order of the request.

        An entity that occurs twice, or has a key twice, gets an error. What its first occurrence asked for is done
        even so, as in Kafka.

        Raises:
            KafkaError: POLICY_VIOLATION if there are more than ``MAX_RECORDS_PER_OPERATION`` changes. Nothing is done.
        """
        results: dict[QuotaEntity, KafkaError | None] = {}
        records: list[VersionedRecord] = []
        for number, entry in enumerate(request.entries, 1):
            if number % STEP_ITEMS == 0:
                yield
            entity = yield from _entity_of(entry.entity)
            changes: dict[str, float | None] = {}
            for op_number, op in enumerate(entry.ops, 1):
                if op_number % STEP_ITEMS == 0:
                    yield
                changes[op.key] = None if op.remove else op.value
            if entity in results or len(changes) < len(entry.ops):
                results[entity] = KafkaError(ErrorCode.INVALID_REQUEST, f"Ignoring duplicate entity {_shown(entity)}")
                continue
            try:
                records += yield from self._records(entity, changes)
            except KafkaError as error:
                results[entity] = error
            else:
                results[entity] = None
            check_record_count(len(records))
        answered: list[_Answered] = []
        for number, (entity, refusal) in enumerate(results.items(), 1):
            if number % STEP_ITEMS == 0:
                yield
            answered.append(
                _Answered(
                    error_code=0 if refusal is None else refusal.code,
                    error_message=None if refusal is None else refusal.message,
                    entity=_entity_data(entity),
                )
            )
        response = AlterClientQuotasResponse(entries=answered)
        return ControllerResult(response, () if request.validate_only else records)

    def _records(self, entity: QuotaEntity, changes: Mapping[str, float | None]) -> Steps[list[VersionedRecord]]:
        keys = _keys_of(entity)
        current = self._image.security.client_quotas.get(entity, {})
        parts = tuple(ClientQuotaRecord.EntityData(entity_type=kind, entity_name=name) for kind, name in entity)
        records: list[VersionedRecord] = []
        for number, (key, value) in enumerate(changes.items(), 1):
            if number % STEP_ITEMS == 0:
                yield
            if value is None:
                if key in current:
                    records.append((ClientQuotaRecord(entity=parts, key=key, remove=True), 0))
                continue
            _check_value(keys, key, value)
            if current.get(key) != value:
                records.append((ClientQuotaRecord(entity=parts, key=key, value=value, remove=False), 0))
        return records


def refuse_alterations(request: AlterClientQuotasRequest, error: KafkaError) -> AlterClientQuotasResponse:
    """The response that has the error at each entity of the request."""
    return AlterClientQuotasResponse(
        entries=[
            _Answered(
                error_code=error.code,
                error_message=error.message,
                entity=[
                    AlterClientQuotasResponse.EntityData(entity_type=part.entity_type, entity_name=part.entity_name)
                    for part in entry.entity
                ],
            )
            for entry in request.entries
        ]
    )


def _entity_of(parts: _Entity) -> Steps[QuotaEntity]:
    """Sorted by type; the last name of a type that occurs twice counts."""
    names: dict[str, str | None] = {}
    for number, part in enumerate(parts, 1):
        if number % STEP_ITEMS == 0:
            yield
        names[part.entity_type] = part.entity_name
    # More types than there are: an error, whatever the order.
    return tuple(names.items() if len(names) > len(_ENTITY_TYPES) else sorted(names.items(), key=itemgetter(0)))


def _entity_data(entity: QuotaEntity) -> list[AlterClientQuotasResponse.EntityData]:
    return [AlterClientQuotasResponse.EntityData(entity_type=kind, entity_name=name) for kind, name in entity]


def _shown(entity: QuotaEntity) -> str:
    """As Kafka's ``ClientQuotaEntity.toString``."""
    entries = ", ".join(f"{kind}={'null' if name is None else name}" for kind, name in entity)
    return f"ClientQuotaEntity(entries={{{entries}}})"


def _keys_of(entity: QuotaEntity) -> Mapping[str, float | None]:
    """The keys that an entity may have.

    Raises:
        KafkaError: INVALID_REQUEST; quotas cannot be set for such an entity.
    """
    names = dict(entity)
    problem = None
    if not names:
        problem = "Invalid empty client quota entity"
    for kind, name in entity:
        if kind not in _ENTITY_TYPES:
            problem = f"Unhandled client quota entity type: {kind}"
        elif name == "":
            problem = f"Empty {kind} not supported"
        if problem is not None:
            break
    if problem is None and "ip" in names:
        if len(names) > 1:
            problem = "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId"
        elif not _is_address(names["ip"]):
            problem = f"{names['ip']} is not a valid IP or resolvable host."
    if problem is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, problem)
    return _IP_KEYS if "ip" in names else _USER_KEYS


def _is_address(name: str | None) -> bool:
    """Whether an ip is one, or stands for all; unlike Kafka the controller resolves no host names."""
    if name is None:
        return True
    try:
        ip_address(name)
    except ValueError:
        return False
    return True


def _check_value(keys: Mapping[str, float | None], key: str, value: float) -> None:
    """Refuse what a key cannot have.

    Raises:
        KafkaError: INVALID_REQUEST.
    """
    problem = None
    largest = keys.get(key)
    if key not in keys:
        problem = f"Invalid configuration key {key}"
    elif value <= 0:
        problem = f"Quota {key} must be greater than 0"
    elif largest is not None and value > largest:
        problem = f"Proposed value for {key} is too large for {_TYPE_NAMES[largest]}."
    elif largest is not None and value % 1.0 > _LARGEST_FRACTION:
        problem = f"{key} cannot be a fractional value."
    if problem is not None:
        raise KafkaError(ErrorCode.INVALID_REQUEST, problem)
