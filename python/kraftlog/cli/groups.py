"""``kraftlog groups``: list, describe and delete groups, reset and delete their offsets, on any Kafka cluster.

Source: ``org.apache.kafka.tools.consumer.group.ConsumerGroupCommand``, whose words and columns this uses.
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import json
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from kraftlog.cli.broker_client import BrokerClient, add_broker_arguments, client_from
from kraftlog.cli.group_views import (
    OFFSETS_BY_NAME_VERSION,
    GroupView,
    MemberView,
    committed_offsets,
    describe_group,
    list_groups,
    offset_rows,
)
from kraftlog.cli.kafka_tool import run_tool
from kraftlog.cli.offset_resets import OffsetReset, add_scenario_arguments, parse_topics, read_csv
from kraftlog.cli.text_table import print_table
from kraftlog.errors import ErrorCode, KafkaError, KraftlogError
from kraftlog.types import TopicPartition
from kraftlog.wire.messages.delete_groups import DeleteGroupsRequest
from kraftlog.wire.messages.offset_commit import OffsetCommitRequest
from kraftlog.wire.messages.offset_delete import OffsetDeleteRequest

__all__ = ["main"]

_INACTIVE = frozenset(("Empty", "Dead"))


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="kraftlog groups", description="Groups of a cluster and their offsets.")
    add_broker_arguments(parser)
    verbs = parser.add_subparsers(dest="verb", required=True)
    listing = verbs.add_parser("list", help="the groups of the cluster")
    listing.add_argument("--state", help="only groups in one of these states, such as Stable,Empty")
    listing.add_argument("--type", help="only groups of one of these types, such as classic,consumer")
    describe = verbs.add_parser("describe", help="offsets and lag, members, or the state of groups")
    _add_groups(describe)
    shown = describe.add_mutually_exclusive_group()
    shown.add_argument("--offsets", action="store_true", help="offsets and lag; the default")
    shown.add_argument("--members", action="store_true", help="the members and what they own")
    shown.add_argument("--state", action="store_true", help="coordinator, assignor, state and number of members")
    delete = verbs.add_parser("delete", help="delete groups without members, and their offsets")
    _add_groups(delete)
    offsets = verbs.add_parser("delete-offsets", help="forget offsets of topics that no member consumes")
    offsets.add_argument("--group", required=True, help="the group")
    offsets.add_argument(
        "--topic", action="append", required=True, help="topic or topic:0,1; may be given several times"
    )
    reset = verbs.add_parser("reset-offsets", help="set the offsets of groups without members")
    _add_groups(reset)
    where = reset.add_mutually_exclusive_group()
    where.add_argument("--topic", action="append", help="topic or topic:0,1; may be given several times")
    where.add_argument("--all-topics", action="store_true", help="the topics of which the group has offsets")
    add_scenario_arguments(reset)
    action = reset.add_mutually_exclusive_group()
    action.add_argument("--dry-run", action="store_true", help="show the new offsets; the default")
    action.add_argument("--execute", action="store_true", help="store the new offsets")
    action.add_argument("--export", action="store_true", help="print the new offsets as CSV")
    for verb in (listing, describe, reset):
        verb.add_argument("--json", action="store_true", help="one JSON document in place of a table")
    return parser


def _add_groups(parser: argparse.ArgumentParser) -> None:
    which = parser.add_mutually_exclusive_group(required=True)
    which.add_argument("--group", action="append", help="a group; may be given several times")
    which.add_argument("--all-groups", action="store_true", help="all groups of the cluster")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``kraftlog groups`` with these arguments; return the exit code (0, or 1 with a reason on stderr)."""
    return run_tool(_arguments(), arguments, lambda args: asyncio.run(_run(args)))


async def _run(args: argparse.Namespace) -> int:
    async with client_from(args) as client:
        match args.verb:
            case "list":
                return await _list(client, args)
            case "describe":
                return await _describe(client, args)
            case "delete":
                return await _delete(client, await _group_ids(client, args))
            case "delete-offsets":
                return await _delete_offsets(client, args)
            case _:
                return await _reset(client, args)


async def _group_ids(client: BrokerClient, args: argparse.Namespace) -> list[str]:
    if args.all_groups:
        return [group.group_id for group in await list_groups(client) if group.type != "share"]
    return list(dict.fromkeys(args.group))


def _words(text: str | None) -> list[str]:
    return [word.strip() for word in (text or "").split(",") if word.strip()]


