"""A single node without a server.properties: its settings, and its data directory formatted on first use."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from kraftlog.node.config import NodeConfig
from kraftlog.node.start_error import check_directory, named_failures
from kraftlog.storage.dynamic_voter import DynamicVoter
from kraftlog.storage.formatter import Formatter
from kraftlog.storage.meta_properties import random_uuid, read_meta_properties
from kraftlog.types import NodeId

__all__ = ["format_when_needed", "standalone_properties"]


def standalone_properties(
    data_dir: Path, *, port: int, host: str = "127.0.0.1", is_durable: bool, changes: Mapping[str, str]
) -> dict[str, str]:
    """The settings of a combined broker and controller that is alone.

    Args:
        data_dir: The one log directory.
        port: Of the PLAINTEXT listener; 0 takes a free one.
        host: Where both listeners bind.
        is_durable: Whether acknowledgements wait for the disk; false gives Kafka's page-cache behaviour.
        changes: Settings that win over these.
    """
    properties = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "listeners": f"PLAINTEXT://{host}:{port},CONTROLLER://{host}:0",
        "controller.listener.names": "CONTROLLER",
        "log.dirs": str(data_dir),
        # One node cannot hold the three replicas Kafka's defaults ask for.
        "offsets.topic.replication.factor": "1",
        # Partitions of this topic spread the work over brokers; alone, fifty only make the first group wait.
        "offsets.topic.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "share.coordinator.state.topic.replication.factor": "1",
        "share.coordinator.state.topic.min.isr": "1",
        # Nobody else is going to join: a first consumer need not wait three seconds for others.
        "group.initial.rebalance.delay.ms": "0",
        "log.flush.on.ack": "true" if is_durable else "false",
        **changes,
    }
    properties.setdefault("controller.quorum.bootstrap.servers", f"{host}:0")
    return properties


def format_when_needed(config: NodeConfig) -> bool:
    """Format the data directories of a standalone node unless they are; True when it was done.

    Raises:
        LogError: A ``meta.properties`` is there and cannot be read.
        StartError: A directory cannot be written, or is a file.
    """
    with named_failures():
        return _format_when_needed(config)


def _format_when_needed(config: NodeConfig) -> bool:
    directories = list(dict.fromkeys([*config.log_dirs, config.metadata_log_dir]))
    for path in directories:
        check_directory(path)
    present = []
    for path in list(directories):
        try:
            present.append(read_meta_properties(path) if path.is_dir() else None)
        except OSError:
            # It is formatted, on a disk that fails: the node decides whether it can do without.
            directories.remove(path)
    if all(properties is not None for properties in present):
        return False
    cluster_id = next(
        (properties.cluster_id for properties in present if properties is not None and properties.cluster_id), None
    )
    controller = next(
        listener for listener in config.listeners if listener.listener_name in config.controller_listener_names
    )
    node_id = NodeId(config.node_id)
    voter = DynamicVoter(node_id=node_id, host=controller.host, port=controller.port, directory_id=random_uuid())
    Formatter(
        directories=directories,
        metadata_directory=config.metadata_log_dir,
        cluster_id=cluster_id or str(random_uuid()),
        node_id=node_id,
        initial_voters=(voter,),
        has_dynamic_quorum=True,
        controller_listener_name=controller.listener_name,
        ignore_formatted=True,
        report=lambda _: None,
    ).run()
    return True
