"""What is printed when the state of a cluster changes, and what a later run reads of an earlier one."""

from __future__ import annotations

import pytest

from kraftlog.cluster.layout import NodeAddresses, StoredCluster, node_properties
from kraftlog.cluster.state import ClusterState, PartitionState
from kraftlog.errors import ClusterError

BEFORE = ClusterState(
    controller_id=1,
    controller_epoch=3,
    brokers=(1, 2, 3),
    partitions={
        ("orders", 0): PartitionState(leader=1, leader_epoch=0, replicas=(1, 2, 3), isr=(1, 2, 3)),
        ("orders", 1): PartitionState(leader=2, leader_epoch=0, replicas=(2, 3, 1), isr=(1, 2, 3)),
        ("old", 0): PartitionState(leader=2, leader_epoch=0, replicas=(2,), isr=(2,)),
    },
)


def test_nothing_is_said_without_a_change():
    assert list(BEFORE.changes_since(BEFORE)) == []


def test_each_change_is_one_line():
    after = ClusterState(
        controller_id=-1,
        controller_epoch=4,
        brokers=(2, 3, 4),
        partitions={
            ("orders", 0): PartitionState(leader=-1, leader_epoch=1, replicas=(1, 2, 4), isr=(2,)),
            ("orders", 1): PartitionState(leader=2, leader_epoch=0, replicas=(2, 3, 1), isr=(2, 3)),
            ("new", 0): PartitionState(leader=3, leader_epoch=0, replicas=(3,), isr=(3,)),
        },
    )
    assert list(after.changes_since(BEFORE)) == [
        "controller none, epoch 4",
        "broker 4 is in service",
        "broker 1 is fenced or gone",
        "old was deleted",
        "new-0: leader 3, ISR [3], replicas [3]",
        "orders-0: leader 1 -> none (epoch 1), ISR [1,2,3] -> [2], replicas [1,2,3] -> [1,2,4]",
        "orders-1: ISR [1,2,3] -> [2,3]",
    ]


def addresses(node_id: int, *, is_controller: bool = True) -> NodeAddresses:
    base = 20_000 + 10 * node_id
    return NodeAddresses(node_id, is_controller, base, base + 1, base + 2, base + 3)


def test_addresses_are_read_back(tmp_path):
    assert StoredCluster.read(tmp_path) is None
    stored = StoredCluster("a-cluster", (addresses(1), addresses(2, is_controller=False)), has_proxies=True)
    stored.write(tmp_path)
    assert StoredCluster.read(tmp_path) == stored


@pytest.mark.parametrize("text", ["", "[]", '{"nodes": [{"node_id": 1}]}'])
def test_a_damaged_file_is_named(tmp_path, text):
    (tmp_path / "cluster.json").write_text(text)
    with pytest.raises(ClusterError, match=r"cluster\.json"):
        StoredCluster.read(tmp_path)


def test_nodes_listen_behind_their_proxies_and_settings_of_the_caller_win(tmp_path):
    nodes = [addresses(number) for number in (1, 2, 3)] + [addresses(4, is_controller=False)]
    properties = node_properties(nodes[0], nodes, tmp_path, {"min.insync.replicas": "3"})
    assert properties["listeners"] == "PLAINTEXT://127.0.0.1:20010,CONTROLLER://127.0.0.1:20011"
    assert properties["advertised.listeners"] == "PLAINTEXT://127.0.0.1:20012,CONTROLLER://127.0.0.1:20013"
    assert properties["controller.quorum.bootstrap.servers"] == "127.0.0.1:20013,127.0.0.1:20023,127.0.0.1:20033"
    assert properties["min.insync.replicas"] == "3"
    assert properties["default.replication.factor"] == "3"
    broker = node_properties(nodes[3], nodes, tmp_path, {})
    assert broker["process.roles"] == "broker"
    assert broker["listeners"] == "PLAINTEXT://127.0.0.1:20040"
