"""Kafka's server-side assignors of consumer groups (KIP-848), with Kafka's exact results."""

from __future__ import annotations

from collections.abc import Callable, Mapping

from kraftlog.coordinator.group.assignors.range import assign_range
from kraftlog.coordinator.group.assignors.specification import Assignment, GroupSpec, MemberSpec
from kraftlog.coordinator.group.assignors.uniform import assign_uniform

__all__ = ["ASSIGNORS", "Assignment", "Assignor", "GroupSpec", "MemberSpec"]

Assignor = Callable[[GroupSpec], dict[str, Assignment]]
ASSIGNORS: Mapping[str, Assignor] = {"uniform": assign_uniform, "range": assign_range}
