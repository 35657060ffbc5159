"""``kraftlog metadata-quorum``: describe the metadata quorum, add and remove voters, in the words of Kafka's tool."""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Iterable, Sequence
from typing import Any

from kraftlog.cli.admin_client import AdminClient, parse_servers
from kraftlog.errors import ErrorCode, KafkaError, KraftlogError
from kraftlog.server.config import NodeConfig
from kraftlog.server.quorum_config import ensure_directory_id
from kraftlog.types import Uuid
from kraftlog.wire.messages.add_raft_voter import AddRaftVoterRequest
from kraftlog.wire.messages.describe_quorum import DescribeQuorumRequest, DescribeQuorumResponse
from kraftlog.wire.messages.remove_raft_voter import RemoveRaftVoterRequest

__all__ = ["add_arguments", "run"]

METADATA_TOPIC = "__cluster_metadata"
TIMEOUT_MS = 30_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    where = parser.add_mutually_exclusive_group(required=True)
    where.add_argument("--bootstrap-server", metavar="HOST:PORT,...", help="brokers of the cluster")
    where.add_argument("--bootstrap-controller", metavar="HOST:PORT,...", help="controllers of the cluster")
    parser.add_argument("--command-config", metavar="FILE", help="server.properties of the controller to be added")
    verbs = parser.add_subparsers(dest="verb", required=True)
    describe = verbs.add_parser("describe", help="describe the metadata quorum")
    what = describe.add_mutually_exclusive_group(required=True)
    what.add_argument("--status", action="store_true", help="a short summary and the voters")
    what.add_argument("--replication", action="store_true", help="how far each replica is")
    describe.add_argument("--human-readable", action="store_true", help="times as what has passed since")
    add = verbs.add_parser("add-controller", help="make the controller of --command-config a voter")
    add.add_argument("--dry-run", action="store_true", help="say what would be done, and do nothing")
    remove = verbs.add_parser("remove-controller", help="make a voter an observer")
    remove.add_argument("--controller-id", "-i", type=int, required=True, help="its node.id")
    remove.add_argument("--controller-directory-id", "-d", required=True, help="the id of its metadata directory")
    remove.add_argument("--dry-run", action="store_true", help="say what would be done, and do nothing")


def run(args: argparse.Namespace) -> int:
    """Ask the cluster."""
    try:
        servers = parse_servers(args.bootstrap_server or args.bootstrap_controller)
    except ValueError as error:
        raise KraftlogError(str(error)) from error
    client = AdminClient(servers, is_controller=args.bootstrap_controller is not None)
    try:
        for line in asyncio.run(_run(client, args)):
            print(line)
    except TimeoutError as error:
        raise KraftlogError("no answer came in time") from error
    return 0


async def _run(client: AdminClient, args: argparse.Namespace) -> list[str]:
    async with client:
        match args.verb:
            case "describe":
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
        topic_name=METADATA_TOPIC, partitions=(DescribeQuorumRequest.PartitionData(partition_index=0),)
    )
    response: DescribeQuorumResponse = await client.request(DescribeQuorumRequest(topics=(topic,)))
    _check(response.error_code, response.error_message)
    partition = response.topics[0].partitions[0]
    _check(partition.error_code, partition.error_message)
    return response, partition


def _check(error_code: int, message: str | None) -> None:
    if error_code:
        raise KafkaError(error_code, message or ErrorCode.name_of(error_code))


