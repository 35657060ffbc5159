"""Drawn histories of what a broker reports to the controller: in-sync sets, and the directories of replicas.

``IsrChanges`` and ``DirectoryAssignments`` are the product's. The partitions propose as the product's do: one change at
a time, in force until it is decided. The controller decides late, refuses, fails, or decides and its answer is lost.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from types import SimpleNamespace
from typing import Any

from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.runtime.replica.directory_assignments import DirectoryAssignments
from kraftlog.runtime.replica.isr_changes import IsrChanges
from kraftlog.testing.log_invariants import InvariantViolationError
from kraftlog.types import Uuid
from kraftlog.wire.messages.alter_partition import AlterPartitionResponse
from kraftlog.wire.messages.assign_replicas_to_dirs import AssignReplicasToDirsResponse
from virtual_loop import VirtualLoop

STEPS = 200
SELF = 1
_LATEST_VERSION = 3
_TOP_LEVEL = (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.NOT_CONTROLLER, ErrorCode.UNKNOWN_SERVER_ERROR)
# What a controller may answer although it takes the change, or has taken it before.
_UNCLEAR = (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NOT_CONTROLLER)
_DIRECTORIES = tuple(Uuid(bytes([number] * 16)) for number in (201, 202, 203))


def violated(rule: str, reason: str) -> InvariantViolationError:
    return InvariantViolationError(rule, reason, [])


@dataclass(slots=True, eq=False)
class Led:
    """A partition that this broker leads, as the product's partitions behave towards ``IsrChanges``.

    Attributes:
        isr: The confirmed set.
        pending: The change in flight.
        real_isr, real_epoch, real_leader_epoch: What the controller has committed.
        proposed: The members of every change, by number.
        taken: Those that the controller has taken.
    """

    world: ChangeHistory
    topic_id: Uuid
    index: int = 0
    isr: tuple[int, ...] = (1, 2, 3)
    leader_epoch: int = 1
    partition_epoch: int = 1
    pending: int | None = None
    real_isr: tuple[int, ...] = (1, 2, 3)
    real_epoch: int = 1
    real_leader_epoch: int = 1
    proposed: dict[int, tuple[int, ...]] = field(default_factory=dict)
    taken: set[int] = field(default_factory=set)
    refused: set[int] = field(default_factory=set)

    @property
    def replica(self) -> Led:
        return self

    def __str__(self) -> str:
        return f"partition {self.topic_id}"

    def propose(self) -> None:
        """A follower caught up, or fell behind."""
        if self.pending is not None:
            return
        world = self.world
        other = world.rng.choice((2, 3))
        members = tuple(sorted({*self.isr} ^ {other}))
        world.numbers += 1
        self.pending = world.numbers
        self.proposed[self.pending] = members
        world.counts["proposed"] += 1
        epochs = [(member, 100 + member) for member in members]
        world.changes.submit(self, (self.pending, self.leader_epoch, self.partition_epoch, epochs))

    def is_proposal_pending(self, number: int) -> bool:
        return self.pending == number

    def isr_committed(self, number: int, *, leader_epoch: int, partition_epoch: int, isr: list[int]) -> bool:
        if self.pending != number or leader_epoch != self.leader_epoch or partition_epoch < self.partition_epoch:
            return False
        self.pending, self.isr, self.partition_epoch = None, tuple(isr), partition_epoch
        if self.world.rng.random() < 0.3:
            # The next fetch of a follower, which waited for the lock.
            self.propose()
        return True

    def isr_refused(self, number: int) -> None:
        if number in self.taken:
            raise violated("RINV-64", f"{self.proposed[number]} is in force, and its leader does not wait for it")
        self.refused.add(number)
        if self.pending == number:
            self.pending = None
            if self.world.rng.random() < 0.3:
                self.propose()

    def learn(self) -> None:
        """The metadata comes: a newer partition epoch ends the change in flight."""
        if (self.real_leader_epoch, self.real_epoch) > (self.leader_epoch, self.partition_epoch):
            self.leader_epoch, self.partition_epoch = self.real_leader_epoch, self.real_epoch
            self.isr, self.pending = self.real_isr, None

    def decide(self, data: Any, members: tuple[int, ...]) -> int:
        """The controller's decision, as of ``ReplicationControlManager.alterPartition``."""
        if data.leader_epoch < self.real_leader_epoch:
            return int(ErrorCode.FENCED_LEADER_EPOCH)
        if data.partition_epoch < self.real_epoch:
            return int(ErrorCode.INVALID_UPDATE_VERSION)
        numbers = [number for number, proposed in self.proposed.items() if proposed == members]
        if not numbers:
            raise violated("RINV-68", f"the controller gets the in-sync set {members}, proposed were {self.proposed}")
        if self.world.rng.random() < self.world.chance("refusal"):
            return int(ErrorCode.INELIGIBLE_REPLICA)
        number = numbers[-1]
        if number in self.refused and self.pending != number:
            raise violated("RINV-64", f"{members} is taken after its leader gave it up")
        self.taken.add(number)
        self.real_isr, self.real_epoch = members, self.real_epoch + 1
        return 0


