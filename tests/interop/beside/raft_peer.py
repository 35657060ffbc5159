"""Raft-only replicas of one log, without broker or controller: kraftlog's, Kafka's ``kafka.tools.TestRaftServer``."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Coroutine, Mapping, Sequence
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from interop.harness import Java, Server
from kraftlog._kraftlog import read_batches
from kraftlog.node.config import NodeConfig
from kraftlog.node.quorum_settings import metadata_log_config, raft_config, static_voters
from kraftlog.quorum.async_quorum import AsyncQuorum, Options
from kraftlog.quorum.replica import QuorumReplica
from kraftlog.quorum.routes import Routes
from kraftlog.quorum.server import QuorumServer
from kraftlog.quorum.state_machine import CommittedBatch, StateMachine
from kraftlog.runtime.metadata.quorum_info import describe
from kraftlog.runtime.raft.replicated_log import ReplicatedLog
from kraftlog.storage.meta_properties import MetaProperties, random_uuid, write_meta_properties
from kraftlog.types import LogTopic, NodeId, Uuid

__all__ = ["PERFORMANCE_TEST", "OurPeer", "TheirPeer", "epochs_of", "log_files"]

T = TypeVar("T")

PERFORMANCE_TEST = LogTopic("__raft_performance_test", Uuid(bytes(15) + b"\x02"))
CLUSTER_ID = "AAAAAAAAAAAAAAAAAAAAAA"
LISTENER = "CONTROLLER"


def quorum_voters(ports: Mapping[int, int]) -> str:
    return ",".join(f"{node_id}@127.0.0.1:{port}" for node_id, port in ports.items())


def log_files(data_dir: Path) -> dict[str, bytes]:
    """The segments of a replica that was stopped."""
    folder = data_dir / f"{PERFORMANCE_TEST.name}-0"
    return {path.name: path.read_bytes() for path in sorted(folder.glob("*.log"))}


def epochs_of(data_dir: Path) -> dict[int, int]:
    """The epoch of each offset in the log of a replica that was stopped."""
    return {
        offset: batch.partition_leader_epoch
        for data in log_files(data_dir).values()
        for batch in read_batches(data)
        for offset in range(batch.base_offset, batch.last_offset + 1)
    }


class Counting(StateMachine):
    """Counts commands."""

    def __init__(self) -> None:
        self.count = 0

    def apply(self, batch: CommittedBatch) -> None:
        self.count += len(batch)

    def snapshot(self) -> Sequence[bytes]:
        return [str(self.count).encode()]

    def restore(self, values: Sequence[bytes]) -> None:
        self.count = int(values[0]) if values else 0


class _Member(AsyncQuorum):
    """A replica with static voters, of Kafka's performance test topic."""

    def __init__(self, options: Options, config: NodeConfig) -> None:
        super().__init__(options)
        self._config = config

    def _start(self, _: NodeConfig) -> None:
        config, options = self._config, self._options
        self._replica = replica = QuorumReplica(options.machine, max_pending_bytes=options.max_pending_bytes)
        self._server = server = QuorumServer(config, self._loop, cluster_id=CLUSTER_ID, replica=replica)
        replica.log = self._log = ReplicatedLog(
            replica,
            directory=options.data_dir / f"{PERFORMANCE_TEST.name}-0",
            log_config=replace(metadata_log_config(config), topic=PERFORMANCE_TEST),
            clean_shutdown=self._log_dir.was_clean_shutdown,
            static_voters=static_voters(config),
            snapshot_max_bytes=1 << 40,
            snapshot_max_interval_ms=0,
            wall_ms=server.now_ms,
            name=f"peer-{options.node_id}",
        )
        directory_id = random_uuid()  # static voters are known by their ids alone
        raft = raft_config(
            config, cluster_id=CLUSTER_ID, directory_id=directory_id, end_points=server.advertised_end_points()
        )
        self._routes = Routes(
            replica,
            client_id=f"quorum-{options.node_id}",
            request_timeout_s=2.0,
            default_timeout_s=10.0,
            max_waiting_calls=1_000,
            security=config.peer_security,
        )
        self._log.start(raft)
        server.start(self._routes.read_offset)

    @property
    def log_end_offset(self) -> int:
        return self._log.log.log_end_offset

    @property
    def high_watermark(self) -> int:
        return self._log.raft.high_watermark or 0

    def append_unseen(self, commands: Sequence[bytes]) -> None:
        """Propose as leader and wait for nothing."""
        self._replica.submit(commands, self._loop.time() + 60).future.add_done_callback(_ignore)

    def ends(self) -> dict[int, int]:
        """How far each voter's log goes, as the leader knows it."""
        quorum = describe(self._log.raft, now_ms=self._log.driver.now_ms(), wall_ms=self._server.now_ms())
        return {voter.replica_id: voter.log_end_offset for voter in quorum.voters}


