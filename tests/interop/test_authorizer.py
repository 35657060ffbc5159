"""Kafka's StandardAuthorizer and kraftlog's decide alike, after the same changes of ACLs."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from interop.harness import HERE, Java
from kraftlog.security.authorizer import Authorizer
from kraftlog.security.operation import Operation, PatternType, Permission, ResourceKind
from kraftlog.security.principal import Principal
from kraftlog.types import Uuid
from kraftlog.wire.messages.metadata_records import AccessControlEntryRecord

PROGRAM = str(HERE / "java" / "Authorize.java")
NAMES = ["*", "a", "ab", "abc", "abd", "b", "ba", "h", "hard", "hardcode", "hardcoded"]
# A client with the name * makes Kafka's authorizer throw: it puts the name and the wildcard into one Set.of.
CLIENTS = ["User:alice", "User:CN=a,O=b:c", "User:root", "Group:g"]
PRINCIPALS = [*CLIENTS, "User:*"]
HOSTS = ["192.0.2.1", "192.0.2.2", "2001:db8:0:0:0:0:0:1"]
# The third one as Java prints it; here also as sockets name it.
ADDRESSES = [*HOSTS, "2001:db8::1"]
KINDS = [ResourceKind.TOPIC, ResourceKind.GROUP, ResourceKind.CLUSTER]
OPERATIONS = [operation for operation in Operation if operation > Operation.ALL]


def test_wildcard_is_for_each_name_where_kafka_leaves_some_out(java: Java) -> None:
    """Kafka's scan skips the literal * for longer names that begin with it; its documentation has no such exception."""
    authorizer = Authorizer()
    deny = replace(random_acl(random.Random(1), 1), resource_type=ResourceKind.GROUP, resource_name="*", host="*")
    deny = replace(deny, pattern_type=PatternType.LITERAL, principal="User:alice", operation=Operation.READ)
    allow = replace(
        deny, id=Uuid(bytes(15) + b"\2"), pattern_type=PatternType.PREFIXED, permission_type=Permission.ALLOW
    )
    deny = replace(deny, permission_type=Permission.DENY)
    lines = ["new\tfalse", text_of(deny), text_of(allow)]
    lines += [
        f"ask\tUser:alice\t{HOSTS[0]}\t{Operation.READ:d}\t{ResourceKind.GROUP:d}\t{name}" for name in ("*", "*a")
    ]
    assert java.tool(PROGRAM, text_input="\n".join(lines) + "\n").stdout.split() == ["0", "1"]
    authorizer.replace([deny, allow])
    for name in ("*", "*a"):
        assert not authorizer.is_allowed(Principal("User", "alice"), HOSTS[0], Operation.READ, ResourceKind.GROUP, name)


def principal_of(text: str) -> Principal:
    kind, _, name = text.partition(":")
    return Principal(kind, name)


def random_acl(rng: random.Random, number: int) -> AccessControlEntryRecord:
    return AccessControlEntryRecord(
        id=Uuid(number.to_bytes(16, "big")),
        resource_type=rng.choice(KINDS),
        resource_name=rng.choice(NAMES),
        pattern_type=rng.choice([PatternType.LITERAL, PatternType.PREFIXED]),
        principal=rng.choice(PRINCIPALS),
        host=rng.choice([*HOSTS, "*", "*", "*"]),
        operation=rng.choice([Operation.ALL, Operation.ALL, *OPERATIONS]),
        permission_type=rng.choice([Permission.ALLOW, Permission.ALLOW, Permission.DENY]),
    )


def text_of(acl: AccessControlEntryRecord) -> str:
    number = int.from_bytes(acl.id, "big")
    pattern = f"{acl.resource_type:d}\t{acl.resource_name}\t{acl.pattern_type:d}"
    return f"add\t{number}\t{pattern}\t{acl.principal}\t{acl.host}\t{acl.operation:d}\t{acl.permission_type:d}"


def history(rng: random.Random, lines: list[str], expected: list[bool]) -> None:
    """Change ACLs some times and note decisions after each change: the questions, and what kraftlog decides."""
    everyone = rng.random() < 0.5
    authorizer = Authorizer(super_users=[Principal("User", "root")], allow_everyone_if_no_acl_found=everyone)
    lines.append(f"new\t{str(everyone).lower()}")
    held: dict[AccessControlEntryRecord, AccessControlEntryRecord] = {}
    for number in range(1, rng.randint(2, 25)):
        if held and rng.random() < 0.3:
            removed = held.pop(rng.choice(list(held)))
            authorizer.remove(removed.id)
            lines.append(f"remove\t{int.from_bytes(removed.id, 'big')}")
        else:
            acl = random_acl(rng, number)
            content = replace(acl, id=Uuid.ZERO)
            if content in held:
                continue  # the controller writes no such record
            held[content] = acl
            authorizer.add(acl)
            lines.append(text_of(acl))
        for _ in range(25):
            who, host, operation, kind = map(rng.choice, (CLIENTS, ADDRESSES, OPERATIONS, KINDS))
            start = f"{who}\t{host}\t{operation:d}\t{kind:d}"
            if rng.random() < 0.3:
                lines.append(f"any\t{start}")
                expected.append(authorizer.is_allowed_by_any_resource(principal_of(who), host, operation, kind))
            else:
                name = rng.choice(NAMES)
                lines.append(f"ask\t{start}\t{name}")
                expected.append(authorizer.is_allowed(principal_of(who), host, operation, kind, name))


@pytest.mark.parametrize("seed", range(3))
def test_decisions_are_those_of_standard_authorizer(java: Java, seed: int) -> None:
    rng = random.Random(seed)
    lines: list[str] = []
    expected: list[bool] = []
    for _ in range(150):
        history(rng, lines, expected)
    done = java.tool(PROGRAM, text_input="\n".join(lines) + "\n")
    decided = [line == "1" for line in done.stdout.split()]
    questions = [line for line in lines if line.startswith(("ask", "any"))]
    assert len(decided) == len(expected) == len(questions)
    wrong = [
        f"{question!r}: Kafka {kafkas}, kraftlog {own}"
        for question, kafkas, own in zip(questions, decided, expected, strict=True)
        if kafkas is not own
    ]
    assert not wrong, "\n".join(wrong[:10])
    for kind in ("ask", "any"):
        outcomes = {own for question, own in zip(questions, expected, strict=True) if question.startswith(kind)}
        assert outcomes == {True, False}
