"""``kraftlog transactions`` against a live node: what it prints, finds and aborts."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator

import pytest

import kraftlog
from kraftlog._kraftlog import encode_batch
from kraftlog.cli.transactions import main
from kraftlog.wire.messages.find_coordinator import FindCoordinatorRequest
from raw_client import RawClient
from transaction_requests import add, batch, begin, produce, read

CONFIG = {
    "transaction.state.log.num.partitions": "3",
    "transaction.state.log.min.isr": "1",
    # So that a transaction which no coordinator knows can be left on a partition.
    "transaction.partition.verification.enable": "false",
}
HOUR_MS = 3_600_000
UNKNOWN = (99_999, 4)
Run = Callable[..., tuple[int, str, str]]


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[kraftlog.Broker]:
    with kraftlog.Broker(tmp_path_factory.mktemp("data"), config=CONFIG) as one:
        one.create_topic("t", partitions=2)
        with RawClient(one.bootstrap_servers) as client:
            client.call(FindCoordinatorRequest(key_type=1, coordinator_keys=["any"]))
        yield one


@pytest.fixture
def client(broker: kraftlog.Broker) -> Iterator[RawClient]:
    with RawClient(broker.bootstrap_servers) as one:
        yield one


@pytest.fixture
def run(broker: kraftlog.Broker, capsys: pytest.CaptureFixture[str]) -> Run:
    def go(*arguments: str) -> tuple[int, str, str]:
        status = main(["--bootstrap-server", broker.bootstrap_servers, *arguments])
        printed = capsys.readouterr()
        return status, printed.out, printed.err

    return go


def old_batch(producer: tuple[int, int]) -> bytes:
    then_ms = time.time_ns() // 1_000_000 - HOUR_MS
    return encode_batch(
        [(then_ms, b"k", b"old", ())],
        producer_id=producer[0],
        producer_epoch=producer[1],
        base_sequence=0,
        transactional=True,
    )


DESCRIBED = [
    "CoordinatorId",
    "TransactionalId",
    "ProducerId",
    "ProducerEpoch",
    "TransactionState",
    "TransactionTimeoutMs",
    "CurrentTransactionStartTimeMs",
    "TransactionDurationMs",
    "TopicPartitions",
]


@pytest.mark.spec("TXNC-118", "TXNC-119")
def test_transactions_are_listed_and_described(run: Run, client: RawClient) -> None:
    producer = begin(client, "seen")
    add(client, "seen", producer, ("t", 1))
    assert produce(client, "t", batch(producer, 0), key="seen", version=11, index=1) == 0
    _, out, _ = run("list")
    lines = [line.split() for line in out.splitlines()]
    assert lines[0] == ["TransactionalId", "Coordinator", "ProducerId", "TransactionState"]
    assert ["seen", "1", str(producer[0]), "Ongoing"] in lines
    assert json.loads(run("list", "--transactional-id-pattern", "no.*", "--json")[1]) == []
    assert json.loads(run("list", "--duration-filter", "1000000", "--json")[1]) == []
    status, out, _ = run("describe", "--transactional-id", "seen", "--json")
    (row,) = json.loads(out)
    assert status == 0
    assert (row["ProducerId"], row["TransactionState"], row["TopicPartitions"]) == (producer[0], "Ongoing", "t-1")
    assert 0 <= row["TransactionDurationMs"] < HOUR_MS
    begin(client, "idle")
    names, idle = (line.split() for line in run("describe", "--transactional-id", "idle")[1].splitlines())
    assert names == list(row) == DESCRIBED
    assert idle[DESCRIBED.index("CurrentTransactionStartTimeMs")] == "None"
    status, _, err = run("describe", "--transactional-id", "unseen")
    assert (status, "TRANSACTIONAL_ID_NOT_FOUND" in err) == (1, True)
    (row,) = json.loads(run("describe-producers", "--topic", "t", "--partition", "1", "--json")[1])
    assert (row["ProducerId"], row["LastSequence"], row["CurrentTransactionStartOffset"]) == (producer[0], 0, 0)
    assert run("describe-producers", "--topic", "nosuch", "--partition", "0")[0] == 1


@pytest.mark.spec("TXNC-120", "TXNC-121", "TXNC-122")
def test_a_hanging_transaction_is_found_and_aborted(run: Run, client: RawClient) -> None:
    alive = begin(client, "alive")
    add(client, "alive", alive, ("t", 0))
    assert produce(client, "t", old_batch(alive), key="alive", version=11) == 0
    assert produce(client, "t", old_batch(UNKNOWN), key="lost", version=11) == 0
    _, out, _ = run("find-hanging", "--topic", "t", "--json")
    (row,) = json.loads(out)
    found = {key: row[key] for key in ("Topic", "Partition", "ProducerId", "ProducerEpoch", "StartOffset")}
    assert found == {
        "Topic": "t",
        "Partition": 0,
        "ProducerId": UNKNOWN[0],
        "ProducerEpoch": UNKNOWN[1],
        "StartOffset": 1,
    }, "the coordinator will end the other one"
    assert 59 <= row["Duration(min)"] <= 61
    assert json.loads(run("find-hanging", "--broker-id", "1", "--max-transaction-timeout", "90", "--json")[1]) == []
    assert json.loads(run("find-hanging", "--topic", "t", "--partition", "1", "--json")[1]) == []
    status, _, err = run("abort", "--topic", "t", "--partition", "0", "--start-offset", "77")
    assert (status, "Could not find any open transactions starting at offset 77" in err) == (1, True)
    assert run("abort", "--topic", "t", "--partition", "0", "--start-offset", "1")[0] == 0
    assert json.loads(run("find-hanging", "--topic", "t", "--json")[1]) == []
    values, partition = read(client, "t")
    assert values == [], "the first is still open"
    assert partition.last_stable_offset == 0
    # TXNC-121: a coordinator epoch below 0 is sent as 0.
    by_producer = ("--producer-id", str(alive[0]), "--producer-epoch", str(alive[1]), "--coordinator-epoch", "-1")
    assert run("abort", "--topic", "t", "--partition", "0", *by_producer)[0] == 0
    rows = json.loads(run("describe-producers", "--topic", "t", "--partition", "0", "--json")[1])
    assert [row["LatestCoordinatorEpoch"] for row in rows] == [0, 0]
    _, partition = read(client, "t")
    assert partition.last_stable_offset == partition.high_watermark
    assert sorted(entry.producer_id for entry in partition.aborted_transactions) == sorted([alive[0], UNKNOWN[0]])


@pytest.mark.parametrize(
    "arguments",
    [
        ["find-hanging"],
        ["find-hanging", "--broker-id", "1", "--partition", "0"],
        ["find-hanging", "--topic", "nosuch"],
        ["abort", "--topic", "t", "--partition", "0"],
        ["abort", "--topic", "t", "--partition", "0", "--producer-id", "1"],
        ["abort", "--topic", "t", "--partition", "9", "--start-offset", "0"],
        ["describe-producers", "--topic", "t", "--partition", "9"],
    ],
)
def test_what_cannot_be_done_is_refused_with_a_reason(run: Run, arguments: list[str]) -> None:
    status, _, err = run(*arguments)
    assert (status, bool(err)) == (1, True)


@pytest.mark.spec("TXNC-121")
def test_abort_names_a_producer_with_both_epochs_and_a_negative_one_of_the_coordinator_is_0(
    run: Run, client: RawClient
) -> None:
    hanging = (99_998, 2)
    assert produce(client, "t", old_batch(hanging), key="lost too", version=11) == 0
    place = ("--topic", "t", "--partition", "0", "--producer-id", str(hanging[0]))
    for missing in ([], ["--producer-epoch", "2"], ["--coordinator-epoch", "1"]):
        status, _, err = run("abort", *place, *missing)
        assert (status, bool(err)) == (1, True)
    status, _, err = run("abort", *place, "--producer-epoch", "2", "--coordinator-epoch", "-7")
    assert (status, err) == (0, "")
    rows = json.loads(run("describe-producers", "--topic", "t", "--partition", "0", "--json")[1])
    (row,) = [found for found in rows if found["ProducerId"] == hanging[0]]
    assert (row["LatestCoordinatorEpoch"], row["CurrentTransactionStartOffset"]) == (0, None)
