"""The client against librdkafka's mock cluster: another implementation of brokers, with three of them."""

from __future__ import annotations

import time

import pytest

import kraftlog
from integration.client.mock_cluster import mock_cluster
from kraftlog.types import TopicPartition

pa = pytest.importorskip("pyarrow")
pytest.importorskip("confluent_kafka")
RECORDS = 300


# An answer that cannot be read must not end the thread of a consumer that is being closed.
pytestmark = pytest.mark.filterwarnings("error::pytest.PytestUnhandledThreadExceptionWarning")


@pytest.fixture(scope="module")
def bootstrap():
    with mock_cluster() as servers:
        with kraftlog.Producer(bootstrap_servers=servers, compression_type="lz4") as producer:
            for number in range(RECORDS):
                producer.send("codecs", b"%d" % number, partition=number % 3)
        yield servers


def test_rows_times_and_topics_are_read(bootstrap):
    table = pa.table(kraftlog.read(bootstrap, "codecs"))
    assert sorted(map(int, table["value"].to_pylist())) == list(range(RECORDS))
    with kraftlog.Consumer(bootstrap_servers=bootstrap) as consumer:
        assert consumer.end_offsets([("codecs", 0)]) == {TopicPartition("codecs", 0): RECORDS // 3}
        assert "codecs" in consumer.list_topics()


@pytest.mark.parametrize("protocol", ["auto", "classic"])
def test_group_reads_all_rows_and_commits(bootstrap, protocol):
    """A heartbeat that names topics without an empty pattern beside them ended the mock.

    The mock offers JoinGroup 6, SyncGroup 4 and LeaveGroup 4 with the arrays of the versions before them: it closed the
    connection, and a classic group never began.
    """
    settings = {"auto_offset_reset": "earliest", "group_id": f"g-{protocol}", "group_protocol": protocol}
    with kraftlog.Consumer(bootstrap_servers=bootstrap, heartbeat_interval_ms=200, **settings) as consumer:
        consumer.subscribe(["codecs"])
        rows = 0
        deadline = time.monotonic() + 40
        while rows < RECORDS:
            assert time.monotonic() < deadline, consumer.assignment
            batch = consumer.poll(1)
            rows += 0 if batch is None else len(batch)
        consumer.commit()
        assert consumer.committed([("codecs", 0)])[TopicPartition("codecs", 0)].offset == RECORDS // 3


def test_transactions_are_committed(bootstrap):
    with kraftlog.Producer(bootstrap_servers=bootstrap, transactional_id="t") as producer:
        producer.init_transactions()
        with producer.transaction():
            producer.send("transactions", b"x")
    with kraftlog.Consumer(bootstrap_servers=bootstrap) as consumer:
        consumer.assign([("transactions", 0)])
        consumer.seek(("transactions", 0), 0)
        assert consumer.poll_records(20)[0].value == b"x"
