"""``AsyncQuorum``: a replica on the caller's event loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kraftlog.errors import DeadlineError, ErrorCode, KafkaError, NodeClosedError
from kraftlog.metrics import Metrics, MetricsSnapshot, to_prometheus_text
from kraftlog.metrics.listener import MetricsListener
from kraftlog.metrics.raft import RaftMetrics
from kraftlog.node.config import METRICS_LISTENER, ConfigError, NodeConfig
from kraftlog.node.quorum_settings import metadata_log_config, raft_config
from kraftlog.quorum.committed import committed_batches
from kraftlog.quorum.leader_answers import describe_error, quorum_info, top_level_error
from kraftlog.quorum.listeners import Listener, client_id_of
from kraftlog.quorum.proposals import Group
from kraftlog.quorum.replica import QuorumReplica
from kraftlog.quorum.routes import Routes
from kraftlog.quorum.server import QuorumServer
from kraftlog.quorum.session_client import AsyncSession
from kraftlog.quorum.session_machine import SessionMachine
from kraftlog.quorum.settings import LISTENER_NAME, format_when_needed, node_config, split_address
from kraftlog.quorum.snapshot_info import SnapshotInfo, SnapshotProgress
from kraftlog.quorum.state_machine import CommittedBatch, StateMachine
from kraftlog.quorum.transfer import transfer_leadership
from kraftlog.raft.voter_set import VoterSet
from kraftlog.runtime.metadata.quorum_info import QuorumInfo, describe
from kraftlog.runtime.raft.log_threads import LogThreads
from kraftlog.runtime.raft.replicated_log import ReplicatedLog
from kraftlog.storage.files import make_directory
from kraftlog.storage.log_dir import LogDir
from kraftlog.storage.meta_properties import ensure_directory_id
from kraftlog.types import Uuid
from kraftlog.vocabulary import CLUSTER_METADATA_DIRECTORY, CLUSTER_METADATA_TOPIC
from kraftlog.wire.messages.add_raft_voter import AddRaftVoterRequest
from kraftlog.wire.messages.describe_quorum import DescribeQuorumRequest
from kraftlog.wire.messages.remove_raft_voter import RemoveRaftVoterRequest
from kraftlog.wire.struct import Message

__all__ = ["MAX_WAITING_CALLS", "AsyncQuorum", "Options", "Place"]

MAX_WAITING_CALLS = 65_536
"""Of proposals and barriers that wait at one replica, unless ``max_waiting_calls`` says otherwise."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """What a replica is told; ``Quorum`` has the meaning of each."""

    machine: StateMachine
    data_dir: Path
    node_id: int
    voters: Mapping[int, str]
    join: Sequence[str]
    address: str | None
    listen: str | None
    cluster_id: str
    auto_join: bool
    timeout_s: float
    max_pending_bytes: int
    max_waiting_calls: int = MAX_WAITING_CALLS
    config: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Place:
    """What a replica shares with those of other quorums.

    Args:
        listener: Where it is reached.
        threads: For its log.
    """

    listener: Listener
    threads: LogThreads


class AsyncQuorum:
    """One replica of a replicated state machine, on the event loop that ``async with kraftlog.Quorum(...)`` ran on.

    Every method that waits has a time-out in seconds; the default is that of the ``Quorum``.

    Args:
        options: Of the replica.
        place: That it shares with others; None for a place of its own.
    """

    def __init__(self, options: Options, place: Place | None = None) -> None:
        self._options = options
        self._place = place
        self._is_running = False
        self._closed = asyncio.Event()
        self._metrics = Metrics()
        self._metrics_listener = MetricsListener(lambda: to_prometheus_text(self.metrics()))

    # Life

    async def start(self) -> None:
        """Open the directory, listen and take part; called by ``async with``.

        Raises:
            ConfigError: A setting that nobody knows, or with a value it cannot have.
            KraftlogError: The directory or the address is in use, or something stored cannot be read.
        """
        options = self._options
        address = options.address or options.voters.get(options.node_id, "127.0.0.1:0")
        host, port = split_address(address)
        self._loop = asyncio.get_running_loop()
        voters = dict(options.voters) or ({} if options.join else {options.node_id: address})
        contacts = [*options.join, *(voter for node_id, voter in voters.items() if node_id != options.node_id)]
        config = node_config(
            node_id=options.node_id,
            data_dir=options.data_dir,
            listen=options.listen or address,
            advertised=f"{host}:{port}",
            contacts=contacts or [address],
            auto_join=options.auto_join,
            changes=options.config,
        )
        make_directory(options.data_dir)
        self._log_dir = LogDir(options.data_dir)
        try:
            format_when_needed(options.data_dir, node_id=options.node_id, cluster_id=options.cluster_id, voters=voters)
            self._log_dir.read_state()
            if config.metrics_listener is not None:
                await self._listen_for_metrics(*config.metrics_listener)
            self._start(config)
            try:
                await self._log.wait_loaded()
            except BaseException:
                await self._log.stop(self._replica.close)
                self._routes.close()
                raise
        except BaseException:
            self._metrics_listener.close()
            if hasattr(self, "_server"):
                self._server.close()
            self._log_dir.release()
            raise
        self._is_running = True

    async def _listen_for_metrics(self, host: str, port: int) -> None:
        try:
            await self._metrics_listener.open(host, port)
        except OSError as error:
            msg = f"{METRICS_LISTENER}={host}:{port} cannot be bound: {error.strerror or error}"
            raise ConfigError(msg) from error

    def _start(self, config: NodeConfig) -> None:
        options = self._options
        self._replica = replica = QuorumReplica(options.machine, max_pending_bytes=options.max_pending_bytes)
        place = self._place
        self._server = server = QuorumServer(
            config,
            self._loop,
            cluster_id=options.cluster_id,
            replica=replica,
            listener=None if place is None else place.listener,
        )
        name = None if place is None else options.cluster_id
        directory_id = ensure_directory_id(options.data_dir)
        replica.log = self._log = ReplicatedLog(
            replica,
            directory=options.data_dir / CLUSTER_METADATA_DIRECTORY,
            log_config=metadata_log_config(config),
            clean_shutdown=self._log_dir.was_clean_shutdown,
            static_voters=VoterSet(),
            snapshot_max_bytes=config.get_int("metadata.log.max.record.bytes.between.snapshots"),
            snapshot_max_interval_ms=config.get_int("metadata.log.max.snapshot.interval.ms"),
            snapshot_outgrows_last=True,
            wall_ms=server.now_ms,
            name=f"kraftlog-quorum-{options.node_id}",
            threads=None if place is None else place.threads,
        )
        raft = raft_config(
            config,
            cluster_id=options.cluster_id,
            directory_id=directory_id,
            end_points=server.advertised_end_points(),
        )
        self._routes = Routes(
            replica,
            client_id=client_id_of(f"quorum-{options.node_id}", name),
            request_timeout_s=raft.request_timeout_ms / 1000,
            default_timeout_s=options.timeout_s,
            max_waiting_calls=options.max_waiting_calls,
            security=config.peer_security,
        )
        self._log.start(
            raft,
            RaftMetrics(
                self._metrics,
                sample_count=config.get_int("metrics.num.samples"),
                window_ms=config.get_int("metrics.sample.window.ms"),
            ),
            security=config.peer_security,
            client_id=client_id_of(f"raft-client-{options.node_id}", name),
        )
        server.start(self._routes.read_offset)

    async def close(self) -> None:
        """Stop: what was proposed is finished, leadership handed over, everything flushed. A second call waits only."""
        if not self._is_running:
            if hasattr(self, "_replica"):
                await self._closed.wait()
            return
        self._is_running = False
        self._replica.tell_stop(None)
        # Once the replica has told those that wait, nobody tells a call that comes later.
        self._routes.refuse()
        await self._log.stop(self._replica.close)
        self._routes.close()
        self._metrics_listener.close()
        self._server.close()
        if self._log.failure is None:
            self._log_dir.write_clean_shutdown(-1)
        self._log_dir.release()
        self._closed.set()

    async def wait_failed(self) -> BaseException:
        """Wait until this replica stops by itself, as its disk or its state machine failed; return why."""
        await self._replica.failed.wait()
        failure = self.failure
        if failure is None:
            msg = "the replica failed without a reason"
            raise NodeClosedError(msg)
        return failure

    def _opened(self) -> ReplicatedLog[Group]:
        if not hasattr(self, "_log"):
            msg = "the quorum has not been started"
            raise NodeClosedError(msg)
        return self._log

    # What it is

    @property
    def node_id(self) -> int:
        """Id of this replica, at least 0."""
        return self._options.node_id

    @property
    def timeout_s(self) -> float:
        """Seconds that a call waits when it is not given a time."""
        return self._options.timeout_s

    @property
    def address(self) -> str:
        """``host:port`` where this replica listens."""
        self._opened()
        return self._server.end_point.address

    @property
    def directory_id(self) -> str:
        """The id of this replica's directory, which together with the node id names a voter."""
        return str(self._opened().raft.config.local_key.directory_id)

    @property
    def data_dir(self) -> Path:
        """The directory of the log."""
        return self._options.data_dir

    @property
    def is_open(self) -> bool:
        """Whether it was started and not closed."""
        return self._is_running

    @property
    def is_leader(self) -> bool:
        """Whether this replica leads, as far as it knows, and has applied everything from before."""
        return self._is_running and self._replica.is_claimed

    @property
    def leader_id(self) -> int | None:
        """Id of the leader as far as this replica knows; None while it knows none."""
        return self._opened().raft.leader_id

    @property
    def epoch(self) -> int:
        """The leader epoch that this replica is in."""
        return self._opened().raft.epoch

    @property
    def applied_end_offset(self) -> int:
        """End offset, exclusive, of what this replica's state machine has applied."""
        return self._opened().applied_end_offset

    @property
    def replicated_log(self) -> ReplicatedLog[Group] | None:
        """The log with its consensus core, to be read only, as checkers do; None before ``start`` has opened it."""
        return getattr(self, "_log", None)

    @property
    def failure(self) -> BaseException | None:
        """Why this replica does nothing any more; None while it works."""
        return self._log.failure if hasattr(self, "_log") else None

    @property
    def metrics_url(self) -> str | None:
        """Where Prometheus scrapes; None unless ``kraftlog.metrics.listener`` is set."""
        return self._metrics_listener.url

    def metrics(self) -> MetricsSnapshot:
        """All metrics now, by name, such as ``raft-metrics.current-leader``; may be called on any thread."""
        return self._metrics.snapshot()

    # Proposals

    async def propose(self, commands: Sequence[bytes], *, timeout_s: float | None = None, forward: bool = True) -> int:
        """Replicate commands; return the offset of the last one.

        When this returns, the commands are committed: on the disks of a majority, flushed. They are applied here, in
        this replica's state machine. All of one call are committed together or not at all.

        Args:
            commands: At least one command, each of any bytes.
            timeout_s: Seconds to wait, room for more pending bytes included; ``timeout_s`` of the quorum when None.
            forward: Whether this replica sends the commands to the leader when another replica leads.

        Returns:
            The offset of the last command, inclusive.

        Raises:
            ValueError: No commands.
            TypeError: A command that is not of bytes.
            NotLeaderError: ``forward`` is false and this replica does not lead; the error says who does.
            DeadlineError: The time is over; ``may_be_committed`` says whether they had been proposed.
            NotCommittedError: Leadership changed first: they have no effect.
            OutcomeUnknownError: The connection to the leader, or this replica, ended first.
            TooManyCallsError: ``max_waiting_calls`` calls wait already.
            KafkaError: MESSAGE_TOO_LARGE: they do not fit into a batch (8 MiB by default).
            NodeClosedError: The quorum is closed.
        """
        return (await self._routes.propose(commands, timeout_s, forward=forward)).last_offset

    async def call(
        self, commands: Sequence[bytes], *, timeout_s: float | None = None, forward: bool = True
    ) -> Sequence[Any]:
        """Replicate commands; return what ``apply`` of this replica's state machine returned for each.

        Args:
            commands: As for ``propose``.
            timeout_s: As for ``propose``.
            forward: As for ``propose``.

        Raises:
            TypeError: ``apply`` gives no results.
            QuorumError: And whatever else ``propose`` raises.
        """
        applied = await self._routes.propose(commands, timeout_s, forward=forward)
        if applied.results is None:
            msg = "apply of the state machine gives no results; use propose"
            raise TypeError(msg)
        return applied.results

    async def open_session(self, *, expires_after_s: float = 3600.0, timeout_s: float | None = None) -> AsyncSession:
        """Open a session, whose commands are applied once, however often they have to be sent.

        The state machine of every replica has to be a :class:`kraftlog.SessionMachine`.

        Args:
            expires_after_s: After so long without a command, by the clocks of leaders, it may be forgotten. A session
                is also forgotten when 10 000 others were used after it.
            timeout_s: Seconds to wait; ``timeout_s`` of the quorum when None.

        Raises:
            TypeError: This replica's state machine has no sessions; nothing was proposed.
            QuorumError: And whatever else ``call`` raises.
        """
        if not isinstance(self._options.machine, SessionMachine):
            msg = "the state machine has no sessions: wrap it in kraftlog.SessionMachine, on every replica"
            raise TypeError(msg)
        return await AsyncSession.open(self, expires_after_s=expires_after_s, timeout_s=timeout_s)

    # Linearizable reads

    async def read_barrier(self, *, timeout_s: float | None = None, max_staleness_s: float = 0.0) -> int:
        """Wait until this replica's state machine has everything that was committed when this was called.

        A read of the state machine right afterwards is linearizable. The leader first asks a majority whether it still
        leads; another replica asks the leader and then waits until it has applied as much. Calls of one turn of the
        loop share one question; nothing is written.

        With ``max_staleness_s`` a read may be that old, by this replica's clock: as long as such a question was asked
        within that time and what it gave is applied, the call returns at once and asks nobody. So reads go on for as
        long while no leader can be reached, and many of them cost one question in that time.

        Args:
            timeout_s: Seconds to wait; ``timeout_s`` of the quorum when None.
            max_staleness_s: Everything that was committed so many seconds before this call, at least, is applied.

        Returns:
            The end offset (exclusive) that is applied.

        Raises:
            ValueError: ``max_staleness_s`` is negative.
            DeadlineError: The time is over.
            TooManyCallsError: ``max_waiting_calls`` calls wait already.
            NodeClosedError: The quorum is closed.
        """
        if max_staleness_s < 0:
            msg = f"max_staleness_s is at least 0, not {max_staleness_s}"
            raise ValueError(msg)
        return await self._routes.read_barrier(timeout_s, max_staleness_s)

    # The log and its snapshots

    def committed(self, start_offset: int | None = None) -> AsyncIterator[CommittedBatch]:
        """Follow the committed commands, in order, each once, as soon as this replica has applied them; without end.

        A replica that only follows (``join`` without ``auto_join``) is a place to do that without a part in elections
        and majorities. Offsets name commands: what was handled up to ``batch.last_offset`` goes on at the next one,
        on any replica. Commands of sessions come as they are in the log, see :func:`kraftlog.quorum.session_command`.

        Args:
            start_offset: Of the first command (inclusive); None for what is applied from now on.

        Yields:
            Batches of commands.

        Raises:
            ValueError: A negative offset.
            OffsetOutOfRangeError: A snapshot stands for commands that were dropped from this replica's log, before or
                while they were to be given out: begin with the state machine's state.
            NodeClosedError: The quorum was closed, or this replica failed.
        """
        return committed_batches(self._opened(), start_offset, self._routes.check_running)

    async def snapshot(self, *, timeout_s: float | None = None) -> SnapshotInfo:
        """Have a snapshot with the effect of everything that is applied here now; returns once it is on the disk.

        It is taken as those are that this replica takes by itself: ``StateMachine.snapshot`` is called between two
        batches, and what it gives is written by another thread.

        Args:
            timeout_s: Seconds to wait; ``timeout_s`` of the quorum when None.

        Raises:
            DeadlineError: It is not on the disk in time: it is still being written, or the state machine gives none.
            NodeClosedError: The quorum was closed, or this replica failed.
        """
        self._routes.check_running()
        try:
            async with asyncio.timeout(self._options.timeout_s if timeout_s is None else timeout_s):
                found, size_bytes = await self._log.checkpoint(self._routes.check_running)
        except TimeoutError:
            raise DeadlineError("the snapshot was not written in time") from None
        return SnapshotInfo(found.end_offset, found.epoch, size_bytes)

    @property
    def snapshot_progress(self) -> SnapshotProgress | None:
        """Of the snapshot that is being written; None while none is."""
        found = self._opened().snapshots.progress
        return None if found is None else SnapshotProgress(found.end_offset, found.record_count, found.size_bytes)

    @property
    def restore_progress(self) -> SnapshotProgress | None:
        """Of the snapshot that the state machine takes in; None while it takes in none."""
        found = self._opened().loads.current
        if found is None:
            return None
        size_bytes = next((size for known, size in self._log.log.snapshots if known == found.snapshot_id), 0)
        return SnapshotProgress(found.snapshot_id.end_offset, found.record_count, size_bytes)

    # Members

    async def describe(self, *, timeout_s: float | None = None) -> QuorumInfo:
        """Voters and observers, how far each is, as the leader knows.

        Raises:
            DeadlineError: No leader answered in time.
        """
        partition = DescribeQuorumRequest.PartitionData(partition_index=0)
        topic = DescribeQuorumRequest.TopicData(topic_name=CLUSTER_METADATA_TOPIC, partitions=(partition,))
        response = await self._routes.ask_leader(
            DescribeQuorumRequest(topics=(topic,)), self._describe_locally, timeout_s, describe_error
        )
        return response if isinstance(response, QuorumInfo) else quorum_info(response)

    async def _describe_locally(self) -> QuorumInfo:
        return describe(self._log.raft, now_ms=self._log.driver.now_ms(), wall_ms=self._server.now_ms())

    async def add_voter(
        self,
        node_id: int | None = None,
        directory_id: str | None = None,
        address: str | None = None,
        *,
        timeout_s: float | None = None,
    ) -> None:
        """Make an observer a voter; without arguments this replica itself.

        The replica has to run and to have caught up. Returns when the change is committed.

        Args:
            node_id: Id of the replica.
            directory_id: ``directory_id`` of the replica.
            address: ``address`` of the replica, ``host:port``.
            timeout_s: Seconds to wait; ``timeout_s`` of the quorum when None.

        Raises:
            KafkaError: As AddRaftVoter answers: DUPLICATE_VOTER, REQUEST_TIMED_OUT while it lags or another change is
                under way.
            DeadlineError: No leader answered in time.

        Source: KIP-853, AddRaftVoter.
        """
        wait_s = self._options.timeout_s if timeout_s is None else timeout_s
        host, port = split_address(address or self.address)
        request = AddRaftVoterRequest(
            cluster_id=self._options.cluster_id,
            timeout_ms=max(1, int(wait_s * 1000)),
            voter_id=self.node_id if node_id is None else node_id,
            voter_directory_id=Uuid.parse(directory_id or self.directory_id),
            listeners=(AddRaftVoterRequest.Listener(name=LISTENER_NAME, host=host, port=port),),
        )
        await self._routes.ask_leader(
            request, lambda: self._handle(request), timeout_s, top_level_error, done_code=ErrorCode.DUPLICATE_VOTER
        )

    async def remove_voter(
        self, node_id: int | None = None, directory_id: str | None = None, *, timeout_s: float | None = None
    ) -> None:
        """Make a voter an observer; without arguments this replica itself. Returns when the change is committed.

        Args:
            node_id: Id of the voter.
            directory_id: ``directory_id`` of the voter; looked up when absent.
            timeout_s: Seconds to wait; ``timeout_s`` of the quorum when None.

        Raises:
            KafkaError: As RemoveRaftVoter answers: VOTER_NOT_FOUND, REQUEST_TIMED_OUT.
            DeadlineError: No leader answered in time.

        Source: KIP-853, RemoveRaftVoter.
        """
        wanted = self.node_id if node_id is None else node_id
        if directory_id is None:
            voters = (await self.describe(timeout_s=timeout_s)).voters
            found = next((voter for voter in voters if voter.replica_id == wanted), None)
            if found is None:
                raise KafkaError(ErrorCode.VOTER_NOT_FOUND, f"{wanted} is not a voter")
            directory_id = str(found.directory_id)
        request = RemoveRaftVoterRequest(
            cluster_id=self._options.cluster_id, voter_id=wanted, voter_directory_id=Uuid.parse(directory_id)
        )
        await self._routes.ask_leader(
            request, lambda: self._handle(request), timeout_s, top_level_error, done_code=ErrorCode.VOTER_NOT_FOUND
        )

    async def transfer_leadership(self, node_id: int, *, timeout_s: float | None = None) -> None:
        """Let a chosen voter lead in this replica's place; returns once it does.

        The voter first gets all that is in the log. Proposals wait for the last part of that, an election time-out at
        most at a time, and go to the new leader then.

        Args:
            node_id: Id of the voter; this replica's own changes nothing.
            timeout_s: Seconds to wait; ``timeout_s`` of the quorum when None.

        Raises:
            NotLeaderError: This replica does not lead; the error says who does.
            KafkaError: VOTER_NOT_FOUND.
            DeadlineError: The voter is silent, or has not caught up in time, and this replica leads on; or nobody is
                known to lead.
            LeadershipTransferError: Another voter was elected, as the chosen one ended, for example.
        """
        self._routes.check_running()
        deadline_s = self._loop.time() + (self._options.timeout_s if timeout_s is None else timeout_s)
        await transfer_leadership(self._replica, node_id, deadline_s, self._routes.check_running)

    async def step_down(self) -> None:
        """Hand leadership to the replica that is furthest; a replica that does not lead does nothing."""
        self._routes.check_running()
        self._log.driver.tell(lambda: self._log.raft.resign(self._log.driver.now_ms()))

    def _handle(self, request: Message) -> asyncio.Future[Message]:
        return self._log.driver.handle_request(request, version=0, listener_name=LISTENER_NAME)
