"""``kraftlog transactions``: list and describe transactions and producers, find and abort hanging ones (KIP-664).

Source: ``org.apache.kafka.tools.TransactionsCommand``, whose words and columns this uses.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from kraftlog.cli.broker_client import TRANSACTION, BrokerClient, Topic, add_broker_arguments, check, client_from
from kraftlog.cli.kafka_tool import run_tool
from kraftlog.cli.text_table import print_table
from kraftlog.errors import ErrorCode, KraftlogError
from kraftlog.types import TopicPartition
from kraftlog.wire.messages.describe_producers import DescribeProducersRequest
from kraftlog.wire.messages.describe_transactions import DescribeTransactionsRequest
from kraftlog.wire.messages.list_transactions import ListTransactionsRequest
from kraftlog.wire.messages.write_txn_markers import WriteTxnMarkersRequest

__all__ = ["main"]

_MINUTE_MS = 60_000
_DEFAULT_TIMEOUT_MIN = 15


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerView:
    """A producer as the leader of a partition knows it; ``start_offset`` is -1 without an open transaction."""

    partition: TopicPartition
    producer_id: int
    epoch: int
    coordinator_epoch: int
    last_sequence: int
    last_timestamp_ms: int
    start_offset: int


def _arguments() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="kraftlog transactions", description="Transactions of a cluster.")
    add_broker_arguments(parser)
    verbs = parser.add_subparsers(dest="verb", required=True)
    listing = verbs.add_parser("list", help="the transactions that the coordinators know")
    listing.add_argument("--duration-filter", type=int, metavar="MS", help="only transactions that last longer")
    listing.add_argument(
        "--transactional-id-pattern", metavar="REGEX", help="only ids that match, decided by the broker"
    )
    describe = verbs.add_parser("describe", help="one transaction")
    describe.add_argument("--transactional-id", required=True, help="its id")
    producers = verbs.add_parser("describe-producers", help="the producers of a partition")
    _add_partition(producers, required=True)
    producers.add_argument("--broker-id", type=int, help="the replica to ask; the leader when absent")
    hanging = verbs.add_parser("find-hanging", help="open transactions on partitions that no coordinator will end")
    _add_partition(hanging, required=False)
    hanging.add_argument("--broker-id", type=int, help="only partitions that this broker leads")
    hanging.add_argument(
        "--max-transaction-timeout",
        type=int,
        default=_DEFAULT_TIMEOUT_MIN,
        metavar="MINUTES",
        help="transaction.max.timeout.ms of the brokers, in minutes; 15 when absent",
    )
    abort = verbs.add_parser("abort", help="end a hanging transaction on one partition")
    _add_partition(abort, required=True)
    abort.add_argument("--start-offset", type=int, help="where the transaction begins on the partition")
    abort.add_argument("--producer-id", type=int, help="in place of the start offset: the producer")
    abort.add_argument("--producer-epoch", type=int, help="with --producer-id: its epoch")
    abort.add_argument("--coordinator-epoch", type=int, help="with --producer-id: the coordinator's epoch")
    for verb in (listing, describe, producers, hanging):
        verb.add_argument("--json", action="store_true", help="one JSON document in place of a table")
    return parser


def _add_partition(parser: argparse.ArgumentParser, *, required: bool) -> None:
    parser.add_argument("--topic", required=required, help="the topic")
    parser.add_argument("--partition", type=int, required=required, help="the partition")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run ``kraftlog transactions`` with these arguments; return the exit code (0, or 1 with a reason on stderr)."""
    return run_tool(_arguments(), arguments, lambda args: asyncio.run(_run(args)))


async def _run(args: argparse.Namespace) -> None:
    async with client_from(args) as client:
        match args.verb:
            case "list":
                _show(
                    args,
                    await _list(client, args),
                    ["TransactionalId", "Coordinator", "ProducerId", "TransactionState"],
                )
            case "describe":
                _show(args, [await _describe(client, args.transactional_id)], [])
            case "describe-producers":
                _show(args, await _describe_producers(client, args), [])
            case "find-hanging":
                columns = ["Topic", "Partition", "ProducerId", "ProducerEpoch", "CoordinatorEpoch", "StartOffset"]
                _show(args, await _find_hanging(client, args), [*columns, "LastTimestamp", "Duration(min)"])
            case _:
                await _abort(client, args)


def _show(args: argparse.Namespace, rows: Sequence[Mapping[str, Any]], titles: Sequence[str]) -> None:
    if args.json:
        print(json.dumps(rows, indent=2))
    elif titles or rows:
        titles = titles or list(rows[0])
        print_table(titles, [["None" if row[title] is None else str(row[title]) for title in titles] for row in rows])


