"""A log directory with open transactions goes from kraftlog to Apache Kafka and from Kafka to kraftlog.

The other server goes on where the first has stopped: producers keep their ids and epochs, an open transaction takes
more records and offsets and is committed or aborted, and readers of committed records see what they should.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from interop.clients import create_topic
from interop.harness import Java, KafkaServer, KraftlogServer, copy_of
from kraftlog.errors import ErrorCode
from kraftlog.wire.messages.add_offsets_to_txn import AddOffsetsToTxnRequest
from kraftlog.wire.messages.find_coordinator import FindCoordinatorRequest
from kraftlog.wire.messages.list_transactions import ListTransactionsRequest
from kraftlog.wire.messages.offset_fetch import OffsetFetchRequest
from kraftlog.wire.messages.txn_offset_commit import TxnOffsetCommitRequest
from raw_client import RawClient
from transaction_requests import Producer, add, batch, begin, end, produce, read, wait_until_complete

TOPIC, GROUP = "handed-over", "group"
CONFIG = {"transaction.state.log.num.partitions": "3", "offsets.topic.num.partitions": "1"}
_RETRIED = (
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.CONCURRENT_TRANSACTIONS,
)


def find_coordinators(client: RawClient) -> None:
    """Wait until both coordinators are there."""
    for key_type, key in ((0, GROUP), (1, "commits")):
        for _ in range(300):
            request = FindCoordinatorRequest(key_type=key_type, coordinator_keys=[key])
            if client.call(request, 4).coordinators[0].error_code == 0:
                break
            time.sleep(0.1)
        else:
            raise AssertionError(f"no coordinator of {key}")


def retried(call: Any) -> Any:
    """The answer of ``call`` once its error code, the answer itself or its first item, is none that passes."""
    for _ in range(300):
        answer = call()
        code = answer[0] if isinstance(answer, (tuple, list)) else answer
        if code not in _RETRIED:
            return answer
        time.sleep(0.1)
    raise AssertionError(f"still {ErrorCode.name_of(code)}")


def write(client: RawClient, key: str, producer: Producer, sequence: int, value: bytes) -> int:
    """As a client of transaction version 2 does: the leader adds the partition to the transaction."""
    return int(retried(lambda: produce(client, TOPIC, batch(producer, sequence, value), key=key)))


def commit_offset(client: RawClient, key: str, producer: Producer, offset: int, version: int) -> int:
    if version < 5:
        request = AddOffsetsToTxnRequest(
            transactional_id=key, producer_id=producer[0], producer_epoch=producer[1], group_id=GROUP
        )
        retried(lambda: client.call(request, 3).error_code)
    topics = [
        TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(
            name=TOPIC,
            partitions=[
                TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
                    partition_index=0, committed_offset=offset, committed_metadata=""
                )
            ],
        )
    ]
    commit = TxnOffsetCommitRequest(
        transactional_id=key, group_id=GROUP, producer_id=producer[0], producer_epoch=producer[1], topics=topics
    )
    return int(retried(lambda: client.call(commit, version).topics[0].partitions[0].error_code))


def committed_offset(client: RawClient) -> tuple[int, int]:
    """Error code and offset, as a consumer asks that needs stable offsets."""
    topics = [OffsetFetchRequest.OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])]
    groups = [OffsetFetchRequest.OffsetFetchRequestGroup(group_id=GROUP, topics=topics)]
    answer = client.call(OffsetFetchRequest(groups=groups, require_stable=True), 8)
    partition = answer.groups[0].topics[0].partitions[0]
    return partition.error_code, partition.committed_offset


def committed(client: RawClient) -> list[bytes]:
    """Values of committed transactions, filtered as a client does it."""
    values, partition = read(client, TOPIC)
    aborted = {found.producer_id for found in partition.aborted_transactions or ()}
    assert partition.last_stable_offset == partition.high_watermark
    # Each producer of these tests either commits or aborts: its id decides.
    return [value for value in values if value is not None and int(value.split(b":")[0]) not in aborted]


def open_transactions(client: RawClient) -> set[str]:
    def ask() -> tuple[int, Any]:
        answer = client.call(ListTransactionsRequest(), 0)
        # Kafka may not have begun to load them: then it knows of none.
        is_loaded = not answer.error_code and answer.transaction_states
        return 0 if is_loaded else int(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), answer.transaction_states

    return {state.transactional_id for state in retried(ask)[1] if state.transaction_state == "Ongoing"}


@pytest.mark.slow
@pytest.mark.parametrize("first", ["kraftlog", "kafka"])
@pytest.mark.timeout(240)
def test_open_transactions_go_on_in_the_other_server(java: Java, tmp_path: Path, first: str) -> None:
    """PSTA-86, TXNC-105: last stable offset, aborted transactions, sequences and epochs are what they were."""
    kraftlog, kafka = KraftlogServer(tmp_path / "kraftlog", CONFIG), KafkaServer(tmp_path / "kafka", java, CONFIG)
    source, target = (kraftlog, kafka) if first == "kraftlog" else (kafka, kraftlog)
    keys = ("done", "dropped", "commits", "aborts", "old", "forgotten")
    with source.running():
        create_topic(source.bootstrap, TOPIC)
        with RawClient(source.bootstrap, timeout_s=40) as client:
            find_coordinators(client)
            producers: dict[str, Producer] = {key: begin(client, key) for key in keys}
            values = {key: f"{producer[0]}:{key}".encode() for key, producer in producers.items()}
            for key in ("done", "dropped"):
                assert write(client, key, producers[key], 0, values[key]) == 0
                code, producer_id, epoch = retried(
                    lambda key=key: end(client, key, producers[key], commit=key == "done")
                )
                assert code == 0
                producers[key] = producer_id, epoch
                wait_until_complete(client, key)
            # A client of transaction version 1 adds its partitions itself.
            assert retried(lambda: add(client, "old", producers["old"], (TOPIC, 0))) == [0]
            records = batch(producers["old"], 0, values["old"])
            assert retried(lambda: produce(client, TOPIC, records, key="old", version=9)) == 0
            for key in ("commits", "aborts", "forgotten"):
                assert write(client, key, producers[key], 0, values[key]) == 0
            assert commit_offset(client, "commits", producers["commits"], 7, version=5) == 0
        source.stop()
    copy_of(source, target)
    with target.running(), RawClient(target.bootstrap, timeout_s=40) as client:
        find_coordinators(client)
        assert open_transactions(client) == {"commits", "aborts", "old", "forgotten"}
        _, partition = read(client, TOPIC)
        assert partition.last_stable_offset == 4
        assert committed_offset(client)[0] == ErrorCode.UNSTABLE_OFFSET_COMMIT
        # More of the open transactions, then their ends, each with the epoch that it had.
        for key in ("commits", "aborts"):
            assert write(client, key, producers[key], 1, values[key]) == 0
            code, producer_id, epoch = retried(
                lambda key=key: end(client, key, producers[key], commit=key == "commits")
            )
            assert (code, producer_id, epoch) == (0, producers[key][0], producers[key][1] + 1)
        assert retried(lambda: end(client, "old", producers["old"], version=3))[0] == 0
        assert begin(client, "forgotten")[0] == producers["forgotten"][0]
        # A producer that had ended its transaction before begins the next one.
        assert write(client, "done", producers["done"], 0, values["done"]) == 0
        assert retried(lambda: end(client, "done", producers["done"]))[0] == 0
        for key in ("commits", "aborts", "old", "done"):
            wait_until_complete(client, key)
        assert sorted(committed(client)) == sorted([values["done"]] * 2 + [values["commits"]] * 2 + [values["old"]])
        assert committed_offset(client) == (0, 7)
        assert write(client, "commits", producers["commits"], 2, b"late") == ErrorCode.INVALID_PRODUCER_EPOCH
