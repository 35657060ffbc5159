"""Changing dynamic settings, and what settings are in effect."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeAlias, TypeVar

from kraftlog.config_table import (
    broker_config,
    config_text,
    group_config,
    parse_value,
    topic_config,
    topic_config_default,
    validate_dynamic_broker_configs,
    validate_topic_configs,
)
from kraftlog.controller.client_metrics_configs import check_client_metrics_configs
from kraftlog.controller.dynamic_broker_configs import CORDONED_LOG_DIRS
from kraftlog.controller.image import MetadataImage, VersionedRecord
from kraftlog.controller.result import ControllerResult
from kraftlog.controller.steps import STEP_ITEMS, Steps, finish_steps
from kraftlog.controller.topic_name import topic_name_problem
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.features import ELIGIBLE_LEADER_REPLICAS_VERSION
from kraftlog.vocabulary import ConfigResourceType
from kraftlog.wire.messages.alter_configs import AlterConfigsRequest, AlterConfigsResponse
from kraftlog.wire.messages.incremental_alter_configs import (
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from kraftlog.wire.messages.metadata_records import ClearElrRecord, ConfigRecord

__all__ = ["MIN_INSYNC_REPLICAS", "ConfigControl"]

MIN_INSYNC_REPLICAS: Final = "min.insync.replicas"
UNCLEAN_ELECTION: Final = "unclean.leader.election.enable"

_SET, _DELETE, _APPEND, _SUBTRACT = range(4)

_Resource: TypeAlias = tuple[int, str]
_Settings: TypeAlias = dict[str, str | None]
_AlteredT = TypeVar(
    "_AlteredT", AlterConfigsRequest.AlterConfigsResource, IncrementalAlterConfigsRequest.AlterConfigsResource
)
_ResultT = TypeVar("_ResultT")


class ConfigControl:
    """The config operations; they read the image and answer with records.

    Args:
        image: The controller's image.
        static_broker_configs: What the node's own properties set explicitly, by broker key.
        node_id: The node that the controller runs in: its dynamic settings count before the cluster-wide ones.
    """

    def __init__(self, image: MetadataImage, static_broker_configs: Mapping[str, str], *, node_id: int = -1) -> None:
        self._image = image
        self.static_broker_configs = static_broker_configs
        self._node_name = str(node_id)

    # What is in effect

    def _broker_values(self) -> dict[str, str]:
        dynamic = self._image.configs
        return {
            **self.static_broker_configs,
            **dynamic.get(ConfigResourceType.BROKER, ""),
            **dynamic.get(ConfigResourceType.BROKER, self._node_name),
        }

    def topic_default(self, name: str) -> str | None:
        """The text a topic key has where the topic does not set it."""
        return topic_config_default(name, self._broker_values())

    def topic_value(self, topic: str, name: str) -> str | None:
        """The text a topic key has for this topic."""
        own = self._image.configs.get(ConfigResourceType.TOPIC, topic).get(name)
        return self.topic_default(name) if own is None else own

    def _static_int(self, name: str) -> int:
        definition = broker_config(name)
        text = self._broker_values().get(name) or (definition.default_text if definition is not None else None)
        return int(text or 1)

    @property
    def default_partition_count(self) -> int:
        """num.partitions."""
        return self._static_int("num.partitions")

    @property
    def default_replication_factor(self) -> int:
        """default.replication.factor."""
        return self._static_int("default.replication.factor")

    @property
    def min_isr_default(self) -> int:
        """min.insync.replicas of topics that do not set it."""
        return int(self.topic_default(MIN_INSYNC_REPLICAS) or 1)

    def own_min_isr(self, topic: str) -> int | None:
        """min.insync.replicas that a topic sets itself."""
        own = self._image.configs.get(ConfigResourceType.TOPIC, topic).get(MIN_INSYNC_REPLICAS)
        return None if own is None else int(own)

    @property
    def unclean_election_default(self) -> bool:
        """unclean.leader.election.enable of topics that do not set it."""
        return _is_true(self.topic_default(UNCLEAN_ELECTION))

    def own_unclean_election(self, topic: str) -> bool | None:
        """unclean.leader.election.enable that a topic sets itself."""
        own = self._image.configs.get(ConfigResourceType.TOPIC, topic).get(UNCLEAN_ELECTION)
        return None if own is None else _is_true(own)

    @property
    def is_elr_enabled(self) -> bool:
        """Whether eligible leader replicas are kept (KIP-966)."""
        return self._image.features.get(ELIGIBLE_LEADER_REPLICAS_VERSION, 0) > 0

    # Changes

    def incremental_alter_configs(
        self, request: IncrementalAlterConfigsRequest
    ) -> ControllerResult[IncrementalAlterConfigsResponse]:
        """SET, DELETE, APPEND, SUBTRACT; each resource gets its own result."""
        return finish_steps(self.incremental_alter_configs_in_steps(request))

    def incremental_alter_configs_in_steps(
        self, request: IncrementalAlterConfigsRequest
    ) -> Steps[ControllerResult[IncrementalAlterConfigsResponse]]:
        """As ``incremental_alter_configs``."""

        def wanted_of(
            key: _Resource, resource: IncrementalAlterConfigsRequest.AlterConfigsResource
        ) -> Steps[_Settings]:
            wanted: _Settings = {}
            for number, config in enumerate(resource.configs, 1):
                if number % STEP_ITEMS == 0:
                    yield
                wanted[config.name] = self._incremental_value(key, config)
            return wanted

        result = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
        results, records = yield from self._alter(request.resources, wanted_of, result)
        response = IncrementalAlterConfigsResponse(responses=results)
        return ControllerResult(response, () if request.validate_only else records)

    def alter_configs(self, request: AlterConfigsRequest) -> ControllerResult[AlterConfigsResponse]:
        """The older form: what a resource's settings are to be altogether."""
        return finish_steps(self.alter_configs_in_steps(request))

    def alter_configs_in_steps(self, request: AlterConfigsRequest) -> Steps[ControllerResult[AlterConfigsResponse]]:
        """As ``alter_configs``."""

        def wanted_of(key: _Resource, resource: AlterConfigsRequest.AlterConfigsResource) -> Steps[_Settings]:
            wanted: _Settings = {}
            for number, config in enumerate(resource.configs, 1):
                if number % STEP_ITEMS == 0:
                    yield
                wanted[config.name] = config.value
            missing = [name for name, value in wanted.items() if value is None]
            if missing:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {','.join(missing)}")
            for name in self._image.configs.get(*key):
                wanted.setdefault(name, None)
            return wanted

        results, records = yield from self._alter(
            request.resources, wanted_of, AlterConfigsResponse.AlterConfigsResourceResponse
        )
        response = AlterConfigsResponse(responses=results)
        return ControllerResult(response, () if request.validate_only else records)

    def _alter(
        self,
        resources: Sequence[_AlteredT],
        wanted_of: Callable[[_Resource, _AlteredT], Steps[_Settings]],
        result: Callable[..., _ResultT],
    ) -> Steps[tuple[tuple[_ResultT, ...], list[VersionedRecord]]]:
        """The result of each resource, and the records of those without an error.

        Args:
            resources: What the request names.
            wanted_of: The settings that a resource is to have, None for those to delete; raises KafkaError.
            result: Makes the result of one resource.
        """
        results: list[_ResultT] = []
        records: list[VersionedRecord] = []
        counts: Counter[_Resource] = Counter()
        for number, resource in enumerate(resources):
            if number % STEP_ITEMS == 0:
                yield
            counts[resource.resource_type, resource.resource_name] += 1
        for number, resource in enumerate(resources):
            if number % STEP_ITEMS == 0:
                yield
            key = (resource.resource_type, resource.resource_name)
            code, message = ErrorCode.NONE, None
            try:
                if counts[key] > 1:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
                yield from _check_unique(resource.configs)
                wanted = yield from wanted_of(key, resource)
                records += self._change(key, wanted)
            except KafkaError as error:
                code, message = error.code, error.message
            results.append(result(error_code=code, error_message=message, resource_type=key[0], resource_name=key[1]))
        return tuple(results), records + self._cleared_elrs(records)

    def _cleared_elrs(self, records: Sequence[VersionedRecord]) -> list[VersionedRecord]:
        """Another minimum of in-sync replicas makes eligible leader replicas worthless, in the same batch (KIP-966)."""
        if not self.is_elr_enabled:
            return []
        names = [
            record.resource_name if record.resource_type == ConfigResourceType.TOPIC else ""
            for record, _ in records
            if isinstance(record, ConfigRecord) and record.name == MIN_INSYNC_REPLICAS
        ]
        return [(ClearElrRecord(topic_name=name), 0) for name in names]

    def _incremental_value(
        self, resource: tuple[int, str], config: IncrementalAlterConfigsRequest.AlterableConfig
    ) -> str | None:
        operation = config.config_operation
        if operation not in {_SET, _DELETE, _APPEND, _SUBTRACT}:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown operation type {operation}")
        if operation == _DELETE:
            return None
        if config.value is None:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Null value not supported for : {config.name}")
        if operation == _SET:
            return config.value
        verb = "APPEND" if operation == _APPEND else "SUBTRACT"
        if not _is_list(resource[0], config.name):
            if resource[0] == ConfigResourceType.BROKER:
                raise KafkaError(
                    ErrorCode.INVALID_CONFIG,
                    f"Config value {verb.lower()} is not allowed for config key: {config.name}",
                )
            raise KafkaError(
                ErrorCode.INVALID_CONFIG, f"Can't {verb} to key {config.name} because its type is not LIST."
            )
        current = self._image.configs.get(*resource).get(config.name)
        if current is None:
            current = self._default(resource[0], config.name) or ""
        elements = [element.strip() for element in current.split(",") if element.strip()]
        for element in config.value.split(","):
            if operation == _APPEND and element not in elements:
                elements.append(element)
            elif operation == _SUBTRACT and element in elements:
                elements.remove(element)
        return ",".join(elements)

    def _default(self, resource_type: int, name: str) -> str | None:
        if resource_type == ConfigResourceType.TOPIC:
            return self.topic_default(name)
        definition = broker_config(name)
        return None if definition is None else config_text(definition, definition.default)

    def _change(self, resource: tuple[int, str], wanted: Mapping[str, str | None]) -> list[VersionedRecord]:
        self._check_resource(resource)
        current = self._image.configs.get(*resource)
        changes = {name: value for name, value in wanted.items() if value != current.get(name)}
        self._check_minimum(resource, wanted)
        self._check_cordoned(resource, wanted)
        after = {name: value for name, value in {**current, **wanted}.items() if value is not None}
        self._check_values(resource, after)
        return [
            (ConfigRecord(resource_type=resource[0], resource_name=resource[1], name=name, value=value), 0)
            for name, value in changes.items()
        ]

    def _check_resource(self, resource: tuple[int, str]) -> None:
        resource_type, name = resource
        match resource_type:
            case ConfigResourceType.TOPIC:
                self._check_topic(name)
            case ConfigResourceType.BROKER:
                self._check_broker(name)
            case ConfigResourceType.CLIENT_METRICS:
                if not name:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")
            case ConfigResourceType.GROUP:
                if not name:
                    raise KafkaError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
            case _:
                raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown resource type {resource_type}")

    def _check_topic(self, name: str) -> None:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
        problem = topic_name_problem(name)
        if problem is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        if self._image.topics.by_name(name) is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")

    def _check_broker(self, name: str) -> None:
        if not name:
            return
        try:
            broker_id = int(name)
        except ValueError:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Node id must be an integer, but it is: {name}") from None
        if broker_id not in self._image.cluster.brokers and broker_id not in self._image.cluster.controllers:
            raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No broker with id {broker_id} found.")

    def _check_minimum(self, resource: tuple[int, str], wanted: Mapping[str, str | None]) -> None:
        if not self.is_elr_enabled or resource[0] != ConfigResourceType.BROKER or MIN_INSYNC_REPLICAS not in wanted:
            return
        if resource[1]:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG, "Broker-level min.insync.replicas cannot be altered while ELR is enabled."
            )
        if wanted[MIN_INSYNC_REPLICAS] is None:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG, "Cluster-level min.insync.replicas cannot be removed while ELR is enabled."
            )

    def _check_cordoned(self, resource: tuple[int, str], wanted: Mapping[str, str | None]) -> None:
        is_wanted = resource[0] == ConfigResourceType.BROKER and CORDONED_LOG_DIRS in wanted
        if is_wanted and not self._image.metadata_version.is_cordoned_log_dirs_supported:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG,
                "The cordoned.log.dirs configuration value cannot be set because it requires metadata.version >="
                " 4.3-IV0",
            )

    def _check_values(self, resource: tuple[int, str], after: Mapping[str, str]) -> None:
        match resource[0]:
            case ConfigResourceType.TOPIC:
                validate_topic_configs(after)
            case ConfigResourceType.BROKER:
                try:
                    validate_dynamic_broker_configs(after, per_broker=bool(resource[1]))
                except KafkaError as error:
                    # Kafka's broker checks these before the controller does, and answers with this code.
                    raise KafkaError(ErrorCode.INVALID_REQUEST, error.message) from error
            case ConfigResourceType.CLIENT_METRICS:
                check_client_metrics_configs(after)
            case _:
                self._check_group_configs(after)

    def _check_group_configs(self, after: Mapping[str, str]) -> None:
        for name, text in after.items():
            definition = group_config(name)
            if definition is None:
                raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown group config name: {name}")
            value = parse_value(definition, text)
            kind, _, setting = name.partition(".")
            for bound, relation in (("min", "greater"), ("max", "less")):
                limit = broker_config(f"group.{kind}.{bound}.{setting}")
                if limit is None or not isinstance(value, int):
                    continue
                allowed = self._static_int(limit.name)
                if value < allowed if bound == "min" else value > allowed:
                    raise KafkaError(
                        ErrorCode.INVALID_CONFIG, f"{name} must be {relation} than or equal to {limit.name}"
                    )


def _is_true(text: str | None) -> bool:
    return text is not None and text.strip().lower() == "true"


def _check_unique(configs: Sequence[Any]) -> Steps[None]:
    names: set[str] = set()
    for number, config in enumerate(configs, 1):
        if number % STEP_ITEMS == 0:
            yield
        names.add(config.name)
        if len(names) < number:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")


def _is_list(resource_type: int, name: str) -> bool:
    definition = topic_config(name) if resource_type == ConfigResourceType.TOPIC else broker_config(name)
    return definition is not None and definition.is_list