async def _list(client: BrokerClient, args: argparse.Namespace) -> list[dict[str, Any]]:
    duration = -1 if args.duration_filter is None else args.duration_filter
    request = ListTransactionsRequest(duration_filter=duration, transactional_id_pattern=args.transactional_id_pattern)
    rows = []
    for node_id, answer in (await client.ask_all(request)).items():
        check(answer.error_code, f"transactions of broker {node_id}")
        rows += [
            {
                "TransactionalId": state.transactional_id,
                "Coordinator": node_id,
                "ProducerId": state.producer_id,
                "TransactionState": state.transaction_state,
            }
            for state in answer.transaction_states
        ]
    return sorted(rows, key=lambda row: str(row["TransactionalId"]))


async def _transaction(client: BrokerClient, transactional_id: str) -> Any:
    answer = await client.ask_coordinator(
        transactional_id,
        DescribeTransactionsRequest(transactional_ids=[transactional_id]),
        lambda found: found.transaction_states[0].error_code,
        kind=TRANSACTION,
    )
    return answer.transaction_states[0]


async def _describe(client: BrokerClient, transactional_id: str) -> dict[str, Any]:
    state = await _transaction(client, transactional_id)
    check(state.error_code, f"transactional id {transactional_id}")
    started_ms = state.transaction_start_time_ms
    is_open = started_ms >= 0
    return {
        "CoordinatorId": await client.coordinator(transactional_id, TRANSACTION),
        "TransactionalId": state.transactional_id,
        "ProducerId": state.producer_id,
        "ProducerEpoch": state.producer_epoch,
        "TransactionState": state.transaction_state,
        "TransactionTimeoutMs": state.transaction_timeout_ms,
        "CurrentTransactionStartTimeMs": started_ms if is_open else None,
        "TransactionDurationMs": int(time.time() * 1000) - started_ms if is_open else None,
        "TopicPartitions": ",".join(sorted(map(str, _partitions_of(state)))),
    }


def _partitions_of(state: Any) -> list[TopicPartition]:
    return [TopicPartition(topic.topic, index) for topic in state.topics for index in topic.partitions]


# -- producers ----------------------------------------------------------------------------------------------------


async def _producers(
    client: BrokerClient, node_id: int, partitions: Iterable[TopicPartition], *, is_strict: bool
) -> list[ProducerView]:
    """Producers of partitions that a broker holds; with ``is_strict`` a partition that it refuses is an error."""
    by_topic: dict[str, list[int]] = {}
    for partition in partitions:
        by_topic.setdefault(partition.topic, []).append(partition.partition)
    request = DescribeProducersRequest(
        topics=[
            DescribeProducersRequest.TopicRequest(name=name, partition_indexes=indexes)
            for name, indexes in by_topic.items()
        ]
    )
    views = []
    for topic in (await client.ask(node_id, request)).topics:
        for found in topic.partitions:
            partition = TopicPartition(topic.name, found.partition_index)
            if is_strict:
                check(found.error_code, f"producers of {partition} on broker {node_id}", found.error_message)
            views += [
                ProducerView(
                    partition=partition,
                    producer_id=producer.producer_id,
                    epoch=producer.producer_epoch,
                    coordinator_epoch=producer.coordinator_epoch,
                    last_sequence=producer.last_sequence,
                    last_timestamp_ms=producer.last_timestamp,
                    start_offset=producer.current_txn_start_offset,
                )
                for producer in found.active_producers
            ]
    return views


async def _leader(client: BrokerClient, partition: TopicPartition) -> int:
    topics = await client.topics([partition.topic])
    topic = topics.get(partition.topic)
    if topic is None or partition.partition not in topic.leaders:
        raise KraftlogError(f"Partition {partition} does not exist.")
    if topic.leaders[partition.partition] < 0:
        raise KraftlogError(f"Partition {partition} has no leader.")
    return topic.leaders[partition.partition]


async def _describe_producers(client: BrokerClient, args: argparse.Namespace) -> list[dict[str, Any]]:
    partition = TopicPartition(args.topic, args.partition)
    node_id = await _leader(client, partition) if args.broker_id is None else args.broker_id
    return [
        {
            "ProducerId": producer.producer_id,
            "ProducerEpoch": producer.epoch,
            "LatestCoordinatorEpoch": producer.coordinator_epoch,
            "LastSequence": producer.last_sequence,
            "LastTimestamp": producer.last_timestamp_ms,
            "CurrentTransactionStartOffset": producer.start_offset if producer.start_offset >= 0 else None,
        }
        for producer in await _producers(client, node_id, [partition], is_strict=True)
    ]


# -- hanging transactions -------------------------------------------------------------------------------------------


