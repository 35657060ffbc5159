"""Invariants of the metadata quorum and of the metadata itself (docs/behaviours, areas 24 and 29)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any, TypeAlias

from kraftlog.testing.log_invariants import InvariantViolationError

if TYPE_CHECKING:
    from kraftlog.testing.world.node_machine import NodeMachine
    from kraftlog.testing.world.story import Story

__all__ = ["MetadataChecker"]

# Epoch, whether it leads, high watermark (-1 for unknown) and the epoch on disk.
_CoreState: TypeAlias = tuple[int, bool, int, int]


class _Life:
    """What one process is looked at for, and what it showed last."""

    __slots__ = (
        "core",
        "driver",
        "epoch",
        "high_watermark",
        "image_offset",
        "metadata",
        "number",
        "role",
        "state",
        "stored_epoch",
    )

    def __init__(self, number: int, metadata: Any, core: Any, driver: Any) -> None:
        self.number = number
        self.metadata, self.core, self.driver = metadata, core, driver
        # A role is another object in each epoch.
        self.role: Any = None
        self.epoch = self.stored_epoch = -1
        self.high_watermark: int | None = None
        self.state: _CoreState | None = None
        # The image itself changes in place.
        self.image_offset: int | None = None


class MetadataChecker:
    """Looks at the consensus core and the image of a node after each turn of its loop.

    Args:
        story: Gets elections.

    Attributes:
        looked: How often each rule had something to look at.
        election_count: Epochs that had a leader.
    """

    def __init__(self, story: Story) -> None:
        self._story = story
        self._leaders: dict[int, int] = {}
        self._epochs: dict[tuple[int, int], int] = {}
        self._lives: dict[int, _Life] = {}
        self._known: dict[int, tuple[int, int]] = {}
        self._epoch_at: dict[int, int] = {}
        self._states: dict[tuple[Any, int, int], Any] = {}
        self._latest: dict[tuple[int, Any, int], Any] = {}
        self._newest: dict[tuple[Any, int], Any] = {}
        self._high_watermark = 0
        self.looked: Counter[str] = Counter()
        self.election_count = 0

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
        core = life.core
        role, high_watermark, stored_epoch = core.role, core.high_watermark, life.driver.stored_epoch
        if (
            role is not life.role
            or role.epoch != life.epoch
            or high_watermark != life.high_watermark
            or stored_epoch != life.stored_epoch
        ):
            life.role, life.epoch = role, role.epoch
            life.high_watermark, life.stored_epoch = high_watermark, stored_epoch
            state = (core.epoch, core.is_leader, -1 if high_watermark is None else high_watermark, stored_epoch)
            before = life.state
            if state != before:
                life.state = state
                self._check_core(machine, core, before, state)
        image = life.metadata.image
        if image.offset != life.image_offset:
            self._check_image(machine, life, image)
            life.image_offset = image.offset

    def newest_state(self, topic_id: Any, index: int) -> Any:
        """A partition's metadata of the highest partition epoch that any node has had; None for an unknown one."""
        return self._newest.get((topic_id, index))

    def last_in_sync(self, topic_id: Any, index: int, min_insync_replicas: int) -> Any:
        """The in-sync replicas of the last state that had enough of them: no other replica was eligible after it.

        Source: KIP-966.
        """
        newest = self._newest[topic_id, index]
        for partition_epoch in range(newest.partition_epoch, -1, -1):
            state = self._states.get((topic_id, index, partition_epoch))
            if state is not None and len(state.isr) >= min_insync_replicas:
                return state.isr
        return newest.replicas

    def _check_core(
        self,
        machine: NodeMachine,
        core: Any,
        before: _CoreState | None,
        state: _CoreState,
    ) -> None:
        epoch, is_leader, high_watermark, stored_epoch = state
        place = (machine.node_id, machine.disk_number)
        self.looked["INV-04"] += 1
        highest = max(self._epochs.get(place, 0), 0 if before is None else before[0])
        if epoch < highest:
            self._fail("INV-04", f"{machine.name}: the epoch fell from {highest} to {epoch}")
        # An epoch that is not stored yet may be forgotten by the next process: nothing was promised with it.
        self._epochs[place] = max(self._epochs.get(place, 0), stored_epoch)
        if is_leader:
            self.looked["INV-01"] += 1
            leader = self._leaders.setdefault(epoch, machine.node_id)
            if leader != machine.node_id:
                self._fail("INV-01", f"{machine.name}: leads in epoch {epoch}, in which node {leader} led")
            if before is None or not before[1]:
                self.election_count += 1
                self._story.tell(machine.name, f"is the active controller in epoch {epoch}")
                self.looked["INV-07"] += 1
                if core.log_end_offset < self._high_watermark:
                    reason = f"{machine.name}: leads with log end {core.log_end_offset}, {self._high_watermark} was"
                    self._fail("INV-07", f"{reason} committed")
            if not core.is_voter and not core.is_own_voter_change_uncommitted:
                self._fail("INV-29", f"{machine.name}: leads and is no voter")
        elif before is not None and before[1]:
            self._story.tell(machine.name, f"is not the active controller any more, epoch {epoch}")
        if high_watermark > core.log_end_offset:
            self._fail("INV-05", f"{machine.name}: high watermark {high_watermark}, log end {core.log_end_offset}")
        # A new leader does not know it until a majority has fetched.
        known = self._known.get(machine.node_id, (0, -1))
        if high_watermark >= 0:
            if known[0] == machine.start_count and high_watermark < known[1]:
                self._fail("INV-05", f"{machine.name}: the high watermark fell from {known[1]} to {high_watermark}")
            self._known[machine.node_id] = (machine.start_count, high_watermark)
        self._high_watermark = max(self._high_watermark, high_watermark)

    def _check_image(self, machine: NodeMachine, life: _Life, image: Any) -> None:
        if life.image_offset is not None and image.offset < life.image_offset:
            self._fail("INV-08", f"{machine.name}: the image fell from offset {life.image_offset} to {image.offset}")
        self.looked["INV-08"] += 1
        if self._epoch_at.setdefault(image.offset, image.epoch) != image.epoch:
            reason = f"{machine.name}: offset {image.offset} has epoch {image.epoch}, elsewhere"
            self._fail("INV-08", f"{reason} {self._epoch_at[image.offset]}")
        for topic in image.topics:
            for index, partition in topic.partitions.items():
                self._check_partition(machine, topic, index, partition)
        self._check_fenced(machine, image)

    def _check_partition(self, machine: NodeMachine, topic: Any, index: int, partition: Any) -> None:
        name = f"{topic.name}-{index} in the metadata of {machine.name}"
        version = (partition.leader_epoch, partition.partition_epoch)
        place = (machine.node_id * 1_000_000 + machine.start_count, topic.topic_id, index)
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
            newest = self._newest.get((topic.topic_id, index))
            if newest is None or newest.partition_epoch < version[1]:
                self._newest[topic.topic_id, index] = partition
            eligible = f", eligible {partition.elr}" if partition.elr else ""
            state = f"leader {partition.leader} in epoch {version[0]}, in sync {partition.isr}{eligible}"
            self._story.tell(machine.name, f"learns that {topic.name}-{index} has {state}")
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


def _life_of(machine: NodeMachine) -> _Life | None:
    """The process that runs; None before it has a consensus core."""
    node = machine.node
    if node is None or not hasattr(node, "metadata") or not node.metadata.replica.is_opened:
        return None
    replica = node.metadata.replica
    if not hasattr(replica, "log") or not hasattr(replica.log, "raft"):
        return None
    return _Life(machine.start_count, node.metadata, replica.raft, replica.log.driver)
