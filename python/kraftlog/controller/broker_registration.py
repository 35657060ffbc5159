"""What a broker says of itself when it registers, checked and as a record (KIP-631, KIP-858)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, TypeVar

from kraftlog.controller.cluster_image import BrokerImage, ClusterImage
from kraftlog.controller.directory import is_directory_reserved
from kraftlog.controller.image import MetadataImage
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.features import KRAFT_VERSION, METADATA_VERSION, MetadataVersion
from kraftlog.wire.messages.broker_registration import BrokerRegistrationRequest
from kraftlog.wire.messages.controller_registration import ControllerRegistrationRequest
from kraftlog.wire.messages.metadata_records import RegisterBrokerRecord

__all__ = ["check_registration", "check_size", "registered_end_points", "registered_features", "registration_record"]

_ENTRIES_MAX: Final = 1_000
T = TypeVar("T")


def check_registration(request: BrokerRegistrationRequest, image: MetadataImage, kraft_version: int) -> None:
    """Check everything but the cluster id and the session of an earlier incarnation.

    Raises:
        KafkaError: BROKER_ID_NOT_REGISTERED, a broker of a ZooKeeper cluster; INVALID_REGISTRATION, its log
            directories, or metadata.version is not named; UNSUPPORTED_VERSION, a range excludes a finalized level.
    """
    if request.is_migrating_zk_broker:
        raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, "Controller does not support registering ZK brokers.")
    check_size(request, len(request.log_dirs))
    if image.metadata_version.is_directory_assignment_supported:
        _check_log_dirs(request, image.cluster)
    _check_features(request, {**image.features, KRAFT_VERSION: kraft_version})


def check_size(request: BrokerRegistrationRequest | ControllerRegistrationRequest, directory_count: int = 0) -> None:
    """Refuse more listeners, features or directories than a node has: the record is made in one turn of the loop.

    Raises:
        KafkaError: INVALID_REGISTRATION.
    """
    count = max(len(request.listeners), len(request.features), directory_count)
    if count > _ENTRIES_MAX:
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, f"{count} entries, more than {_ENTRIES_MAX}")


def _check_log_dirs(request: BrokerRegistrationRequest, cluster: ClusterImage) -> None:
    log_dirs = list(request.log_dirs)
    if not log_dirs:
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, "No directories specified in request")
    if any(is_directory_reserved(directory) for directory in log_dirs):
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, "Reserved directory ID in request")
    if len(set(log_dirs)) != len(log_dirs):
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, "Duplicate directory ID in request")
    for broker in cluster.brokers.values():
        shared = set(broker.log_dirs) & set(log_dirs)
        if broker.broker_id != request.broker_id and shared:
            raise KafkaError(
                ErrorCode.INVALID_REGISTRATION,
                f"Broker {broker.broker_id} is already registered with directory {min(shared)}",
            )


def _check_features(request: BrokerRegistrationRequest, finalized: Mapping[str, int]) -> None:
    ranges = {
        feature.name: (feature.min_supported_version, feature.max_supported_version) for feature in request.features
    }
    for name, (low, high) in ranges.items():
        _check_range(name, finalized.get(name, 0), low, high)
    if METADATA_VERSION not in ranges:
        raise KafkaError(ErrorCode.INVALID_REGISTRATION, f"Request features do not contain '{METADATA_VERSION}'")
    for name, level in finalized.items():
        if name not in ranges:
            _check_range(name, level, 0, 0)


def _check_range(name: str, level: int, low: int, high: int) -> None:
    if not low <= level <= high:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"Unable to register because the broker does not support finalized version {level} of {name}."
            f" The broker wants a version between {low} and {high}, inclusive.",
        )


def registration_record(
    request: BrokerRegistrationRequest, version: MetadataVersion, *, epoch: int, amended: BrokerImage | None
) -> RegisterBrokerRecord:
    """The record of a registration.

    Args:
        request: Has been checked.
        version: Determines the fields.
        epoch: Of the broker.
        amended: The registration that the same incarnation had before: whether it is fenced, and whether it shuts
            down, stay as they are. None registers it fenced.
    """
    return RegisterBrokerRecord(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        broker_epoch=epoch,
        end_points=registered_end_points(RegisterBrokerRecord.BrokerEndpoint, request),
        features=registered_features(RegisterBrokerRecord.BrokerFeature, request),
        rack=request.rack,
        fenced=True if amended is None else amended.fenced,
        in_controlled_shutdown=False if amended is None else amended.in_controlled_shutdown,
        log_dirs=tuple(request.log_dirs) if version.is_directory_assignment_supported else (),
    )


def registered_end_points(
    kind: Callable[..., T], request: BrokerRegistrationRequest | ControllerRegistrationRequest
) -> tuple[T, ...]:
    """The listeners of a registration as the end points of its record."""
    return tuple(
        kind(
            name=listener.name,
            host=listener.host,
            port=listener.port,
            security_protocol=listener.security_protocol,
        )
        for listener in request.listeners
    )


def registered_features(
    kind: Callable[..., T], request: BrokerRegistrationRequest | ControllerRegistrationRequest
) -> tuple[T, ...]:
    """The features of a registration as those of its record."""
    return tuple(
        kind(
            name=feature.name,
            min_supported_version=feature.min_supported_version,
            max_supported_version=feature.max_supported_version,
        )
        for feature in request.features
    )
