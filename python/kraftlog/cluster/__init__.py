"""``kraftlog.Cluster``: several nodes in processes of their own, with the faults that a test of a cluster needs."""

from __future__ import annotations

from kraftlog.cluster.cluster import Cluster
from kraftlog.cluster.node_process import NodeProcess
from kraftlog.cluster.state import ClusterState, PartitionState

__all__ = ["Cluster", "ClusterState", "NodeProcess", "PartitionState"]
