"""``kraftlog metadata-quorum``: describe the metadata quorum, add and remove voters, in the words of Kafka's tool."""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kraftlog.cli.admin_client import AdminClient, add_connection_arguments, client_from
from kraftlog.cli.kafka_tool import run_tool
from kraftlog.errors import ErrorCode, KafkaError, KraftlogError
from kraftlog.storage.meta_properties import read_meta_properties
from kraftlog.storage.properties import parse_properties
from kraftlog.transport.listener import EndPoint, parse_end_points
from kraftlog.types import Uuid
from kraftlog.vocabulary import CLUSTER_METADATA_TOPIC
from kraftlog.wire.messages.add_raft_voter import AddRaftVoterRequest
from kraftlog.wire.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from kraftlog.wire.messages.remove_raft_voter import RemoveRaftVoterRequest

__all__ = ["main"]

TIMEOUT_MS = 30_000
_NEVER = -1  # a time that the leader does not know


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="kraftlog metadata-quorum", description="The metadata quorum and its voters.")
    add_connection_arguments(parser, required=True)
    verbs = parser.add_subparsers(dest="verb", required=True)
    describe = verbs.add_parser("describe", help="describe the metadata quorum")
    describe.add_argument("--status", action="store_true", help="a short summary and the voters")
    describe.add_argument("--replication", action="store_true", help="how far each replica is")
    describe.add_argument("--human-readable", action="store_true", help="times as what has passed since")
    add = verbs.add_parser("add-controller", help="make the controller of --command-config a voter")
    add.add_argument("--dry-run", action="store_true", help="say what would be done, and do nothing")
    remove = verbs.add_parser("remove-controller", help="make a voter an observer")
    remove.add_argument("--controller-id", "-i", type=int, required=True, help="its node.id")
    remove.add_argument("--controller-directory-id", "-d", required=True, help="the id of its metadata directory")
    remove.add_argument("--dry-run", action="store_true", help="say what would be done, and do nothing")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``kraftlog metadata-quorum``; return the exit code (0, or 1 with a reason on stderr)."""
    return run_tool(_arguments(), arguments, _run)


def _run(args: argparse.Namespace) -> None:
    if args.verb == "describe":
        if args.status and args.replication:
            raise KraftlogError("Only one of --status or --replication should be specified with describe sub-command")
        if not args.status and not args.replication:
            raise KraftlogError("One of --status or --replication must be specified with describe sub-command")
        if args.status and args.human_readable:
            raise KraftlogError("The option --human-readable is only supported along with --replication")
    for line in asyncio.run(_ask(client_from(args), args)):
        print(line)


async def _ask(client: AdminClient, args: argparse.Namespace) -> list[str]:
    match args.verb:
        case "describe":
            async with client:
                response, partition = await _describe_quorum(client)
            if args.status:
                return _status(client.cluster_id, response, partition)
            return _replication(partition, is_human_readable=args.human_readable)
        case "add-controller":
            return await _add_controller(client, args)
        case _:
            return await _remove_controller(client, args)


async def _describe_quorum(
    client: AdminClient,
) -> tuple[DescribeQuorumResponse, DescribeQuorumResponse.PartitionData]:
    topic = DescribeQuorumRequest.TopicData(
        topic_name=CLUSTER_METADATA_TOPIC, partitions=(DescribeQuorumRequest.PartitionData(partition_index=0),)
    )
    response: DescribeQuorumResponse = await client.request(DescribeQuorumRequest(topics=(topic,)), _describe_error)
    _check(response.error_code, response.error_message)
    partition = response.topics[0].partitions[0]
    _check(partition.error_code, partition.error_message)
    return response, partition


def _describe_error(response: DescribeQuorumResponse) -> int:
    partitions = (partition for topic in response.topics for partition in topic.partitions)
    return response.error_code or next((partition.error_code for partition in partitions), 0)


def _check(error_code: int, message: str | None) -> None:
    if error_code:
        raise KafkaError(error_code, message or ErrorCode.name_of(error_code))


def _status(
    cluster_id: str, response: DescribeQuorumResponse, partition: DescribeQuorumResponse.PartitionData
) -> list[str]:
    """What Kafka's tool prints; the lag is that of the voter that is furthest behind."""
    leader = next(
        (
            current_voter
            for current_voter in partition.current_voters
            if current_voter.replica_id == partition.leader_id
        ),
        None,
    )
    last = min(partition.current_voters, key=lambda one: one.log_end_offset)
    if leader is None or last is leader:
        lag, lag_ms = 0, 0
    else:
        lag = leader.log_end_offset - last.log_end_offset
        is_known = leader.last_caught_up_timestamp >= 0 and last.last_caught_up_timestamp >= 0
        lag_ms = leader.last_caught_up_timestamp - last.last_caught_up_timestamp if is_known else -1
    endpoints = {
        node.node_id: [str(EndPoint(listener.name, listener.host, listener.port)) for listener in node.listeners]
        for node in response.nodes
    }
    fields = {
        "ClusterId": cluster_id,
        "LeaderId": partition.leader_id,
        "LeaderEpoch": partition.leader_epoch,
        "HighWatermark": partition.high_watermark,
        "MaxFollowerLag": lag,
        "MaxFollowerLagTimeMs": lag_ms,
        "CurrentVoters": _nodes(partition.current_voters, endpoints),
        "CurrentObservers": _nodes(partition.observers, endpoints),
    }
    return [f"{name + ':':<24}{value}" for name, value in fields.items()]