class ChangeHistory:
    """One history; ``play`` runs it.

    Args:
        seed: Of all chance.
    """

    def __init__(self, seed: int) -> None:
        self.rng = rng = Random(f"{seed}/changes")
        self.counts: Counter[str] = Counter()
        self.loop = VirtualLoop()
        self.numbers = 0
        self.is_calm = False
        self.version = rng.choice((2, _LATEST_VERSION))
        self.unrest = {name: rng.choice((0.0, 0.1, 0.4)) for name in ("top", "unclear", "refusal", "loss", "failure")}
        self.led = [Led(self, Uuid(bytes([number] * 16))) for number in range(1, rng.randint(2, 5))]
        # Requests that the controller has not decided yet.
        self.requests: list[tuple[asyncio.Future[Any], Callable[[], Any]]] = []
        # Where replicas lie, as the metadata says and as this broker has reported; some are not its replicas any more.
        self.placed: dict[tuple[Uuid, int], Uuid] = {}
        self.reported: dict[tuple[Uuid, int], Uuid] = {}
        self.is_here = {(Uuid(bytes([100 + number] * 16)), 0): True for number in range(4)}
        with self.loop.running():
            self.changes = IsrChanges(SELF, lambda: 7, self)
            self.directories = DirectoryAssignments(SELF, lambda: 7, lambda: self, self)
        names = ("propose", "learn", "elect", "decide", "assign", "leave", "time", "turn")
        self.weights = {name: rng.choice((1, 3, 6)) for name in names}

    def chance(self, name: str) -> float:
        return 0.0 if self.is_calm else self.unrest[name]

    # -- the way to the controller, and the metadata ------------------------------------------------------------

    async def request(self, message: Any, *, in_version: Callable[[int], Any] | None = None) -> Any:
        future: asyncio.Future[Any] = self.loop.create_future()
        decide = self.assigned if in_version is None else self.altered
        wanted = message if in_version is None else in_version(self.version)
        self.requests.append((future, lambda: decide(wanted)))
        return await future

    def altered(self, request: Any) -> Any:
        if self.rng.random() < self.chance("top"):
            return AlterPartitionResponse(error_code=self.rng.choice(_TOP_LEVEL))
        topics = []
        for topic in request.topics:
            (led,) = [led for led in self.led if led.topic_id == topic.topic_id]
            for data in topic.partitions:
                members = tuple(data.new_isr)
                if self.version >= _LATEST_VERSION:
                    members = tuple(state.broker_id for state in data.new_isr_with_epochs)
                code = led.decide(data, members)
                self.counts[f"decision {code}"] += 1
                if self.rng.random() < self.chance("unclear"):
                    code = int(self.rng.choice(_UNCLEAR))
                answer = AlterPartitionResponse.PartitionData(
                    partition_index=0,
                    error_code=code,
                    leader_id=SELF,
                    leader_epoch=led.real_leader_epoch,
                    isr=list(led.real_isr),
                    partition_epoch=led.real_epoch,
                )
                topics.append(AlterPartitionResponse.TopicData(topic_id=topic.topic_id, partitions=[answer]))
        return AlterPartitionResponse(topics=topics)

    def assigned(self, request: Any) -> Any:
        if self.rng.random() < self.chance("top"):
            return AssignReplicasToDirsResponse(error_code=self.rng.choice(_TOP_LEVEL))
        answered = AssignReplicasToDirsResponse
        directories = []
        for directory in request.directories:
            topics = []
            for topic in directory.topics:
                code = 0
                if self.rng.random() < self.chance("refusal"):
                    code = int(ErrorCode.UNKNOWN_SERVER_ERROR)
                else:
                    self.placed[topic.topic_id, 0] = directory.id
                    self.counts["placed"] += 1
                data = answered.PartitionData(partition_index=0, error_code=code)
                topics.append(answered.TopicData(topic_id=topic.topic_id, partitions=[data]))
            directories.append(answered.DirectoryData(id=directory.id, topics=topics))
        return AssignReplicasToDirsResponse(directories=directories)

    @property
    def topics(self) -> Any:
        return self

    def by_id(self, topic_id: Uuid) -> Any:
        key = (topic_id, 0)
        replicas = (SELF, 2) if self.is_here[key] else (2, 3)
        placed = self.placed.get(key)
        return SimpleNamespace(partitions={0: SimpleNamespace(replicas=replicas, directory=lambda _broker: placed)})

    # -- events -----------------------------------------------------------------------------------------------------

    def propose(self) -> None:
        self.rng.choice(self.led).propose()

    def learn(self) -> None:
        self.rng.choice(self.led).learn()

    def elect(self) -> None:
        """The controller changes a partition by itself: a fenced member leaves, or the leader has a new epoch."""
        led = self.rng.choice(self.led)
        if self.rng.random() < 0.3:
            led.real_epoch += 1
            led.real_leader_epoch += self.rng.randrange(2)

    def decide(self) -> None:
        if not self.requests:
            return
        future, decision = self.requests.pop(0)
        if future.done():
            return
        if self.rng.random() < self.chance("failure"):
            future.set_exception(KafkaError(ErrorCode.BROKER_NOT_AVAILABLE))
            return
        answer = decision()
        if self.rng.random() < self.chance("loss"):
            self.counts["lost"] += 1
            future.set_exception(KafkaError(ErrorCode.REQUEST_TIMED_OUT))
        else:
            future.set_result(answer)

    def assign(self) -> None:
        """A replica was made, or moved to another directory."""
        key = self.rng.choice(list(self.is_here))
        if self.is_here[key]:
            self.reported[key] = self.rng.choice(_DIRECTORIES)
            self.directories.assign(key, self.reported[key])

    def leave(self) -> None:
        """A replica is reassigned to another broker, or back."""
        key = self.rng.choice(list(self.is_here))
        self.is_here[key] = not self.is_here[key]
        self.reported.pop(key, None)

    def time(self) -> None:
        self.loop.turn(self.rng.choice((0.01, 0.06, 1.0)))

    def turn(self) -> None:
        self.loop.turn()

    def play(self) -> Counter[str]:
        """Run the history, then let the controller answer: nothing may be in flight for ever.

        Returns:
            How often what happened.

        Raises:
            InvariantViolationError: A rule is broken.
        """
        names, weights = list(self.weights), list(self.weights.values())
        try:
            for name in self.rng.choices(names, weights, k=STEPS):
                self.happen(name)
            self.is_calm = True
            for _ in range(30):
                for name in ("turn", "decide", "turn"):
                    self.happen(name)
                for led in self.led:
                    led.learn()
                self.loop.turn(0.5 if self.loop.now_s < 1e6 else 0.0)
            self.check_end()
        finally:
            self.loop.end()
        return self.counts

    def happen(self, name: str) -> None:
        if name in {"time", "turn"}:
            getattr(self, name)()
        else:
            with self.loop.running():
                getattr(self, name)()

    def check_end(self) -> None:
        for led in self.led:
            if led.pending is not None and led.pending not in led.taken:
                raise violated("RINV-69", f"{led.proposed[led.pending]} was never decided")
            if (led.isr, led.partition_epoch) != (led.real_isr, led.real_epoch):
                raise violated("RINV-65", f"the in-sync set is {led.isr} here, {led.real_isr} on the controller")
        for key, directory in self.reported.items():
            if self.is_here[key] and self.placed.get(key) != directory:
                raise violated("RINV-88", f"{key} lies in {directory}, the controller has {self.placed.get(key)}")
