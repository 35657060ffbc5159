"""Invariants of the metadata in the images of nodes (docs/behaviours, areas 24 and 29)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, TypeAlias

from kraftlog.features import ELIGIBLE_LEADER_REPLICAS_VERSION
from kraftlog.testing.log_invariants import InvariantViolationError
from kraftlog.testing.world.partition_change_checker import PartitionChangeChecker

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from kraftlog.testing.world.node_machine import NodeMachine
    from kraftlog.testing.world.story import Story

__all__ = ["MetadataChecker", "OnChange"]

OnChange: TypeAlias = "Callable[[str, Any, int, Any, Any], None]"
"""Takes where a new state of a partition was seen, id and index, the state before, None if unknown, and the state."""


class _Life:
    """What one process is looked at for, and what it showed last."""

    __slots__ = ("broker_epochs", "has_eligible_replicas", "image_offset", "metadata", "number")

    def __init__(self, number: int, metadata: Any) -> None:
        self.number = number
        self.metadata = metadata
        # The image itself changes in place.
        self.image_offset: int | None = None
        self.broker_epochs: dict[int, int] = {}
        self.has_eligible_replicas = False


class MetadataChecker:
    """Looks at the image of a node after each turn of its loop.

    Args:
        nodes: Of the cluster, by node id.
        story: Gets what nodes learn of partitions.

    Attributes:
        looked: How often each rule had something to look at.
        changes: Compares each state of a partition with the one before.
        on_change: Called with each new state of a partition; None for nobody.
    """

    def __init__(self, nodes: Mapping[int, NodeMachine], story: Story) -> None:
        self._nodes = nodes
        self._story = story
        self._lives: dict[int, _Life] = {}
        self._epoch_at: dict[int, int] = {}
        self._states: dict[tuple[Any, int, int], Any] = {}
        self._latest: dict[tuple[int, Any, int], Any] = {}
        self._newest: dict[tuple[Any, int], Any] = {}
        # Whether the newest image has eligible leader replicas, and the states that were seen without them.
        self._is_elr_enabled = True
        self._states_without_elr: set[tuple[Any, int, int]] = set()
        self.looked: Counter[str] = Counter()
        self.changes = PartitionChangeChecker(nodes, self.looked)
        self.on_change: OnChange | None = None

    def after_turn(self, machine: NodeMachine) -> None:
        """Check what changed on a node.

        Raises:
            InvariantViolationError: A rule is broken.
        """
        life = self._lives.get(machine.node_id)
        if life is None or life.number != machine.start_count:
            life = _life_of(machine)
            if life is None:
                return
            self._lives[machine.node_id] = life
        image = life.metadata.image
        if image.offset != life.image_offset:
            self._check_image(machine, life, image)
            life.image_offset = image.offset

    def newest_state(self, topic_id: Any, index: int) -> Any:
        """A partition's metadata of the highest partition epoch that any node has had; None for an unknown one."""
        return self._newest.get((topic_id, index))

    def last_in_sync(self, topic_id: Any, index: int, min_insync_replicas: int) -> Any:
        """The in-sync replicas of the last state that had enough of them: no other replica was eligible after it.

        Before eligible leader replicas were enabled, those in sync were the only ones, however few they were.

        Source: KIP-966.
        """
        newest = self._newest[topic_id, index]
        for partition_epoch in range(newest.partition_epoch, -1, -1):
            place = (topic_id, index, partition_epoch)
            state = self._states.get(place)
            if state is not None and (len(state.isr) >= min_insync_replicas or place in self._states_without_elr):
                return state.isr
        return newest.replicas

    def _check_image(self, machine: NodeMachine, life: _Life, image: Any) -> None:
        if life.image_offset is not None and image.offset < life.image_offset:
            self._fail("INV-08", f"{machine.name}: the image fell from offset {life.image_offset} to {image.offset}")
        self.looked["INV-08"] += 1
        if self._epoch_at.setdefault(image.offset, image.epoch) != image.epoch:
            reason = f"{machine.name}: offset {image.offset} has epoch {image.epoch}, elsewhere"
            self._fail("INV-08", f"{reason} {self._epoch_at[image.offset]}")
        self._check_registrations(machine, life, image)
        self.changes.note_settings(image)
        self._is_elr_enabled = bool(image.features.get(ELIGIBLE_LEADER_REPLICAS_VERSION))
        for topic in image.topics:
            for index, partition in topic.partitions.items():
                self._check_partition(machine, topic, index, partition)
        self._check_fenced(machine, image)

    def _check_partition(self, machine: NodeMachine, topic: Any, index: int, partition: Any) -> None:
        name = f"{topic.name}-{index} in the metadata of {machine.name}"
        version = (partition.leader_epoch, partition.partition_epoch)
        place = (_process(machine), topic.topic_id, index)
        last = self._latest.get(place)
        if last is partition:
            return
        self._latest[place] = partition
        self.looked["RINV-22"] += 1
        if last is not None and (version[0] < last.leader_epoch or version[1] < last.partition_epoch):
            before = (last.leader_epoch, last.partition_epoch)
            self._fail("RINV-22", f"{name}: leader and partition epoch fell from {before} to {version}")
        known = self._states.get((topic.topic_id, index, version[1]))
        if known is None:
            self._states[topic.topic_id, index, version[1]] = partition
            if not self._is_elr_enabled:
                self._states_without_elr.add((topic.topic_id, index, version[1]))
            newest = self._newest.get((topic.topic_id, index))
            if newest is None or newest.partition_epoch < version[1]:
                self._newest[topic.topic_id, index] = partition
            eligible = f", eligible {partition.elr}" if partition.elr else ""
            state = f"leader {partition.leader} in epoch {version[0]}, in sync {partition.isr}{eligible}"
            self._story.tell(machine.name, f"learns that {topic.name}-{index} has {state}")
            self._check_change(name, topic.topic_id, index, partition)
        elif known != partition:
            self._fail("RINV-22", f"{name}: partition epoch {version[1]} is {partition}, elsewhere {known}")
        self.looked["RINV-26"] += 1
        replicas, isr, elr = set(partition.replicas), set(partition.isr), set(partition.elr)
        problems = [
            (not replicas, "no replicas"),
            (not isr <= replicas or not elr <= replicas, "in-sync or eligible replicas that are none"),
            (isr & elr, "a replica is in sync and eligible"),
            (partition.has_leader and partition.leader not in isr, "the leader is not in sync"),
            (not {*partition.adding_replicas, *partition.removing_replicas} <= replicas, "a move of no replica"),
            (len(isr) != len(partition.isr) or len(replicas) != len(partition.replicas), "a replica twice"),
        ]
        for is_so, problem in problems:
            if is_so:
                self._fail("RINV-26", f"{name}: {problem}: {partition}")

    def _check_change(self, name: str, topic_id: Any, index: int, partition: Any) -> None:
        """A state is new: compare it with the one before, if that is known."""
        before = self._states.get((topic_id, index, partition.partition_epoch - 1))
        found = self.changes.broken(topic_id, index, before, partition)
        if found is not None:
            self._fail(found[0], f"{name}: {found[1]}")
        if self.on_change is not None:
            self.on_change(name, topic_id, index, before, partition)

    def _check_registrations(self, machine: NodeMachine, life: _Life, image: Any) -> None:
        """A broker that has registered again after an unclean end left the in-sync and the eligible sets with that.

        Without eligible leader replicas (level 0) it leaves them as a fenced broker does.
        """
        epochs = {broker_id: broker.epoch for broker_id, broker in image.cluster.brokers.items()}
        before, life.broker_epochs = life.broker_epochs, epochs
        had_eligible_replicas = life.has_eligible_replicas
        life.has_eligible_replicas = bool(image.features.get(ELIGIBLE_LEADER_REPLICAS_VERSION))
        anew = {
            broker_id
            for broker_id, epoch in epochs.items()
            if before.get(broker_id, epoch) < epoch and not self._nodes[broker_id].was_ended_cleanly
        }
        if not anew or not had_eligible_replicas:
            return
        self.looked["RINV-28"] += 1
        for topic in image.topics:
            for index, partition in topic.partitions.items():
                last = self._latest.get((_process(machine), topic.topic_id, index))
                kept = anew.intersection((*partition.isr, *partition.elr))
                if last is not None and kept and last.partition_epoch == partition.partition_epoch:
                    reason = f"{topic.name}-{index} in the metadata of {machine.name}: {sorted(kept)} ended uncleanly"
                    self._fail("RINV-28", f"{reason}, and counts on: {partition}")

    def _check_fenced(self, machine: NodeMachine, image: Any) -> None:
        """A fenced broker leads nothing, and is in sync only as the last one."""
        fenced = {broker_id for broker_id, broker in image.cluster.brokers.items() if broker.fenced}
        if not fenced:
            return
        self.looked["RINV-27"] += 1
        for topic in image.topics:
            for index, partition in topic.partitions.items():
                if partition.leader in fenced or (len(partition.isr) > 1 and fenced.intersection(partition.isr)):
                    reason = f"{topic.name}-{index} in the metadata of {machine.name}: fenced {sorted(fenced)}"
                    self._fail("RINV-27", f"{reason}, {partition}")

    def _fail(self, identifier: str, reason: str) -> None:
        raise InvariantViolationError(identifier, reason, self._story.last(40))


def _process(machine: NodeMachine) -> int:
    return machine.node_id * 1_000_000 + machine.start_count


def _life_of(machine: NodeMachine) -> _Life | None:
    """The process that runs; None before it has metadata."""
    node = machine.node
    if node is None or not hasattr(node, "metadata") or not node.metadata.replica.is_opened:
        return None
    return _Life(machine.start_count, node.metadata)
