"""Changes of in-sync sets on their way to the controller: AlterPartition (KIP-497, KIP-841, KIP-903)."""

from __future__ import annotations

import asyncio
import logging
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from kraftlog.errors import ErrorCode, KraftlogError
from kraftlog.wire.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from kraftlog.runtime.replica.partition import Partition
    from kraftlog.runtime.replica.registry import PartitionKey
    from kraftlog.wire.struct import Message

__all__ = ["Controllers", "IsrChanges", "IsrMetrics", "Proposal"]

logger = logging.getLogger(__name__)

Proposal = tuple[int, int, int, list[tuple[int, int]]]
"""Number, leader epoch, partition epoch, and the members with the broker epochs of their last fetches."""

_RETRY_S: Final = 0.05
# Back to the confirmed set, so that the next fetch may propose again.
_REFUSED: Final = frozenset({ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED})
# The metadata is about to say what holds; until then the proposal stays in force.
_SUPERSEDED: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)
_RECOVERY_STATES: Final = (0, 1)
_BROKER_EPOCHS_FROM: Final = 3  # version of AlterPartition (KIP-903)


class Controllers(Protocol):
    """The way to the active controller."""

    async def request(self, message: Message, *, in_version: Callable[[int], Message] | None = None) -> Any:
        """Ask until an active controller answers; ``in_version`` gives the request in an older version."""
        ...


# The partition, what is proposed, and whether a replica is to join.
_Queued = tuple["Partition", Proposal, bool]


class IsrMetrics(Protocol):
    """Counts what became of proposals."""

    def on_isr_expanded(self) -> None:
        """The controller confirmed a larger in-sync set."""

    def on_isr_shrunk(self) -> None:
        """The controller confirmed a smaller in-sync set."""

    def on_isr_update_failed(self) -> None:
        """The controller refused, or its answer came too late."""


