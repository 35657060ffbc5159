"""Requests of brokers about the state of share partitions: each goes to the shard that coordinates it (KIP-932)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from kraftlog.api.slices import Pauses
from kraftlog.coordinator.share.share_key import ShareKey
from kraftlog.errors import KafkaError

if TYPE_CHECKING:
    from kraftlog.coordinator.share.state_shard import ShareStateShard
    from kraftlog.runtime.share.share_service import ShareService

__all__ = ["answer_each"]

_Ask = Callable[["ShareStateShard", "asyncio.Future[Any]", ShareKey, Any, int], None]


async def answer_each(
    shares: ShareService, request: Any, ask: _Ask, partition_result: Any, topic_result: Any
) -> list[Any]:
    """The results of all topics of a request.

    Args:
        shares: Has the shards of this node.
        request: Of one of the five APIs.
        ask: Asks a shard about one share partition.
        partition_result: Class of the answer for one share partition.
        topic_result: Class of the answer for one topic.
    """
    results = []
    pauses = Pauses()
    for topic in request.topics:
        if pauses.is_due():
            await asyncio.sleep(0)
        asked: list[tuple[Any, asyncio.Future[Any] | KafkaError]] = []
        for partition in topic.partitions:
            if pauses.is_due():
                await asyncio.sleep(0)
            key = ShareKey(request.group_id, topic.topic_id, partition.partition)
            try:
                runner = shares.coordinator.runner(str(key))
            except KafkaError as error:
                asked.append((partition, error))
                continue
            asked.append((partition, runner.ask(_bound(ask, key, partition))))
        answers = []
        for partition, outcome in asked:
            if pauses.is_due():
                await asyncio.sleep(0)
            try:
                if isinstance(outcome, KafkaError):
                    raise outcome
                answers.append(await outcome)
            except KafkaError as error:
                answers.append(
                    partition_result(partition=partition.partition, error_code=error.code, error_message=error.message)
                )
        results.append(topic_result(topic_id=topic.topic_id, partitions=answers))
    return results


def _bound(ask: _Ask, key: ShareKey, partition: Any) -> Callable[[ShareStateShard, asyncio.Future[Any], int], None]:
    return lambda shard, future, now_ms: ask(shard, future, key, partition, now_ms)
