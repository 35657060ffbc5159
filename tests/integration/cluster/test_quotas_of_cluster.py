"""Client quotas of several nodes: forwarded changes are charged to the client, and followers are held to no quota."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import kraftlog
from kraftlog._kraftlog import encode_batch
from kraftlog.errors import ErrorCode
from kraftlog.types import Uuid
from kraftlog.wire.messages.alter_client_quotas import AlterClientQuotasRequest
from kraftlog.wire.messages.api_versions import ApiVersionsRequest
from kraftlog.wire.messages.create_topics import CreateTopicsRequest, CreateTopicsResponse
from kraftlog.wire.messages.produce import ProduceRequest
from raw_client import RawClient
from waiting import until_true

_Alter = AlterClientQuotasRequest


def limit(client: RawClient, kind: str, name: str | None, key: str, value: float) -> None:
    entity = [_Alter.EntityData(entity_type=kind, entity_name=name)]
    entry = _Alter.EntryData(entity=entity, ops=[_Alter.OpData(key=key, value=value, remove=False)])
    assert client.call(_Alter(entries=[entry])).entries[0].error_code == 0


def create(client: RawClient, name: str, client_id: str) -> CreateTopicsResponse:
    topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=2, replication_factor=1)
    response: CreateTopicsResponse = client.call(CreateTopicsRequest(topics=[topic], timeout_ms=30_000), 7, client_id)
    return response


@pytest.mark.timeout(240)
@pytest.mark.spec("CERR-36", "RFET-16")
@pytest.mark.parametrize("fetches", ["python", "native"])
def test_clients_of_each_node_are_throttled_and_followers_are_not(tmp_path: Path, fetches: str) -> None:
    settings: dict[str, Any] = {"min_insync_replicas": 2, "kraftlog_follower_fetches": fetches}
    with kraftlog.Cluster(nodes=2, data_dir=tmp_path / "cluster", **settings) as cluster:
        controller = cluster.controller
        broker = cluster.nodes[next(node_id for node_id in cluster.nodes if node_id != controller)]
        with RawClient(broker.bootstrap_server) as operator:
            limit(operator, "client-id", "maker", "controller_mutation_rate", 0.01)
            assert create(operator, "others", "other").topics[0].error_code == 0
            with RawClient(broker.bootstrap_server, timeout_s=2) as client:
                assert create(client, "first", "maker").topics[0].error_code == 0
                refused = create(client, "second", "maker")
                assert refused.topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
                assert 100_000 < refused.throttle_time_ms < 190_000, "1.89 tokens at 0.01 a second"
                client.send(ApiVersionsRequest(), 3, "maker")
                with pytest.raises(TimeoutError):
                    client.receive(ApiVersionsRequest.API_KEY, 3)
            assert create(operator, "more", "other").topics[0].error_code == 0

            limit(operator, "user", None, "consumer_byte_rate", 1)
            limit(operator, "user", None, "request_percentage", 1_000)
        cluster.create_topic("orders", replication_factor=2)
        cluster.wait_until_in_sync()
        leader = cluster.nodes[cluster.leader("orders")]
        data = ProduceRequest.PartitionProduceData(
            index=0, records=encode_batch([(1_700_000_000_000, None, bytes(200_000), [])])
        )
        topic = ProduceRequest.TopicProduceData(name="orders", topic_id=Uuid.ZERO, partition_data=[data])
        request = ProduceRequest(acks=-1, timeout_ms=20_000, topic_data=[topic])
        with RawClient(leader.bootstrap_server) as producer:

            def is_committed() -> bool:
                """The follower has it, although a client would wait for 200 000 seconds."""
                response = producer.call(request, 11)
                return bool(response.responses[0].partition_responses[0].error_code == 0)

            until_true(is_committed)
            assert is_committed()
