"""Names and numbers that Kafka fixes and several rooms use: its own topics, and what a setting belongs to."""

from __future__ import annotations

from enum import IntEnum
from typing import Final

__all__ = [
    "CLUSTER_METADATA_DIRECTORY",
    "CLUSTER_METADATA_TOPIC",
    "CONSUMER_OFFSETS_TOPIC",
    "COORDINATORS",
    "INTERNAL_TOPICS",
    "NOT_HOSTED",
    "REMOTE_LOG_METADATA_TOPIC",
    "SHARE_GROUP_STATE_TOPIC",
    "SYSTEM_TOPICS",
    "TRANSACTION_STATES",
    "TRANSACTION_STATE_TOPIC",
    "ConfigResourceType",
]

CLUSTER_METADATA_TOPIC: Final = "__cluster_metadata"
CONSUMER_OFFSETS_TOPIC: Final = "__consumer_offsets"
TRANSACTION_STATE_TOPIC: Final = "__transaction_state"
SHARE_GROUP_STATE_TOPIC: Final = "__share_group_state"
REMOTE_LOG_METADATA_TOPIC: Final = "__remote_log_metadata"

CLUSTER_METADATA_DIRECTORY: Final = "__cluster_metadata-0"
"""Name of the directory of the metadata log, which has one partition."""

INTERNAL_TOPICS: Final = frozenset({CONSUMER_OFFSETS_TOPIC, TRANSACTION_STATE_TOPIC, SHARE_GROUP_STATE_TOPIC})
"""Topics that only brokers write to (``org.apache.kafka.common.internals.Topic.INTERNAL_TOPICS``)."""

SYSTEM_TOPICS: Final = INTERNAL_TOPICS | {CLUSTER_METADATA_TOPIC}
"""Topics that a reader of log directories leaves out unless they are named."""

NOT_HOSTED: Final = "This server does not host this topic-partition."
"""What Kafka says with UNKNOWN_TOPIC_OR_PARTITION, where an answer has a text that tools print."""

COORDINATORS: Final = {
    CONSUMER_OFFSETS_TOPIC: "group",
    TRANSACTION_STATE_TOPIC: "transaction",
    SHARE_GROUP_STATE_TOPIC: "share",
}
"""Topic of a coordinator to the name of its records' schemas."""

TRANSACTION_STATES: Final = (
    "Empty",
    "Ongoing",
    "PrepareCommit",
    "PrepareAbort",
    "CompleteCommit",
    "CompleteAbort",
    "Dead",
    "PrepareEpochFence",
)
"""States of a transaction by their number (``org.apache.kafka.coordinator.transaction.TransactionState``)."""


class ConfigResourceType(IntEnum):
    """What a setting belongs to, numbered as in the protocol (``ConfigResource.Type``)."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32
