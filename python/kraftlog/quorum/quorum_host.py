"""``QuorumHost``: many quorums on one node, with one address and one set of threads."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Mapping, Sequence
from itertools import count
from pathlib import Path
from types import TracebackType
from typing import Final, Self

from kraftlog import host
from kraftlog.config_input import ConfigInput, config_properties
from kraftlog.errors import NodeClosedError
from kraftlog.node.keyword_settings import check_keywords
from kraftlog.quorum.async_quorum import MAX_WAITING_CALLS, AsyncQuorum, Options, Place
from kraftlog.quorum.listeners import OwnListener, SharedListener
from kraftlog.quorum.settings import node_config, split_address
from kraftlog.quorum.state_machine import StateMachine
from kraftlog.runtime.raft.flush_group import FlushGroup
from kraftlog.runtime.raft.log_threads import LogThreads
from kraftlog.storage.files import make_directory

__all__ = ["QuorumHost"]

_PARAMETERS: Final = ("data_dir", "node_id", "voters", "address", "listen", "timeout_s", "threads", "config")
_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_OPEN_AT_ONCE: Final = 16
# Replicas of many quorums are idle most of the time: each asks its leader every ten seconds, and is answered at once
# when there is something. A process that ends is noticed by the end of its connections.
_PATIENT: Final = {
    "controller.quorum.fetch.wait.max.ms": "10000",
    "controller.quorum.fetch.timeout.ms": "20000",
    "controller.quorum.request.timeout.ms": "20000",
    "controller.quorum.election.timeout.ms": "2000",
}


class QuorumHost:
    """Replicas of many quorums in one process, on the event loop that ``async with`` ran on.

    They share the address, the threads that flush and write snapshots, the flushes that wait at one time, and the
    settings; each has its own log, leader and state machine. A request names its quorum by the end of its client id
    (``raft-client-1@accounts``), so that Kafka's tools reach one with ``client.id=any@accounts``.

    Idle replicas ask their leaders every ten seconds, not twice per second: see ``config`` for other waits.

    Args:
        data_dir: Has a directory for each quorum.
        node_id: Id of this node in all quorums, at least 0.
        voters: Id and ``host:port`` of each node, the same on all of them; this node alone if empty.
        address: ``host:port`` that the others use; from ``voters`` when absent there, else a free port of 127.0.0.1.
        listen: ``host:port`` to bind, where that is not ``address``.
        timeout_s: Seconds that a call waits when it is not given a time.
        threads: For flushes; quorums are spread over them.
        config: Kafka's dotted keys, as of :class:`kraftlog.Quorum`, for every quorum.
        **settings: The same keys with underscores for dots.

    Example:
        A block that opens two quorums::

            async with kraftlog.QuorumHost(data_dir="d") as host:
                orders = await host.open("orders", Orders())
                stock = await host.open("stock", Stock())
                await orders.propose([b"..."])
    """

    def __init__(
        self,
        *,
        data_dir: str | Path,
        node_id: int = 1,
        voters: Mapping[int, str] | None = None,
        address: str | None = None,
        listen: str | None = None,
        timeout_s: float = 30.0,
        threads: int = 4,
        config: Mapping[str, ConfigInput] | None = None,
        **settings: ConfigInput,
    ) -> None:
        if threads < 1:
            msg = f"threads is at least 1, not {threads}"
            raise ValueError(msg)
        check_keywords("QuorumHost", _PARAMETERS, settings)
        self._data_dir = Path(data_dir) if isinstance(data_dir, str) else data_dir
        self._node_id = node_id
        self._voters = dict(voters or {})
        self._address = address or self._voters.get(node_id, "127.0.0.1:0")
        self._listen = listen or self._address
        self._timeout_s = timeout_s
        self._thread_count = threads
        self._config = {**_PATIENT, **config_properties(config, settings)}
        self._quorums: dict[str, AsyncQuorum] = {}
        self._opening: dict[str, asyncio.Future[None]] = {}
        self._is_running = False
        self._turn = count()

    # Life

    async def start(self) -> None:
        """Listen; called by ``async with``.

        Raises:
            ConfigError: A setting that nobody knows, or with a value it cannot have.
            KraftlogError: The address is in use.
        """
        make_directory(self._data_dir)
        advertised_host, advertised_port = split_address(self._address)
        config = node_config(
            node_id=self._node_id,
            data_dir=self._data_dir,
            listen=self._listen,
            advertised=f"{advertised_host}:{advertised_port}",
            contacts=[*self._voters.values()] or [self._address],
            auto_join=False,
            changes=self._config,
        )
        self._listener = SharedListener(OwnListener(config, asyncio.get_running_loop()))
        if not advertised_port:
            self._address = f"{advertised_host}:{self._listener.end_point.port}"
        checkpoints = host.executor("kraftlog-checkpoint", self._thread_count)
        logs = [host.executor(f"kraftlog-quorums-{number}") for number in range(self._thread_count)]
        self._executors = [*logs, checkpoints]
        self._threads = [LogThreads(log, checkpoints, FlushGroup(log)) for log in logs]
        self._may_open = asyncio.Semaphore(_OPEN_AT_ONCE)
        self._is_running = True

    async def close(self) -> None:
        """Close all quorums, and stop listening. A second call does nothing."""
        if not self._is_running:
            return
        self._is_running = False
        await asyncio.gather(*self._opening.values())
        closing = (quorum.close() for quorum in self._quorums.values())
        # Of all before the threads end, whatever becomes of one.
        outcomes = await asyncio.gather(*closing, return_exceptions=True)
        self._quorums.clear()
        self._listener.close()
        for executor in self._executors:
            executor.shutdown(wait=True)
        for outcome in outcomes:
            if outcome is not None:
                raise outcome

    async def __aenter__(self) -> Self:
        """Start."""
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Close."""
        await self.close()

    # Quorums

    @property
    def address(self) -> str:
        """``host:port`` where all quorums of this node are reached."""
        return self._address

    @property
    def quorums(self) -> Mapping[str, AsyncQuorum]:
        """Those that are open, by name."""
        return {name: quorum for name, quorum in self._quorums.items() if quorum.is_open}

    async def open(
        self,
        name: str,
        machine: StateMachine,
        *,
        voters: Sequence[int] | None = None,
        join: bool = False,
        auto_join: bool = False,
        max_pending_bytes: int = 1 << 20,
        max_waiting_calls: int = MAX_WAITING_CALLS,
    ) -> AsyncQuorum:
        """Take part in a quorum, a new one or one whose directory is there; close it by its own ``close``.

        Args:
            name: Of the quorum, the same on all nodes: letters, digits, ``.``, ``_`` and ``-``, as of a topic.
            machine: Its state machine.
            voters: Ids of the nodes that begin a new quorum, of those of this host; all of them if None. A node that is
                none of them follows.
            join: Follow a quorum that is there already, until this node is made a voter.
            auto_join: Make this node a voter once it has caught up.
            max_pending_bytes: As of :class:`kraftlog.Quorum`, but a megabyte.
            max_waiting_calls: As of :class:`kraftlog.Quorum`.

        Raises:
            ValueError: Not a name, one that is open already, or a voter that is no node.
            NodeClosedError: The host is closed.
            KraftlogError: The directory is in use, or something stored cannot be read.
        """
        self._check_running()
        if not _NAME.fullmatch(name) or set(name) == {"."}:
            msg = f"{name!r} is no name of a quorum: at most 249 of a-z, A-Z, 0-9, '.', '_' and '-', and not dots alone"
            raise ValueError(msg)
        known = self._quorums.get(name)
        if name in self._opening or (known is not None and known.is_open):
            msg = f"{name!r} is open already"
            raise ValueError(msg)
        unknown = set(voters or ()) - self._voters.keys() - {self._node_id}
        if unknown:
            msg = f"{sorted(unknown)} are no nodes of this host"
            raise ValueError(msg)
        nodes = self._voters or {self._node_id: self._address}
        beginning = {node_id: nodes[node_id] for node_id in nodes if voters is None or node_id in voters}
        is_joining = join or self._node_id not in beginning
        others = [each for node_id, each in beginning.items() if node_id != self._node_id]
        if is_joining and not others:
            msg = f"{name!r} has no other node that it could join"
            raise ValueError(msg)
        quorum = AsyncQuorum(
            Options(
                machine=machine,
                data_dir=self._data_dir / name,
                node_id=self._node_id,
                voters={} if is_joining else beginning,
                join=others if is_joining else (),
                address=self._address,
                listen=None,
                cluster_id=name,
                auto_join=auto_join,
                timeout_s=self._timeout_s,
                max_pending_bytes=max_pending_bytes,
                max_waiting_calls=max_waiting_calls,
                config=self._config,
            ),
            Place(
                self._listener.part_of(name),
                self._threads[next(self._turn) % self._thread_count],
            ),
        )
        opening = self._opening[name] = asyncio.get_running_loop().create_future()
        try:
            async with self._may_open:
                await quorum.start()
            self._quorums[name] = quorum
        finally:
            del self._opening[name]
            opening.set_result(None)
        try:
            self._check_running()
        except NodeClosedError:
            await quorum.close()
            raise
        return quorum

    def _check_running(self) -> None:
        if not self._is_running:
            raise NodeClosedError("the host is closed")
