"""``cordoned.log.dirs`` (KIP-1066): what a broker reports, where replicas go, and what a restart finds."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import kraftlog
from kraftlog.errors import ErrorCode
from kraftlog.node.config import NodeConfig
from kraftlog.node.node import Node
from kraftlog.node.standalone import format_when_needed, standalone_properties
from kraftlog.vocabulary import ConfigResourceType
from kraftlog.wire.messages.alter_configs import AlterConfigsRequest
from kraftlog.wire.messages.create_topics import CreateTopicsRequest
from kraftlog.wire.messages.describe_log_dirs import DescribeLogDirsRequest
from kraftlog.wire.messages.incremental_alter_configs import IncrementalAlterConfigsRequest
from raw_client import RawClient
from waiting import until_true

KEY = "cordoned.log.dirs"
SET, DELETE, APPEND, SUBTRACT = range(4)


def alter(client: RawClient, operation: int, value: str | None, broker_id: str) -> int:
    change = IncrementalAlterConfigsRequest.AlterableConfig(name=KEY, config_operation=operation, value=value)
    resource = IncrementalAlterConfigsRequest.AlterConfigsResource(
        resource_type=ConfigResourceType.BROKER, resource_name=broker_id, configs=[change]
    )
    return client.call(IncrementalAlterConfigsRequest(resources=[resource])).responses[0].error_code


def replace(client: RawClient, value: str, broker_id: str) -> int:
    resource = AlterConfigsRequest.AlterConfigsResource(
        resource_type=ConfigResourceType.BROKER,
        resource_name=broker_id,
        configs=[AlterConfigsRequest.AlterableConfig(name=KEY, value=value)],
    )
    return client.call(AlterConfigsRequest(resources=[resource])).responses[0].error_code


def create_error(client: RawClient, name: str) -> int:
    topic = CreateTopicsRequest.CreatableTopic(name=name, num_partitions=2, replication_factor=1)
    return client.call(CreateTopicsRequest(topics=[topic], validate_only=True)).topics[0].error_code


def cordoned(client: RawClient) -> set[str]:
    results = client.call(DescribeLogDirsRequest(topics=None), 5).results
    return {Path(result.log_dir).name for result in results if result.is_cordoned}


def placed(path: Path, topic: str) -> dict[str, int]:
    return {name: len(list((path / name).glob(f"{topic}-*"))) for name in ("a", "b")}


def test_new_replicas_stay_out_of_cordoned_directories(tmp_path: Path) -> None:
    """RDLT-45: of a running broker, of one that starts with the key, and of one whose key was altered before."""
    first, second = str(tmp_path / "a"), str(tmp_path / "b")
    options: dict[str, Any] = {"log_dirs": f"{first},{second}", "auto_create_topics_enable": False}
    with (
        kraftlog.Broker(tmp_path / "a", **options, cordoned_log_dirs="*") as broker,
        RawClient(broker.bootstrap_servers) as client,
    ):
        assert cordoned(client) == {"a", "b"}
        assert create_error(client, "t") == ErrorCode.INVALID_REPLICATION_FACTOR
        assert alter(client, SET, "/nowhere", "1") == ErrorCode.INVALID_REQUEST
        assert alter(client, SET, first, "") == ErrorCode.INVALID_REQUEST, "it is of one broker"
        assert alter(client, SET, first, "1") == ErrorCode.NONE
        until_true(lambda: create_error(client, "t") == ErrorCode.NONE)
        broker.create_topic("t", partitions=2)
        assert (cordoned(client), placed(tmp_path, "t")) == ({"a"}, {"a": 0, "b": 2})
        assert alter(client, APPEND, "*", "1") == ErrorCode.INVALID_REQUEST
        assert alter(client, APPEND, second, "1") == ErrorCode.NONE
        until_true(lambda: create_error(client, "u") == ErrorCode.INVALID_REPLICATION_FACTOR)
        assert alter(client, SUBTRACT, first, "1") == ErrorCode.NONE
        until_true(lambda: create_error(client, "u") == ErrorCode.NONE)
    # The altered key counts more than the one of the start, also before the first heartbeat and the first log.
    with kraftlog.Broker(tmp_path / "a", **options) as broker, RawClient(broker.bootstrap_servers) as client:
        until_true(lambda: cordoned(client) == {"b"})
        broker.create_topic("u", partitions=2)
        assert placed(tmp_path, "u") == {"a": 2, "b": 0}
        assert alter(client, DELETE, None, "1") == ErrorCode.NONE
        until_true(lambda: not cordoned(client))


def test_controller_that_is_asked_itself_only_takes_directories_away(tmp_path: Path) -> None:
    async def main() -> None:
        properties = standalone_properties(tmp_path / "a", port=0, is_durable=False, changes={})
        config = NodeConfig(properties | {"log.dirs": f"{tmp_path / 'a'},{tmp_path / 'b'}"})
        format_when_needed(config)
        node = Node(config)
        await node.start()
        try:
            ports = {end_point.listener_name: end_point.port for end_point in node.end_points()}
            await asyncio.to_thread(ask, ports, str(node.config.node_id))
        finally:
            await node.stop()

    def ask(ports: dict[str, int], broker_id: str) -> None:
        first, second = str(tmp_path / "a"), str(tmp_path / "b")
        with (
            RawClient(f"127.0.0.1:{ports['CONTROLLER']}") as controller,
            RawClient(f"127.0.0.1:{ports['PLAINTEXT']}") as broker,
        ):
            for change in (alter, lambda client, _, value, name: replace(client, value, name)):
                assert change(controller, SET, first, broker_id) == ErrorCode.INVALID_CONFIG
                assert change(broker, SET, f"{first},{second}", broker_id) == ErrorCode.NONE
                assert change(controller, SET, first, broker_id) == ErrorCode.NONE
                assert change(controller, SET, second, broker_id) == ErrorCode.INVALID_CONFIG
                assert change(controller, SET, "", broker_id) == ErrorCode.NONE
            assert alter(controller, APPEND, first, broker_id) == ErrorCode.INVALID_CONFIG
            assert alter(controller, DELETE, None, broker_id) == ErrorCode.NONE

    asyncio.run(main())
