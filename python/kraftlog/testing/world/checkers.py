"""Everything that looks for broken rules in a cluster (docs/behaviours, areas 24 and 29)."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from kraftlog.testing.log_invariants import InvariantViolationError
from kraftlog.testing.world.answer_checker import AnswerChecker
from kraftlog.testing.world.election_requests import ElectionRequests
from kraftlog.testing.world.metadata_checker import MetadataChecker
from kraftlog.testing.world.node_machine import BROKER_PORT, CONTROLLER_PORT, NodeMachine
from kraftlog.testing.world.partition_checker import PartitionChecker
from kraftlog.testing.world.quorum_checker import QuorumChecker
from kraftlog.testing.world.raft_message_checker import RaftMessageChecker
from kraftlog.testing.world.visibility_checker import VisibilityChecker

if TYPE_CHECKING:
    from kraftlog.testing.world.network import ByteWatcher, SimulatedSocket
    from kraftlog.testing.world.story import Story
    from kraftlog.testing.world.world import World

__all__ = ["Checkers"]

# Between two looks for requests whose time is over, at least; a machine's time for a flush may change meanwhile.
_LOOK_MS: Final = 500.0
# A callback takes 5 us, so that a loop without a pause runs some 150 000 in a second.
_MOST_CALLBACKS_PER_S: Final = 50_000
_COUNTED_NS: Final = 1_000_000_000


class Checkers:
    """Looks at nodes after each turn of their loops, and at the bytes of all connections.

    Bytes are looked at within the code of a node, which may catch what is raised there: the first violation is kept
    until that code has returned.

    Args:
        nodes: Of the cluster, by node id.
        story: Gets elections and changes of leaders, and is shown with a broken rule.

    Attributes:
        quorum: Of the metadata quorum, or of a ``Quorum``: cores, logs and checkpoints.
        metadata: Of images.
        partitions: Of replicas.
    """

    def __init__(self, nodes: dict[int, NodeMachine], story: Story) -> None:
        self.quorum = QuorumChecker(nodes, story)
        self.metadata = MetadataChecker(nodes, story)
        self.partitions = PartitionChecker(nodes, self.metadata, story)
        self.metadata.on_change = self.partitions.check_change
        self._messages = RaftMessageChecker(CONTROLLER_PORT, self.quorum, story)
        self._visibility = VisibilityChecker(BROKER_PORT, self.partitions, story)
        self._answers = AnswerChecker(BROKER_PORT, story)
        self._controller_answers = AnswerChecker(CONTROLLER_PORT, story, rule="INV-31")
        self._elections = ElectionRequests(self.metadata.changes)
        self._of_bytes = (self._answers, self._controller_answers, self._messages, self._visibility)
        # By the port of a server's end, and of the peer of a client's end. Nodes are no consumers and no producers.
        self._of_servers: dict[int, tuple[ByteWatcher, ...]] = {
            BROKER_PORT: (self._answers, self._visibility, self._elections),
            CONTROLLER_PORT: (self._controller_answers, self._messages, self._elections),
        }
        self._of_clients: dict[int, tuple[ByteWatcher, ...]] = {CONTROLLER_PORT: (self._messages,)}
        self._violation: InvariantViolationError | None = None
        self._nodes, self._story = nodes, story
        # Callbacks of each node until the last look.
        self._counted: dict[int, int] = {}
        self._counted_since_ns = 0
        self._looked: Counter[str] = Counter()
        self._next_look_ns = 0

    @property
    def looked(self) -> Counter[str]:
        """How often each rule had something to look at."""
        checkers = (self.quorum, self.metadata, self.partitions, *self._of_bytes)
        return sum((checker.looked for checker in checkers), Counter(self._looked))

    def after_turn(self, machine: NodeMachine) -> None:
        """Check what changed on a node.

        Raises:
            InvariantViolationError: A rule is broken.
        """
        if self._violation is not None:
            raise self._violation
        self.quorum.after_turn(machine)
        self.metadata.after_turn(machine)
        self.partitions.after_turn(machine)
        now_ns = machine.world.now_ns
        if now_ns >= self._next_look_ns:
            self._check_work(machine.world)
            next_ms = max(_LOOK_MS, min(self._answers.look(), self._controller_answers.look()))
            self._next_look_ns = now_ns + int(next_ms * 1e6)

    def _check_work(self, world: World) -> None:
        """No node runs callbacks again and again without a pause (INV-32)."""
        took_ns = world.now_ns - self._counted_since_ns
        if took_ns < _COUNTED_NS:
            return
        self._counted_since_ns = world.now_ns
        for machine in self._nodes.values():
            count, self._counted[machine.node_id] = self._counted.get(machine.node_id, 0), machine.callback_count
            self._looked["INV-32"] += 1
            rate = (machine.callback_count - count) * 1e9 / took_ns
            if rate > _MOST_CALLBACKS_PER_S:
                reason = f"{machine.name} runs {rate:.0f} callbacks per second"
                raise InvariantViolationError("INV-32", reason, self._story.last(40))

    def check_voter_change(self, machine: NodeMachine, *, is_voter: bool) -> None:
        """An operator was told that a node is a voter, or is none any more. A violation is raised by ``after_turn``."""
        try:
            self.quorum.check_voter_change(machine, is_voter=is_voter)
        except InvariantViolationError as error:
            self._violation = self._violation or error

    def arrived(self, sock: SimulatedSocket, data: bytes) -> None:
        """Bytes have reached a socket; none are the end of the stream."""
        watchers = sock.watched_by
        for checker in self._watchers_of(sock) if watchers is None else watchers:
            checker.arrived(sock, data)

    def sent(self, sock: SimulatedSocket, data: bytes) -> None:
        """A process has handed bytes to a socket."""
        watchers = sock.watched_by
        try:
            for checker in self._watchers_of(sock) if watchers is None else watchers:
                checker.sent(sock, data)
        except InvariantViolationError as error:
            self._violation = self._violation or error

    def _watchers_of(self, sock: SimulatedSocket) -> tuple[ByteWatcher, ...]:
        found = self._of_servers.get(sock.getsockname()[1]) or self._of_clients.get(sock.getpeername()[1], ())
        if sock.peer is not None and isinstance(sock.peer.machine, NodeMachine):
            of_nodes = (self._visibility, self._elections)
            found = tuple(checker for checker in found if checker not in of_nodes)
        sock.watched_by = found
        return found
