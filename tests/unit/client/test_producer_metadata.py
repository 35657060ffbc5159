"""What a producer does with answers about its topics, and without them (KIP-899, KIP-1102)."""

from __future__ import annotations

import asyncio

import pytest

from kraftlog.client.config import ClientConfig
from kraftlog.client.producer_metadata import ProducerMetadata
from kraftlog.client.state.cluster_metadata import ClusterMetadata, Node
from kraftlog.errors import ErrorCode, KafkaError, KraftlogError, RemoteProtocolError
from kraftlog.wire.messages.metadata import MetadataResponse

KNOWN = {1: Node(1, "a", 9092)}
BROKER = MetadataResponse.MetadataResponseBroker(node_id=2, host="b", port=9092)


class Asked:
    """Connections to a cluster that gives one answer, or fails with one error."""

    def __init__(self, result):
        self.result = result
        self.topics = []

    async def any_node(self, nodes):
        if isinstance(self.result, KraftlogError):
            raise self.result
        return nodes[1]

    async def ask(self, _node, request):
        self.topics.append([topic.name for topic in request.topics])
        return self.result, 13


def after(result, *, is_needed=True, **settings):
    """The cluster as it is known after one request, which a batch waits for or none does."""

    async def run():
        cluster = ClusterMetadata()
        cluster.nodes = dict(KNOWN)
        config = ClientConfig({"bootstrap.servers": "x:1", "retry.backoff.ms": "1", **settings}, "producer")
        metadata = ProducerMetadata(config, Asked(result), cluster)
        metadata.use("t")
        if is_needed:
            metadata.want("t")
        await metadata.refresh_in_background()
        return cluster

    return asyncio.run(run())


def answer(**fields):
    return MetadataResponse(brokers=[BROKER], topics=[], cluster_id="c", **fields)


def test_an_answer_names_the_brokers():
    assert list(after(answer()).nodes) == [2]


@pytest.mark.parametrize("strategy", ["rebootstrap", "none"])
def test_known_brokers_are_left_only_if_the_producer_may_start_again(strategy):
    settings = {"metadata.recovery.strategy": strategy}
    expected = {} if strategy == "rebootstrap" else KNOWN
    unreachable = KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "no known broker can be reached")
    assert after(unreachable, **settings).nodes == expected
    assert after(answer(error_code=ErrorCode.REBOOTSTRAP_REQUIRED), **settings).nodes == expected


def test_a_broker_that_knows_none_and_one_that_does_not_answer_change_nothing():
    assert after(MetadataResponse(brokers=[], topics=[], cluster_id=None)).nodes == KNOWN
    late = KafkaError(ErrorCode.REQUEST_TIMED_OUT, "no answer")
    assert after(late).nodes == KNOWN
    # Nothing came for as long as the producer waits before it starts again.
    assert after(late, **{"metadata.recovery.rebootstrap.trigger.ms": "0"}).nodes == {}


@pytest.mark.parametrize(
    "error",
    [KafkaError(ErrorCode.SASL_AUTHENTICATION_FAILED, "no such user"), RemoteProtocolError("not Kafka's protocol")],
)
def test_an_error_that_stays_is_raised_if_a_batch_waits_and_a_warning_otherwise(error, caplog):
    with pytest.raises(type(error)):
        after(error)
    assert not caplog.records
    assert after(error, is_needed=False).nodes == KNOWN
    assert "is old, and no newer one comes" in caplog.text
