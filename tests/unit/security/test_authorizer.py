"""Each rule of Kafka's StandardAuthorizer, one by one; tests/property/test_authorizer.py has them together."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from kraftlog.security.authorizer import Authorizer
from kraftlog.security.operation import Operation, PatternType, Permission, ResourceKind
from kraftlog.security.principal import Principal
from kraftlog.types import Uuid
from kraftlog.wire.messages.metadata_records import AccessControlEntryRecord

ALICE, BOB = Principal("User", "alice"), Principal("User", "bob")
HOST = "192.0.2.7"
TOPIC = ResourceKind.TOPIC


def acl(
    number: int,
    operation: Operation = Operation.READ,
    name: str = "orders",
    *,
    pattern: PatternType = PatternType.LITERAL,
    principal: str = "User:alice",
    host: str = "*",
    permission: Permission = Permission.ALLOW,
    kind: ResourceKind = TOPIC,
) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        id=Uuid(number.to_bytes(16, "big")),
        resource_type=kind,
        resource_name=name,
        pattern_type=pattern,
        principal=principal,
        host=host,
        operation=operation,
        permission_type=permission,
    )


def authorizer_of(*acls: AccessControlEntryRecord, everyone: bool = False) -> Authorizer:
    authorizer = Authorizer(super_users=[Principal("User", "root")], allow_everyone_if_no_acl_found=everyone)
    authorizer.replace(acls)
    return authorizer


def test_without_acls_only_super_users_are_allowed() -> None:
    authorizer = authorizer_of()
    assert authorizer.is_allowed(Principal("User", "root"), HOST, Operation.WRITE, TOPIC, "orders")
    assert not authorizer.is_allowed(ALICE, HOST, Operation.WRITE, TOPIC, "orders")
    assert not authorizer.is_allowed(Principal("Group", "root"), HOST, Operation.WRITE, TOPIC, "orders")


def test_super_user_is_allowed_what_an_acl_denies() -> None:
    authorizer = authorizer_of(acl(1, Operation.ALL, "*", principal="User:*", permission=Permission.DENY))
    assert authorizer.is_allowed(Principal("User", "root"), HOST, Operation.WRITE, TOPIC, "orders")
    assert authorizer.is_allowed_by_any_resource(Principal("User", "root"), HOST, Operation.WRITE, TOPIC)


def test_deny_wins_over_allow_of_a_nearer_resource() -> None:
    deny = acl(2, name="or", pattern=PatternType.PREFIXED, permission=Permission.DENY)
    authorizer = authorizer_of(acl(1), deny)
    assert not authorizer.is_allowed(ALICE, HOST, Operation.READ, TOPIC, "orders")
    assert authorizer.is_allowed(ALICE, HOST, Operation.DESCRIBE, TOPIC, "orders")  # DENY of READ denies READ only


@pytest.mark.parametrize(
    ("pattern", "name", "matching", "others"),
    [
        (PatternType.LITERAL, "orders", ["orders"], ["order", "orders2", "*"]),
        (PatternType.LITERAL, "*", ["orders", "x", "*"], []),
        (PatternType.PREFIXED, "ord", ["ord", "orders"], ["or", "xord", "*"]),
        (PatternType.PREFIXED, "*", ["*", "*x"], ["orders"]),
    ],
)
def test_pattern_matches_its_names_only(
    pattern: PatternType, name: str, matching: list[str], others: list[str]
) -> None:
    authorizer = authorizer_of(acl(1, name=name, pattern=pattern))
    for resource in matching:
        assert authorizer.is_allowed(ALICE, HOST, Operation.READ, TOPIC, resource), resource
    for resource in others:
        assert not authorizer.is_allowed(ALICE, HOST, Operation.READ, TOPIC, resource), resource
    assert not authorizer.is_allowed(ALICE, HOST, Operation.READ, ResourceKind.GROUP, matching[0])


def test_principal_and_host_match_exactly_or_by_wildcard() -> None:
    authorizer = authorizer_of(acl(1, host=HOST), acl(2, name="all", principal="User:*"))
    assert authorizer.is_allowed(ALICE, HOST, Operation.READ, TOPIC, "orders")
    assert not authorizer.is_allowed(ALICE, "192.0.2.8", Operation.READ, TOPIC, "orders")
    assert not authorizer.is_allowed(BOB, HOST, Operation.READ, TOPIC, "orders")
    assert authorizer.is_allowed(BOB, "192.0.2.8", Operation.READ, TOPIC, "all")


@pytest.mark.parametrize(
    ("granted", "implied"),
    [
        *((granted, Operation.DESCRIBE) for granted in (Operation.READ, Operation.WRITE, Operation.DELETE)),
        (Operation.ALTER, Operation.DESCRIBE),
        (Operation.ALTER_CONFIGS, Operation.DESCRIBE_CONFIGS),
    ],
)
def test_allow_implies_describe_and_deny_does_not(granted: Operation, implied: Operation) -> None:
    assert authorizer_of(acl(1, granted)).is_allowed(ALICE, HOST, implied, TOPIC, "orders")
    denied = authorizer_of(acl(1, granted, permission=Permission.DENY), acl(2, implied))
    assert denied.is_allowed(ALICE, HOST, implied, TOPIC, "orders")


def test_allow_implies_nothing_else() -> None:
    authorizer = authorizer_of(acl(1, Operation.CREATE), acl(2, Operation.READ))
    assert not authorizer.is_allowed(ALICE, HOST, Operation.WRITE, TOPIC, "orders")
    assert not authorizer.is_allowed(ALICE, HOST, Operation.DESCRIBE_CONFIGS, TOPIC, "orders")
    assert not authorizer_of(acl(1, Operation.CREATE)).is_allowed(ALICE, HOST, Operation.DESCRIBE, TOPIC, "orders")


def test_allow_everyone_ends_with_the_first_acl_of_the_resource() -> None:
    authorizer = authorizer_of(acl(1, principal="User:carol", host="192.0.2.9"), everyone=True)
    assert not authorizer.is_allowed(ALICE, HOST, Operation.READ, TOPIC, "orders")
    assert authorizer.is_allowed(ALICE, HOST, Operation.READ, TOPIC, "invoices")
    assert authorizer.is_allowed_by_any_resource(ALICE, HOST, Operation.READ, TOPIC)


def test_changes_take_effect_and_move_the_generation() -> None:
    authorizer = authorizer_of()

    def may_read() -> bool:
        return authorizer.is_allowed(ALICE, HOST, Operation.READ, TOPIC, "orders")

    assert not may_read()
    seen = {authorizer.generation}
    steps: list[tuple[Callable[[], None], bool]] = [
        (lambda: authorizer.add(acl(1)), True),
        (lambda: authorizer.add(acl(1, Operation.WRITE)), False),  # the same id: replaced
        (lambda: authorizer.replace([acl(1, Operation.WRITE), acl(2)]), True),
        (lambda: authorizer.remove(acl(2).id), False),
    ]
    for change, expected in steps:
        change()
        assert may_read() is expected
        assert authorizer.generation not in seen
        seen.add(authorizer.generation)
    authorizer.replace([acl(1, Operation.WRITE)])
    authorizer.remove(acl(9).id)
    assert authorizer.generation in seen  # nothing changed


def test_removed_prefix_leaves_the_other_prefix_of_its_length() -> None:
    first, second = (acl(number, name=name, pattern=PatternType.PREFIXED) for number, name in ((1, "ord"), (2, "inv")))
    authorizer = authorizer_of(first, second)
    authorizer.remove(first.id)
    assert not authorizer.is_allowed(ALICE, HOST, Operation.READ, TOPIC, "orders")
    assert authorizer.is_allowed(ALICE, HOST, Operation.READ, TOPIC, "invoices")


@pytest.mark.parametrize(
    ("denied", "expected"),
    [
        ([], True),
        ([("orders", PatternType.LITERAL)], False),
        ([("order", PatternType.LITERAL)], True),
        ([("ord", PatternType.PREFIXED)], False),
        ([("orders", PatternType.PREFIXED)], False),
        ([("orders2", PatternType.PREFIXED)], True),
        ([("*", PatternType.LITERAL)], False),
    ],
)
def test_any_resource_allowed_literal_needs_no_dominating_deny(
    denied: list[tuple[str, PatternType]], *, expected: bool
) -> None:
    denials = [
        acl(number, name=name, pattern=pattern, permission=Permission.DENY)
        for number, (name, pattern) in enumerate(denied, 2)
    ]
    authorizer = authorizer_of(acl(1), *denials)
    assert authorizer.is_allowed_by_any_resource(ALICE, HOST, Operation.READ, TOPIC) is expected


def test_any_resource_allowed_prefix_is_dominated_by_a_shorter_prefix_only() -> None:
    allowed = acl(1, name="ord", pattern=PatternType.PREFIXED)
    literal = acl(2, name="ord", permission=Permission.DENY)
    longer = acl(3, name="orders", pattern=PatternType.PREFIXED, permission=Permission.DENY)
    shorter = acl(4, name="o", pattern=PatternType.PREFIXED, permission=Permission.DENY)
    assert authorizer_of(allowed, literal, longer).is_allowed_by_any_resource(ALICE, HOST, Operation.READ, TOPIC)
    assert not authorizer_of(allowed, shorter).is_allowed_by_any_resource(ALICE, HOST, Operation.READ, TOPIC)


def test_any_resource_counts_no_implied_operation() -> None:
    assert not authorizer_of(acl(1)).is_allowed_by_any_resource(ALICE, HOST, Operation.DESCRIBE, TOPIC)
    assert authorizer_of(acl(1, Operation.ALL)).is_allowed_by_any_resource(ALICE, HOST, Operation.DESCRIBE, TOPIC)


def test_denial_is_logged_once_and_what_is_allowed_is_not(caplog: pytest.LogCaptureFixture) -> None:
    deny = acl(1, permission=Permission.DENY)
    authorizer = authorizer_of(deny, acl(2, name="open"))
    with caplog.at_level(logging.INFO, "kraftlog.authorizer"):
        authorizer.is_allowed(ALICE, HOST, Operation.READ, TOPIC, "open")
        authorizer.is_allowed(ALICE, HOST, Operation.READ, TOPIC, "orders", log_denied=False)
        assert caplog.messages == []
        authorizer.is_allowed(ALICE, HOST, Operation.READ, TOPIC, "orders")
        authorizer.is_allowed(ALICE, HOST, Operation.READ, TOPIC, "orders")
        authorizer.is_allowed(BOB, HOST, Operation.WRITE, ResourceKind.TRANSACTIONAL_ID, "t")
    rule = (
        "MatchingAcl(resourceType=TOPIC, resourceName=orders, patternType=LITERAL, principal=User:alice, host=*, "
        "operation=READ, permissionType=DENY)"
    )
    assert caplog.messages == [
        f"Principal = User:alice is Denied operation = READ from host = {HOST} on resource = Topic:LITERAL:orders "
        f"based on rule {rule}",
        f"Principal = User:bob is Denied operation = WRITE from host = {HOST} on resource = "
        "TransactionalId:LITERAL:t based on rule DefaultDeny",
    ]


def test_decisions_are_bounded_and_stay_right(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kraftlog.security.authorizer._MAX_DECISIONS", 4)
    authorizer = authorizer_of(acl(1, name="7"))
    for _ in range(2):
        for number in range(20):
            allowed = authorizer.is_allowed(ALICE, HOST, Operation.READ, TOPIC, str(number))
            assert allowed is (number == 7)
            assert len(authorizer._decisions) <= 4
            assert len(authorizer._logged) <= 4


def test_until_the_acls_are_loaded_only_super_users_are_allowed() -> None:
    root = Principal("User", "root")
    authorizer = Authorizer(super_users=[root], allow_everyone_if_no_acl_found=True, is_loaded=False)
    authorizer.add(acl(1))

    def decisions(principal: Principal) -> tuple[bool, bool]:
        return (
            authorizer.is_allowed(principal, HOST, Operation.READ, TOPIC, "orders"),
            authorizer.is_allowed_by_any_resource(principal, HOST, Operation.READ, TOPIC),
        )

    assert decisions(root) == (True, True)
    assert decisions(ALICE) == (False, False)
    before = authorizer.generation
    authorizer.complete_load()
    assert decisions(ALICE) == (True, True)
    assert authorizer.generation != before


@pytest.mark.parametrize(
    ("client", "in_acl"),
    [
        ("2001:db8::1", "2001:db8:0:0:0:0:0:1"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("::ffff:192.0.2.7", "192.0.2.7"),
        ("fe80::1%eth0", "fe80:0:0:0:0:0:0:1%eth0"),
    ],
)
def test_acls_name_hosts_as_java_prints_them(client: str, in_acl: str, caplog: pytest.LogCaptureFixture) -> None:
    authorizer = authorizer_of(acl(1, host=in_acl), acl(2, name="other", host=in_acl + "0"))
    assert authorizer.is_allowed(ALICE, client, Operation.READ, TOPIC, "orders")
    assert authorizer.is_allowed_by_any_resource(ALICE, client, Operation.READ, TOPIC)
    with caplog.at_level(logging.INFO, "kraftlog.authorizer"):
        assert not authorizer.is_allowed(ALICE, client, Operation.READ, TOPIC, "other")
    assert f"from host = {in_acl} on" in caplog.text