def _ignore(future: asyncio.Future[Any]) -> None:
    if not future.cancelled():
        future.exception()


class OurPeer:
    """Our replica on a loop of its own thread; starts, stops and dies without losing its directory."""

    def __init__(self, home: Path, node_id: int, ports: Mapping[int, int]) -> None:
        self.data_dir = home
        self.node_id = node_id
        self.machine = Counting()
        home.mkdir(parents=True)
        write_meta_properties(
            home, MetaProperties(cluster_id=CLUSTER_ID, node_id=NodeId(node_id), directory_id=random_uuid())
        )
        self._ports = ports
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()
        self.member: _Member | None = None

    def _config(self, timers: Mapping[str, str]) -> NodeConfig:
        address = f"127.0.0.1:{self._ports[self.node_id]}"
        return NodeConfig(
            {
                "process.roles": "controller",
                "node.id": str(self.node_id),
                "listeners": f"{LISTENER}://{address}",
                "advertised.listeners": f"{LISTENER}://{address}",
                "controller.listener.names": LISTENER,
                "controller.quorum.voters": quorum_voters(self._ports),
                "log.dirs": str(self.data_dir),
                **timers,
            }
        )

    def run(self, coroutine: Coroutine[Any, Any, T], timeout_s: float = 30) -> T:
        future: Future[T] = asyncio.run_coroutine_threadsafe(coroutine, self._loop)
        return future.result(timeout_s)

    def start(self, timers: Mapping[str, str]) -> None:
        self.machine.count = 0
        options = Options(
            machine=self.machine,
            data_dir=self.data_dir,
            node_id=self.node_id,
            voters={},
            join=(),
            address=f"127.0.0.1:{self._ports[self.node_id]}",
            listen=None,
            cluster_id=CLUSTER_ID,
            auto_join=False,
            timeout_s=10.0,
            max_pending_bytes=64 << 20,
            config={},
        )
        self.member = _Member(options, self._config(timers))
        self.run(self.member.start())

    def stop(self) -> None:
        if self.member is not None:
            member, self.member = self.member, None
            self.run(member.close())

    def look(self, what: Callable[[_Member], T]) -> T:
        """Read something on its loop."""
        member = self.member
        assert member is not None

        async def read() -> T:
            return what(member)

        return self.run(read())

    def close(self) -> None:
        self.stop()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class TheirPeer(Server):
    """``kafka.tools.TestRaftServer``: while it leads it appends records of 256 bytes at a rate."""

    name = "TestRaftServer"

    def __init__(
        self, home: Path, java: Java, node_id: int, ports: Mapping[int, int], config: Mapping[str, str], *, rate: int
    ) -> None:
        super().__init__(home, config)
        self.java = java
        self.node_id = node_id
        self.port = ports[node_id]
        self.ports = ports
        self.rate = rate
        self.data_dir.mkdir()

    def properties(self) -> dict[str, str]:
        return {
            "process.roles": "controller",
            "node.id": str(self.node_id),
            "listeners": f"{LISTENER}://127.0.0.1:{self.port}",
            "controller.listener.names": LISTENER,
            "controller.quorum.voters": quorum_voters(self.ports),
            "log.dirs": str(self.data_dir),
            **self.config,
        }

    def format(self) -> None:
        """It needs no format."""

    def start_command(self) -> list[str]:
        flags = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xshare:auto", "-Xmx512m")
        return self.java.command(
            "kafka.tools.TestRaftServer",
            "--config",
            str(self.properties_path),
            "--replica-directory-id",
            str(random_uuid()),
            "--throughput",
            str(self.rate),
            flags=flags,
        )
