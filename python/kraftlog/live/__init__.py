"""Bounded reads of a live cluster, with the interface that scans of directories have."""

from __future__ import annotations

from kraftlog.live.cluster_scan import ClusterScan, read

__all__ = ["ClusterScan", "read"]
