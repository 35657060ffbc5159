"""Which changes of broker settings a running broker takes.

Kafka's ``DynamicBrokerConfig`` asks every part of the broker whether it can be reconfigured. Here a key either takes
effect, or only changes the size of a thread pool that this broker does not have and is held to Kafka's bounds, or is
refused.
"""

from __future__ import annotations

from collections.abc import Mapping
from ipaddress import ip_address
from typing import Final

from kraftlog.config_table import (
    broker_config,
    broker_configs,
    cordoned_log_dirs,
    parse_value,
    strip_listener_prefix,
    validate_dynamic_broker_configs,
)
from kraftlog.errors import ErrorCode, KafkaError

__all__ = [
    "CORDONED_LOG_DIRS",
    "check_cordoned_by_controller",
    "check_dynamic_broker_configs",
    "cleaner_thread_problem",
    "connection_overrides",
    "is_supported_at_run_time",
]

CORDONED_LOG_DIRS: Final = "cordoned.log.dirs"
_CONNECTION_OVERRIDES: Final = "max.connections.per.ip.overrides"

_THREAD_COUNTS: Final = frozenset(
    {
        "background.threads",
        "num.io.threads",
        "num.network.threads",
        "num.recovery.threads.per.data.dir",
        "num.replica.fetchers",
    }
)
_UNSUPPORTED: Final = frozenset(
    {
        "config.providers",
        "follower.fetch.last.tiered.offset.enable",
        "group.consumer.assignment.interval.ms",
        "group.coordinator.cached.buffer.max.bytes",
        "group.share.assignment.interval.ms",
        "group.streams.assignment.interval.ms",
        "listener.security.protocol.map",
        "listeners",
        "metric.reporters",
        "principal.builder.class",
        "share.coordinator.cached.buffer.max.bytes",
        "transaction.partition.verification.enable",
    }
)
_UNSUPPORTED_PREFIXES: Final = ("remote.", "sasl.", "ssl.")
_PER_LISTENER: Final = frozenset({"max.connection.creation.rate", "max.connections"})
_MIN_DEDUPE_BYTES_PER_THREAD: Final = 1 << 20
_AS_RETENTION: Final = -2
_UNLIMITED: Final = -1


def is_supported_at_run_time(name: str) -> bool:
    """Whether a dynamic key of Kafka's can change while this broker runs."""
    bare = strip_listener_prefix(name)
    if bare != name:
        return bare in _PER_LISTENER
    return not (name in _UNSUPPORTED or name.startswith(_UNSUPPORTED_PREFIXES))


def check_dynamic_broker_configs(
    current: Mapping[str, str], changes: Mapping[str, str | None], *, per_broker: bool
) -> None:
    """Check changes of a broker's settings, as ``DynamicBrokerConfig.validate`` does.

    Args:
        current: What the broker sets explicitly now, static and dynamic, by key.
        changes: The new text of each changed key; None where it goes back to what it was without the change.
        per_broker: Whether they are for one broker (else the cluster-wide default).

    Raises:
        KafkaError: INVALID_REQUEST; a key that cannot change at run time, or a value out of bounds.
    """
    wanted = {name: text for name, text in changes.items() if text is not None}
    try:
        validate_dynamic_broker_configs(wanted, per_broker=per_broker)
    except KafkaError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, error.message) from error
    for name, text in wanted.items():
        if broker_config(name) is not None and text != _text(current, name):
            _check_key(name, text, current)
    _check_together({**current, **wanted}, wanted)


def check_cordoned_by_controller(current: str | None, added: str | None) -> None:
    """Check a change of cordoned.log.dirs that no broker has checked: a controller does not know log.dirs of brokers.

    Args:
        current: The value now, None if it is not set.
        added: What is set or appended; None or an empty text takes all away.

    Raises:
        KafkaError: INVALID_CONFIG; a directory that is not cordoned now (``ConfigurationControlManager``, KAFKA-20441).
    """
    wanted, known = ({entry.strip() for entry in (text or "").split(",")} for text in (added, current))
    if not wanted - {""} <= known:
        message = (
            "When updating cordoned.log.dirs via controllers, the new value must be a subset of the current"
            " configuration value."
        )
        raise KafkaError(ErrorCode.INVALID_CONFIG, message)


def _check_key(name: str, text: str, current: Mapping[str, str]) -> None:
    if not is_supported_at_run_time(name):
        raise _refused(f"{name} cannot be changed while this broker runs: it supports only the value it started with")
    if name in _THREAD_COUNTS:
        _check_thread_count(name, int(text), _integer(current, name))
    elif name == "log.cleaner.threads":
        problem = cleaner_thread_problem(_integer(current, name), int(text))
        if problem:
            raise _refused(problem)
    elif strip_listener_prefix(name) in _PER_LISTENER and strip_listener_prefix(name) != name and int(text) < 1:
        raise _refused(f"Invalid value {text} for configuration {name}: Value must be at least 1")
    elif name == _CONNECTION_OVERRIDES:
        connection_overrides(text)
    elif name == CORDONED_LOG_DIRS:
        log_dirs = current.get("log.dirs") or _text(current, "log.dir") or ""
        try:
            cordoned_log_dirs(text, [entry.strip() for entry in log_dirs.split(",") if entry.strip()])
        except KafkaError as error:
            raise _refused(error.message or "") from error


