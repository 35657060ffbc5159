"""The producer id and epoch of an idempotent producer without transactions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kraftlog.client.connections import Connections
from kraftlog.client.state.cluster_metadata import Node
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.wire.messages.init_producer_id import InitProducerIdRequest

__all__ = ["new_producer_id", "next_epoch"]

_LAST_EPOCH = 2**15 - 1


async def new_producer_id(connections: Connections, nodes: Mapping[int, Node]) -> tuple[int, int] | None:
    """An id and epoch that no other producer has; None after an error that may pass.

    Raises:
        KafkaError: The cluster has no idempotent producers, or refuses this one.
    """
    try:
        node = await connections.any_node(nodes)
        answer: Any = (await connections.ask(node, InitProducerIdRequest(transactional_id=None)))[0]
    except KafkaError as error:
        if error.code == ErrorCode.UNSUPPORTED_VERSION:
            raise
        return None
    if answer.error_code:
        if not ErrorCode.is_retriable(answer.error_code):
            raise KafkaError(answer.error_code, "InitProducerId")
        return None
    return answer.producer_id, answer.producer_epoch


def next_epoch(producer: tuple[int, int] | None) -> tuple[int, int] | None:
    """The same id with the next epoch, which brokers need not be asked for; None for another id.

    Source: ``TransactionManager.bumpIdempotentProducerEpoch``.
    """
    if producer is None or producer[1] >= _LAST_EPOCH:
        return None
    return producer[0], producer[1] + 1
