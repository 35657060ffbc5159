"""What handlers take from the configuration."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["ApiSettings"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ApiSettings:
    """Settings of one node, under the names of Kafka's keys with underscores.

    Attributes:
        properties: Every key of server.properties with its text, for DescribeConfigs.
        selects_replicas_by_rack: replica.selector.class is the rack-aware one.
        group_protocols: Group protocols that are served: classic, consumer.
    """

    properties: Mapping[str, str]
    auto_create_topics_enable: bool
    delete_topic_enable: bool
    fetch_max_bytes: int
    max_request_partition_size_limit: int
    group_protocols: frozenset[str] = frozenset({"classic", "consumer"})
    transaction_partition_verification_enable: bool = True
    selects_replicas_by_rack: bool = False