async def _list(client: BrokerClient, args: argparse.Namespace) -> int:
    found = await list_groups(client, states=_words(args.state), types=_words(args.type))
    rows = [{"group": g.group_id, "type": g.type, "state": g.state, "protocol": g.protocol} for g in found]
    _show(args, rows, [("GROUP", "group"), ("TYPE", "type"), ("STATE", "state"), ("PROTOCOL", "protocol")])
    return 0


def _show(args: argparse.Namespace, rows: Sequence[Mapping[str, Any]], columns: Sequence[tuple[str, str]]) -> None:
    """Print rows as JSON or as a table of these (title, key) columns; ``-`` stands for what is unknown."""
    if args.json:
        print(json.dumps(rows, indent=2))
        return
    titles = [title for title, _ in columns]
    print_table(titles, [["-" if row[key] is None else str(row[key]) for _, key in columns] for row in rows])


# -- describe -----------------------------------------------------------------------------------------------------


async def _describe(client: BrokerClient, args: argparse.Namespace) -> int:
    failed = 0
    rows: list[dict[str, Any]] = []
    for group_id in await _group_ids(client, args):
        try:
            group = await describe_group(client, group_id)
            if args.members:
                rows += [_member_row(group, member) for member in group.members]
            elif args.state:
                rows.append(_state_row(client, group))
            else:
                rows += await _offset_rows(client, group)
        except KafkaError as error:
            failed = 1
            print(f"Error: {error.message or ErrorCode.name_of(error.code)}", file=sys.stderr)
    if args.members:
        columns = [
            "group",
            "consumer-id",
            "group-instance-id",
            "host",
            "client-id",
            "#partitions",
            "epoch",
            "assignment",
        ]
    elif args.state:
        columns = ["group", "coordinator (id)", "assignment-strategy", "state", "group-epoch", "#members"]
    else:
        columns = [
            *("group", "topic", "partition", "current-offset", "log-end-offset", "lag"),
            *("consumer-id", "host", "client-id"),
        ]
    _show(args, rows, [(name.upper(), name) for name in columns])
    return failed


def _member_row(group: GroupView, member: MemberView) -> dict[str, Any]:
    owned: dict[str, list[int]] = {}
    for partition in member.assignment:
        owned.setdefault(partition.topic, []).append(partition.partition)
    texts = [f"{topic}:{','.join(map(str, sorted(indexes)))}" for topic, indexes in sorted(owned.items())]
    return {
        "group": group.group_id,
        "consumer-id": member.member_id,
        "group-instance-id": member.instance_id,
        "host": member.host,
        "client-id": member.client_id,
        "#partitions": len(member.assignment),
        "epoch": member.epoch,
        "assignment": ";".join(texts) or None,
    }


def _state_row(client: BrokerClient, group: GroupView) -> dict[str, Any]:
    host, port = client.brokers[group.coordinator]
    return {
        "group": group.group_id,
        "coordinator (id)": f"{host}:{port} ({group.coordinator})",
        "assignment-strategy": group.assignor or None,
        "state": group.state,
        "group-epoch": group.epoch,
        "#members": len(group.members),
    }


async def _offset_rows(client: BrokerClient, group: GroupView) -> list[dict[str, Any]]:
    return [
        {
            "group": group.group_id,
            "topic": row.partition.topic,
            "partition": row.partition.partition,
            "current-offset": row.current,
            "log-end-offset": row.end,
            "lag": row.lag,
            "consumer-id": row.member and row.member.member_id,
            "host": row.member and row.member.host,
            "client-id": row.member and row.member.client_id,
        }
        for row in await offset_rows(client, group)
    ]


# -- delete -------------------------------------------------------------------------------------------------------


async def _delete(client: BrokerClient, group_ids: Sequence[str]) -> int:
    failed = 0
    for group_id in group_ids:
        answer = await client.ask_coordinator(
            group_id, DeleteGroupsRequest(groups_names=[group_id]), lambda found: found.results[0].error_code
        )
        code = answer.results[0].error_code
        failed |= bool(code)
        if code:
            print(f"Group '{group_id}' could not be deleted due to: {ErrorCode.name_of(code)}", file=sys.stderr)
        else:
            print(f"Deletion of requested consumer group ('{group_id}') was successful.")
    return failed