def _nodes(replicas: Iterable[Any], endpoints: dict[int, list[str]]) -> str:
    found: list[dict[str, Any]] = []
    for replica in replicas:
        node: dict[str, Any] = {"id": replica.replica_id}
        if replica.replica_directory_id != Uuid.ZERO:
            node["directoryId"] = str(replica.replica_directory_id)
        if endpoints.get(replica.replica_id):
            node["endpoints"] = endpoints[replica.replica_id]
        found.append(node)
    return json.dumps(found)


def _replication(partition: DescribeQuorumResponse.PartitionData, *, is_human_readable: bool) -> list[str]:
    now_ms = time.time_ns() // 1_000_000
    end_offset = next(
        (
            current_voter.log_end_offset
            for current_voter in partition.current_voters
            if current_voter.replica_id == partition.leader_id
        ),
        -1,
    )

    def moment(timestamp_ms: int, what: str) -> str:
        if timestamp_ms == _NEVER or not is_human_readable:
            return str(timestamp_ms)
        if not 0 < timestamp_ms <= now_ms:
            raise KraftlogError(
                "Error while computing relative time, possible drift in system clock.\n"
                f"Current timestamp is {now_ms}, {what} timestamp is {timestamp_ms}"
            )
        return f"{now_ms - timestamp_ms} ms ago"

    def row(replica: DescribeQuorumResponse.ReplicaState, status: str) -> list[str]:
        return [
            str(replica.replica_id),
            str(replica.replica_directory_id),
            str(replica.log_end_offset),
            str(end_offset - replica.log_end_offset),
            moment(replica.last_fetch_timestamp, "last fetch"),
            moment(replica.last_caught_up_timestamp, "last caught up"),
            status,
        ]

    rows = [["NodeId", "DirectoryId", "LogEndOffset", "Lag", "LastFetchTimestamp", "LastCaughtUpTimestamp", "Status"]]
    leaders = [
        current_voter for current_voter in partition.current_voters if current_voter.replica_id == partition.leader_id
    ]
    others = [
        current_voter for current_voter in partition.current_voters if current_voter.replica_id != partition.leader_id
    ]
    rows += [row(leader, "Leader") for leader in leaders]
    rows += [row(other, "Follower") for other in others]
    rows += [row(observer, "Observer") for observer in partition.observers]
    return _columns(rows)