async def _find_hanging(client: BrokerClient, args: argparse.Namespace) -> list[dict[str, Any]]:
    if args.topic is None and args.broker_id is None:
        raise KraftlogError("The `find-hanging` command requires either --topic or --broker-id to limit the search.")
    if args.partition is not None and args.topic is None:
        raise KraftlogError("The --partition argument requires --topic to be provided.")
    topics = await client.topics(None if args.topic is None else [args.topic])
    if args.topic is not None and args.topic not in topics:
        raise KraftlogError(f"Topic {args.topic} does not exist.")
    now_ms = int(time.time() * 1000)
    producers: list[ProducerView] = []
    for leader, partitions in sorted(_by_leader(topics, args).items()):
        producers += await _producers(client, leader, partitions, is_strict=False)
    limit_ms = args.max_transaction_timeout * _MINUTE_MS
    late = [
        producer
        for producer in producers
        if producer.start_offset >= 0 and now_ms - producer.last_timestamp_ms > limit_ms
    ]
    known = await _transactional_ids(client, {producer.producer_id for producer in late})
    rows = []
    for producer in late:
        transactional_id = known.get(producer.producer_id)
        if transactional_id is not None and await _is_in_transaction(client, transactional_id, producer):
            continue
        rows.append(
            {
                "Topic": producer.partition.topic,
                "Partition": producer.partition.partition,
                "ProducerId": producer.producer_id,
                "ProducerEpoch": producer.epoch,
                "CoordinatorEpoch": producer.coordinator_epoch,
                "StartOffset": producer.start_offset,
                "LastTimestamp": producer.last_timestamp_ms,
                "Duration(min)": (now_ms - producer.last_timestamp_ms) // _MINUTE_MS,
            }
        )
    return rows


def _by_leader(topics: Mapping[str, Topic], args: argparse.Namespace) -> dict[int, list[TopicPartition]]:
    by_leader: dict[int, list[TopicPartition]] = {}
    for name, topic in topics.items():
        for index, leader in topic.leaders.items():
            is_asked = args.partition in {None, index} and args.broker_id in {None, leader}
            if is_asked and leader >= 0:
                by_leader.setdefault(leader, []).append(TopicPartition(name, index))
    return by_leader


async def _transactional_ids(client: BrokerClient, producer_ids: set[int]) -> dict[int, str]:
    """Transactional ids by producer id; producers that no coordinator knows are left out."""
    if not producer_ids:
        return {}
    found: dict[int, str] = {}
    answers = await client.ask_all(ListTransactionsRequest(producer_id_filters=sorted(producer_ids)))
    for node_id, answer in answers.items():
        check(answer.error_code, f"transactions of broker {node_id}")
        found |= {state.producer_id: state.transactional_id for state in answer.transaction_states}
    return found


async def _is_in_transaction(client: BrokerClient, transactional_id: str, producer: ProducerView) -> bool:
    """Whether the coordinator still has the partition in the producer's transaction, and so will end it."""
    state = await _transaction(client, transactional_id)
    if state.error_code == ErrorCode.TRANSACTIONAL_ID_NOT_FOUND:
        return False
    check(state.error_code, f"transactional id {transactional_id}")
    return state.producer_id == producer.producer_id and producer.partition in _partitions_of(state)


async def _abort(client: BrokerClient, args: argparse.Namespace) -> None:
    partition = TopicPartition(args.topic, args.partition)
    by_producer = (args.producer_id, args.producer_epoch, args.coordinator_epoch)
    leader = await _leader(client, partition)
    if args.start_offset is not None and by_producer == (None, None, None):
        found = await _producers(client, leader, [partition], is_strict=True)
        producer = next((view for view in found if view.start_offset == args.start_offset), None)
        if producer is None:
            raise KraftlogError(
                f"Could not find any open transactions starting at offset {args.start_offset} on partition {partition}"
            )
        marker = (producer.producer_id, producer.epoch, producer.coordinator_epoch)
    elif args.start_offset is None and None not in by_producer:
        marker = (args.producer_id, args.producer_epoch, max(0, args.coordinator_epoch))
    else:
        raise KraftlogError(
            "The transaction to abort is named by --start-offset alone, or by --producer-id, --producer-epoch and"
            " --coordinator-epoch."
        )
    request = WriteTxnMarkersRequest(
        markers=[
            WriteTxnMarkersRequest.WritableTxnMarker(
                producer_id=marker[0],
                producer_epoch=marker[1],
                # A partition without any marker of the producer has no coordinator epoch yet.
                coordinator_epoch=max(0, marker[2]),
                transaction_result=False,
                topics=[
                    WriteTxnMarkersRequest.WritableTxnMarkerTopic(
                        name=partition.topic, partition_indexes=[partition.partition]
                    )
                ],
            )
        ]
    )
    answer = await client.ask(leader, request)
    for topic in answer.markers[0].topics:
        for written in topic.partitions:
            check(written.error_code, f"abort of producer {marker[0]} on {partition}")
