"""The data directories of a node: locked, and checked to be its own."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from kraftlog.errors import LogError
from kraftlog.node.start_error import StartError, check_directory
from kraftlog.storage.log_dir import STAGING_DIRECTORY, LogDir
from kraftlog.storage.meta_properties import META_PROPERTIES_NAME, read_meta_properties
from kraftlog.types import Uuid

if TYPE_CHECKING:
    from pathlib import Path

    from kraftlog.node.config import NodeConfig

__all__ = ["open_log_dirs"]

logger = logging.getLogger(__name__)


def open_log_dirs(config: NodeConfig, log_dirs: list[LogDir]) -> str:
    """Lock every data directory and check that it is this node's.

    Args:
        config: Names the directories and the node.
        log_dirs: Gets each directory as it is locked; those that were are in it after an error, too.

    Returns:
        The cluster id that the directories have.

    Raises:
        StartError: A directory is not formatted, belongs to another cluster or node, or none can be read.
        LogError: A directory is locked, or its state cannot be read.
    """
    cluster_id = ""
    paths: list[Path] = list(config.log_dirs)
    if config.metadata_log_dir not in paths:
        paths.append(config.metadata_log_dir)
    for path in paths:
        try:
            properties = read_meta_properties(path) if path.is_dir() else None
        except OSError as error:
            # As Kafka: a disk that cannot be read does not keep the others from being served.
            if path == config.metadata_log_dir:
                msg = f"{path}, which has the metadata log, cannot be read: {error}"
                raise StartError(msg) from error
            logger.error("%s cannot be read and is offline: %s", path, error)
            continue
        check_directory(path)
        if properties is None:
            msg = (
                f"no {META_PROPERTIES_NAME} found in {path}: format it first with "
                "`kraftlog storage format --standalone -t $(kraftlog storage random-uuid) -c server.properties`"
            )
            raise StartError(msg)
        if properties.node_id is None:
            msg = f"{path / META_PROPERTIES_NAME} has no node.id: restore it from a backup"
            raise StartError(msg)
        if properties.node_id != config.node_id:
            msg = (
                f"{path / META_PROPERTIES_NAME} is of node.id={properties.node_id}, but the configuration says "
                f"node.id={config.node_id}: use the data directory of this node, or correct node.id"
            )
            raise StartError(msg)
        if cluster_id and properties.cluster_id != cluster_id:
            msg = (
                f"{path / META_PROPERTIES_NAME} is of cluster.id={properties.cluster_id}, the other data "
                f"directories are of {cluster_id}: they do not belong together"
            )
            raise StartError(msg)
        cluster_id = properties.cluster_id or ""
        if path in config.log_dirs and (path / STAGING_DIRECTORY).exists():
            # As Kafka, for which the name is no partition's: partitions may be half replaced.
            msg = (
                f"{path / STAGING_DIRECTORY} is there: a write of segments to {path} goes on or was interrupted. "
                "When no job runs any more, kraftlog.spark.finish_writes ends what was committed; remove the "
                "directory if it is there even then"
            )
            raise StartError(msg)
        log_dir = LogDir(path)
        log_dirs.append(log_dir)
        log_dir.directory_id = properties.directory_id or Uuid.ZERO
        try:
            log_dir.read_state()
        except LogError as error:
            if path == config.metadata_log_dir or len(config.log_dirs) == 1:
                raise
            # As Kafka: not taken for an empty one, which would let high watermarks begin at 0.
            logger.error("%s is offline: %s", path, error)
            log_dirs.remove(log_dir)
            log_dir.release()
    if not any(log_dir.path in config.log_dirs for log_dir in log_dirs):
        msg = "no directory of log.dirs can be read"
        raise StartError(msg)
    return cluster_id