async def _delete_offsets(client: BrokerClient, args: argparse.Namespace) -> int:
    names = {text.rpartition(":")[0] if ":" in text else text for text in args.topic}
    partitions = parse_topics(args.topic, await client.topics(names))
    request = OffsetDeleteRequest(
        group_id=args.group,
        topics=[
            OffsetDeleteRequest.OffsetDeleteRequestTopic(
                name=name,
                partitions=[
                    OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=partition.partition)
                    for partition in partitions
                    if partition.topic == name
                ],
            )
            for name in sorted(names)
        ],
    )
    answer = await client.ask_coordinator(args.group, request, lambda found: found.error_code)
    if answer.error_code:
        raise KraftlogError(f"Failed to delete offsets of group {args.group}: {ErrorCode.name_of(answer.error_code)}")
    rows = [
        (topic.name, partition.partition_index, partition.error_code)
        for topic in answer.topics
        for partition in topic.partitions
    ]
    print_table(
        ["TOPIC", "PARTITION", "STATUS"],
        [
            [name, str(index), f"Error: {ErrorCode.name_of(code)}" if code else "Successful"]
            for name, index, code in sorted(rows)
        ],
    )
    return int(any(code for _, _, code in rows))


# -- reset --------------------------------------------------------------------------------------------------------


async def _reset(client: BrokerClient, args: argparse.Namespace) -> int:
    failed = 0
    rows: list[dict[str, Any]] = []
    for group_id in await _group_ids(client, args):
        try:
            group = await describe_group(client, group_id)
            state = group.state
        except KafkaError as error:
            # Offsets of a group that does not exist yet can be set, as with Kafka's tool.
            if error.code != ErrorCode.GROUP_ID_NOT_FOUND:
                raise
            state = "Dead"
        if state not in _INACTIVE:
            failed = 1
            text = f"Error: Assignments can only be reset if the group '{group_id}' is inactive,"
            print(f"{text} but the current state is {state}.", file=sys.stderr)
            continue
        offsets = await _new_offsets(client, args, group_id)
        if args.execute:
            await _store(client, group_id, offsets)
        rows += [
            {"group": group_id, "topic": partition.topic, "partition": partition.partition, "new-offset": offset}
            for partition, offset in sorted(offsets.items(), key=lambda found: (found[0].topic, found[0].partition))
        ]
    if args.export:
        with_group = len(args.group or ()) != 1
        names = ("group", "topic", "partition", "new-offset")[not with_group :]
        csv.writer(sys.stdout, lineterminator="\n").writerows([row[name] for name in names] for row in rows)
        return failed
    if not args.execute and not args.dry_run:
        print("WARN: No action will be performed as the --execute option is missing.", file=sys.stderr)
    _show(args, rows, [(name.upper(), name) for name in ("group", "topic", "partition", "new-offset")])
    return failed


async def _new_offsets(client: BrokerClient, args: argparse.Namespace, group_id: str) -> dict[TopicPartition, int]:
    committed = await committed_offsets(client, group_id)
    if args.from_file is not None:
        names = {partition.topic for partition in read_csv(args.from_file, group_id)}
    elif args.topic:
        names = {text.rpartition(":")[0] if ":" in text else text for text in args.topic}
    elif args.all_topics:
        names = {partition.topic for partition in committed}
    else:
        raise KraftlogError("One of the reset scopes should be defined: --all-topics, --topic.")
    topics = await client.topics(names)
    partitions = list(committed) if args.all_topics else parse_topics(args.topic or (), topics)
    reset = OffsetReset(client=client, topics=topics, committed=committed, now_ms=int(time.time() * 1000))
    offsets, warnings = await reset.compute(args, group_id, partitions)
    for warning in warnings:
        print(f"WARN: {warning}", file=sys.stderr)
    return offsets


async def _store(client: BrokerClient, group_id: str, offsets: Mapping[TopicPartition, int]) -> None:
    by_topic: dict[str, list[OffsetCommitRequest.OffsetCommitRequestPartition]] = {}
    for partition, offset in offsets.items():
        by_topic.setdefault(partition.topic, []).append(
            OffsetCommitRequest.OffsetCommitRequestPartition(
                partition_index=partition.partition, committed_offset=offset, committed_metadata=""
            )
        )
    if not by_topic:
        return
    request = OffsetCommitRequest(
        group_id=group_id,
        topics=[
            OffsetCommitRequest.OffsetCommitRequestTopic(name=name, partitions=partitions)
            for name, partitions in by_topic.items()
        ],
    )

    def code_of(answer: Any) -> int:
        codes = [partition.error_code for topic in answer.topics for partition in topic.partitions]
        return next((code for code in codes if code), 0)

    answer = await client.ask_coordinator(group_id, request, code_of, max_version=OFFSETS_BY_NAME_VERSION)
    code = code_of(answer)
    if code:
        raise KraftlogError(f"The offsets of group {group_id} could not be stored: {ErrorCode.name_of(code)}")
