"""What a node answers on its controller listener: versions, features, the quorum and the controllers."""

from __future__ import annotations

import asyncio

import pytest

from kraftlog.errors import ErrorCode
from kraftlog.node.config import NodeConfig
from kraftlog.node.node import Node
from kraftlog.node.standalone import format_when_needed, standalone_properties
from kraftlog.wire.messages.api_versions import ApiVersionsRequest
from kraftlog.wire.messages.describe_cluster import DescribeClusterRequest
from kraftlog.wire.messages.describe_quorum import DescribeQuorumRequest
from kraftlog.wire.registry import API_BY_KEY
from raw_client import RawClient

METADATA = DescribeQuorumRequest.TopicData(
    topic_name="__cluster_metadata", partitions=(DescribeQuorumRequest.PartitionData(partition_index=0),)
)
ASK = ApiVersionsRequest(client_software_name="test", client_software_version="1")


@pytest.fixture
def ask(tmp_path):
    """Run ``asking(controller, broker, ports)`` with a client on each listener of a node with ports of its own."""

    def run(asking):
        async def main():
            properties = standalone_properties(tmp_path / "data", port=0, is_durable=False, changes={})
            config = NodeConfig(properties)
            format_when_needed(config)
            node = Node(config)
            await node.start()
            try:
                ports = {end_point.listener_name: end_point.port for end_point in node.end_points()}

                def work():
                    with (
                        RawClient(f"127.0.0.1:{ports['CONTROLLER']}") as controller,
                        RawClient(f"127.0.0.1:{ports['PLAINTEXT']}") as broker,
                    ):
                        asking(controller, broker, ports)

                await asyncio.to_thread(work)
            finally:
                await node.stop()

        asyncio.run(main())

    return run


@pytest.mark.spec("ENDP-23", "ENDP-24", "ENDP-25", "ENDP-26", "KVER-02", "KVER-03")
def test_api_versions_of_each_listener(ask):
    def asking(controller, broker, _):
        served = {}
        for name, client in (("controller", controller), ("broker", broker)):
            for version in range(5):
                found = client.call(ASK, version)
                assert found.error_code == 0
                served[name] = {
                    api_key.api_key: (api_key.min_version, api_key.max_version) for api_key in found.api_keys
                }
                features = {
                    supported_feature.name: (supported_feature.min_version, supported_feature.max_version)
                    for supported_feature in found.supported_features
                }
                if version < 3:
                    assert not features
                elif version == 3:  # a feature that begins at 0 would confuse clients before KIP-1022
                    assert features == {"metadata.version": (7, 30)}
                else:
                    assert features["kraft.version"] == (0, 1)
                    assert features["group.version"] == (0, 1)
                if version >= 3:
                    levels = {
                        finalized_feature.name: finalized_feature.max_version_level
                        for finalized_feature in found.finalized_features
                    }
                    assert levels["kraft.version"] == 1
                    assert levels["metadata.version"] == 30
                    assert all(levels.values())
        expected = {key for key, api in API_BY_KEY.items() if "controller" in api.listeners}
        assert set(served["controller"]) <= expected
        assert {52, 53, 54, 59, 80, 81, 82} <= set(served["controller"])
        assert not {52, 53, 54, 59} & set(served["broker"])
        assert {0, 3, 11} <= set(served["broker"])
        assert not {0, 3, 11} & set(served["controller"])
        # A version that nobody has is answered in version 0, whatever was asked.
        number = controller.send(ASK, 4)
        assert controller.receive(18, 4)[0] == number
        frame = bytes.fromhex("00120005 00000063 0001 78 00".replace(" ", ""))
        controller.sock.sendall(len(frame).to_bytes(4, "big") + frame)
        assert controller.receive(18, 0)[1].error_code == ErrorCode.UNSUPPORTED_VERSION

    ask(asking)


@pytest.mark.spec("ENDP-18", "ENDP-20", "ENDP-30")
def test_describe_quorum_tells_the_bound_port_from_version_2_on(ask):
    def asking(controller, broker, ports):
        for client in (controller, broker):
            for version in range(3):
                found = client.call(DescribeQuorumRequest(topics=(METADATA,)), version)
                assert found.topics[0].partitions[0].leader_id == 1
                listeners = {
                    node.node_id: [(each.name, each.host, each.port) for each in node.listeners] for node in found.nodes
                }
                # The checkpoint of the format has port 0; the leader has written where it really listens.
                expected = {1: [("CONTROLLER", "127.0.0.1", ports["CONTROLLER"])]}
                assert listeners == (expected if version >= 2 else {})

    ask(asking)


@pytest.mark.spec("ENDP-31")
def test_describe_cluster_tells_controllers_to_those_who_ask_controllers(ask):
    def asking(controller, broker, ports):
        found = controller.call(DescribeClusterRequest(endpoint_type=2))
        assert (found.error_code, found.endpoint_type, found.controller_id) == (0, 2, 1)
        assert [(broker.broker_id, broker.port) for broker in found.brokers] == [(1, ports["CONTROLLER"])]
        for client, wrong in ((controller, 1), (broker, 2)):
            refused = client.call(DescribeClusterRequest(endpoint_type=wrong))
            assert refused.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE
            assert not refused.brokers
        unknown = controller.call(DescribeClusterRequest(endpoint_type=7))
        assert unknown.error_code == ErrorCode.UNSUPPORTED_ENDPOINT_TYPE

    ask(asking)
