"""What ACLs are made of, numbered as in the protocol (KIP-11, KIP-290 and their successors)."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

__all__ = ["CLUSTER_NAME", "Operation", "PatternType", "Permission", "ResourceKind"]

CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the one resource of kind CLUSTER."""


class Operation(IntEnum):
    """What an access control list allows or denies.

    UNKNOWN stands for each number without a name, ANY only for a filter that matches each operation.

    Source: ``org.apache.kafka.common.acl.AclOperation``.
    """

    UNKNOWN = 0
    ANY = 1
    ALL = 2
    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12
    CREATE_TOKENS = 13
    DESCRIBE_TOKENS = 14
    TWO_PHASE_COMMIT = 15

    @classmethod
    def _missing_(cls, value: object) -> Operation | None:
        return cls.UNKNOWN if isinstance(value, int) else None


class ResourceKind(IntEnum):
    """What an operation acts on.

    Source: ``org.apache.kafka.common.resource.ResourceType``.
    """

    UNKNOWN = 0
    ANY = 1
    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    DELEGATION_TOKEN = 6
    USER = 7

    @classmethod
    def _missing_(cls, value: object) -> ResourceKind | None:
        return cls.UNKNOWN if isinstance(value, int) else None


class PatternType(IntEnum):
    """How the resource name of an ACL is compared; ANY and MATCH stand in filters only.

    Source: ``org.apache.kafka.common.resource.PatternType``.
    """

    UNKNOWN = 0
    ANY = 1
    MATCH = 2
    LITERAL = 3
    PREFIXED = 4

    @classmethod
    def _missing_(cls, value: object) -> PatternType | None:
        return cls.UNKNOWN if isinstance(value, int) else None


class Permission(IntEnum):
    """Whether an ACL allows or denies; ANY stands in filters only.

    Source: ``org.apache.kafka.common.acl.AclPermissionType``.
    """

    UNKNOWN = 0
    ANY = 1
    DENY = 2
    ALLOW = 3

    @classmethod
    def _missing_(cls, value: object) -> Permission | None:
        return cls.UNKNOWN if isinstance(value, int) else None
