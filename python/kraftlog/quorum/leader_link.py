"""What a replica asks the leader for its users: proposals, a read offset, changes of the voters.

Proposals travel as Produce (key 0) of one record batch to the log's own partition, acks=1: the answer names the offset
and the epoch they were appended in; this replica's log shows whether they stay there. The offset to read up to is
ListOffsets (key 2), answered once the leader knows that it still leads. The rest are DescribeQuorum, AddRaftVoter and
RemoveRaftVoter, as Kafka's tools send them.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

from kraftlog._kraftlog import encode_values
from kraftlog.errors import ErrorCode, KafkaError, OutcomeUnknownError
from kraftlog.transport.rpc_client import RpcConnection
from kraftlog.types import METADATA_LOG, Uuid
from kraftlog.wire.messages.list_offsets import ListOffsetsRequest
from kraftlog.wire.messages.produce import ProduceRequest

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kraftlog.raft.voter_set import Endpoint
    from kraftlog.transport.peer_security import SecurityOf
    from kraftlog.wire.struct import Message

__all__ = ["LATEST_TIMESTAMP", "LeaderLink"]

LATEST_TIMESTAMP = -1
_TOPIC_IDS_FROM = 13


class LeaderLink:
    """One connection to the leader; all on one loop.

    Args:
        loop: The loop.
        client_id: As requests have it.
        connect_timeout_s: How long opening a connection may take.
        security: What connections to a listener of that name need; gives None where it is PLAINTEXT.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, *, client_id: str, connect_timeout_s: float, security: SecurityOf
    ) -> None:
        self._loop = loop
        self._client_id = client_id
        self._connect_timeout_s = connect_timeout_s
        self._security = security
        self._endpoint: Endpoint | None = None
        self._opening: asyncio.Task[RpcConnection] | None = None

    async def connect(self, endpoint: Endpoint) -> RpcConnection:
        """The connection, opened when there is none.

        Raises:
            KafkaError: BROKER_NOT_AVAILABLE, UNSUPPORTED_VERSION.
        """
        opening = self._opening
        if opening is not None and self._endpoint == endpoint:
            is_bad = opening.done() and (
                opening.cancelled() or opening.exception() is not None or opening.result().is_closed
            )
            if not is_bad:
                return await asyncio.shield(opening)
        self.close()
        self._endpoint = endpoint
        self._opening = opening = self._loop.create_task(self.open(endpoint))
        opening.add_done_callback(_retrieve)
        return await asyncio.shield(opening)

    async def open(self, endpoint: Endpoint) -> RpcConnection:
        """A connection of the caller's own.

        Raises:
            KafkaError: BROKER_NOT_AVAILABLE, UNSUPPORTED_VERSION.
        """
        return await RpcConnection.open(
            self._loop,
            endpoint.host,
            endpoint.port,
            client_id=self._client_id,
            timeout_s=self._connect_timeout_s,
            security=self._security(endpoint.name),
        )

    async def request(self, endpoint: Endpoint, message: Message) -> Any:
        """Ask in the highest common version.

        Raises:
            KafkaError: BROKER_NOT_AVAILABLE, UNSUPPORTED_VERSION.
        """
        connection = await self.connect(endpoint)
        return await connection.request(message)

    @staticmethod
    async def propose(connection: RpcConnection, commands: Sequence[bytes], timeout_s: float) -> tuple[int, int]:
        """Have commands appended by the leader; return the first one's offset, and the epoch.

        Raises:
            KafkaError: NOT_LEADER_OR_FOLLOWER or another refusal, or no connection: nothing was appended.
            OutcomeUnknownError: The connection ended before the answer.
        """
        version = connection.common_version(0, lowest=_TOPIC_IDS_FROM)
        if version is None:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "the leader takes no proposals")
        records = encode_values(list(commands))
        partition = ProduceRequest.PartitionProduceData(index=0, records=records)
        topic = ProduceRequest.TopicProduceData(topic_id=Uuid.METADATA_TOPIC_ID, partition_data=(partition,))
        request = ProduceRequest(
            transactional_id=None, acks=1, timeout_ms=max(1, int(timeout_s * 1000)), topic_data=(topic,)
        )
        try:
            response: Any = await connection.request(request)
        except KafkaError as error:
            reason = f"the connection to the leader ended before its answer: {error}"
            raise OutcomeUnknownError(reason) from error
        answer = response.responses[0].partition_responses[0]
        if answer.error_code:
            raise KafkaError(answer.error_code, answer.error_message)
        return answer.base_offset, answer.current_leader.leader_epoch

    async def read_offset(self, endpoint: Endpoint) -> int:
        """The offset to have applied before a linearizable read (exclusive).

        Raises:
            KafkaError: NOT_LEADER_OR_FOLLOWER, BROKER_NOT_AVAILABLE and the like: ask again.
        """
        partition = ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=LATEST_TIMESTAMP)
        topic = ListOffsetsRequest.ListOffsetsTopic(name=METADATA_LOG.name, partitions=(partition,))
        response = await self.request(endpoint, ListOffsetsRequest(replica_id=-1, topics=(topic,)))
        answer = response.topics[0].partitions[0]
        if answer.error_code:
            raise KafkaError(answer.error_code)
        offset: int = answer.offset
        return offset

    def close(self) -> None:
        """Close the connection; who waits for an answer is told."""
        opening, self._opening = self._opening, None
        if opening is None:
            return
        if not opening.done():
            opening.cancel()
        elif not opening.cancelled() and opening.exception() is None:
            opening.result().close()


def _retrieve(opening: asyncio.Task[RpcConnection]) -> None:
    """A waiting caller has the exception; none has to wait."""
    if not opening.cancelled():
        opening.exception()
