"""What an operator changes in a running cluster: voters, features, settings, partitions, and where replicas are."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Final

from kraftlog.errors import ErrorCode, KraftlogError
from kraftlog.testing.world.node_machine import BROKER_PORT, CONTROLLER_PORT
from kraftlog.transport.rpc_client import RpcConnection
from kraftlog.vocabulary import ConfigResourceType
from kraftlog.wire.messages.add_raft_voter import AddRaftVoterRequest
from kraftlog.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)
from kraftlog.wire.messages.alter_replica_log_dirs import AlterReplicaLogDirsRequest, AlterReplicaLogDirsResponse
from kraftlog.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from kraftlog.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse
from kraftlog.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kraftlog.wire.messages.remove_raft_voter import RemoveRaftVoterRequest
from kraftlog.wire.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence

    from kraftlog.testing.world.node_machine import NodeMachine
    from kraftlog.wire.struct import Message

__all__ = ["Administration"]

_TIMEOUT_MS: Final = 3_000
_RETRY_S: Final = 0.5
# A broker that is down for longer keeps its replicas where they are.
_BROKER_ATTEMPTS: Final = 5
_UPGRADE: Final = 1
_PREFERRED: Final = 0
_SET, _DELETE = 0, 1
# Anything else may be gone a moment later: no active controller, a replica that lags, another change under way.
_FINAL_CODES: Final = frozenset(
    {
        ErrorCode.NONE,
        ErrorCode.DUPLICATE_VOTER,
        ErrorCode.ELECTION_NOT_NEEDED,
        ErrorCode.FEATURE_UPDATE_FAILED,
        ErrorCode.INVALID_CONFIG,
        ErrorCode.INVALID_PARTITIONS,
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
        ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNSUPPORTED_VERSION,
        ErrorCode.VOTER_NOT_FOUND,
    }
)


class Administration:
    """Asks controllers one after the other until the active one has decided; one change at a time, on one loop.

    Brokers are asked what they alone decide.

    Args:
        controllers: Of the cluster.
    """

    def __init__(self, controllers: Collection[NodeMachine]) -> None:
        self._controllers = tuple(controllers)
        self._lock = asyncio.Lock()

    async def update_feature(self, feature: str, level: int) -> str:
        """Upgrade a feature; returns the name of the final error code, NONE once the level is committed."""
        update = UpdateFeaturesRequest.FeatureUpdateKey(feature=feature, max_version_level=level, upgrade_type=_UPGRADE)
        return await self._decided(UpdateFeaturesRequest(timeout_ms=_TIMEOUT_MS, feature_updates=(update,)))

    async def add_voter(self, controller: NodeMachine) -> str:
        """Make a controller a voter; returns as ``update_feature``, DUPLICATE_VOTER if it is one."""
        listener = AddRaftVoterRequest.Listener(
            name=controller.voter_listener_name, host=controller.address, port=CONTROLLER_PORT
        )
        request = AddRaftVoterRequest(
            cluster_id=None,
            timeout_ms=_TIMEOUT_MS,
            voter_id=controller.node_id,
            voter_directory_id=controller.directory_id,
            listeners=(listener,),
        )
        return await self._decided(request)

    async def remove_voter(self, controller: NodeMachine) -> str:
        """Make a voter an observer; returns as ``update_feature``, VOTER_NOT_FOUND if it is none."""
        request = RemoveRaftVoterRequest(
            cluster_id=None, voter_id=controller.node_id, voter_directory_id=controller.directory_id
        )
        return await self._decided(request)

    async def move(self, topic: str, partition: int, replicas: Sequence[int] | None) -> str:
        """Begin to move a partition to other replicas, or give up its move if ``replicas`` is None.

        Returns as ``update_feature``, once that is committed; NO_REASSIGNMENT_IN_PROGRESS if nothing is moved.
        """
        wanted = AlterPartitionReassignmentsRequest.ReassignablePartition(
            partition_index=partition, replicas=None if replicas is None else tuple(replicas)
        )
        moved = AlterPartitionReassignmentsRequest.ReassignableTopic(name=topic, partitions=(wanted,))
        return await self._decided(AlterPartitionReassignmentsRequest(timeout_ms=_TIMEOUT_MS, topics=(moved,)))

    async def grow(self, topic: str, count: int) -> str:
        """Give a topic so many partitions; returns as ``update_feature``, INVALID_PARTITIONS if it has as many."""
        wanted = CreatePartitionsRequest.CreatePartitionsTopic(name=topic, count=count, assignments=None)
        return await self._decided(
            CreatePartitionsRequest(topics=(wanted,), timeout_ms=_TIMEOUT_MS, validate_only=False)
        )

    async def configure(self, kind: ConfigResourceType, resource: str, name: str, value: str | None) -> str:
        """Give a setting a value, its default if None; returns as ``update_feature``, INVALID_CONFIG if it cannot be.

        Args:
            kind: Of the resource.
            resource: A topic, or a broker's id; empty for all brokers.
            name: Of the setting.
            value: Its text.
        """
        setting = IncrementalAlterConfigsRequest.AlterableConfig(
            name=name, config_operation=_DELETE if value is None else _SET, value=value
        )
        changed = IncrementalAlterConfigsRequest.AlterConfigsResource(
            resource_type=kind, resource_name=resource, configs=(setting,)
        )
        return await self._decided(IncrementalAlterConfigsRequest(resources=(changed,)))

    async def elect_preferred(self, topic: str, partition: int) -> str:
        """Have the preferred replica lead; returns as ``update_feature``, ELECTION_NOT_NEEDED if it does."""
        asked = ElectLeadersRequest.TopicPartitions(topic=topic, partitions=(partition,))
        return await self._decided(
            ElectLeadersRequest(election_type=_PREFERRED, topic_partitions=(asked,), timeout_ms=_TIMEOUT_MS)
        )

    async def move_directory(self, broker: NodeMachine, topic: str, partition: int, directory: int) -> str:
        """Begin to move a replica to another log directory of its broker.

        Args:
            broker: Which has the replica.
            topic: Of the partition.
            partition: Its index.
            directory: Index of a log directory.

        Returns:
            The name of the broker's error code; REQUEST_TIMED_OUT if it gave no answer, several times.
        """
        moved = AlterReplicaLogDirsRequest.AlterReplicaLogDirTopic(name=topic, partitions=(partition,))
        target = AlterReplicaLogDirsRequest.AlterReplicaLogDir(path=str(broker.data_paths[directory]), topics=(moved,))
        async with self._lock:
            for _ in range(_BROKER_ATTEMPTS):
                code = await self._ask(broker, AlterReplicaLogDirsRequest(dirs=(target,)), port=BROKER_PORT)
                if code != ErrorCode.REQUEST_TIMED_OUT:
                    return ErrorCode.name_of(code)
                await asyncio.sleep(_RETRY_S)
        return ErrorCode.name_of(ErrorCode.REQUEST_TIMED_OUT)

    async def _decided(self, request: Message) -> str:
        async with self._lock:
            number = 0
            while True:
                controller = self._controllers[number % len(self._controllers)]
                number += 1
                code = await self._ask(controller, request)
                if code == ErrorCode.INVALID_REQUEST:
                    msg = f"{controller.name} finds a request of the operator malformed: {request}"
                    raise RuntimeError(msg)
                if code in _FINAL_CODES:
                    return ErrorCode.name_of(code)
                await asyncio.sleep(_RETRY_S)

    async def _ask(self, node: NodeMachine, request: Message, *, port: int = CONTROLLER_PORT) -> int:
        connection = None
        try:
            async with asyncio.timeout(2 * _TIMEOUT_MS / 1000):
                connection = await RpcConnection.open(
                    asyncio.get_running_loop(),
                    node.address,
                    port,
                    client_id="administration",
                    timeout_s=_TIMEOUT_MS / 1000,
                )
                response: Any = await connection.request(request)
        except (KraftlogError, OSError, TimeoutError):
            return ErrorCode.REQUEST_TIMED_OUT
        finally:
            if connection is not None:
                connection.close()
        codes: list[int] = [getattr(response, "error_code", ErrorCode.NONE), *_codes_within(response)]
        return max(codes, key=bool)


def _codes_within(response: Any) -> list[int]:
    """The error codes of the parts of a response."""
    if isinstance(response, UpdateFeaturesResponse):
        return [result.error_code for result in response.results]
    if isinstance(response, AlterPartitionReassignmentsResponse):
        return [partition.error_code for topic in response.responses for partition in topic.partitions]
    if isinstance(response, AlterReplicaLogDirsResponse):
        return [partition.error_code for topic in response.results for partition in topic.partitions]
    if isinstance(response, CreatePartitionsResponse):
        return [result.error_code for result in response.results]
    if isinstance(response, IncrementalAlterConfigsResponse):
        return [result.error_code for result in response.responses]
    if isinstance(response, ElectLeadersResponse):
        return [result.error_code for topic in response.replica_election_results for result in topic.partition_result]
    return []
