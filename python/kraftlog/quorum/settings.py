"""What a ``Quorum`` is told, as the configuration of a node, and its directory formatted on first use."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from pathlib import Path

from kraftlog.errors import LogError
from kraftlog.node.config import ConfigError, NodeConfig
from kraftlog.security.sasl_plain import PLAIN
from kraftlog.storage.dynamic_voter import DynamicVoter, voters_record
from kraftlog.storage.files import make_directory
from kraftlog.storage.meta_properties import (
    MetaProperties,
    random_uuid,
    read_meta_properties,
    write_meta_properties,
)
from kraftlog.storage.snapshot_file import (
    BOOTSTRAP_SNAPSHOT_ID,
    Snapshot,
    encode_snapshot,
    write_snapshot,
)
from kraftlog.types import NodeId, Uuid
from kraftlog.vocabulary import CLUSTER_METADATA_DIRECTORY

__all__ = ["LISTENER_NAME", "format_when_needed", "node_config", "split_address"]

LISTENER_NAME = "QUORUM"


def split_address(address: str) -> tuple[str, int]:
    """Host and port of ``host:port``; an IPv6 host in brackets.

    Raises:
        ValueError: It is not of that form.
    """
    host, colon, port = address.rpartition(":")
    if not colon or not host or not port.isdigit() or int(port) > 65535:
        msg = f"cannot read {address!r}: expected host:port"
        raise ValueError(msg)
    return host.strip("[]"), int(port)


def node_config(
    *,
    node_id: int,
    data_dir: Path,
    listen: str,
    advertised: str,
    contacts: Sequence[str],
    auto_join: bool,
    changes: Mapping[str, str],
) -> NodeConfig:
    """The settings of a node that is a replica of a quorum and nothing else.

    Args:
        node_id: Of this replica.
        data_dir: Its directory.
        listen: ``host:port`` to bind.
        advertised: ``host:port`` that the others are told.
        contacts: ``host:port`` of replicas that are asked who leads.
        auto_join: Whether it makes itself a voter.
        changes: Kafka's keys, which win over these.

    Raises:
        ConfigError: One of them is not known: a typing error must not pass for a setting.
    """
    config = NodeConfig(
        {
            "process.roles": "controller",
            "node.id": str(node_id),
            "listeners": f"{LISTENER_NAME}://{listen}",
            "advertised.listeners": f"{LISTENER_NAME}://{advertised}",
            "controller.listener.names": LISTENER_NAME,
            "log.dirs": str(data_dir),
            "controller.quorum.bootstrap.servers": ",".join(contacts),
            "controller.quorum.auto.join.enable": str(auto_join).lower(),
            # A leader appends at once; what is appended while a flush is under way shares the next one.
            "controller.quorum.append.linger.ms": "0",
            **changes,
        }
    )
    if config.unknown_keys:
        msg = f"unknown settings: {', '.join(config.unknown_keys)}"
        raise ConfigError(msg)
    sasl = config.sasl(LISTENER_NAME)
    if sasl is not None and sasl.mechanisms != (PLAIN,):
        msg = f"sasl.enabled.mechanisms={','.join(sasl.mechanisms)}: a quorum keeps no credentials of SCRAM; set PLAIN"
        raise ConfigError(msg)
    return config


def format_when_needed(data_dir: Path, *, node_id: int, cluster_id: str, voters: Mapping[int, str]) -> None:
    """Make a new directory a replica's.

    The voters of a new quorum have directory ids that follow from cluster, node and address, so that all of them write
    the same first set without having met.

    Args:
        data_dir: Created when it is not there; left alone when it is formatted.
        node_id: Of this replica.
        cluster_id: Of the quorum.
        voters: Id and ``host:port`` of each voter of a new quorum; empty for a replica that joins one.

    Raises:
        LogError: The directory belongs to another replica or quorum.
        OSError: It cannot be written.
    """
    make_directory(data_dir)
    found = read_meta_properties(data_dir)
    if found is not None:
        if found.node_id != node_id or found.cluster_id != cluster_id:
            msg = (
                f"{data_dir} is of node {found.node_id} in quorum {found.cluster_id!r},"
                f" not of node {node_id} in {cluster_id!r}"
            )
            raise LogError(msg)
        return
    initial = [
        DynamicVoter(
            node_id=NodeId(voter_id),
            host=split_address(address)[0],
            port=split_address(address)[1],
            directory_id=_first_directory_id(cluster_id, voter_id, address),
        )
        for voter_id, address in sorted(voters.items())
    ]
    own = next((voter for voter in initial if voter.node_id == node_id), None)
    partition = data_dir / CLUSTER_METADATA_DIRECTORY
    make_directory(partition)
    if own is not None:
        snapshot = Snapshot(kraft_version=1, voters=voters_record(initial, listener_name=LISTENER_NAME))
        data = encode_snapshot(snapshot, epoch=BOOTSTRAP_SNAPSHOT_ID.epoch, now_ms=0)
        write_snapshot(partition, BOOTSTRAP_SNAPSHOT_ID, data)
    directory_id = random_uuid() if own is None else own.directory_id
    properties = MetaProperties(cluster_id=cluster_id, node_id=NodeId(node_id), directory_id=directory_id)
    write_meta_properties(data_dir, properties)


def _first_directory_id(cluster_id: str, node_id: int, address: str) -> Uuid:
    """A type 4 uuid that every voter of a new quorum comes to."""
    data = bytearray(hashlib.sha256(f"{cluster_id}\n{node_id}\n{address}".encode()).digest()[:16])
    data[0] &= 0x7F  # its text never begins with "-"
    data[6] = data[6] & 0x0F | 0x40
    data[8] = data[8] & 0x3F | 0x80
    return Uuid(bytes(data))
