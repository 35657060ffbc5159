"""Which ACLs a client asks for: the filters of DescribeAcls and DeleteAcls (KIP-140, KIP-290)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from kraftlog.security.operation import Operation, PatternType, Permission, ResourceKind

if TYPE_CHECKING:
    from kraftlog.wire.messages.delete_acls import DeleteAclsRequest
    from kraftlog.wire.messages.describe_acls import DescribeAclsRequest
    from kraftlog.wire.messages.metadata_records import AccessControlEntryRecord

__all__ = ["AclFilter"]


@dataclass(frozen=True, slots=True, kw_only=True)
class AclFilter:
    """Matches an ACL if each field does; ANY and None match each value.

    Attributes:
        pattern_type: LITERAL or PREFIXED: ACLs of that type whose name is ``name``. ANY: of both types. MATCH: ACLs
            that apply to the resource ``name``: literals of that name, wildcards, prefixes of it.

    Source: ``org.apache.kafka.common.acl.AclBindingFilter``.
    """

    kind: ResourceKind
    name: str | None
    pattern_type: PatternType
    principal: str | None
    host: str | None
    operation: Operation
    permission: Permission

    @classmethod
    def of(cls, fields: DescribeAclsRequest | DeleteAclsRequest.DeleteAclsFilter) -> AclFilter:
        """The filter of a request; numbers without a name become UNKNOWN."""
        return cls(
            kind=ResourceKind(fields.resource_type_filter),
            name=fields.resource_name_filter,
            pattern_type=PatternType(fields.pattern_type_filter),
            principal=fields.principal_filter,
            host=fields.host_filter,
            operation=Operation(fields.operation),
            permission=Permission(fields.permission_type),
        )

    @property
    def has_unknown_pattern(self) -> bool:
        """Whether the kind of resource or the pattern type has no name."""
        return self.kind is ResourceKind.UNKNOWN or self.pattern_type is PatternType.UNKNOWN

    @property
    def has_unknown_entry(self) -> bool:
        """Whether the operation or the permission has no name."""
        return self.operation is Operation.UNKNOWN or self.permission is Permission.UNKNOWN

    def matches(self, acl: AccessControlEntryRecord) -> bool:
        """Whether the client asks for this ACL."""
        return (
            self.kind in (ResourceKind.ANY, acl.resource_type)
            and self.operation in (Operation.ANY, acl.operation)
            and self.permission in (Permission.ANY, acl.permission_type)
            and (self.principal is None or self.principal == acl.principal)
            and (self.host is None or self.host == acl.host)
            and self._matches_pattern(acl.pattern_type, acl.resource_name)
        )

    def _matches_pattern(self, pattern_type: int, name: str) -> bool:
        if self.pattern_type is not PatternType.MATCH:
            return self.pattern_type in (PatternType.ANY, pattern_type) and self.name in (None, name)
        if self.name is None or self.name == name:
            return True
        return self.name.startswith(name) if pattern_type == PatternType.PREFIXED else name == "*"
