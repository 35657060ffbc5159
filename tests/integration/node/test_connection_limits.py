"""Limits of connections that change while a node runs: what is above them waits, as with Apache Kafka."""

from __future__ import annotations

import time
from pathlib import Path

import kraftlog
from kraftlog.vocabulary import ConfigResourceType
from kraftlog.wire.messages.api_versions import ApiVersionsRequest
from kraftlog.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from raw_client import RawClient


def alter(client: RawClient, key: str, value: str) -> None:
    change = IncrementalAlterConfigsRequest.AlterableConfig(name=key, config_operation=0, value=value)
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=ConfigResourceType.BROKER, resource_name="1", configs=[change]
    )
    response = client.call(IncrementalAlterConfigsRequest(resources=[resource])).responses[0]
    assert response.error_code == 0, response.error_message


def is_served(client: RawClient) -> bool:
    try:
        return client.call(ApiVersionsRequest(), 0).error_code == 0
    except TimeoutError:
        return False


def test_a_connection_above_the_limit_of_its_listener_waits_for_another_to_close(tmp_path: Path) -> None:
    with kraftlog.Broker(tmp_path) as broker, RawClient(broker.bootstrap_servers) as first:
        alter(first, "listener.name.plaintext.max.connections", "2")
        with RawClient(broker.bootstrap_servers) as second:
            assert is_served(second)
            with RawClient(broker.bootstrap_servers, timeout_s=0.3) as third:
                assert not is_served(third)
        with RawClient(broker.bootstrap_servers) as third:
            assert is_served(third)
        assert is_served(first)


def test_connections_above_the_rate_wait(tmp_path: Path) -> None:
    with kraftlog.Broker(tmp_path) as broker, RawClient(broker.bootstrap_servers) as first:
        alter(first, "max.connection.creation.rate", "2")
        waits = []
        for _ in range(24):
            began_s = time.monotonic()
            with RawClient(broker.bootstrap_servers) as client:
                assert is_served(client)
            waits.append(time.monotonic() - began_s)
        # Those of the first ten seconds may come at once: twenty, with the one from before. What a busy machine adds to
        # a wait shortens a later one, so that only half of the first ones and the sum of all are certain.
        assert sorted(waits[:15])[7] < 0.4
        assert sum(waits) > 3 * 0.4


def test_limits_of_a_listener_are_read_from_the_properties(tmp_path: Path) -> None:
    config = {"listener.name.plaintext.max.connections": "1"}
    with kraftlog.Broker(tmp_path, config=config) as broker, RawClient(broker.bootstrap_servers) as first:
        assert is_served(first)
        with RawClient(broker.bootstrap_servers, timeout_s=0.3) as second:
            assert not is_served(second)
