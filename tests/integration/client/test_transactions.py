"""Transactions of ``kraftlog.Producer`` on a kraftlog node, with ``transaction.version`` 2; Kafka: tests/interop."""

from __future__ import annotations

import pytest

import kraftlog
import transactional_producer_story as story
from kraftlog.client.config import ClientConfigError
from kraftlog.errors import KafkaError


@pytest.fixture(scope="module")
def bootstrap():
    with kraftlog.Broker() as broker:
        for topic in ("both", "fence", "source", "target", "fail"):
            broker.create_topic(topic, partitions=2 if topic == "both" else 1)
        yield broker.bootstrap_servers


def test_committed_transactions_are_visible_and_aborted_ones_never(bootstrap):
    story.commits_and_aborts(bootstrap, "both")


def test_a_newer_producer_fences_the_older_one(bootstrap):
    story.newer_producer_fences_the_older(bootstrap, "fence")


def test_offsets_are_part_of_the_transaction(bootstrap):
    story.offsets_are_part_of_the_transaction(bootstrap, "source", "target")


def test_a_transaction_with_a_failed_batch_has_to_be_aborted(bootstrap):
    story.failed_batch_has_to_be_aborted(bootstrap, "fail")


def test_settings_and_order_of_calls_are_checked(bootstrap):
    with pytest.raises(ClientConfigError, match=r"transactional\.id needs acks=all"):
        kraftlog.Producer(bootstrap_servers=bootstrap, transactional_id="x", acks=1)
    with (
        kraftlog.Producer(bootstrap_servers=bootstrap) as producer,
        pytest.raises(KafkaError, match="INVALID_TXN_STATE"),
    ):
        producer.init_transactions()
    with (
        kraftlog.Producer(bootstrap_servers=bootstrap, transactional_id="order") as producer,
        pytest.raises(KafkaError, match="before init_transactions"),
    ):
        producer.begin_transaction()
