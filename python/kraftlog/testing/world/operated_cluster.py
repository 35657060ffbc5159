"""What an operator changes in a cluster while it runs."""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable, Coroutine, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from kraftlog.features import FEATURES, LATEST_PRODUCTION, METADATA_VERSION
from kraftlog.testing.world.administration import Administration
from kraftlog.vocabulary import INTERNAL_TOPICS, ConfigResourceType

if TYPE_CHECKING:
    from kraftlog.testing.world.checkers import Checkers
    from kraftlog.testing.world.node_machine import NodeMachine

__all__ = ["OperatedCluster"]


class OperatedCluster(ABC):
    """The part of a ``Cluster`` that asks its controllers for changes. The story has what they answer.

    Args:
        nodes: Of the cluster, by name.
        checkers: Are told which changes of voters have succeeded.
        checks: Whether they are.
    """

    def __init__(self, nodes: Mapping[str, NodeMachine], checkers: Checkers, *, checks: bool) -> None:
        self.nodes = nodes
        self.checkers = checkers
        self.checks = checks
        self._administration: Administration | None = None
        self._changes: list[asyncio.Task[None]] = []

    @abstractmethod
    def tell(self, who: str, what: str) -> None:
        """Add a line to the story."""

    @abstractmethod
    def begin(self, coroutine: Coroutine[Any, Any, Any], *, client: str) -> asyncio.Task[Any]:
        """Begin a task on the machine of a client."""

    @property
    def controller(self) -> str | None:
        """The active controller, as the node with the highest epoch that leads; None for none."""
        leaders = [
            (machine.node.metadata.replica.leader_epoch, name)
            for name, machine in self.nodes.items()
            if machine.is_serving and machine.node is not None and machine.node.metadata.is_leader
        ]
        return max(leaders)[1] if leaders else None

    def assignments(self) -> list[tuple[str, int, tuple[int, ...]]]:
        """Topic, index and replicas of every partition, sorted, as the active controller knows them."""
        image = self._image
        return sorted(
            (topic.name, index, tuple(partition.replicas))
            for topic in (() if image is None else image.topics)
            for index, partition in topic.partitions.items()
        )

    def growing_topics(self) -> dict[str, int]:
        """Partitions of the topics that may get more, by name, as the active controller knows them.

        Those of Kafka's own topics, and of compacted ones, keep their number, as a key has to keep its partition.
        """
        image = self._image
        if image is None:
            return {}
        policies = {
            topic.name: image.configs.get(ConfigResourceType.TOPIC, topic.name).get("cleanup.policy", "")
            for topic in image.topics
        }
        return {
            topic.name: len(topic.partitions)
            for topic in image.topics
            if topic.name not in INTERNAL_TOPICS and "compact" not in policies[topic.name]
        }

    @property
    def _image(self) -> Any:
        """The metadata of the active controller; None for none."""
        controller = self.controller
        node = None if controller is None else self.nodes[controller].node
        return None if node is None else node.metadata.image

    def update_feature(self, feature: str, level: int | None = None) -> None:
        """Begin to upgrade a feature to a level, the newest one if None; the story has the answer."""
        if level is None:
            level = LATEST_PRODUCTION.feature_level if feature == METADATA_VERSION else FEATURES[feature].latest
        wanted = level
        self._change(f"{feature} is {wanted}", lambda operator: operator.update_feature(feature, wanted))

    def remove_voter(self, name: str) -> None:
        """Begin to make a controller an observer of the metadata quorum."""
        self._change_voters(name, is_voter=False)

    def add_voter(self, name: str) -> None:
        """Begin to make a controller a voter again."""
        self._change_voters(name, is_voter=True)

    def _change_voters(self, name: str, *, is_voter: bool) -> None:
        machine = self.nodes[name]

        async def change(operator: Administration) -> str:
            answer = await (operator.add_voter(machine) if is_voter else operator.remove_voter(machine))
            if self.checks and answer == "NONE":
                self.checkers.check_voter_change(machine, is_voter=is_voter)
            return answer

        self._change(f"{name} is {'a' if is_voter else 'no'} voter", change)

    def move_partition(self, topic: str, partition: int, replicas: Sequence[int]) -> None:
        """Begin to move a partition to the brokers with these ids, the preferred leader first."""
        where = ", ".join(map(str, replicas))
        self._change(
            f"{topic}-{partition} is on {where}", lambda operator: operator.move(topic, partition, tuple(replicas))
        )

    def cancel_move(self, topic: str, partition: int) -> None:
        """Begin to give up the move of a partition, if it is moved."""
        self._change(f"{topic}-{partition} stays where it is", lambda operator: operator.move(topic, partition, None))

    def move_directory(self, name: str, topic: str, partition: int, directory: int) -> None:
        """Begin to move the replica that a broker has of a partition to another of its log directories, by index."""
        machine = self.nodes[name]
        self._change(
            f"{name} has {topic}-{partition} in directory {directory + 1}",
            lambda operator: operator.move_directory(machine, topic, partition, directory),
        )

    def grow_topic(self, topic: str, count: int) -> None:
        """Begin to add partitions to a topic until it has so many."""
        self._change(f"{topic} has {count} partitions", lambda operator: operator.grow(topic, count))

    def configure(self, kind: ConfigResourceType, resource: str, name: str, value: str | None) -> None:
        """Begin to give a setting of a topic, of a broker or, with "", of all brokers a value, its default if None."""
        owner = f"{kind.name.lower()} {resource}" if resource else "every broker"
        self._change(
            f"{owner} has {name}={'its default' if value is None else value}",
            lambda operator: operator.configure(kind, resource, name, value),
        )

    def elect_preferred(self, topic: str, partition: int) -> None:
        """Begin to have the preferred replica of a partition lead."""
        self._change(
            f"the first replica of {topic}-{partition} leads",
            lambda operator: operator.elect_preferred(topic, partition),
        )

    @property
    def is_changing(self) -> bool:
        """Whether a change by the operator has no answer yet.

        Raises:
            RuntimeError: A change was not one that could be asked for.
        """
        done = [change for change in self._changes if change.done()]
        self._changes = [change for change in self._changes if not change.done()]
        for change in done:
            change.result()
        return bool(self._changes)

    def _change(self, what: str, change: Callable[[Administration], Coroutine[Any, Any, str]]) -> None:
        if self._administration is None:
            controllers = [node for node in self.nodes.values() if "controller" in node.roles]
            self._administration = Administration(controllers)
        operator = self._administration

        async def work() -> None:
            self.tell("operator", f"asks that {what}")
            self.tell("operator", f"hears of its wish that {what}: {await change(operator)}")

        self._changes.append(self.begin(work(), client="operator"))
