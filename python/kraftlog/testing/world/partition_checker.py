"""Invariants of replicated partitions (docs/behaviours, area 29), read from the public state of running nodes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from kraftlog.errors import PoisonedLogError
from kraftlog.features import ELIGIBLE_LEADER_REPLICAS_VERSION
from kraftlog.testing.log_invariants import InvariantViolationError
from kraftlog.testing.world.move_checker import LATE_FETCH_MS, MoveChecker
from kraftlog.testing.world.partition_log_checker import PartitionLogChecker, ReplicaLog, ReplicaState
from kraftlog.testing.world.recovery import NO_CLEAN_LEADER

if TYPE_CHECKING:
    from kraftlog.testing.world.metadata_checker import MetadataChecker
    from kraftlog.testing.world.node_machine import NodeMachine
    from kraftlog.testing.world.story import Story

__all__ = ["PartitionChecker"]

_Key: TypeAlias = tuple[Any, int]
_RECOVERING = 1  # of a partition whose leader was elected uncleanly (KIP-704)


class _ReplicaLife:
    """What one replica showed since its process opened it.

    Attributes:
        partition: The replica.
        is_back: Whether it was removed in this process before.
        state: As it was last.
        log: What was read of its log.
        history: The epoch from which on its log has what is committed; see ``PartitionChecker.has_history``.
        is_read: Whether ``log`` was looked at in this history.
    """

    __slots__ = ("history", "is_back", "is_read", "log", "partition", "state")

    def __init__(self, partition: Any, *, is_back: bool) -> None:
        self.partition = partition
        self.is_back = is_back
        self.state: ReplicaState | None = None
        self.log = ReplicaLog()
        self.history = -1
        self.is_read = False


class _NodeLife:
    """The replicas of a node since its process began; those that are open are listed anew when the registry changes."""

    __slots__ = ("gone", "is_changed", "opened", "partitions", "replicas", "start_count")

    def __init__(self, start_count: int, partitions: Any) -> None:
        self.start_count = start_count
        self.partitions = partitions
        self.replicas: dict[_Key, _ReplicaLife] = {}
        self.opened: list[tuple[Any, Any, Any, _ReplicaLife]] = []
        # Those that were open at the look before the last one, and are not any more.
        self.gone: list[Any] = []
        self.is_changed = True
        partitions.add_listener(self._note_change)

    def _note_change(self, _partition: Any) -> None:
        self.is_changed = True

    def look(self) -> list[tuple[Any, Any, Any, _ReplicaLife]]:
        """Every partition that is open, its native replica, its log, and what it showed."""
        if self.is_changed or len(self.opened) != len(self.partitions):
            self.is_changed = False
            before = self.opened
            self.opened = [
                (partition, partition.replica, partition.log, self._life_of(partition)) for partition in self.partitions
            ]
            found = {id(partition) for partition, *_ in self.opened}
            self.gone = [partition for partition, *_ in before if id(partition) not in found]
        return self.opened

    def _life_of(self, partition: Any) -> _ReplicaLife:
        key = (partition.topic_id, partition.index)
        life = self.replicas.get(key)
        if life is None or life.partition is not partition:
            life = self.replicas[key] = _ReplicaLife(partition, is_back=life is not None)
        return life


class PartitionChecker:
    """Looks at every partition of a node after each turn of its loop, and closer at those that changed.

    Args:
        nodes: Of the cluster, by node id.
        metadata: Knows what any node learned of partitions.
        story: Gets the changes of leaders.

    Attributes:
        looked: How often each rule had something to look at.
        logs: Compares the bytes of replicas.
        leader_changes: Epochs in which a partition had a leader.
    """

    def __init__(self, nodes: dict[int, NodeMachine], metadata: MetadataChecker, story: Story) -> None:
        self._nodes = nodes
        self._metadata = metadata
        self._story = story
        self._lives: dict[int, _NodeLife] = {}
        self._leaders: dict[tuple[_Key, int], int] = {}
        # The newest leader epoch that had a leader, and the end of that leader's log when it began to lead.
        self._epoch_starts: dict[_Key, tuple[int, int]] = {}
        # The highest that any replica showed, and when.
        self._high_watermarks: dict[_Key, int] = {}
        self._leader_high_watermarks: dict[_Key, int] = {}
        # The leader epoch of the last unclean election by an operator's leave, and the highest high watermark since.
        self._lost_epochs: dict[_Key, int] = {}
        self._kept: dict[_Key, int] = {}
        self._raised_ms: dict[_Key, float] = {}
        self._log_starts: dict[tuple[int, Any, _Key], int] = {}
        # Nodes that had no replica of a partition for a time: their logs are deleted, perhaps by a process that never
        # opened them.
        self._moved_away: set[tuple[int, _Key]] = set()
        self._highest_starts: dict[tuple[str, int], int] = {}
        self.looked: Counter[str] = Counter()
        self.logs = PartitionLogChecker(self.looked)
        self._moves = MoveChecker(nodes, self._kept, self._raised_ms, self.looked)
        self.leader_changes = 0

    def after_turn(self, machine: NodeMachine) -> None:
        """Check what changed on a node.

        Raises:
            InvariantViolationError: A rule is broken.
        """
        life = self._lives.get(machine.node_id)
        if life is None or life.start_count != machine.start_count:
            node = machine.node
            if node is None or not hasattr(node, "replicas"):
                return
            life = self._lives[machine.node_id] = _NodeLife(machine.start_count, node.partitions)
        opened = life.look()
        if life.gone:
            self._check_gone(machine, life)
        for partition, native, log, replica in opened:
            state: ReplicaState = (
                native.high_watermark,
                native.leader_epoch,
                native.is_leader,
                log.log_start_offset,
                native.log_end_offset,
            )
            before = replica.state
            if state != before:
                replica.state = state
                self._check(machine, partition, replica, before, state)

    def _check_gone(self, machine: NodeMachine, life: _NodeLife) -> None:
        """A broker gives up a replica only once it has learned that the replica is to go."""
        gone, life.gone = life.gone, []
        if machine.node is None or machine.is_shutting_down or machine.is_disk_failing or machine.has_bad_disk:
            return
        image = machine.node.metadata.image
        for partition in gone:
            self.looked["RINV-32"] += 1
            topic = image.topics.by_id(partition.topic_id)
            wanted = None if topic is None else topic.partitions.get(partition.index)
            is_open = machine.node.partitions.get(partition.topic_id, partition.index) is not None
            if wanted is None or machine.node_id not in wanted.replicas:
                # Its log is deleted, and a later replica begins anew, in another process perhaps.
                key = (partition.topic_id, partition.index)
                self._log_starts.pop((machine.node_id, machine.replaced_count, key), None)
            elif not is_open:
                name = f"{partition.topic}-{partition.index} on {machine.name}"
                self._fail("RINV-32", f"{name}: its replica is gone, though it has one: {wanted}")

    def check_change(self, name: str, topic_id: Any, index: int, was: Any, now: Any) -> None:
        """The metadata of a partition has changed: enough replicas are left that have what is committed.

        Args:
            name: For messages: which partition, and where its new state was seen.
            topic_id: Of the topic.
            index: Of the partition.
            was: The state before; None if it is not known.
            now: The new state.

        Raises:
            InvariantViolationError: Too few are (RINV-33).
        """
        self._moved_away.update((node_id, (topic_id, index)) for node_id in self._nodes.keys() - set(now.replicas))
        lost_epoch = self._note_loss((topic_id, index))
        problem = self._moves.problem(topic_id, index, was, now)
        # Without the operator's leave nothing is lost, unless the last known leader leads and has lost its disk.
        is_sure = lost_epoch >= 0 or not self._metadata.changes.was_unclean(topic_id, index)
        if problem is not None and is_sure:
            self._fail("RINV-33", f"{name}: {problem}: {was} became {now}")

    def highest(self, topic_id: Any, index: int) -> int:
        """The highest high watermark of a partition that any replica showed."""
        return self._high_watermarks.get((topic_id, index), 0)

    def highest_start(self, topic: str, index: int) -> int:
        """The highest offset at which the log of any replica of a partition has begun."""
        return self._highest_starts.get((topic, index), 0)

    def lost_epoch(self, topic_id: Any, index: int) -> int:
        """The leader epoch of the last unclean election by an operator's leave; -1 if there was none."""
        return self._metadata.changes.lost_epoch(topic_id, index)

    def has_history(self, machine: NodeMachine, partition: Any) -> bool:
        """Whether the rules of committed records hold for a replica: it leads, or follows, in the present history.

        An unclean election by an operator's leave begins a history: that of the new leader's log. Other replicas have
        the records of another one until they have been truncated, which they have once they got records of its epochs.
        """
        life = self._lives.get(machine.node_id)
        replica = None if life is None else life.replicas.get((partition.topic_id, partition.index))
        if replica is None or replica.partition is not partition:
            return self.lost_epoch(partition.topic_id, partition.index) < 0
        native = partition.replica
        return self._joins(replica, native.leader_epoch, is_leader=native.is_leader)

    def _joins(self, replica: _ReplicaLife, leader_epoch: int, *, is_leader: bool) -> bool:
        partition = replica.partition
        lost_epoch = self._note_loss((partition.topic_id, partition.index))
        if replica.history < lost_epoch <= leader_epoch:
            try:
                entries = partition.log.epoch_entries()
            except PoisonedLogError:
                return False
            if is_leader or (entries and entries[-1][0] >= lost_epoch):
                replica.history, replica.is_read = lost_epoch, False
                replica.log = ReplicaLog()
        return replica.history >= lost_epoch

    def _note_loss(self, key: _Key) -> int:
        lost_epoch = self._metadata.changes.lost_epoch(*key)
        if lost_epoch > self._lost_epochs.get(key, -1):
            self._lost_epochs[key] = lost_epoch
            self._kept.pop(key, None)
            self._leader_high_watermarks.pop(key, None)
            self.logs.forget(key)
        return lost_epoch

    def check_kept(self) -> None:
        """Look through the logs of compacted partitions for what has to be there for good.

        Raises:
            InvariantViolationError: A replica lacks the newest record of a key.
        """
        for node_id, life in self._lives.items():
            machine = self._nodes[node_id]
            if machine.is_running and life.start_count == machine.start_count and not machine.has_bad_disk:
                for partition, *_ in life.look():
                    self.logs.check_kept(partition, f"{partition.topic}-{partition.index} on {machine.name}")

    def check_one_history(self) -> None:
        """After unclean elections, once the cluster has recovered: all replicas have one log, whatever was lost.

        Raises:
            InvariantViolationError: Two replicas of a partition differ (RINV-30).
        """
        found: dict[_Key, list[tuple[str, Any]]] = {}
        for node_id, life in self._lives.items():
            machine = self._nodes[node_id]
            if machine.is_running and life.start_count == machine.start_count and not machine.has_bad_disk:
                for partition, *_ in life.look():
                    if self.lost_epoch(partition.topic_id, partition.index) >= 0:
                        name = f"{partition.topic}-{partition.index} on {machine.name}"
                        found.setdefault((partition.topic_id, partition.index), []).append((name, partition))
        for replicas in found.values():
            self.logs.check_alike(replicas)

    def _check(
        self,
        machine: NodeMachine,
        partition: Any,
        replica: _ReplicaLife,
        before: ReplicaState | None,
        state: ReplicaState,
    ) -> None:
        high_watermark, leader_epoch, is_leader, log_start, log_end = state
        key = (partition.topic_id, partition.index)
        name = f"{partition.topic}-{partition.index} on {machine.name}"
        self.looked["RINV-07"] += 1
        if not log_start <= high_watermark <= log_end:
            self._fail("RINV-07", f"{name}: log start {log_start}, high watermark {high_watermark}, end {log_end}")
        place = (machine.node_id, machine.replaced_count, key)
        if before is None and (replica.is_back or (machine.node_id, key) in self._moved_away):
            self._moved_away.discard((machine.node_id, key))
            self._log_starts.pop(place, None)
        if log_start < self._log_starts.get(place, 0):
            self._fail("RINV-19", f"{name}: the log start fell from {self._log_starts[place]} to {log_start}")
        if log_start > self._log_starts.get(place, 0):
            names = (partition.topic, partition.index)
            self._highest_starts[names] = max(log_start, self._highest_starts.get(names, 0))
        self._log_starts[place] = log_start
        has_history = self._joins(replica, leader_epoch, is_leader=is_leader)
        if before is not None:
            if leader_epoch < before[1]:
                self._fail("RINV-22", f"{name}: the leader epoch fell from {before[1]} to {leader_epoch}")
            if is_leader and before[2] and leader_epoch == before[1] and high_watermark < before[0]:
                self._fail("RINV-07", f"{name}: the leader's high watermark fell from {before[0]} to {high_watermark}")
        has_led = before is not None and before[2]
        if is_leader and (before is None or not has_led or before[1] != leader_epoch):
            self._became_leader(machine, key, name, leader_epoch, log_end, partition.replica.min_insync_replicas)
        elif before is not None and has_led and high_watermark > before[0]:
            # A leader that resigned in this event may have raised it within the event.
            self._check_raised(partition, key, name, high_watermark, before[1])
        if before is not None and has_led:
            self._check_zombie(key, name, before, state)
        if has_history and (is_leader or has_led):
            self._leader_high_watermarks[key] = max(high_watermark, self._leader_high_watermarks.get(key, 0))
        elif has_history:
            self.looked["RINV-13"] += 1
            if high_watermark > self._leader_high_watermarks.get(key, 0):
                self._fail("RINV-13", f"{name}: high watermark {high_watermark}, which no leader has shown")
        if high_watermark > self._high_watermarks.get(key, 0):
            self._high_watermarks[key] = high_watermark
            self._raised_ms[key] = machine.world.now_ms
        if not has_history:
            return
        self._kept[key] = max(high_watermark, self._kept.get(key, 0))
        known, replica.is_read = before if replica.is_read else None, True
        try:
            self.logs.check(machine, partition, replica.log, name, known, state)
        except InvariantViolationError as error:
            raise InvariantViolationError(
                error.identifier, str(error).partition(" ")[2], self._story.last(40)
            ) from error

    def _became_leader(
        self, machine: NodeMachine, key: _Key, name: str, leader_epoch: int, log_end: int, min_insync_replicas: int
    ) -> None:
        self.looked["RINV-21"] += 1
        leader = self._leaders.get((key, leader_epoch))
        if leader is None:
            self._leaders[key, leader_epoch] = machine.node_id
            self._epoch_starts[key] = max((leader_epoch, log_end), self._epoch_starts.get(key, (-1, 0)))
            self.leader_changes += 1
            partition = name.split(maxsplit=1)[0]
            self._story.tell(machine.name, f"leads {partition} in epoch {leader_epoch}, log end {log_end}")
        elif leader != machine.node_id:
            self._fail("RINV-21", f"{name}: leads in epoch {leader_epoch}, in which node {leader} led")
        if leader_epoch < self._lost_epochs.get(key, -1):
            return
        highest = self._kept.get(key, 0)
        self.looked["RINV-23"] += 1
        if log_end < highest:
            self._check_cleanliness(key, name, leader_epoch, min_insync_replicas)
            self._check_last_disk(machine, key, name)
            self._fail("RINV-23", f"{name}: leads with log end {log_end}, {highest} was committed")

    def _check_zombie(self, key: _Key, name: str, before: ReplicaState, state: ReplicaState) -> None:
        """A leader that does not know that another one leads commits nothing which that one did not begin with.

        What it commits, every in-sync replica had acknowledged before; the next leader is one of these.
        """
        newest_epoch, start = self._epoch_starts.get(key, (-1, 0))
        changes = self._metadata.changes
        lost_epoch = changes.lost_epoch(*key)
        if before[1] >= newest_epoch or before[1] < lost_epoch or (lost_epoch < 0 and changes.was_unclean(*key)):
            return
        self.looked["RINV-25"] += 1
        if state[0] > before[0] and state[0] > start:
            reason = (
                f"the high watermark rose to {state[0]} in epoch {before[1]}, epoch {newest_epoch} began at {start}"
            )
            self._fail("RINV-25", f"{name}: {reason}")

    def _check_cleanliness(self, key: _Key, name: str, leader_epoch: int, min_insync_replicas: int) -> None:
        """End the run when the last known leader was elected after every eligible one may have lost committed records.

        The in-sync set and the eligible replicas are empty then, and the last known leader leads without an operator
        (CPRT-64), with an empty disk, for example. Nothing is promised of such a partition any more. If one of the
        replicas that were in sync when enough of them were never ended, it is eligible still, and what the new leader
        lacks breaks a rule.
        """
        image = self._metadata.newest_state(*key)
        if image is None or image.leader_epoch != leader_epoch or image.leader_recovery_state != _RECOVERING:
            return
        known = [self._nodes.get(replica) for replica in self._metadata.last_in_sync(*key, min_insync_replicas)]
        if all(machine is not None and machine.start_count > 1 for machine in known):
            self._fail(NO_CLEAN_LEADER, f"{name}: every replica may have lost committed records: {image}")

    def _check_last_disk(self, machine: NodeMachine, key: _Key, name: str) -> None:
        """End the run when the last in-sync replica leads with a disk that is newer than what was committed.

        It is elected when it registers again, as in Apache Kafka. With eligible leader replicas (level 1) such a leader
        breaks a rule.

        Source: ``ReplicationControlManager.handleBrokerShutdown`` of Kafka 4.3.1; KIP-966.
        """
        image = self._metadata.newest_state(*key)
        if image is None or machine.node is None or machine.node_id not in image.isr:
            return
        if self.has_lost_last_disk(*key, image, machine.node.metadata.image.features):
            self._fail(NO_CLEAN_LEADER, f"{name}: the disk of the last replica in sync was replaced: {image}")

    def has_lost_last_disk(self, topic_id: Any, index: int, partition: Any, features: Mapping[str, int]) -> bool:
        """Whether the last replica in sync has a disk that is newer than what was committed.

        Without eligible leader replicas (level 0) the last one stays in sync whatever becomes of its disk. With them
        (level 1) it leaves both sets and is the last known leader; if enough replicas were in sync by then, which one
        is with ``min.insync.replicas=1``, no other is eligible.

        Args:
            topic_id: Of the partition's topic.
            index: Of the partition.
            partition: Its metadata.
            features: Levels by feature.
        """
        last = partition.isr
        if features.get(ELIGIBLE_LEADER_REPLICAS_VERSION):
            last = () if partition.isr or partition.elr else partition.last_known_elr
        if len(last) != 1:
            return False
        machine = self._nodes.get(last[0])
        if machine is None or not machine.disk_since_ms:
            return False
        return machine.disk_since_ms > self._raised_ms.get((topic_id, index), 0.0) - LATE_FETCH_MS

    def _check_raised(self, partition: Any, key: _Key, name: str, high_watermark: int, leader_epoch: int) -> None:
        """The high watermark of a leader rose.

        The in-sync replicas are those of the newest metadata that any node has: from these the controller may elect
        (RINV-24). The leader's own image may be older than the answer that told it to drop a member.
        """
        image = self._metadata.newest_state(partition.topic_id, partition.index)
        if image is None or image.leader_epoch != leader_epoch:
            return
        self.looked["RINV-24"] += 1
        waited_for = partition.replica.maximal_isr
        if partition.replica.is_leader and not set(image.isr) <= set(waited_for):
            reason = f"{name}: the high watermark rose to {high_watermark} with {waited_for}, in sync are {image.isr}"
            self._fail("RINV-24", reason)
        self.looked["RINV-08"] += 1
        if image.partition_epoch == partition.replica.partition_epoch:
            self.looked["RINV-09"] += 1
            if len(image.isr) < min(partition.replica.min_insync_replicas, len(image.replicas)):
                reason = f"{name}: the high watermark rose to {high_watermark} with the in-sync replicas {image.isr}"
                self._fail("RINV-09", reason)
        for member in image.isr:
            machine = self._nodes.get(member)
            life = None if machine is None else self._lives.get(member)
            if machine is None or life is None or not machine.is_running or life.start_count != machine.start_count:
                continue
            replica = life.replicas.get(key)
            if replica is None or replica.state is None or replica.state[1] != leader_epoch:
                continue
            other = None if machine.node is None else machine.node.partitions.get(partition.topic_id, partition.index)
            if other is not None and other.replica.log_end_offset < high_watermark:
                reason = (
                    f"{name}: the high watermark rose to {high_watermark}, in-sync replica {member} has"
                    f" {other.replica.log_end_offset}"
                )
                self._fail("RINV-08", reason)

    def _fail(self, identifier: str, reason: str) -> None:
        raise InvariantViolationError(identifier, reason, self._story.last(40))
