"""The indexed authorizer decides like a scan of the list of ACLs, after any sequence of changes."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlog.security.authorizer import Authorizer
from kraftlog.security.operation import Operation, PatternType, Permission, ResourceKind
from kraftlog.security.principal import Principal
from kraftlog.types import Uuid
from kraftlog.wire.messages.metadata_records import AccessControlEntryRecord

NAMES = ["*", "a", "ab", "abc", "b", "hard", "hardcode", "h", ""]
PRINCIPALS = [Principal("User", "alice"), Principal("User", "*"), Principal("User", "root"), Principal("Group", "g")]
HOSTS = ["*", "h1", "h2"]
KINDS = [ResourceKind.TOPIC, ResourceKind.GROUP]
OPERATIONS = [
    Operation.READ,
    Operation.CREATE,
    Operation.ALTER,
    Operation.DESCRIBE,
    Operation.ALTER_CONFIGS,
    Operation.DESCRIBE_CONFIGS,
]

Acl = AccessControlEntryRecord
acls = st.builds(
    Acl,
    id=st.integers(0, 9).map(lambda number: Uuid(number.to_bytes(16, "big"))),
    resource_type=st.sampled_from(KINDS),
    resource_name=st.sampled_from(NAMES),
    pattern_type=st.sampled_from([PatternType.LITERAL, PatternType.PREFIXED]),
    principal=st.sampled_from(PRINCIPALS).map(str),
    host=st.sampled_from(HOSTS),
    operation=st.sampled_from([Operation.ALL, *OPERATIONS]),
    permission_type=st.sampled_from([Permission.ALLOW, Permission.DENY]),
)
changes = st.one_of(
    st.tuples(st.just("replace"), st.lists(acls, max_size=8)),
    st.tuples(st.just("add"), acls),
    st.tuples(st.just("remove"), acls),
)


def is_for(acl: Acl, principal: Principal, host: str) -> bool:
    return acl.principal in (str(principal), "User:*") and acl.host in (host, "*")


def scan(
    held: list[Acl], who: Principal, host: str, op: Operation, kind: ResourceKind, name: str, *, open_: bool
) -> bool:
    """The same decision, found by looking at each ACL; the order of the rules is that of the module's docstring."""
    if str(who) == "User:root":
        return True
    on_resource = [
        acl
        for acl in held
        if acl.resource_type == kind
        and (
            name.startswith(acl.resource_name)
            if acl.pattern_type == PatternType.PREFIXED
            else acl.resource_name in (name, "*")
        )
    ]
    if not on_resource:
        return open_
    implied = {op, Operation.ALL}
    if op == Operation.DESCRIBE:
        implied |= {Operation.READ, Operation.ALTER}
    if op == Operation.DESCRIBE_CONFIGS:
        implied |= {Operation.ALTER_CONFIGS}
    matching = [acl for acl in on_resource if is_for(acl, who, host)]
    if any(acl.permission_type == Permission.DENY and acl.operation in (op, Operation.ALL) for acl in matching):
        return False
    return any(acl.permission_type == Permission.ALLOW and acl.operation in implied for acl in matching)


def scan_any(held: list[Acl], who: Principal, host: str, op: Operation, kind: ResourceKind, *, open_: bool) -> bool:
    if scan(held, who, host, op, kind, "hardcode", open_=open_):
        return True
    own = [
        acl
        for acl in held
        if acl.resource_type == kind and is_for(acl, who, host) and acl.operation in (op, Operation.ALL)
    ]
    denied = [acl for acl in own if acl.permission_type == Permission.DENY]
    allowed = [acl for acl in own if acl.permission_type == Permission.ALLOW]
    if any(acl.pattern_type == PatternType.LITERAL and acl.resource_name == "*" for acl in denied):
        return False

    def covers(deny: Acl, allow: Acl) -> bool:
        if deny.pattern_type == PatternType.PREFIXED:
            return deny.resource_name != "" and allow.resource_name.startswith(deny.resource_name)
        return allow.pattern_type == PatternType.LITERAL and allow.resource_name == deny.resource_name

    return any(
        (allow.pattern_type == PatternType.LITERAL and allow.resource_name == "*")
        or not any(covers(deny, allow) for deny in denied)
        for allow in allowed
    )


@settings(max_examples=150, deadline=None)
@given(steps=st.lists(changes, max_size=6), everyone=st.booleans())
def test_decisions_equal_a_scan_of_all_acls(
    steps: list[tuple[str, list[Acl]] | tuple[str, Acl]], *, everyone: bool
) -> None:
    authorizer = Authorizer(super_users=[Principal("User", "root")], allow_everyone_if_no_acl_found=everyone)
    held: dict[Uuid, Acl] = {}
    for step, value in steps:
        if isinstance(value, list):
            held = {acl.id: acl for acl in value}
            authorizer.replace(value)
        elif step == "add":
            held[value.id] = value
            authorizer.add(value)
        else:
            held.pop(value.id, None)
            authorizer.remove(value.id)
        current = list(held.values())
        for principal in PRINCIPALS:
            for kind in KINDS:
                for operation in OPERATIONS:
                    for name in NAMES[:-1]:
                        expected = scan(current, principal, "h1", operation, kind, name, open_=everyone)
                        assert authorizer.is_allowed(principal, "h1", operation, kind, name) is expected
                    expected = scan_any(current, principal, "h1", operation, kind, open_=everyone)
                    assert authorizer.is_allowed_by_any_resource(principal, "h1", operation, kind) is expected
