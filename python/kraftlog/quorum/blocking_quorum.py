"""``kraftlog.Quorum``: a replica for a ``with`` block, on a thread of its own or on your event loop."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, Self, TypeVar

from kraftlog.config_input import ConfigInput, config_properties
from kraftlog.metrics import MetricsSnapshot
from kraftlog.node.keyword_settings import check_keywords
from kraftlog.own_thread import OwnThread
from kraftlog.quorum.async_quorum import MAX_WAITING_CALLS, AsyncQuorum, Options
from kraftlog.quorum.session_client import Session
from kraftlog.quorum.snapshot_info import SnapshotInfo, SnapshotProgress
from kraftlog.quorum.state_machine import CommittedBatch, StateMachine
from kraftlog.runtime.metadata.quorum_info import QuorumInfo

__all__ = ["Quorum"]

T = TypeVar("T")
_PARAMETERS = (
    "data_dir",
    "node_id",
    "voters",
    "join",
    "address",
    "listen",
    "cluster_id",
    "auto_join",
    "timeout_s",
    "max_pending_bytes",
    "max_waiting_calls",
    "config",
)


class Quorum:
    """One replica of a replicated state machine.

    Used with ``async with`` it runs on the caller's loop, and the block gets an :class:`AsyncQuorum`. Used with
    ``with`` it runs on a thread and an event loop of its own, and its methods may be called from any thread; the state
    machine is then called on that thread.

    Args:
        machine: The state machine.
        data_dir: Where the log lives; formatted when it is new. One process at a time can use it.
        node_id: Id of this replica, at least 0.
        voters: Id and ``host:port`` of each voter of a **new** quorum, the same on all of them; without it and without
            ``join``, this replica alone. It counts only while ``data_dir`` is new: afterwards the log has the voters. A
            replica that lost its directory must not come back by ``voters``, as it forgot what it voted for and
            acknowledged: let it ``join``, and remove its old self.
        join: ``host:port`` of replicas of a quorum that is there already. This replica then only follows until it is
            made a voter, by ``add_voter`` or ``auto_join``.
        address: ``host:port`` that the others use; from ``voters`` when absent there, else a free port of 127.0.0.1.
        listen: ``host:port`` to bind, where that is not ``address``.
        cluster_id: A name of the quorum; requests of other quorums are refused.
        auto_join: Make this replica a voter once it has caught up, in place of an older one with its id.
        timeout_s: Seconds that a call waits when it is not given a time.
        max_pending_bytes: Bytes of commands that may be proposed and not yet applied; further calls wait.
        max_waiting_calls: Proposals and barriers that may wait here at one time; further ones fail at once.
        config: Kafka's dotted keys for what else can be set: ``controller.quorum.*`` timers, ``metadata.log.*``
            segments and checkpoints, ``metadata.max.retention.*``, ``ssl.*`` with the listener QUORUM mapped to SSL.
        **settings: The same keys with underscores for dots.

    Example:
        >>> import tempfile, kraftlog
        >>> class Total(kraftlog.StateMachine):
        ...     value = 0
        ...     def apply(self, batch):
        ...         self.value += sum(map(int, batch.commands))
        ...     def snapshot(self):
        ...         return [str(self.value).encode()]
        ...     def restore(self, records):
        ...         self.value = int(records[0])
        >>> total = Total()
        >>> with kraftlog.Quorum(total, data_dir=tempfile.mkdtemp()) as quorum:
        ...     offset = quorum.propose([b"40", b"2"])
        ...     end_offset = quorum.read_barrier()
        ...     total.value
        42
    """

    def __init__(
        self,
        machine: StateMachine,
        *,
        data_dir: str | Path,
        node_id: int = 1,
        voters: Mapping[int, str] | None = None,
        join: Sequence[str] = (),
        address: str | None = None,
        listen: str | None = None,
        cluster_id: str = "quorum",
        auto_join: bool = False,
        timeout_s: float = 30.0,
        max_pending_bytes: int = 64 * 1024 * 1024,
        max_waiting_calls: int = MAX_WAITING_CALLS,
        config: Mapping[str, ConfigInput] | None = None,
        **settings: ConfigInput,
    ) -> None:
        if voters and join:
            msg = "voters begins a new quorum, join follows one: give one of them"
            raise ValueError(msg)
        if voters and node_id not in voters:
            msg = f"node {node_id} is not a voter {sorted(voters)}"
            raise ValueError(msg)
        check_keywords("Quorum", _PARAMETERS, settings)
        changes = config_properties(config, settings)
        self._async = AsyncQuorum(
            Options(
                machine=machine,
                data_dir=Path(data_dir),
                node_id=node_id,
                voters=dict(voters or {}),
                join=tuple(join),
                address=address,
                listen=listen,
                cluster_id=cluster_id,
                auto_join=auto_join,
                timeout_s=timeout_s,
                max_pending_bytes=max_pending_bytes,
                max_waiting_calls=max_waiting_calls,
                config=changes,
            )
        )
        self._thread = OwnThread("kraftlog-quorum", self._async.start, self._async.close)

    # Life

    def start(self) -> Self:
        """Start on a thread of its own; returns when this replica takes part.

        Without a ``with`` block it runs until ``close``, until nothing refers to this object, or until the interpreter
        exits.

        Raises:
            KraftlogError: It cannot start; nothing is left behind.
        """
        self._thread.start()
        weakref.finalize(self, self._thread.request_stop).atexit = False
        return self

    def close(self) -> None:
        """Finish what was proposed, hand leadership over, flush and stop; a second call does nothing."""
        self._thread.stop()

    def __enter__(self) -> Self:
        """Start."""
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        self.close()

    async def __aenter__(self) -> AsyncQuorum:
        """Start on the running loop."""
        await self._async.start()
        return self._async

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        await self._async.close()

    # What it is

    @property
    def node_id(self) -> int:
        """Id of this replica, at least 0."""
        return self._async.node_id

    @property
    def address(self) -> str:
        """``host:port`` where this replica listens."""
        return self._async.address

    @property
    def directory_id(self) -> str:
        """The id of this replica's directory, which together with the node id names a voter."""
        return self._async.directory_id

    @property
    def data_dir(self) -> Path:
        """The directory of the log."""
        return self._async.data_dir

    @property
    def is_leader(self) -> bool:
        """Whether this replica leads, as far as it knows, and has applied everything from before."""
        return self._async.is_leader

    @property
    def leader_id(self) -> int | None:
        """Id of the leader as far as this replica knows; None while it knows none."""
        return self._async.leader_id

    @property
    def epoch(self) -> int:
        """The leader epoch that this replica is in."""
        return self._async.epoch

    @property
    def applied_end_offset(self) -> int:
        """End offset, exclusive, of what this replica's state machine has applied."""
        return self._async.applied_end_offset

    @property
    def failure(self) -> BaseException | None:
        """Why this replica does nothing any more; None while it works."""
        return self._async.failure

    @property
    def metrics_url(self) -> str | None:
        """Where Prometheus scrapes; None unless ``kraftlog.metrics.listener`` is set."""
        return self._async.metrics_url

    def metrics(self) -> MetricsSnapshot:
        """All metrics now, by name, such as ``raft-metrics.current-leader``; may be called on any thread."""
        return self._async.metrics()

    # What AsyncQuorum has

    def propose(self, commands: Sequence[bytes], *, timeout_s: float | None = None, forward: bool = True) -> int:
        """Replicate commands; see :meth:`AsyncQuorum.propose`."""
        return self._call(lambda: self._async.propose(commands, timeout_s=timeout_s, forward=forward))

    def call(self, commands: Sequence[bytes], *, timeout_s: float | None = None, forward: bool = True) -> Sequence[Any]:
        """Replicate commands and return the results of ``apply``; see :meth:`AsyncQuorum.call`."""
        return self._call(lambda: self._async.call(commands, timeout_s=timeout_s, forward=forward))

    def open_session(self, *, expires_after_s: float = 3600.0, timeout_s: float | None = None) -> Session:
        """Open a session, whose commands are applied once; see :meth:`AsyncQuorum.open_session`."""
        session = self._call(lambda: self._async.open_session(expires_after_s=expires_after_s, timeout_s=timeout_s))
        return Session(session, self._call)

    def read_barrier(self, *, timeout_s: float | None = None, max_staleness_s: float = 0.0) -> int:
        """Wait until a read here is linearizable, or no older than it may be; see :meth:`AsyncQuorum.read_barrier`.

        The state machine goes on changing on its own thread: what is read has to be safe to read meanwhile.
        """
        return self._call(lambda: self._async.read_barrier(timeout_s=timeout_s, max_staleness_s=max_staleness_s))

    def committed(self, start_offset: int | None = None) -> Iterator[CommittedBatch]:
        """Follow the committed commands, as the caller asks for the next ones; see :meth:`AsyncQuorum.committed`."""
        batches = self._async.committed(start_offset)

        async def following() -> CommittedBatch:
            return await anext(batches)

        while True:
            yield self._call(following)

    def snapshot(self, *, timeout_s: float | None = None) -> SnapshotInfo:
        """Have a snapshot of everything that is applied here now; see :meth:`AsyncQuorum.snapshot`."""
        return self._call(lambda: self._async.snapshot(timeout_s=timeout_s))

    @property
    def snapshot_progress(self) -> SnapshotProgress | None:
        """Of the snapshot that is being written; None while none is."""
        return self._async.snapshot_progress

    @property
    def restore_progress(self) -> SnapshotProgress | None:
        """Of the snapshot that the state machine takes in; None while it takes in none."""
        return self._async.restore_progress

    def describe(self, *, timeout_s: float | None = None) -> QuorumInfo:
        """Voters and observers; see :meth:`AsyncQuorum.describe`."""
        return self._call(lambda: self._async.describe(timeout_s=timeout_s))

    def add_voter(
        self,
        node_id: int | None = None,
        directory_id: str | None = None,
        address: str | None = None,
        *,
        timeout_s: float | None = None,
    ) -> None:
        """Make an observer, or this replica, a voter; see :meth:`AsyncQuorum.add_voter`."""
        self._call(lambda: self._async.add_voter(node_id, directory_id, address, timeout_s=timeout_s))

    def remove_voter(
        self, node_id: int | None = None, directory_id: str | None = None, *, timeout_s: float | None = None
    ) -> None:
        """Make a voter, or this replica, an observer; see :meth:`AsyncQuorum.remove_voter`."""
        self._call(lambda: self._async.remove_voter(node_id, directory_id, timeout_s=timeout_s))

    def transfer_leadership(self, node_id: int, *, timeout_s: float | None = None) -> None:
        """Let a chosen voter lead in this replica's place; see :meth:`AsyncQuorum.transfer_leadership`."""
        self._call(lambda: self._async.transfer_leadership(node_id, timeout_s=timeout_s))

    def step_down(self) -> None:
        """Give up leadership; see :meth:`AsyncQuorum.step_down`."""
        self._call(self._async.step_down)

    def _call(self, call: Callable[[], Coroutine[Any, Any, T]]) -> T:
        return self._thread.call(call, what="quorum")
