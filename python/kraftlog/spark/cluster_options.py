"""Options of a read from a live cluster: those of Spark's own Kafka source."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field

from kraftlog.client.config import ClientConfig
from kraftlog.spark.columns import find_columns
from kraftlog.spark.option_values import given_options
from kraftlog.spark.options import BATCH_OPTIONS, SELECT_OPTIONS, SourceOptions

__all__ = ["BOOTSTRAP_SERVERS", "ClusterOptions", "is_cluster_read"]

logger = logging.getLogger("kraftlog.spark")

BOOTSTRAP_SERVERS = "kafka.bootstrap.servers"
# Of the options for directories, those that are about files.
_FILE_OPTIONS = (
    "path", "paths", "storageOptions", "kraftlog.fs", "endOffset", "dataLossReport", "controlRecords", "dropBehind",
    "splitBytes", "pushdown",
)  # fmt: skip
# What Spark's Kafka source needs for its group and its retries; here nothing depends on them.
_WITHOUT_EFFECT = (
    "groupIdPrefix", "fetchOffset.numRetries", "fetchOffset.retryIntervalMs", "kafkaConsumer.pollTimeoutMs",
    "useDeprecatedOffsetFetching", "kafka.group.id",
)  # fmt: skip
# Spark's Kafka source refuses them too: the query decides what is read, and the format what a row is.
_REFUSED = (
    "kafka.auto.offset.reset", "kafka.enable.auto.commit", "kafka.key.deserializer", "kafka.value.deserializer",
    "kafka.key.serializer", "kafka.value.serializer", "kafka.interceptor.classes",
)  # fmt: skip
_KNOWN = (*(name for name in BATCH_OPTIONS if name not in _FILE_OPTIONS), *_WITHOUT_EFFECT)


@dataclass(frozen=True, slots=True)
class ClusterOptions:
    """What a read of a cluster was asked for.

    Args:
        source: Everything but the connection.
        settings: Kafka's dotted keys of a consumer; not shown, as they may hold passwords.
    """

    source: SourceOptions
    settings: Mapping[str, str] = field(repr=False)

    @classmethod
    def parse(cls, options: Mapping[str, str], *, streaming: bool = False) -> ClusterOptions:
        """The options from Spark's text form.

        Raises:
            ValueError: An unknown option, a wrong value, no topics, or a setting that the consumer does not have.
        """
        given = given_options(options)
        own = {name.lower() for name in _KNOWN}
        _check_refused(given)
        settings: dict[str, str] = {}
        rest: dict[str, str] = {}
        for name, value in options.items():
            key = name.lower()
            if key.startswith("kafka.") and key not in own:
                settings[key.removeprefix("kafka.")] = value
            elif key not in {ignored.lower() for ignored in _WITHOUT_EFFECT}:
                rest[name] = value
        if sum(name.lower() in given for name in SELECT_OPTIONS) != 1:
            message = f"one of the options {', '.join(SELECT_OPTIONS)} must be given"
            raise ValueError(message)
        without_effect = [name for name in _WITHOUT_EFFECT if name.lower() in given]
        if without_effect:
            logger.warning("options without effect on kraftlog's reads: %s", ", ".join(without_effect))
        ClientConfig(settings, "consumer")
        known = (*_KNOWN, "path")
        source = SourceOptions.parse({**rest, "path": settings["bootstrap.servers"]}, known=known, streaming=streaming)
        if any(column.scan_name == "batch_position" for column in find_columns(source.columns or ())):
            raise ValueError("column batchPosition is a position in a file, which a cluster does not name")
        return cls(source, settings)


def is_cluster_read(options: Mapping[str, str]) -> bool:
    """Whether the options name a cluster."""
    return BOOTSTRAP_SERVERS in given_options(options)


def _check_refused(given: Mapping[str, str]) -> None:
    refused = [name for name in _REFUSED if name in given]
    if refused:
        message = f"option {refused[0]} cannot be given: startingOffsets says where to begin, and rows hold bytes"
        raise ValueError(message)
    files = [name for name in _FILE_OPTIONS if name.lower() in given]
    if files:
        message = f"option {files[0]} is about log directories; {BOOTSTRAP_SERVERS} reads a cluster"
        raise ValueError(message)
