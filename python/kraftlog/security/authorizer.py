"""Who may do what: the decisions of Kafka's ``StandardAuthorizer`` over the ACLs of the metadata log.

The rules, in the order in which they apply to one principal, host, operation and resource:

1. A super user may do everything.
2. ACLs count if their resource is the same name, the wildcard ``*``, or a prefix of the name, if their principal is the
   same or ``User:*``, and if their host is the same or ``*``.
3. One DENY of the operation or of ALL denies it, whatever else is allowed.
4. One ALLOW of the operation or of ALL allows it. ALLOW of READ, WRITE, DELETE or ALTER allows DESCRIBE as well, and
   ALLOW of ALTER_CONFIGS allows DESCRIBE_CONFIGS; a DENY denies nothing but its own operation.
5. Otherwise the operation is denied, unless no ACL of any principal is for this resource and
   ``allow.everyone.if.no.acl.found`` is set.

Source: KIP-11, KIP-290; ``org.apache.kafka.metadata.authorizer.StandardAuthorizerData`` and
``org.apache.kafka.server.authorizer.Authorizer.authorizeByResourceType``.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from ipaddress import IPv6Address
from typing import TYPE_CHECKING, Final, TypeVar

from kraftlog.security.operation import Operation, PatternType, Permission, ResourceKind

if TYPE_CHECKING:
    from kraftlog.security.principal import Principal
    from kraftlog.types import Uuid
    from kraftlog.wire.messages.metadata_records import AccessControlEntryRecord

__all__ = ["WILDCARD", "WILDCARD_PRINCIPAL", "Authorizer"]

logger = logging.getLogger("kraftlog.authorizer")

WILDCARD: Final = "*"
WILDCARD_PRINCIPAL: Final = "User:*"

_MAX_DECISIONS: Final = 20_000
_IMPLIED_BY: Final = {
    Operation.DESCRIBE: frozenset(
        {Operation.DESCRIBE, Operation.READ, Operation.WRITE, Operation.DELETE, Operation.ALTER, Operation.ALL}
    ),
    Operation.DESCRIBE_CONFIGS: frozenset({Operation.DESCRIBE_CONFIGS, Operation.ALTER_CONFIGS, Operation.ALL}),
}
_KIND_NAMES: Final = {kind: kind.name.title().replace("_", "") for kind in ResourceKind}

_Entries = dict["Uuid", "AccessControlEntryRecord"]
_Decision = tuple[str, str, str, int, int, str | None]
Key = TypeVar("Key")


class Authorizer:
    """The ACLs in force, and the decisions on them.

    Args:
        super_users: They may do everything, and no ACL denies them anything.
        allow_everyone_if_no_acl_found: Whether a resource for which there is no ACL at all is open to everybody.
        is_loaded: Whether the ACLs are known. If not, only super users are allowed anything until ``complete_load``.

    Attributes:
        generation: Grows by one or more with each change of the ACLs; what a caller derived from decisions is still
            right while it stays the same.
        on_change: Called with each new generation, before anybody else can ask for a decision.
    """

    def __init__(
        self,
        *,
        super_users: Iterable[Principal] = (),
        allow_everyone_if_no_acl_found: bool = False,
        is_loaded: bool = True,
    ) -> None:
        self.generation = 0
        self.on_change: Callable[[int], None] | None = None
        self._is_loaded = is_loaded
        self._super_users = frozenset(str(user) for user in super_users)
        self._allows_without_acls = allow_everyone_if_no_acl_found
        self._acls: _Entries = {}
        # (pattern type, resource kind, resource name) -> principal -> ACLs; no entry is empty.
        self._by_resource: dict[tuple[int, int, str], dict[str, _Entries]] = {}
        # Resource kind -> length of a prefix -> how many prefixes have it.
        self._prefix_lengths: dict[int, dict[int, int]] = {}
        self._by_principal: dict[tuple[int, str], _Entries] = {}
        self._decisions: dict[_Decision, bool] = {}
        self._logged: set[_Decision] = set()

    def replace(self, acls: Iterable[AccessControlEntryRecord]) -> None:
        """Take these ACLs instead of all earlier ones.

        Costs one comparison per ACL, and more only for those that differ; ``generation`` stays if none does.
        """
        wanted = {acl.id: acl for acl in acls}
        if wanted == self._acls:
            return
        held = self._acls.items()
        # Records that are the same object need no comparison of their fields: they are nearly all of them.
        stale = [acl_id for acl_id, acl in held if (new := wanted.get(acl_id)) is not acl and new != acl]
        for acl_id in stale:
            self.remove(acl_id)
        for acl in wanted.values():
            if acl.id not in self._acls:
                self.add(acl)

    def add(self, acl: AccessControlEntryRecord) -> None:
        """Take one more ACL, instead of an earlier one with its id."""
        self.remove(acl.id)
        self._acls[acl.id] = acl
        resource = (acl.pattern_type, acl.resource_type, acl.resource_name)
        principals = self._by_resource.get(resource)
        if principals is None:
            principals = self._by_resource[resource] = {}
            if acl.pattern_type == PatternType.PREFIXED:
                lengths = self._prefix_lengths.setdefault(acl.resource_type, {})
                lengths[len(acl.resource_name)] = lengths.get(len(acl.resource_name), 0) + 1
        principals.setdefault(acl.principal, {})[acl.id] = acl
        self._by_principal.setdefault((acl.resource_type, acl.principal), {})[acl.id] = acl
        self._note_change()

    def remove(self, acl_id: Uuid) -> None:
        """Forget one ACL; nothing happens if there is none with that id."""
        acl = self._acls.pop(acl_id, None)
        if acl is None:
            return
        resource = (acl.pattern_type, acl.resource_type, acl.resource_name)
        principals = self._by_resource[resource]
        _drop(principals, acl.principal, acl_id)
        if not principals:
            del self._by_resource[resource]
            if acl.pattern_type == PatternType.PREFIXED:
                lengths = self._prefix_lengths[acl.resource_type]
                lengths[len(acl.resource_name)] -= 1
                if not lengths[len(acl.resource_name)]:
                    del lengths[len(acl.resource_name)]
        _drop(self._by_principal, (acl.resource_type, acl.principal), acl_id)
        self._note_change()

    def complete_load(self) -> None:
        """The ACLs are known from now on."""
        self._is_loaded = True
        self._note_change()

    def is_allowed(
        self,
        principal: Principal,
        host: str,
        operation: Operation,
        kind: ResourceKind,
        name: str,
        *,
        log_denied: bool = True,
    ) -> bool:
        """Whether the principal may do this to the resource of that literal name.

        Args:
            principal: Identity of the client.
            host: Its IP address. ACLs name an IPv6 address as Java prints it: ``2001:db8:0:0:0:0:0:1``.
            operation: A single one: neither UNKNOWN, ANY nor ALL.
            kind: Neither UNKNOWN nor ANY.
            name: Name of the resource, ``kafka-cluster`` for the cluster.
            log_denied: False if the client did not name the resource, but it was about to be listed.
        """
        key = (principal.type, principal.name, host, operation, kind, name)
        is_allowed = self._decisions.get(key)
        if is_allowed is None:
            is_allowed, _ = self._decide(principal, _as_java_prints(host), operation, kind, name)
            self._remember(key, is_allowed=is_allowed)
        if not is_allowed and log_denied and key not in self._logged:
            self._logged.add(key)
            address = _as_java_prints(host)
            _, rule = self._decide(principal, address, operation, kind, name)
            logger.info(
                "Principal = %s is Denied operation = %s from host = %s on resource = %s:LITERAL:%s based on rule %s",
                principal,
                operation.name,
                address,
                _KIND_NAMES[kind],
                name,
                rule,
            )
        return is_allowed

    def is_allowed_by_any_resource(
        self, principal: Principal, host: str, operation: Operation, kind: ResourceKind
    ) -> bool:
        """Whether there can be a resource of this kind to which the principal may do this.

        Allowed ones are ACLs that allow the operation or ALL (one that implies it does not count here) and are not
        dominated: by the same literal name denied, by a denied prefix of the name, or by a denied wildcard. A wildcard
        that is allowed is not dominated by prefixes.
        """
        key = (principal.type, principal.name, host, operation, kind, None)
        is_allowed = self._decisions.get(key)
        if is_allowed is None:
            is_allowed = self._decide_by_any_resource(principal, _as_java_prints(host), operation, kind)
            self._remember(key, is_allowed=is_allowed)
        return is_allowed

    def _note_change(self) -> None:
        self.generation += 1
        self._decisions.clear()
        self._logged.clear()
        if self.on_change is not None:
            self.on_change(self.generation)

    def _remember(self, key: _Decision, *, is_allowed: bool) -> None:
        if len(self._decisions) >= _MAX_DECISIONS:
            self._decisions.clear()
            self._logged.clear()
        self._decisions[key] = is_allowed

    def _decide(
        self, principal: Principal, host: str, operation: Operation, kind: ResourceKind, name: str
    ) -> tuple[bool, str]:
        """The decision and the rule that it follows from."""
        who = str(principal)
        if who in self._super_users:
            return True, "SuperUser"
        if not self._is_loaded:
            return False, "NotLoaded"
        implied_by = _IMPLIED_BY.get(operation, (operation, Operation.ALL))
        has_acls = False
        allowed_by: AccessControlEntryRecord | None = None
        for principals in self._matching_resources(kind, name):
            has_acls = True
            for acl in _matching_acls(principals, who, host):
                if acl.permission_type != Permission.ALLOW:
                    if acl.operation in (operation, Operation.ALL):
                        return False, f"MatchingAcl({_describe(acl)})"
                elif allowed_by is None and acl.operation in implied_by:
                    allowed_by = acl
        if allowed_by is not None:
            return True, f"MatchingAcl({_describe(allowed_by)})"
        if has_acls or not self._allows_without_acls:
            return False, "DefaultDeny"
        return True, "DefaultAllow"

    def _matching_resources(self, kind: ResourceKind, name: str) -> Iterator[dict[str, _Entries]]:
        """The ACLs whose resource pattern matches that name, by principal."""
        for literal in (name,) if name == WILDCARD else (name, WILDCARD):
            principals = self._by_resource.get((PatternType.LITERAL, kind, literal))
            if principals is not None:
                yield principals
        for length in self._prefix_lengths.get(kind, ()):
            if length <= len(name):
                principals = self._by_resource.get((PatternType.PREFIXED, kind, name[:length]))
                if principals is not None:
                    yield principals

    def _decide_by_any_resource(
        self, principal: Principal, host: str, operation: Operation, kind: ResourceKind
    ) -> bool:
        # Kafka asks for a made-up name first: for super users, and for what is open to everybody.
        if self._decide(principal, host, operation, kind, "hardcode")[0]:
            return True
        if not self._is_loaded:
            return False
        allowed: set[tuple[int, str]] = set()
        denied: set[tuple[int, str]] = set()
        for who in {str(principal), WILDCARD_PRINCIPAL}:
            for acl in self._by_principal.get((kind, who), {}).values():
                if acl.host in (host, WILDCARD) and acl.operation in (operation, Operation.ALL):
                    if acl.permission_type == Permission.ALLOW:
                        allowed.add((acl.pattern_type, acl.resource_name))
                    elif acl.permission_type == Permission.DENY:
                        denied.add((acl.pattern_type, acl.resource_name))
        if (PatternType.LITERAL, WILDCARD) in denied:
            return False
        if (PatternType.LITERAL, WILDCARD) in allowed:
            return True
        return any(not _is_dominated(pattern_type, name, denied) for pattern_type, name in allowed)


def _drop(entries_by_key: dict[Key, _Entries], key: Key, acl_id: Uuid) -> None:
    entries = entries_by_key[key]
    del entries[acl_id]
    if not entries:
        del entries_by_key[key]


def _as_java_prints(host: str) -> str:
    """The address as ``InetAddress.getHostAddress`` prints it: no part of IPv6 is left out, and IPv4 inside is IPv4."""
    if ":" not in host:
        return host
    plain, percent, scope = host.partition("%")
    try:
        address = IPv6Address(plain)
    except ValueError:
        return host
    if address.ipv4_mapped is not None:
        return str(address.ipv4_mapped)
    parts = (address.packed[index : index + 2] for index in range(0, 16, 2))
    return ":".join(f"{int.from_bytes(part, 'big'):x}" for part in parts) + percent + scope


def _matching_acls(principals: dict[str, _Entries], who: str, host: str) -> Iterator[AccessControlEntryRecord]:
    for principal in (who,) if who == WILDCARD_PRINCIPAL else (who, WILDCARD_PRINCIPAL):
        for acl in principals.get(principal, {}).values():
            if acl.host in (host, WILDCARD):
                yield acl


def _is_dominated(pattern_type: int, name: str, denied: set[tuple[int, str]]) -> bool:
    """Whether whatever the pattern matches is denied."""
    if pattern_type == PatternType.LITERAL and (PatternType.LITERAL, name) in denied:
        return True
    return any((PatternType.PREFIXED, name[:length]) in denied for length in range(1, len(name) + 1))


def _describe(acl: AccessControlEntryRecord) -> str:
    return (
        f"resourceType={ResourceKind(acl.resource_type).name}, resourceName={acl.resource_name}, "
        f"patternType={PatternType(acl.pattern_type).name}, principal={acl.principal}, host={acl.host}, "
        f"operation={Operation(acl.operation).name}, permissionType={Permission(acl.permission_type).name}"
    )