def _columns(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
    return ["".join(f"{cell:<{width}}\t" for cell, width in zip(row, widths, strict=True)) for row in rows]


def _property(properties: Mapping[str, str], key: str) -> str:
    value = properties.get(key, "").strip()
    if not value:
        raise KraftlogError(f"{key} was not found. Is this a valid controller configuration file?")
    return value


def _new_controller(path: str) -> tuple[int, Uuid, list[EndPoint]]:
    """Node id, directory id and controller listeners of the controller with this server.properties.

    Its directory is only read: a meta.properties without directory.id stays as it is until the node has started.

    Raises:
        KraftlogError: The file is not that of a controller, or its directory has no directory id.
    """
    try:
        properties = parse_properties(Path(path).read_text("latin-1"))
    except OSError as error:
        raise KraftlogError(f"{path}: {error.strerror}") from error
    node_id = int(_property(properties, "node.id"))
    if node_id < 0:
        raise KraftlogError(
            "node.id was negative in configuration file. Is this a valid controller configuration file?"
        )
    if "controller" not in [role.strip() for role in _property(properties, "process.roles").split(",")]:
        raise KraftlogError(
            "process.roles did not contain 'controller' in configuration file. Is this a valid controller configuration"
            " file?"
        )
    named = properties.get("metadata.log.dir", "") or properties.get("log.dirs", "") or properties.get("log.dir", "")
    directory = named.split(",")[0].strip()
    if not directory:
        raise KraftlogError(
            "Neither metadata.log.dir nor log.dirs were found. Is this a valid controller configuration file?"
        )
    found = read_meta_properties(Path(directory))
    if found is None:
        raise KraftlogError(f"Unable to read meta.properties from {directory}")
    if found.directory_id is None:
        raise KraftlogError(f"No directory id found in {directory}")
    listeners: dict[str, EndPoint] = {}
    for key in ("listeners", "advertised.listeners"):  # what is advertised wins
        listeners |= {
            end_point.listener_name: end_point for end_point in parse_end_points(key, properties.get(key, ""))
        }
    end_points: list[EndPoint] = []
    for name in _property(properties, "controller.listener.names").upper().split(","):
        one = listeners.get(name.strip())
        if one is None:
            raise KraftlogError(f"Cannot find information about controller listener name: {name.strip()}")
        end_points.append(EndPoint(one.listener_name, one.host or "localhost", one.port))
    return node_id, found.directory_id, end_points


async def _add_controller(client: AdminClient, args: argparse.Namespace) -> list[str]:
    if args.command_config is None:
        raise KraftlogError(
            "You must supply the configuration file of the controller you are adding when using add-controller."
        )
    node_id, directory_id, listeners = _new_controller(args.command_config)
    where = ", ".join(str(listener) for listener in listeners)
    text = f"controller {node_id} with directory id {directory_id} and endpoints: {where}"
    if args.dry_run:
        return [f"DRY RUN of adding {text}"]
    async with client:
        response = await client.request(
            AddRaftVoterRequest(
                cluster_id=client.cluster_id,
                timeout_ms=TIMEOUT_MS,
                voter_id=node_id,
                voter_directory_id=directory_id,
                listeners=[
                    AddRaftVoterRequest.Listener(name=listener.listener_name, host=listener.host, port=listener.port)
                    for listener in listeners
                ],
            )
        )
    _check(response.error_code, response.error_message)
    return [f"Added {text}"]


async def _remove_controller(client: AdminClient, args: argparse.Namespace) -> list[str]:
    if args.controller_id < 0:
        raise KraftlogError(f"Invalid negative --controller-id: {args.controller_id}")
    try:
        directory_id = Uuid.parse(args.controller_directory_id)
    except ValueError as error:
        raise KraftlogError(f"Failed to parse --controller-directory-id: {error}") from error
    text = f"KRaft controller {args.controller_id} with directory id {directory_id}"
    if args.dry_run:
        return [f"DRY RUN of removing  {text}"]
    async with client:
        response = await client.request(
            RemoveRaftVoterRequest(
                cluster_id=client.cluster_id, voter_id=args.controller_id, voter_directory_id=directory_id
            )
        )
    _check(response.error_code, response.error_message)
    return [f"Removed  {text}"]
