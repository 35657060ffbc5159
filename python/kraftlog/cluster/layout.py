"""What ``kraftlog.Cluster`` writes before its nodes start: addresses, properties and formatted directories."""

from __future__ import annotations

import json
import random
import socket
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

from kraftlog.errors import ClusterError
from kraftlog.node.config import NodeConfig
from kraftlog.storage.dynamic_voter import DynamicVoter
from kraftlog.storage.formatter import Formatter
from kraftlog.types import NodeId, Uuid

__all__ = ["NodeAddresses", "StoredCluster", "format_node", "node_properties", "take_ports"]

_HOST: Final = "127.0.0.1"
_FILE_NAME: Final = "cluster.json"
# Below the ports that a kernel hands out to clients: a node that is down keeps its port.
_PORTS: Final = range(20_000, 32_000)
_TRIES: Final = 2_000

# Failures are noticed within two seconds, so that programs and tests do not wait for Kafka's nine.
_QUICK: Final = {
    "controller.quorum.election.timeout.ms": "500",
    "controller.quorum.fetch.timeout.ms": "1000",
    "controller.quorum.election.backoff.max.ms": "200",
    "controller.quorum.request.timeout.ms": "1000",
    "broker.session.timeout.ms": "2000",
    "broker.heartbeat.interval.ms": "300",
    "replica.fetch.backoff.ms": "200",
    "replica.lag.time.max.ms": "2000",
    "group.initial.rebalance.delay.ms": "0",
    "offsets.topic.num.partitions": "3",
    "transaction.state.log.num.partitions": "3",
    "share.coordinator.state.topic.num.partitions": "3",
    "log.flush.on.ack": "false",
}


@dataclass(frozen=True, slots=True)
class NodeAddresses:
    """Ports of one node on 127.0.0.1.

    Attributes:
        node_id: Its node.id.
        is_controller: Whether it is a voter of the metadata quorum, besides being a broker.
        broker_port: Where it listens for clients and brokers.
        controller_port: Where it listens for the quorum; 0 for a broker without that role.
        broker_proxy_port: What it advertises instead of ``broker_port``; equal to it without proxies.
        controller_proxy_port: The same for ``controller_port``.
    """

    node_id: int
    is_controller: bool
    broker_port: int
    controller_port: int
    broker_proxy_port: int
    controller_proxy_port: int

    @property
    def ports(self) -> tuple[int, ...]:
        """All of them."""
        return self.broker_port, self.controller_port, self.broker_proxy_port, self.controller_proxy_port

    @property
    def bootstrap_server(self) -> str:
        """Where clients connect."""
        return f"{_HOST}:{self.broker_proxy_port}"


@dataclass(frozen=True, slots=True)
class StoredCluster:
    """What a later run over the same directory has to keep: clients and voters know these addresses.

    Attributes:
        cluster_id: Of all nodes.
        nodes: In the order of their ids.
        has_proxies: Whether nodes are reached through proxies.
    """

    cluster_id: str
    nodes: tuple[NodeAddresses, ...]
    has_proxies: bool

    @classmethod
    def read(cls, home: Path) -> StoredCluster | None:
        """Read the file of an earlier run; None in a new directory.

        Raises:
            ClusterError: The file does not have this form.
        """
        path = home / _FILE_NAME
        try:
            stored = json.loads(path.read_text())
            nodes = tuple(NodeAddresses(**node) for node in stored["nodes"])
            return cls(cluster_id=stored["cluster_id"], nodes=nodes, has_proxies=stored["has_proxies"])
        except FileNotFoundError:
            return None
        except (ValueError, KeyError, TypeError) as error:
            raise ClusterError(f"{path} cannot be read: {error}") from error

    def write(self, home: Path) -> None:
        """Replace the file."""
        new = home / (_FILE_NAME + ".new")
        new.write_text(json.dumps(asdict(self), indent=1) + "\n")
        new.replace(home / _FILE_NAME)


def take_ports(count: int, taken: Collection[int] = ()) -> list[socket.socket]:
    """Bind sockets to free ports of 127.0.0.1; the caller listens on them or closes them.

    Args:
        count: How many.
        taken: Ports that are free now, but meant for others.

    Raises:
        ClusterError: No port is free.
    """
    found: list[socket.socket] = []
    for _ in range(_TRIES):
        if len(found) == count:
            break
        port = random.choice(_PORTS)
        if port in taken:
            continue
        bound = socket.socket()
        try:
            bound.bind((_HOST, port))
        except OSError:
            bound.close()
            continue
        # Not before: another process could bind the port as well until somebody listens on it. But its connections
        # have to have it, or nobody could listen there again while the last ones are forgotten.
        bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        found.append(bound)
    if len(found) < count:
        for bound in found:
            bound.close()
        raise ClusterError(f"no free port on {_HOST} from {_PORTS.start} to {_PORTS.stop - 1}")
    return found


def node_properties(
    node: NodeAddresses, nodes: Sequence[NodeAddresses], data_dir: Path, changes: Mapping[str, str]
) -> dict[str, str]:
    """The configuration of one node.

    Args:
        node: Whose.
        nodes: All nodes of the cluster.
        data_dir: Its log directory.
        changes: Settings that win over the cluster's.
    """
    voters = [other for other in nodes if other.is_controller]
    listeners = [f"PLAINTEXT://{_HOST}:{node.broker_port}"]
    advertised = [f"PLAINTEXT://{node.bootstrap_server}"]
    if node.is_controller:
        listeners.append(f"CONTROLLER://{_HOST}:{node.controller_port}")
        advertised.append(f"CONTROLLER://{_HOST}:{node.controller_proxy_port}")
    replicas = str(min(3, len(voters)))
    in_sync = str(min(2, len(voters)))
    return {
        "process.roles": "broker,controller" if node.is_controller else "broker",
        "node.id": str(node.node_id),
        "listeners": ",".join(listeners),
        "advertised.listeners": ",".join(advertised),
        "controller.listener.names": "CONTROLLER",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "controller.quorum.bootstrap.servers": ",".join(f"{_HOST}:{voter.controller_proxy_port}" for voter in voters),
        "log.dirs": str(data_dir),
        **_QUICK,
        "default.replication.factor": replicas,
        "min.insync.replicas": in_sync,
        "offsets.topic.replication.factor": replicas,
        "transaction.state.log.replication.factor": replicas,
        "transaction.state.log.min.isr": in_sync,
        "share.coordinator.state.topic.replication.factor": replicas,
        "share.coordinator.state.topic.min.isr": in_sync,
        **changes,
    }


def format_node(
    properties: Mapping[str, str],
    cluster_id: str,
    voters: Sequence[NodeAddresses],
    directory_ids: Mapping[int, Uuid],
) -> None:
    """Format the directories of a node, unless they are formatted.

    Args:
        properties: The node's configuration.
        cluster_id: Of the cluster.
        voters: The first voters of the quorum; empty for a node that only observes.
        directory_ids: Of their metadata directories, by node id.

    Raises:
        KraftlogError: The configuration is refused, or a directory belongs to another node or cluster.
    """
    config = NodeConfig(dict(properties))
    Formatter(
        directories=list(config.log_dirs),
        metadata_directory=config.metadata_log_dir,
        cluster_id=cluster_id,
        node_id=NodeId(config.node_id),
        initial_voters=tuple(
            DynamicVoter(
                node_id=NodeId(voter.node_id),
                host=_HOST,
                port=voter.controller_proxy_port,
                directory_id=directory_ids[voter.node_id],
            )
            for voter in voters
        )
        or None,
        has_dynamic_quorum=True,
        ignore_formatted=True,
        report=lambda _: None,
    ).run()