class IsrChanges:
    """Sends proposals, one request at a time; what comes meanwhile goes together with the next one.

    A proposal is sent until the controller has decided or the metadata has overtaken it: nothing is ever assumed of one
    without an answer. All methods are called on the loop.

    Args:
        broker_id: This broker.
        broker_epoch: Gives the epoch of its registration.
        controllers: The way to the active controller.
        metrics: Counts changes and failures.
    """

    def __init__(
        self,
        broker_id: int,
        broker_epoch: Callable[[], int],
        controllers: Controllers,
        metrics: IsrMetrics | None = None,
    ) -> None:
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._controllers = controllers
        self._queue: dict[PartitionKey, _Queued] = {}
        self._task: asyncio.Task[None] | None = None
        self._is_stopped = False
        self._failure = ""
        self._metrics = metrics

    def submit(self, partition: Partition, proposal: Proposal) -> None:
        """Send a proposal soon."""
        key = (partition.topic_id, partition.index)
        queued = self._queue.get(key)
        if queued is not None and queued[0] is partition and partition.replica.is_proposal_pending(queued[1][0]):
            partition.replica.isr_refused(proposal[0])
            return
        self._queue[key] = (partition, proposal, len(proposal[3]) > len(partition.replica.isr))
        if self._task is None and not self._is_stopped:
            self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        """Send nothing more."""
        self._is_stopped = True
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        try:
            while self._drop_superseded():
                sent = dict(self._queue)
                response = AlterPartitionResponse(error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
                try:
                    request = self._request(sent)
                    response = await self._controllers.request(request, in_version=partial(_in_version, request))
                    reason = ErrorCode.name_of(response.error_code)
                except KraftlogError as error:
                    reason = str(error)
                if response.error_code:
                    # The proposals stay: a new registration, or another controller, may be on its way.
                    if reason != self._failure:
                        logger.warning("changes of in-sync sets are sent again: %s", reason)
                    self._failure = reason
                    await asyncio.sleep(_RETRY_S)
                    continue
                self._failure = ""
                self._answered(sent, response)
                if sent.keys() & self._queue.keys():
                    await asyncio.sleep(_RETRY_S)
        finally:
            self._task = None

    def _drop_superseded(self) -> bool:
        """Forget what the metadata has overtaken; whether anything is left."""
        for key, (partition, proposal, _) in list(self._queue.items()):
            if not partition.replica.is_proposal_pending(proposal[0]):
                del self._queue[key]
        return bool(self._queue)

    def _request(self, sent: dict[PartitionKey, _Queued]) -> AlterPartitionRequest:
        broker_epoch = self._broker_epoch()
        topics: dict[Any, list[AlterPartitionRequest.PartitionData]] = {}
        for (topic_id, index), (_, (_, leader_epoch, partition_epoch, members), _) in sent.items():
            topics.setdefault(topic_id, []).append(
                AlterPartitionRequest.PartitionData(
                    partition_index=index,
                    leader_epoch=leader_epoch,
                    partition_epoch=partition_epoch,
                    leader_recovery_state=0,
                    new_isr_with_epochs=[
                        AlterPartitionRequest.BrokerState(
                            broker_id=member, broker_epoch=broker_epoch if member == self._broker_id else epoch
                        )
                        for member, epoch in members
                    ],
                )
            )
        return AlterPartitionRequest(
            broker_id=self._broker_id,
            broker_epoch=broker_epoch,
            topics=[
                AlterPartitionRequest.TopicData(topic_id=topic_id, partitions=partitions)
                for topic_id, partitions in topics.items()
            ],
        )

    def _answered(self, sent: dict[PartitionKey, _Queued], response: AlterPartitionResponse) -> None:
        for topic in response.topics:
            for answer in topic.partitions:
                key = (topic.topic_id, answer.partition_index)
                found = sent.get(key)
                if found is None:
                    continue
                if self._decide(found, answer) and self._queue.get(key) == found:
                    del self._queue[key]

    def _decide(self, queued: _Queued, answer: AlterPartitionResponse.PartitionData) -> bool:
        """Whether the controller has decided; else the same proposal is sent again."""
        partition, (number, _, _, members), is_expansion = queued
        code = answer.error_code
        if code == ErrorCode.NONE and answer.leader_recovery_state not in _RECOVERY_STATES:
            code = int(ErrorCode.UNKNOWN_SERVER_ERROR)
        if code == ErrorCode.NONE:
            # Metadata that comes before the answer has brought the same change already.
            is_overtaken = not partition.replica.is_proposal_pending(number)
            is_taken = partition.replica.isr_committed(
                number,
                leader_epoch=answer.leader_epoch,
                partition_epoch=answer.partition_epoch,
                isr=list(answer.isr),
            )
            if is_taken or is_overtaken:
                self._changed(partition, answer.isr, is_expansion=is_expansion)
            else:
                self._failed()
            return True
        self._failed()
        name = ErrorCode.name_of(code)
        if code in _REFUSED:
            logger.info("the controller refuses the in-sync set %s of partition %s: %s", members, partition, name)
            partition.replica.isr_refused(number)
            return True
        if code in _SUPERSEDED:
            logger.info("the in-sync set of partition %s waits for the metadata: %s", partition, name)
            return True
        logger.warning("the in-sync set of partition %s is proposed again: %s", partition, name)
        return False

    def _failed(self) -> None:
        if self._metrics is not None:
            self._metrics.on_isr_update_failed()

    def _changed(self, partition: Partition, isr: Sequence[int], *, is_expansion: bool) -> None:
        if self._metrics is not None and is_expansion:
            self._metrics.on_isr_expanded()
        elif self._metrics is not None:
            self._metrics.on_isr_shrunk()
        logger.info("the in-sync set of partition %s is %s now", partition, sorted(isr))


def _in_version(request: AlterPartitionRequest, version: int) -> AlterPartitionRequest:
    """The request for a controller without broker epochs: the same members, as plain ids (ISR-38, ISR-39)."""
    if version >= _BROKER_EPOCHS_FROM:
        return request
    return replace(
        request,
        topics=[
            replace(
                topic,
                partitions=[
                    replace(
                        partition,
                        new_isr=[member.broker_id for member in partition.new_isr_with_epochs],
                        new_isr_with_epochs=(),
                    )
                    for partition in topic.partitions
                ],
            )
            for topic in request.topics
        ],
    )
