"""Operations and kinds of resources, numbered as in the protocol (KIP-11 and its successors)."""

from __future__ import annotations

from enum import IntEnum

__all__ = ["Operation", "ResourceKind"]


class Operation(IntEnum):
    """What an access control list allows or denies.

    Source: ``org.apache.kafka.common.acl.AclOperation``.
    """

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


class ResourceKind(IntEnum):
    """What an operation acts on.

    Source: ``org.apache.kafka.common.resource.ResourceType``.
    """

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5
    USER = 7