def _check_thread_count(name: str, wanted: int, current: int) -> None:
    """As ``DynamicThreadPool.validateReconfiguration``."""
    what = f"Dynamic thread count update validation failed for {name}={wanted}"
    if wanted < current // 2:
        raise _refused(f"{what}, value should be at least half the current value {current}")
    if wanted > current * 2:
        raise _refused(f"{what}, value should not be greater than double the current value {current}")


def cleaner_thread_problem(current: int, wanted: int) -> str:
    """Why log.cleaner.threads may not change like this at run time (``LogCleaner``); empty when it may."""
    if wanted < 1:
        return "Log cleaner threads should be at least 1"
    if wanted < current // 2:
        return f"Log cleaner threads cannot be reduced to less than half the current value {current}"
    if wanted > current * 2:
        return f"Log cleaner threads cannot be increased to more than double the current value {current}"
    return ""


def _check_together(after: Mapping[str, str], wanted: Mapping[str, str]) -> None:
    """As ``AbstractKafkaConfig.validateValues`` and ``DynamicLogConfig.validateReconfiguration``, for what changes."""
    is_none_allowed = bool(_text(after, _CONNECTION_OVERRIDES))
    if "max.connections.per.ip" in wanted and not is_none_allowed and _integer(after, "max.connections.per.ip") == 0:
        raise _refused(f"max.connections.per.ip can be set to zero only if {_CONNECTION_OVERRIDES} property is set.")
    threads = max(_integer(after, "log.cleaner.threads"), 1)
    dedupe_bytes = _integer(after, "log.cleaner.dedupe.buffer.size")
    is_cleaner_changed = not wanted.keys().isdisjoint({"log.cleaner.threads", "log.cleaner.dedupe.buffer.size"})
    if is_cleaner_changed and dedupe_bytes // threads <= _MIN_DEDUPE_BYTES_PER_THREAD:
        raise _refused("log.cleaner.dedupe.buffer.size must be at least 1MB per cleaner thread.")
    for local, total in (
        ("log.local.retention.ms", "log.retention.ms"),
        ("log.local.retention.bytes", "log.retention.bytes"),
    ):
        if local not in wanted and total not in wanted:
            continue
        local_value, total_value = _integer(after, local), _retention(after, total)
        if local_value == _AS_RETENTION or total_value == _UNLIMITED:
            continue
        if local_value == _UNLIMITED or local_value > total_value:
            raise _refused(
                f"Invalid value {local_value} for configuration {local}: Value must not be more than {total} property"
                f" value: {total_value}"
            )


def connection_overrides(text: str) -> dict[str, int]:
    """The connections each address may have, of max.connections.per.ip.overrides.

    Raises:
        KafkaError: INVALID_REQUEST; an entry is not of the form ``address:count``. Host names are not supported.
    """
    overrides: dict[str, int] = {}
    for entry in filter(None, (entry.strip() for entry in text.split(","))):
        host, _, count = entry.rpartition(":")
        try:
            address = "127.0.0.1" if host == "localhost" else str(ip_address(host.strip("[]")))
            overrides[address] = int(count)
        except ValueError:
            raise _refused(
                f"cannot read {entry!r} of {_CONNECTION_OVERRIDES}: each entry has the form address:count"
            ) from None
    return overrides


def _retention(values: Mapping[str, str], name: str) -> int:
    """log.retention.bytes, or log.retention.ms with the minutes and hours that stand for it."""
    if name == "log.retention.ms":
        for key, factor in ((name, 1), ("log.retention.minutes", 60_000), ("log.retention.hours", 3_600_000)):
            text = _text(values, key)
            if text is not None:
                value = int(text)
                return value * factor if value >= 0 else _UNLIMITED
    return _integer(values, name)


def _text(values: Mapping[str, str], name: str) -> str | None:
    text = values.get(name)
    if text is None:
        definition = broker_configs().get(name)
        return None if definition is None else definition.default_text
    return text


def _integer(values: Mapping[str, str], name: str) -> int:
    text = _text(values, name)
    definition = broker_config(name)
    value = None if text is None or definition is None else parse_value(definition, text)
    return value if isinstance(value, int) else 0


def _refused(reason: str) -> KafkaError:
    return KafkaError(ErrorCode.INVALID_REQUEST, reason)