def _status(
    cluster_id: str, response: DescribeQuorumResponse, partition: DescribeQuorumResponse.PartitionData
) -> list[str]:
    """What Kafka's tool prints; the lag is that of the voter that is furthest behind."""
    leader = next((one for one in partition.current_voters if one.replica_id == partition.leader_id), None)
    last = min(partition.current_voters, key=lambda one: one.log_end_offset)
    if leader is None or last is leader:
        lag, lag_ms = 0, 0
    else:
        lag = leader.log_end_offset - last.log_end_offset
        is_known = leader.last_caught_up_timestamp >= 0 and last.last_caught_up_timestamp >= 0
        lag_ms = leader.last_caught_up_timestamp - last.last_caught_up_timestamp if is_known else -1
    endpoints = {
        node.node_id: [f"{one.name}://{one.host}:{one.port}" for one in node.listeners] for node in response.nodes
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
    for one in replicas:
        directory_id = None if one.replica_directory_id == Uuid.ZERO else str(one.replica_directory_id)
        node: dict[str, Any] = {"id": one.replica_id, "directoryId": directory_id}
        if one.replica_id in endpoints:
            node["endpoints"] = endpoints[one.replica_id]
        found.append(node)
    return json.dumps(found)


def _replication(partition: DescribeQuorumResponse.PartitionData, *, is_human_readable: bool) -> list[str]:
    now_ms = time.time_ns() // 1_000_000
    end_offset = next(
        (one.log_end_offset for one in partition.current_voters if one.replica_id == partition.leader_id), -1
    )

    def moment(timestamp: int) -> str:
        return f"{now_ms - timestamp} ms ago" if is_human_readable and timestamp >= 0 else str(timestamp)

    def row(replica: DescribeQuorumResponse.ReplicaState, status: str) -> list[str]:
        return [
            str(replica.replica_id),
            str(replica.replica_directory_id),
            str(replica.log_end_offset),
            str(end_offset - replica.log_end_offset),
            moment(replica.last_fetch_timestamp),
            moment(replica.last_caught_up_timestamp),
            status,
        ]

    rows = [["NodeId", "DirectoryId", "LogEndOffset", "Lag", "LastFetchTimestamp", "LastCaughtUpTimestamp", "Status"]]
    leaders = [one for one in partition.current_voters if one.replica_id == partition.leader_id]
    others = [one for one in partition.current_voters if one.replica_id != partition.leader_id]
    rows += [row(one, "Leader") for one in leaders]
    rows += [row(one, "Follower") for one in others]
    rows += [row(one, "Observer") for one in partition.observers]
    return _columns(rows)


def _columns(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
    return ["".join(f"{cell:<{width}}\t" for cell, width in zip(row, widths, strict=True)) for row in rows]


async def _add_controller(client: AdminClient, args: argparse.Namespace) -> list[str]:
    if args.command_config is None:
        raise KraftlogError("add-controller needs --command-config FILE: the server.properties of the new controller")
    config = NodeConfig.load(args.command_config)
    if not config.is_controller:
        raise KraftlogError(f"{args.command_config}: process.roles does not have controller")
    directory_id = ensure_directory_id(config.metadata_log_dir)
    listeners = [one for one in config.advertised_listeners if one.listener_name in config.controller_listener_names]
    where = ", ".join(str(one) for one in listeners)
    text = f"controller {config.node_id} with directory id {directory_id} and endpoints: {where}"
    if args.dry_run:
        return [f"DRY RUN of adding {text}"]
    response = await client.request(
        AddRaftVoterRequest(
            cluster_id=client.cluster_id,
            timeout_ms=TIMEOUT_MS,
            voter_id=config.node_id,
            voter_directory_id=directory_id,
            listeners=[
                AddRaftVoterRequest.Listener(name=one.listener_name, host=one.host, port=one.port) for one in listeners
            ],
        )
    )
    _check(response.error_code, response.error_message)
    return [f"Added {text}"]


async def _remove_controller(client: AdminClient, args: argparse.Namespace) -> list[str]:
    try:
        directory_id = Uuid.parse(args.controller_directory_id)
    except ValueError as error:
        raise KraftlogError(f"--controller-directory-id: {error}") from error
    text = f"KRaft controller {args.controller_id} with directory id {directory_id}"
    if args.dry_run:
        return [f"DRY RUN of removing  {text}"]
    response = await client.request(
        RemoveRaftVoterRequest(
            cluster_id=client.cluster_id, voter_id=args.controller_id, voter_directory_id=directory_id
        )
    )
    _check(response.error_code, response.error_message)
    return [f"Removed  {text}"]
