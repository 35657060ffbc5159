"""Creating and deleting topics and adding partitions."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from random import Random
from typing import Final

from kraftlog.config_table import topic_config_synonyms, topic_configs, validate_topic_configs
from kraftlog.controller.assignment_check import check_assignment
from kraftlog.controller.config_control import MIN_INSYNC_REPLICAS, ConfigControl
from kraftlog.controller.image import MetadataImage, VersionedRecord
from kraftlog.controller.new_uuid import new_uuid
from kraftlog.controller.partition_changes import MAX_RECORDS_PER_OPERATION
from kraftlog.controller.placement import place_replicas
from kraftlog.controller.result import ControllerResult
from kraftlog.controller.steps import STEP_ITEMS, Steps, drop_in_steps, finish_steps
from kraftlog.controller.topic_image import PartitionImage, TopicImage
from kraftlog.controller.topic_name import topic_name_problem
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.types import Uuid
from kraftlog.vocabulary import CLUSTER_METADATA_TOPIC, NOT_HOSTED, ConfigResourceType
from kraftlog.wire.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsResponse
from kraftlog.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from kraftlog.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicsResponse
from kraftlog.wire.messages.metadata_records import ClearElrRecord, ConfigRecord, RemoveTopicRecord, TopicRecord

__all__ = ["Charge", "TopicControl"]

_SOURCE_TOPIC: Final = 1
_SOURCE_DYNAMIC_DEFAULT_BROKER: Final = 3
_SOURCE_STATIC_BROKER: Final = 4
_SOURCE_DEFAULT: Final = 5


Charge = Callable[[int], None]
"""Counts a change of so many partitions; raises KafkaError if the client may not make it (KIP-599)."""


def _refusal(charge: Charge | None, count: int) -> KafkaError | None:
    """Why a change of so many partitions is refused, if it is."""
    try:
        if charge is not None:
            charge(count)
    except KafkaError as error:
        return error
    return None


def _collision_key(name: str) -> str:
    return name.replace(".", "_")


class TopicControl:
    """The topic operations; they read the image and answer with records."""

    def __init__(self, image: MetadataImage, configs: ConfigControl, rng: Random) -> None:
        self._image = image
        self._configs = configs
        self._rng = rng

    # Create

    def create_topics(self, request: CreateTopicsRequest) -> ControllerResult[CreateTopicsResponse]:
        """Create topics; each gets its own result, in the order of the request."""
        return finish_steps(self.create_topics_in_steps(request))

    def create_topics_in_steps(
        self, request: CreateTopicsRequest, charge: Charge | None = None
    ) -> Steps[ControllerResult[CreateTopicsResponse]]:
        """As ``create_topics``; ``charge`` is asked for the partitions of each topic that could be created."""
        results: dict[int, CreateTopicsResponse.CreatableTopicResult] = {}
        records: list[VersionedRecord] = []
        counts: dict[str, int] = {}
        for number, topic in enumerate(request.topics):
            if number % STEP_ITEMS == 0:
                yield
            counts[topic.name] = counts.get(topic.name, 0) + 1
        reported: set[str] = set()
        for index, topic in enumerate(request.topics):
            yield
            try:
                if counts[topic.name] > 1:
                    if topic.name in reported:
                        continue
                    reported.add(topic.name)
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
                self._check_new_name(topic.name)
                created = yield from self._create_topic(topic, results, index, charge)
                if len(records) + len(created) > MAX_RECORDS_PER_OPERATION:
                    raise KafkaError(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")
                records += created
            except KafkaError as error:
                results[index] = CreateTopicsResponse.CreatableTopicResult(
                    name=topic.name, error_code=error.code, error_message=error.message
                )
        response = CreateTopicsResponse(topics=tuple(results[index] for index in sorted(results)))
        if request.validate_only:
            yield from drop_in_steps(records)
        return ControllerResult(response, records)

    def _check_new_name(self, name: str) -> None:
        if name == CLUSTER_METADATA_TOPIC:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"Creation of internal topic {CLUSTER_METADATA_TOPIC} is prohibited."
            )
        problem = topic_name_problem(name)
        if problem is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        if self._image.topics.by_name(name) is not None:
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")
        if "." not in name and "_" not in name:
            return
        key = _collision_key(name)
        for other in self._image.topics.names:
            # Metric names cannot tell the two characters apart; within one request Kafka does not look.
            if _collision_key(other) == key:
                raise KafkaError(
                    ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}"
                )

    def _create_topic(
        self,
        topic: CreateTopicsRequest.CreatableTopic,
        results: dict[int, CreateTopicsResponse.CreatableTopicResult],
        index: int,
        charge: Charge | None,
    ) -> Steps[list[VersionedRecord]]:
        configs = yield from self._creation_configs(topic)
        partitions = yield from self._initial_partitions(topic)
        if charge is not None:
            charge(len(partitions))
        topic_id = self._new_topic_id()
        records: list[VersionedRecord] = [(TopicRecord(name=topic.name, topic_id=topic_id), 0)]
        records += [
            (ConfigRecord(resource_type=ConfigResourceType.TOPIC, resource_name=topic.name, name=name, value=value), 0)
            for name, value in configs.items()
        ]
        if MIN_INSYNC_REPLICAS in configs and self._configs.is_elr_enabled:
            records.append((ClearElrRecord(topic_name=topic.name), 0))
        records += yield from self._partition_records(topic_id, partitions)
        results[index] = CreateTopicsResponse.CreatableTopicResult(
            name=topic.name,
            topic_id=topic_id,
            error_message=None,
            num_partitions=len(partitions),
            replication_factor=len(partitions[0].replicas),
            configs=self._effective_configs(configs),
        )
        return records

    def _creation_configs(self, topic: CreateTopicsRequest.CreatableTopic) -> Steps[dict[str, str]]:
        configs: dict[str, str] = {}
        for number, entry in enumerate(topic.configs, 1):
            if number % STEP_ITEMS == 0:
                yield
            if entry.value is None:
                raise KafkaError(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {entry.name}")
            configs[entry.name] = entry.value
        validate_topic_configs(configs)
        return configs

    def _initial_partitions(self, topic: CreateTopicsRequest.CreatableTopic) -> Steps[list[PartitionImage]]:
        if topic.assignments:
            return (yield from self._assigned_partitions(topic))
        if topic.replication_factor < -1 or topic.replication_factor == 0:
            raise KafkaError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                "Replication factor must be larger than 0, or -1 to use the default value.",
            )
        if topic.num_partitions < -1 or topic.num_partitions == 0:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."
            )
        count = self._configs.default_partition_count if topic.num_partitions == -1 else topic.num_partitions
        factor = (
            self._configs.default_replication_factor if topic.replication_factor == -1 else topic.replication_factor
        )
        if count > MAX_RECORDS_PER_OPERATION:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")
        try:
            return (yield from self._place(count=count, replication_factor=factor))
        except KafkaError as error:
            reason = f"Unable to replicate the partition {factor} time(s): {error.message}"
            raise KafkaError(error.code, reason) from error

    def _place(self, *, count: int, replication_factor: int) -> Steps[list[PartitionImage]]:
        brokers = self._image.cluster.brokers.values()
        placements = place_replicas(
            brokers, partition_count=count, replication_factor=replication_factor, rng=self._rng
        )
        # Thousands of partitions have few different sets of replicas: what follows from a set is found once.
        known: dict[tuple[int, ...], PartitionImage] = {}
        partitions: list[PartitionImage] = []
        for number, replicas in enumerate(placements):
            if number % STEP_ITEMS == 0:
                yield
            partition = known.get(replicas)
            if partition is None:
                if not any(self._image.cluster.is_active(replica) for replica in replicas):
                    raise KafkaError(
                        ErrorCode.INVALID_REPLICATION_FACTOR,
                        "All brokers are currently fenced or in controlled shutdown.",
                    )
                partition = known[replicas] = self._new_partition(replicas)
            partitions.append(partition)
        return partitions

    def _assigned_partitions(self, topic: CreateTopicsRequest.CreatableTopic) -> Steps[list[PartitionImage]]:
        if topic.replication_factor != -1:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "A manual partition assignment was specified, but replication factor was not set to -1.",
            )
        if topic.num_partitions != -1:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                "A manual partition assignment was specified, but numPartitions was not set to -1.",
            )
        partitions: dict[int, PartitionImage] = {}
        factor: int | None = None
        for number, assignment in enumerate(topic.assignments):
            if number % STEP_ITEMS == 0:
                yield
            index = assignment.partition_index
            if index in partitions:
                raise KafkaError(
                    ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                    f"Found multiple manual partition assignments for partition {index}",
                )
            replicas = tuple(assignment.broker_ids)
            check_assignment(self._image.cluster, replicas, factor)
            factor = len(replicas)
            partitions[index] = self._assigned_partition(index, replicas)
        if sorted(partitions) != list(range(len(partitions))):
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                "partitions should be a consecutive 0-based integer sequence",
            )
        return [partitions[index] for index in range(len(partitions))]

    def _assigned_partition(self, index: int, replicas: tuple[int, ...]) -> PartitionImage:
        if not any(self._image.cluster.is_active(replica) for replica in replicas):
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"All brokers specified in the manual partition assignment for partition {index} are fenced or in"
                " controlled shutdown.",
            )
        return self._new_partition(replicas)

    def _new_partition(self, replicas: tuple[int, ...]) -> PartitionImage:
        isr = tuple(replica for replica in replicas if self._image.cluster.is_active(replica))
        return PartitionImage(
            replicas=replicas,
            directories=tuple(self._image.cluster.brokers[replica].default_directory for replica in replicas),
            isr=isr,
            leader=isr[0],
            leader_epoch=0,
            partition_epoch=0,
        )

    def _partition_records(
        self, topic_id: Uuid, partitions: Sequence[PartitionImage], *, first: int = 0
    ) -> Steps[list[VersionedRecord]]:
        version = self._image.metadata_version.partition_record_version
        records: list[VersionedRecord] = []
        for index, partition in enumerate(partitions, first):
            if index % STEP_ITEMS == 0:
                yield
            records.append((partition.to_record(topic_id, index, version), version))
        return records

    def _new_topic_id(self) -> Uuid:
        while True:
            topic_id = new_uuid(self._rng)
            if self._image.topics.by_id(topic_id) is None:
                return topic_id

    def _effective_configs(self, configs: Mapping[str, str]) -> tuple[CreateTopicsResponse.CreatableTopicConfigs, ...]:
        dynamic = self._image.configs.get(ConfigResourceType.BROKER, "")
        result: list[CreateTopicsResponse.CreatableTopicConfigs] = []
        for name, definition in topic_configs().items():
            if definition.internal:
                continue
            source = _SOURCE_DEFAULT
            keys = [key for key, _ in topic_config_synonyms(name)]
            if name in configs:
                source = _SOURCE_TOPIC
            elif any(key in dynamic for key in keys):
                source = _SOURCE_DYNAMIC_DEFAULT_BROKER
            elif any(key in self._configs.static_broker_configs for key in keys):
                source = _SOURCE_STATIC_BROKER
            value = configs.get(name, self._configs.topic_default(name))
            result.append(
                CreateTopicsResponse.CreatableTopicConfigs(
                    name=name,
                    value=None if definition.is_sensitive else value,
                    read_only=False,
                    config_source=source,
                    is_sensitive=definition.is_sensitive,
                )
            )
        return tuple(result)

    # Delete

    def delete_topics(self, request: DeleteTopicsRequest) -> ControllerResult[DeleteTopicsResponse]:
        """Delete topics, by name or by id; each gets its own result."""
        return finish_steps(self.delete_topics_in_steps(request))

    def delete_topics_in_steps(
        self, request: DeleteTopicsRequest, charge: Charge | None = None
    ) -> Steps[ControllerResult[DeleteTopicsResponse]]:
        """As ``delete_topics``; ``charge`` is asked for the partitions of each topic that could be deleted."""
        states = list(request.topics) or [
            DeleteTopicsRequest.DeleteTopicState(name=name) for name in request.topic_names
        ]
        results: list[DeleteTopicsResponse.DeletableTopicResult] = []
        records: list[VersionedRecord] = []
        wanted: dict[Uuid, list[TopicImage]] = {}
        by_name: dict[str, int] = {}
        by_id: dict[Uuid, int] = {}
        for number, state in enumerate(states):
            if number % STEP_ITEMS == 0:
                yield
            if state.name is not None:
                by_name[state.name] = by_name.get(state.name, 0) + 1
            else:
                by_id[state.topic_id] = by_id.get(state.topic_id, 0) + 1
        reported: set[object] = set()
        for number, state in enumerate(states):
            if number % STEP_ITEMS == 0:
                yield
            key: object = state.topic_id if state.name is None else state.name
            if key in reported:
                continue
            reported.add(key)
            try:
                topic = self._topic_to_delete(state, by_name, by_id)
            except KafkaError as error:
                results.append(
                    DeleteTopicsResponse.DeletableTopicResult(
                        name=state.name, topic_id=state.topic_id, error_code=error.code, error_message=error.message
                    )
                )
                continue
            wanted[topic.topic_id] = [*wanted.get(topic.topic_id, ()), topic]
        for number, topics in enumerate(wanted.values()):
            if number % STEP_ITEMS == 0:
                yield
            topic = topics[0]
            result = DeleteTopicsResponse.DeletableTopicResult(name=topic.name, topic_id=topic.topic_id)
            if len(topics) > 1:
                message = "The provided topic name maps to an ID that was already supplied."
                result = replace(result, error_code=ErrorCode.INVALID_REQUEST, error_message=message)
            elif (refusal := _refusal(charge, len(topic.partitions))) is not None:
                result = replace(result, error_code=refusal.code, error_message=refusal.message)
            else:
                records.append((RemoveTopicRecord(topic_id=topic.topic_id), 0))
            results.append(result)
        return ControllerResult(DeleteTopicsResponse(responses=tuple(results)), records, is_atomic=False)

    def _topic_to_delete(
        self, state: DeleteTopicsRequest.DeleteTopicState, by_name: Mapping[str, int], by_id: Mapping[Uuid, int]
    ) -> TopicImage:
        if state.name is None:
            if state.topic_id == Uuid.ZERO:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
            if by_id[state.topic_id] > 1:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic id.")
            topic = self._image.topics.by_id(state.topic_id)
            if topic is None:
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID.")
            return topic
        if state.topic_id != Uuid.ZERO:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id.")
        if by_name[state.name] > 1:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
        topic = self._image.topics.by_name(state.name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NOT_HOSTED)
        return topic

    # Grow

    def create_partitions(self, request: CreatePartitionsRequest) -> ControllerResult[CreatePartitionsResponse]:
        """Add partitions to topics; each topic gets its own result."""
        return finish_steps(self.create_partitions_in_steps(request))

    def create_partitions_in_steps(
        self, request: CreatePartitionsRequest, charge: Charge | None = None
    ) -> Steps[ControllerResult[CreatePartitionsResponse]]:
        """As ``create_partitions``; ``charge`` is asked for the partitions that could be added to each topic."""
        counts: dict[str, int] = {}
        for number, topic in enumerate(request.topics):
            if number % STEP_ITEMS == 0:
                yield
            counts[topic.name] = counts.get(topic.name, 0) + 1
        results: dict[str, CreatePartitionsResponse.CreatePartitionsTopicResult] = {}
        records: list[VersionedRecord] = []
        for topic in request.topics:
            yield
            if topic.name in results:
                continue
            code, message = ErrorCode.NONE, None
            try:
                if counts[topic.name] > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
                added = yield from self._add_partitions(topic, charge)
                if len(records) + len(added) > MAX_RECORDS_PER_OPERATION:
                    raise KafkaError(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")
                records += added
            except KafkaError as error:
                code, message = error.code, error.message
            results[topic.name] = CreatePartitionsResponse.CreatePartitionsTopicResult(
                name=topic.name, error_code=code, error_message=message
            )
        response = CreatePartitionsResponse(results=tuple(results.values()))
        return ControllerResult(response, () if request.validate_only else records)

    def _add_partitions(
        self, request: CreatePartitionsRequest.CreatePartitionsTopic, charge: Charge | None
    ) -> Steps[list[VersionedRecord]]:
        topic = self._image.topics.by_name(request.name)
        if topic is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        current = len(topic.partitions)
        if request.count == current:
            raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {current} partition(s).")
        if request.count < current:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS,
                f"The topic {topic.name} currently has {current} partition(s); {request.count} would not be an"
                " increase.",
            )
        added = request.count - current
        if request.assignments is not None and len(request.assignments) != added:
            raise KafkaError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Attempted to add {added} additional partition(s), but only {len(request.assignments)} assignment(s)"
                " were specified.",
            )
        if added > MAX_RECORDS_PER_OPERATION:
            raise KafkaError(ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request.")
        if charge is not None:
            charge(added)
        factor = len(topic.partitions[0].replicas)
        if request.assignments is None:
            partitions = yield from self._place(count=added, replication_factor=factor)
        else:
            partitions = []
            for index, assignment in enumerate(request.assignments, current):
                if index % STEP_ITEMS == 0:
                    yield
                replicas = tuple(assignment.broker_ids)
                check_assignment(self._image.cluster, replicas, factor)
                partitions.append(self._assigned_partition(index, replicas))
        return (yield from self._partition_records(topic.topic_id, partitions, first=current))
