"""ACLs, SCRAM credentials, delegation tokens and client quotas as the metadata log has them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from kraftlog.types import Uuid
from kraftlog.wire.messages.metadata_records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    DelegationTokenRecord,
    RemoveAccessControlEntryRecord,
    RemoveDelegationTokenRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
)
from kraftlog.wire.struct import Message

__all__ = ["QuotaEntity", "SecurityImage"]

QuotaEntity = tuple[tuple[str, str | None], ...]
"""(entity type, name) pairs sorted by type; the name is None for the default of that type."""


@dataclass(slots=True)
class SecurityImage:
    """Stored as the records themselves; ACLs, SCRAM credentials and client quotas are enforced, tokens are not."""

    acls: dict[Uuid, AccessControlEntryRecord] = field(default_factory=dict)
    scram: dict[tuple[int, str], UserScramCredentialRecord] = field(default_factory=dict)
    delegation_tokens: dict[str, DelegationTokenRecord] = field(default_factory=dict)
    client_quotas: dict[QuotaEntity, dict[str, float]] = field(default_factory=dict)

    def copy(self) -> SecurityImage:
        """The same with maps of their own."""
        quotas = {entity: dict(values) for entity, values in self.client_quotas.items()}
        return SecurityImage(dict(self.acls), dict(self.scram), dict(self.delegation_tokens), quotas)

    def replay(self, record: Message) -> bool:
        """Apply a record of this room; False when it belongs to another."""
        match record:
            case AccessControlEntryRecord():
                self.acls[record.id] = record
            case RemoveAccessControlEntryRecord():
                self.acls.pop(record.id, None)
            case UserScramCredentialRecord():
                self.scram[record.mechanism, record.name] = record
            case RemoveUserScramCredentialRecord():
                self.scram.pop((record.mechanism, record.name), None)
            case DelegationTokenRecord():
                self.delegation_tokens[record.token_id] = record
            case RemoveDelegationTokenRecord():
                self.delegation_tokens.pop(record.token_id, None)
            case ClientQuotaRecord():
                self._replay_quota(record)
            case _:
                return False
        return True

    def _replay_quota(self, record: ClientQuotaRecord) -> None:
        entity: QuotaEntity = tuple(
            sorted(((part.entity_type, part.entity_name) for part in record.entity), key=lambda pair: pair[0])
        )
        if not record.remove:
            self.client_quotas.setdefault(entity, {})[record.key] = record.value
            return
        values = self.client_quotas.get(entity, {})
        values.pop(record.key, None)
        if not values:
            self.client_quotas.pop(entity, None)

    def quota_records(self) -> Iterator[Message]:
        """Records that set the quotas."""
        for entity, values in self.client_quotas.items():
            parts = tuple(ClientQuotaRecord.EntityData(entity_type=kind, entity_name=name) for kind, name in entity)
            for key, value in values.items():
                yield ClientQuotaRecord(entity=parts, key=key, value=value, remove=False)
