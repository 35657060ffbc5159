"""Replicas of a ``kraftlog.Quorum`` in virtual time, each with a client of its own in the same process."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from random import Random
from typing import Any, Final

from kraftlog.errors import KraftlogError, OffsetOutOfRangeError, SessionExpiredError
from kraftlog.quorum.async_quorum import MAX_WAITING_CALLS, AsyncQuorum, Options
from kraftlog.quorum.session_client import AsyncSession
from kraftlog.quorum.session_machine import SessionMachine
from kraftlog.quorum.settings import LISTENER_NAME
from kraftlog.quorum.state_machine import CommittedBatch, StateMachine
from kraftlog.runtime.raft.replicated_log import ReplicatedLog
from kraftlog.testing.world.cluster import Cluster
from kraftlog.testing.world.history import CommandHistory
from kraftlog.testing.world.machine import Machine
from kraftlog.testing.world.node_machine import CONTROLLER_PORT, ClusterShape, NodeMachine
from kraftlog.testing.world.world import World
from kraftlog.types import Uuid

__all__ = ["QuorumCluster", "QuorumMachine"]

_QUORUM_ID: Final = "simulated"
_TIMEOUT_S: Final = 3.0
_PENDING_BYTES: Final = 1 << 20
_PAUSE_S: Final = 0.05
_SESSION_S: Final = 10.0
# Of a client's turns: with a call beside proposals and reads.
_CALL_SHARE: Final = 0.02
# Time of the world in a second of the slowest clock that a fault makes.
_SLOWEST_CLOCK: Final = 1.25
_PREFIXES: Final = ("controller.quorum.", "metadata.log.")


class _Commands(StateMachine):
    """Applies commands to a list, and reports each one to the history."""

    def __init__(self, name: str, history: CommandHistory) -> None:
        self._name = name
        self._history = history
        self.commands: list[tuple[int, bytes]] = []

    def apply(self, batch: CommittedBatch) -> Sequence[int]:
        for offset, command in batch:
            self._history.applied(self._name, offset, command, batch.timestamp_ms)
            self.commands.append((offset, command))
        return range(batch.base_offset, batch.last_offset + 1)

    def snapshot(self) -> Iterable[bytes]:
        return [b"%d %b" % pair for pair in self.commands]

    def restore(self, records: Sequence[bytes]) -> None:
        self.commands = []
        for record in records:
            offset, _, command = record.partition(b" ")
            self._history.applied(self._name, int(offset), command)
            self.commands.append((int(offset), command))


class QuorumMachine(NodeMachine):
    """One replica and its client, which proposes commands and reads.

    Args:
        world: It is part of.
        name: Unique.
        node_id: Of the replica.
        history: Is told what the client did and what the replica applied.

    Attributes:
        options: Further arguments of ``kraftlog.Quorum``.
        has_sessions: Whether its client proposes in sessions.
        state_machine: Of the process that runs.
    """

    def __init__(self, world: World, name: str, *, node_id: int, history: CommandHistory) -> None:
        super().__init__(world, name, node_id=node_id, roles=["controller"])
        self._history = history
        self._number = 0
        self._rng = Random(f"{world.seed}/{name}/calls")
        self.voter_listener_name = LISTENER_NAME
        self.voters: Mapping[int, str] = {}
        self.settings: Mapping[str, str] = {}
        self.is_quiet: Callable[[], bool] = lambda: False
        self.quorum: AsyncQuorum | None = None
        self.options: dict[str, Any] = {}
        self.has_sessions = False
        self.state_machine: StateMachine | None = None

    def start_node(self) -> None:
        """Begin to start the replica; ``start_task`` says when it serves."""
        loop = self.loop if self.node is None else self.start()
        commands = _Commands(self.name, self._history)
        self.state_machine = SessionMachine(commands) if self.has_sessions else commands
        options = Options(
            machine=self.state_machine,
            data_dir=self.data_path,
            node_id=self.node_id,
            voters=self.voters,
            join=(),
            address=self.voters[self.node_id],
            listen=None,
            cluster_id=_QUORUM_ID,
            auto_join=False,
            timeout_s=_TIMEOUT_S,
            max_pending_bytes=_PENDING_BYTES,
            config=self.settings,
            **self.options,
        )
        quorum: Any = AsyncQuorum(options)
        self.node = self.quorum = quorum
        self.start_count += 1
        self.exit_error = None
        self.is_shutting_down = False
        self.start_task = loop.create_task(quorum.start())
        self.start_task.add_done_callback(lambda started: self._started(quorum, started))
        loop.create_task(self._use(quorum, commands, self.start_task))

    @property
    def replicated_log(self) -> ReplicatedLog[Any] | None:
        """Of the replica; None before it has opened it."""
        return None if self.quorum is None else self.quorum.replicated_log

    async def _close_node(self) -> None:
        assert self.quorum is not None  # it serves
        await self.quorum.close()

    async def _follow(self, node: Any) -> None:
        error = await node.wait_failed()
        await node.close()
        self._exit(error)

    async def _use(self, quorum: AsyncQuorum, commands: _Commands, started: asyncio.Task[None]) -> None:
        """Propose and read in turns until no fault happens any more."""
        await asyncio.wait([started])
        if started.cancelled() or started.exception() is not None:
            return
        self.directory_id = Uuid.parse(quorum.directory_id)
        session: AsyncSession | None = None
        following = self.loop.create_task(self._follow_commands(quorum))
        while not self.is_quiet() and not self.is_shutting_down:
            if not self.has_sessions:
                await self._propose(lambda command: quorum.propose([command]))
            else:
                session = await self._propose_in_session(quorum, session)
            await self._read(quorum, commands, self._rng.choice((0.0, 0.0, 0.2, 2.0)))
            if self._rng.random() < _CALL_SHARE:
                await self._call(quorum)
            await asyncio.sleep(_PAUSE_S)
        if self.is_quiet():
            following.cancel()

    async def _call(self, quorum: AsyncQuorum) -> None:
        """What is asked for now and then: a snapshot, or another leader."""
        with suppress(KraftlogError):
            if self._rng.randrange(2):
                await quorum.snapshot()
            elif quorum.is_leader:
                await quorum.transfer_leadership(self._rng.choice(sorted(self.voters)), timeout_s=1.0)

    async def _follow_commands(self, quorum: AsyncQuorum) -> None:
        """Follow from the first command that is in the log, and anew when a snapshot has taken the place of others."""
        start_offset: int | None = 0
        while not self.is_quiet():
            offsets = self._history.follow()
            try:
                async for batch in quorum.committed(start_offset):
                    for offset, command in batch:
                        self._followed(offsets, offset, command)
            except OffsetOutOfRangeError:
                start_offset = None
            except KraftlogError:
                return

    def _followed(self, offsets: list[int], offset: int, command: bytes) -> None:
        if not self.has_sessions:  # where commands may be in the log several times
            self._history.followed(offsets, offset, command)

    async def _propose(self, propose: Callable[[bytes], Awaitable[int]]) -> KraftlogError | None:
        self._number += 1
        command = f"{self.name} {self._number}".encode()
        self._history.proposed(command, self.world.now_ns)
        try:
            offset = await propose(command)
        except KraftlogError as error:
            if not getattr(error, "may_be_committed", True):
                self._history.refused(command)
            return error
        self.acknowledged.append(offset)
        self._history.committed(command, offset, self.world.now_ns)
        return None

    async def _propose_in_session(self, quorum: AsyncQuorum, session: AsyncSession | None) -> AsyncSession | None:
        """Propose as long as the quorum knows the session, and else open one."""
        if session is None:
            try:
                session = await quorum.open_session(expires_after_s=_SESSION_S)
            except KraftlogError:
                return None
        opened = session

        async def propose(command: bytes) -> int:
            (offset,) = await opened.call([command])
            return int(offset)

        error = await self._propose(propose)
        return None if isinstance(error, SessionExpiredError) else session

    async def _read(self, quorum: AsyncQuorum, commands: _Commands, max_staleness_s: float) -> None:
        # Its clock may be slow.
        begun_ns = self.world.now_ns - int(max_staleness_s * _SLOWEST_CLOCK * 1e9)
        try:
            await quorum.read_barrier(max_staleness_s=max_staleness_s)
        except KraftlogError:
            return
        self._history.read([offset for offset, _ in commands.commands[-1:]], begun_ns, self.world.now_ns)


class QuorumCluster(Cluster):
    """Three or more replicas of a ``kraftlog.Quorum`` under the faults of a ``Cluster``.

    Args:
        seed: Of all chance.
        controllers: How many replicas.
        properties: Settings of every replica, with Kafka's keys; those of nodes alone are left out.
        max_waiting_calls: Of each replica.

    Attributes:
        history: What clients were told, and what replicas applied.
    """

    has_features = False

    def __init__(
        self,
        seed: int = 0,
        *,
        controllers: int = 3,
        properties: Mapping[str, str] | None = None,
        max_waiting_calls: int = MAX_WAITING_CALLS,
        **_: Any,
    ) -> None:
        self.history = CommandHistory()
        self._options = {"max_waiting_calls": max_waiting_calls}
        super().__init__(seed, controllers=controllers, brokers=0, properties=properties)

    def _make_machines(self, shape: ClusterShape) -> Sequence[NodeMachine]:
        machines = [
            QuorumMachine(self.world, f"replica-{number}", node_id=number, history=self.history)
            for number in range(1, shape.controllers + 1)
        ]
        settings = {name: value for name, value in (shape.properties or {}).items() if name.startswith(_PREFIXES)}
        voters = {machine.node_id: f"{machine.address}:{CONTROLLER_PORT}" for machine in machines}
        has_sessions = not Random(f"{self.seed}/sessions").randrange(2)
        for machine in machines:
            machine.has_sessions = has_sessions
            machine.voters, machine.settings, machine.options = voters, settings, self._options
            machine.is_quiet = lambda: self.is_quiet
        return machines

    def _quorums(self) -> dict[str, AsyncQuorum]:
        return {
            name: machine.quorum
            for name, machine in self.nodes.items()
            if isinstance(machine, QuorumMachine) and machine.is_serving and machine.quorum is not None
        }

    @property
    def controller(self) -> str | None:
        """The replica that leads in the highest epoch; None for none."""
        leaders = [(quorum.epoch, name) for name, quorum in self._quorums().items() if quorum.is_leader]
        return max(leaders)[1] if leaders else None

    @property
    def _image(self) -> None:
        """None: there are no topics."""

    def led_by(self, name: str) -> list[tuple[str, int]]:
        """Nothing: there are no partitions."""
        del name
        return []

    def _after_turn(self, machine: Machine) -> None:
        self.history.check_so_far()
        super()._after_turn(machine)

    def what_is_missing(self) -> tuple[str, str] | None:
        """As of a ``Cluster``: every replica serves, one leads, all have applied the same."""
        quorums = self._quorums()
        if len(quorums) < len(self.nodes):
            return "INV-34", f"of {len(self.nodes)} replicas {sorted(quorums)} serve"
        if self.controller is None:
            return "INV-34", "no replica leads"
        ends = {name: quorum.applied_end_offset for name, quorum in quorums.items()}
        return None if len(set(ends.values())) == 1 else ("INV-36", f"applied commands: {ends}")


async def commands(cluster: Cluster) -> None:
    """A workload for drawn runs of a ``QuorumCluster``: its replicas' own clients, and the check of their history."""
    assert isinstance(cluster, QuorumCluster)
    while not cluster.is_quiet:  # noqa: ASYNC110  nobody tells it
        await asyncio.sleep(0.1)
    while cluster.what_is_missing() is not None:  # noqa: ASYNC110
        await asyncio.sleep(0.1)
    # By then every client of a process that runs has its last answer.
    await asyncio.sleep(2 * _TIMEOUT_S)
    while cluster.what_is_missing() is not None:  # noqa: ASYNC110
        await asyncio.sleep(0.1)
    cluster.history.check()
    cluster.tell("client", f"{cluster.history.committed_count} commands were committed, in one order")
