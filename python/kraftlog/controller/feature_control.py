"""Finalized feature levels: the first records of a cluster, and later changes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from kraftlog.config_table import topic_config_default
from kraftlog.controller.config_control import MIN_INSYNC_REPLICAS, ConfigControl
from kraftlog.controller.image import MetadataImage, VersionedRecord
from kraftlog.controller.result import ControllerResult
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.features import (
    ELIGIBLE_LEADER_REPLICAS_VERSION,
    FEATURES,
    KRAFT_VERSION,
    METADATA_VERSION,
    metadata_version,
    supported_ranges,
    validate_dependencies,
)
from kraftlog.vocabulary import ConfigResourceType
from kraftlog.wire.messages.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    ConfigRecord,
    EndTransactionRecord,
    FeatureLevelRecord,
    NoOpRecord,
)
from kraftlog.wire.messages.update_features import UpdateFeaturesRequest, UpdateFeaturesResponse
from kraftlog.wire.struct import Message

__all__ = ["FeatureControl"]

_UPDATES_MAX: Final = 1_000
_UPGRADE: Final = 1
_SAFE_DOWNGRADE: Final = 2
_UNSAFE_DOWNGRADE: Final = 3


class FeatureControl:
    """The feature operations; they read the image and answer with records."""

    def __init__(
        self,
        image: MetadataImage,
        configs: ConfigControl,
        *,
        node_id: int,
        kraft_version: Callable[[], int],
        raise_kraft_version: Callable[[int, bool], object] | None = None,
    ) -> None:
        self._image = image
        self._configs = configs
        self._node_id = node_id
        self._kraft_version = kraft_version
        self._raise_kraft_version = raise_kraft_version

    def activation_records(self, bootstrap: Sequence[Message]) -> list[VersionedRecord]:
        """What a new leader writes before anything else.

        An empty log gets the bootstrap records, in a metadata transaction where metadata.version has them; one whose
        bootstrap never ended gets it aborted and written again; any other log gets nothing.
        """
        records: list[VersionedRecord] = []
        if self._image.is_in_transaction:
            records.append((AbortTransactionRecord(reason="the controller was restarted"), 0))
        if not self._image.is_empty:
            return records
        levels = {record.name: record.feature_level for record in bootstrap if isinstance(record, FeatureLevelRecord)}
        version = metadata_version(levels[METADATA_VERSION])
        body: list[VersionedRecord] = [(record, 0) for record in bootstrap]
        if levels.get(ELIGIBLE_LEADER_REPLICAS_VERSION, 0) > 0:
            body += self._elr_records()
        if not version.is_metadata_transaction_supported:
            return records + body
        begin, end = BeginTransactionRecord(name="Bootstrap records"), EndTransactionRecord()
        return [*records, (begin, 0), *body, (end, 0)]

    def _elr_records(self) -> list[VersionedRecord]:
        """Turning on eligible leader replicas leaves the minimum of in-sync replicas to the cluster and its topics.

        The cluster gets the value that this node's properties set, unless it has one; those of brokers are removed.
        """
        wanted: dict[str, str | None] = {}
        for resource_type, name in self._image.configs.resources():
            is_of_broker = resource_type == ConfigResourceType.BROKER and name != ""
            if is_of_broker and MIN_INSYNC_REPLICAS in self._image.configs.get(resource_type, name):
                wanted[name] = None
        if MIN_INSYNC_REPLICAS not in self._image.configs.get(ConfigResourceType.BROKER, ""):
            static = topic_config_default(MIN_INSYNC_REPLICAS, self._configs.static_broker_configs)
            wanted = {"": static or "1", **wanted}
        return [
            (
                ConfigRecord(
                    resource_type=ConfigResourceType.BROKER, resource_name=name, name=MIN_INSYNC_REPLICAS, value=value
                ),
                0,
            )
            for name, value in wanted.items()
        ]

    def update_features(self, request: UpdateFeaturesRequest) -> ControllerResult[UpdateFeaturesResponse]:
        """Change levels; all of them, or none.

        kraft.version comes last: the raft layer writes it at once, and nothing may refuse after that (KVER-19).
        """
        if len(request.feature_updates) > _UPDATES_MAX:
            message = f"{len(request.feature_updates)} updates, more than {_UPDATES_MAX}"
            return ControllerResult(UpdateFeaturesResponse(error_code=ErrorCode.INVALID_REQUEST, error_message=message))
        records: list[VersionedRecord] = []
        levels = dict(self._image.features)
        for update in sorted(request.feature_updates, key=lambda one: one.feature == KRAFT_VERSION):
            try:
                records += self._update(update, levels, validate_only=request.validate_only)
            except KafkaError as error:
                message = (
                    f"The update failed for all features since the following feature had an error: {error.message}"
                )
                return ControllerResult(UpdateFeaturesResponse(error_code=error.code, error_message=message))
        is_elr_wanted = levels.get(ELIGIBLE_LEADER_REPLICAS_VERSION, 0) > 0
        if is_elr_wanted and not self._configs.is_elr_enabled:
            records = [*self._elr_records(), *records]
        results = tuple(
            UpdateFeaturesResponse.UpdatableFeatureResult(feature=update.feature, error_message="NONE")
            for update in request.feature_updates
        )
        response = UpdateFeaturesResponse(error_message=None, results=results)
        return ControllerResult(response, () if request.validate_only else records)

    def _update(
        self, update: UpdateFeaturesRequest.FeatureUpdateKey, levels: dict[str, int], *, validate_only: bool
    ) -> list[VersionedRecord]:
        name, level = update.feature, update.max_version_level
        current = self._kraft_version() if name == KRAFT_VERSION else levels.get(name, 0)
        self._check_update(name, level, current, update.upgrade_type)
        if level == current:
            return []
        levels[name] = level
        dependency = validate_dependencies(name, level, levels)
        if dependency is not None:
            raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, dependency)
        if name == KRAFT_VERSION:
            if self._raise_kraft_version is None:
                raise KafkaError(ErrorCode.INVALID_UPDATE_VERSION, "kraft.version cannot be changed here")
            self._raise_kraft_version(level, validate_only)
            # The level is a control record of the raft layer; this one gives the answer an offset to wait for.
            return [(NoOpRecord(), 0)]
        return [(FeatureLevelRecord(name=name, feature_level=level), 0)]

    def _check_update(self, name: str, level: int, current: int, upgrade_type: int) -> None:
        reason = self._refusal(name, level, current, upgrade_type)
        if reason is not None:
            raise KafkaError(
                ErrorCode.INVALID_UPDATE_VERSION, f"Invalid update version {level} for feature {name}. {reason}"
            )
        if name == METADATA_VERSION and level < current:
            reason = self._metadata_downgrade_refusal(level, current, upgrade_type)
            if reason is not None:
                raise KafkaError(
                    ErrorCode.INVALID_UPDATE_VERSION,
                    f"Unsupported metadata.version downgrade from {current} to {level}. {reason}",
                )

    def _refusal(self, name: str, level: int, current: int, upgrade_type: int) -> str | None:
        if upgrade_type not in {_UPGRADE, _SAFE_DOWNGRADE, _UNSAFE_DOWNGRADE}:
            return "The controller does not support the given upgrade type."
        if level < 0:
            return "A feature version cannot be less than 0."
        if name not in {*FEATURES, METADATA_VERSION}:
            return f"Local controller {self._node_id} does not support this feature."
        low, high = supported_ranges()[name]
        if level and not low <= level <= high:
            return f"Local controller {self._node_id} only supports versions {low}-{high}"
        for broker in self._image.cluster.brokers.values():
            low, high = broker.features.get(name, (0, 0))
            if level and not low <= level <= high:
                return f"Broker {broker.broker_id} only supports versions {low}-{high}"
        for controller in self._image.cluster.controllers.values():
            low, high = controller.features.get(name, (0, 0))
            if level and not low <= level <= high:
                return f"Controller {controller.controller_id} only supports versions {low}-{high}"
        if level < current:
            if name == KRAFT_VERSION:
                return "Can't downgrade the version of this feature."
            if upgrade_type == _UPGRADE:
                return (
                    "Can't downgrade the version of this feature without setting the upgrade type to either safe or"
                    " unsafe downgrade."
                )
        elif level > current and upgrade_type != _UPGRADE:
            return "Can't downgrade to a newer version."
        return None

    @staticmethod
    def _metadata_downgrade_refusal(level: int, current: int, upgrade_type: int) -> str | None:
        """A downgrade is safe only between levels that write the same records, and no level here rewrites them."""
        after, before = metadata_version(level), metadata_version(current)
        same = (
            after.register_broker_record_version == before.register_broker_record_version
            and after.partition_record_version == before.partition_record_version
            and after.is_controller_registration_supported == before.is_controller_registration_supported
            and after.is_metadata_transaction_supported == before.is_metadata_transaction_supported
        )
        if same:
            return None
        if upgrade_type == _UNSAFE_DOWNGRADE:
            return "Unsafe metadata downgrade is not supported in this version."
        return "Refusing to perform the requested downgrade because it might delete metadata information."
