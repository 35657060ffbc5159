"""``kraftlog.Cluster``: nodes in processes of their own on this machine, with faults on request."""

from __future__ import annotations

import asyncio
import shutil
import socket
import tempfile
import time
import weakref
from collections.abc import Callable, Coroutine, Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from types import MappingProxyType, TracebackType
from typing import Any, Self, TypeVar

from kraftlog.cluster.layout import NodeAddresses, StoredCluster, format_node, node_properties, take_ports
from kraftlog.cluster.node_process import NodeProcess
from kraftlog.cluster.socket_owner import can_tell_owners, local_ports_of
from kraftlog.cluster.state import ClusterState, PartitionState, read_state
from kraftlog.cluster.tcp_proxy import TcpProxy
from kraftlog.config_input import ConfigInput, config_properties, config_property
from kraftlog.errors import ClusterError, KafkaError, KraftlogError
from kraftlog.node.keyword_settings import check_keywords
from kraftlog.own_thread import OwnThread
from kraftlog.storage.meta_properties import random_uuid
from kraftlog.transport.rpc_client import RpcConnection
from kraftlog.wire.messages.create_topics import CreateTopicsRequest
from kraftlog.wire.messages.delete_topics import DeleteTopicsRequest

__all__ = ["Cluster"]

T = TypeVar("T")

_RPC_TIMEOUT_S = 5.0
_POLL_S = 0.05


class Cluster:
    """Nodes 1 to ``nodes``, each broker and controller in a process of its own, for as long as a ``with`` block.

    The methods block; in asyncio programs call them with ``asyncio.to_thread``. They may be called from any thread, but
    only one at a time. The nodes end with this process, however it ends.

    Args:
        nodes: How many.
        data_dir: Keeps the cluster: each node's directory, properties and output, and ``cluster.json`` with the
            addresses, which a later ``Cluster`` takes up. Without one the cluster has a temporary directory.
        config: Kafka's keys for every node. By default a dead node is noticed within two seconds, topics have
            three replicas and ``min.insync.replicas=2``, and acknowledgements do not wait for the disk
            (``log.flush.on.ack=false``).
        port: The first node's port for clients; the others follow it. 0 takes free ones.
        network_faults: Reach every node through a TCP proxy in this process, so that ``partition`` can cut networks.
            False for measurements.
        timeout_s: Seconds that a start, a stop and every wait may take.
        **settings: Kafka's keys with underscores for dots, such as ``log_segment_bytes=1048576``.

    Raises:
        TypeError: A keyword is no such key; the text names the nearest.

    Example:
        >>> import kraftlog
        >>> with kraftlog.Cluster(nodes=3) as cluster:  # doctest: +SKIP
        ...     cluster.create_topic("orders", partitions=3)
        ...     cluster.kill(cluster.leader("orders", 0))
        ...     cluster.wait_for_leaders()
    """

    def __init__(
        self,
        nodes: int = 3,
        *,
        data_dir: str | Path | None = None,
        config: Mapping[str, ConfigInput] | None = None,
        port: int = 0,
        network_faults: bool = True,
        timeout_s: float = 60.0,
        **settings: ConfigInput,
    ) -> None:
        if nodes < 1:
            raise ValueError(f"a cluster has at least one node, not {nodes}")
        check_keywords("Cluster", ("nodes", "data_dir", "config", "port", "network_faults", "timeout_s"), settings)
        self._changes = config_properties(config, settings)
        self._count, self._first_port, self._has_proxies = nodes, port, network_faults
        self._timeout_s = timeout_s
        self._given_dir = Path(data_dir) if data_dir is not None else None
        self._home = self._given_dir
        self._processes: dict[int, NodeProcess] = {}
        self._stored = StoredCluster("", (), network_faults)
        self._proxies: dict[int, list[TcpProxy]] = {}
        self._cut: frozenset[int] = frozenset()
        self._thread = OwnThread("kraftlog-cluster", self._nothing, self._close_proxies)

    @property
    def bootstrap_servers(self) -> str:
        """``host:port,...`` of all nodes."""
        return ",".join(process.bootstrap_server for process in self._processes.values())

    @property
    def nodes(self) -> Mapping[int, NodeProcess]:
        """The processes by node id."""
        return MappingProxyType(self._processes)

    @property
    def data_dir(self) -> Path:
        """Where the nodes' directories are.

        Raises:
            ClusterError: The cluster has a temporary directory and does not run.
        """
        if self._home is None:
            raise ClusterError("the cluster has no directory before it starts")
        return self._home

    # Life

    def start(self) -> Self:
        """Start all nodes; return when clients can use each.

        Raises:
            ClusterError: A node does not start; the text has the last lines of its output, and nothing is left behind.
            KraftlogError: The configuration is refused.
        """
        if self._home is None:
            self._home = Path(tempfile.mkdtemp(prefix="kraftlog-cluster-"))
        temporary = self._home if self._given_dir is None else None
        self._finalizer = weakref.finalize(self, _clean_up, self._processes, temporary)
        try:
            self._home.mkdir(parents=True, exist_ok=True)
            self._thread.start()
            self._set_up()
            self._launch(*self._processes)
        except BaseException:
            self.close()
            raise
        return self

    def close(self) -> None:
        """Stop all nodes and remove a temporary directory; a second call does nothing.

        Nodes with a ``data_dir`` stop by SIGTERM, all at the same time; others are killed.
        """
        running = [process for process in self._processes.values() if process.is_running]
        self._cut = frozenset()
        if self._given_dir is not None:
            for process in running:
                process.terminate()
            deadline_s = time.monotonic() + self._timeout_s
            for process in running:
                with suppress(ClusterError):
                    process.wait_until_stopped(deadline_s)
        for process in running:
            process.kill()
        self._thread.stop()
        if self._given_dir is None and self._home is not None:
            shutil.rmtree(self._home, ignore_errors=True)
            self._home = None
        self._processes.clear()

    def __enter__(self) -> Self:
        """Start."""
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Stop."""
        self.close()

    # Nodes

    def kill(self, node_id: int) -> None:
        """``kill -9``; ``start_node`` starts it again on what is on its disk."""
        self._process(node_id).kill()

    def stop_node(self, node_id: int) -> None:
        """SIGTERM: a controlled shutdown; return when it is over.

        Raises:
            ClusterError: It takes too long, or ends with a failure.
        """
        process = self._process(node_id)
        process.terminate()
        process.wait_until_stopped(time.monotonic() + self._timeout_s)

    def start_node(self, node_id: int) -> None:
        """Start a node that was killed or stopped; return when clients can use it.

        Raises:
            ClusterError: It runs already, or does not start.
        """
        self._process(node_id)
        self._launch(node_id)

    def launch_node(self, node_id: int) -> None:
        """Start a node that was killed or stopped, and return at once.

        Raises:
            ClusterError: It runs already.
        """
        self._process(node_id).launch()

    def restart(self, node_id: int) -> None:
        """A controlled shutdown and a start."""
        self.stop_node(node_id)
        self.start_node(node_id)

    def pause(self, node_id: int) -> None:
        """SIGSTOP: the node stands still, and its connections stay open."""
        self._process(node_id).pause()

    def resume(self, node_id: int) -> None:
        """SIGCONT."""
        self._process(node_id).resume()

    def partition(self, *node_ids: int) -> None:
        """Cut the network between these nodes and all others, and between these nodes and the clients.

        Nodes on the same side reach each other. Connections stay open, and their bytes wait until ``heal``. A later
        call replaces the cut.

        Raises:
            ClusterError: ``network_faults`` is off, or this is not Linux, whose ``/proc`` says who opened a connection.
        """
        if not self._has_proxies:
            raise ClusterError("the nodes have no proxies: make the cluster with network_faults=True")
        if not can_tell_owners():
            raise ClusterError("networks can only be cut on Linux")
        for node_id in node_ids:
            self._process(node_id)
        self._call(lambda: self._apply_cut(frozenset(node_ids)))

    def heal(self) -> None:
        """End the cut: what was held back arrives."""
        if self._has_proxies:
            self._call(lambda: self._apply_cut(frozenset()))

    def rolling_restart(self) -> None:
        """Restart one node after the other; each time wait until every replica is in sync."""
        for node_id in list(self._processes):
            self.wait_until_in_sync()
            self.restart(node_id)
        self.wait_until_in_sync()

    def add_node(self) -> int:
        """Start a further broker, without the controller's role; it gets no replicas by itself.

        Returns:
            Its node id.

        Raises:
            ClusterError: It does not start.
        """
        node_id = max(self._processes) + 1
        addresses, listeners = self._take_addresses(node_id, self._stored.nodes, is_controller=False)
        self._stored = replace(self._stored, nodes=(*self._stored.nodes, addresses))
        self._add_process(addresses, listeners, {})
        self._stored.write(self.data_dir)
        self._launch(node_id)
        return node_id

    # What the cluster says

    def state(self) -> ClusterState:
        """The cluster as the first broker that answers describes it.

        Raises:
            ClusterError: No broker answers.
        """
        return self._ask(read_state)

    @property
    def controller(self) -> int:
        """Node id of the active controller; -1 while there is none."""
        return self.state().controller_id

    def leader(self, topic: str, partition: int = 0) -> int:
        """Node id of a partition's leader; -1 without one.

        Raises:
            ClusterError: There is no such partition.
        """
        found = self.state().partitions.get((topic, partition))
        if found is None:
            raise ClusterError(f"there is no partition {topic}-{partition}")
        return found.leader

    def create_topic(
        self,
        name: str,
        partitions: int = 1,
        replication_factor: int = -1,
        config: Mapping[str, ConfigInput] | None = None,
    ) -> None:
        """Create a topic; return when every partition has a leader and all its replicas are in sync.

        Args:
            name: Name of the topic.
            partitions: Number of partitions.
            replication_factor: -1 for ``default.replication.factor``.
            config: Kafka's topic keys, such as ``{"retention.ms": 3600000}``.

        Raises:
            KafkaError: The error of CreateTopics, such as TOPIC_ALREADY_EXISTS.
            ClusterError: No broker answers, or the time is over.
        """
        request = CreateTopicsRequest(
            topics=[
                CreateTopicsRequest.CreatableTopic(
                    name=name,
                    num_partitions=partitions,
                    replication_factor=replication_factor,
                    configs=[
                        CreateTopicsRequest.CreatableTopicConfig(name=key, value=config_property(value))
                        for key, value in (config or {}).items()
                    ],
                )
            ],
            timeout_ms=int(self._timeout_s * 1000),
        )
        response: Any = self._ask(lambda connection: connection.request(request), timeout_s=self._timeout_s)
        for topic in response.topics:
            if topic.error_code:
                raise KafkaError(topic.error_code, topic.error_message)

        def is_there(state: ClusterState) -> bool:
            found = [partition for (topic, _), partition in state.partitions.items() if topic == name]
            return len(found) == partitions and all(_is_in_sync(partition) for partition in found)

        self.wait_until(is_there, f"topic {name} is not in sync")

    def delete_topic(self, name: str) -> None:
        """Delete a topic; return when no node that can be asked lists it.

        Args:
            name: Name of the topic.

        Raises:
            KafkaError: The error of DeleteTopics, such as UNKNOWN_TOPIC_OR_PARTITION.
            ClusterError: No broker answers, or the time is over.
        """
        request = DeleteTopicsRequest(
            topics=[DeleteTopicsRequest.DeleteTopicState(name=name)], timeout_ms=int(self._timeout_s * 1000)
        )
        response: Any = self._ask(lambda connection: connection.request(request), timeout_s=self._timeout_s)
        for topic in response.responses:
            if topic.error_code:
                raise KafkaError(topic.error_code, topic.error_message)

        def is_gone(state: ClusterState) -> bool:
            return all(topic != name for topic, _ in state.partitions)

        self.wait_until(is_gone, f"topic {name} is still there")

    def wait_for_leaders(self) -> None:
        """Return when every partition has a leader that runs.

        Raises:
            ClusterError: The time is over.
        """

        def is_led(state: ClusterState) -> bool:
            return state.controller_id > 0 and all(
                partition.leader > 0 and self._process(partition.leader).is_running
                for partition in state.partitions.values()
            )

        self.wait_until(is_led, "partitions have no leader")

    def wait_until_in_sync(self) -> None:
        """Return when every node that runs serves, and every replica of every partition is in sync.

        Raises:
            ClusterError: The time is over.
        """

        def is_whole(state: ClusterState) -> bool:
            running = {node_id for node_id, process in self._processes.items() if process.is_running}
            return (
                state.controller_id > 0
                and running <= set(state.brokers)
                and all(map(_is_in_sync, state.partitions.values()))
            )

        self.wait_until(is_whole, "replicas are not in sync")

    def wait_until(self, is_so: Callable[[ClusterState], bool], failure: str) -> None:
        """Return when a condition on the state holds for every node that can be asked.

        A node that was paused or cut off describes the cluster as it was before, until it has caught up.

        Args:
            is_so: The condition.
            failure: What the error says if it does not hold in time.

        Raises:
            ClusterError: The time is over.
        """
        deadline_s = time.monotonic() + self._timeout_s
        while True:
            states = self._states()
            if states and all(map(is_so, states)):
                return
            if time.monotonic() > deadline_s:
                said = "\n".join(map(str, states)) or "no broker answers"
                raise ClusterError(f"{failure} after {self._timeout_s} s\n{said}\n{self.log_tails}")
            time.sleep(_POLL_S)

    @property
    def log_tails(self) -> str:
        """The last lines of every node's output, for the report of a failure."""
        return "\n".join(f"-- node {node_id}\n{process.log_tail}" for node_id, process in self._processes.items())

    # Inside

    def _process(self, node_id: int) -> NodeProcess:
        found = self._processes.get(node_id)
        if found is None:
            raise ClusterError(f"the cluster has no node {node_id}")
        return found

    def _set_up(self) -> None:
        if self._processes:
            return
        stored = StoredCluster.read(self.data_dir)
        listeners: dict[int, list[socket.socket]] = {}
        if stored is None:
            nodes: list[NodeAddresses] = []
            for node_id in range(1, self._count + 1):
                addresses, listeners[node_id] = self._take_addresses(node_id, nodes, is_controller=True)
                nodes.append(addresses)
            self._stored = StoredCluster(str(random_uuid()), tuple(nodes), self._has_proxies)
        else:
            self._stored, self._has_proxies = stored, stored.has_proxies
            for node in stored.nodes:
                listeners[node.node_id] = _bind_proxies(node) if stored.has_proxies else []
        directory_ids = {node.node_id: random_uuid() for node in self._stored.nodes if node.is_controller}
        for node in self._stored.nodes:
            self._add_process(node, listeners[node.node_id], directory_ids)
        self._stored.write(self.data_dir)

    def _take_addresses(
        self, node_id: int, others: Iterable[NodeAddresses], *, is_controller: bool
    ) -> tuple[NodeAddresses, list[socket.socket]]:
        """Free ports for a node that the other nodes do not have, and the sockets that its proxies listen on."""
        taken = take_ports(4, {port for other in others for port in other.ports})
        ports = [bound.getsockname()[1] for bound in taken]
        if not self._has_proxies:
            for bound in taken:
                bound.close()
            if self._first_port:
                ports[0] = self._first_port + node_id - 1
            addresses = NodeAddresses(node_id, is_controller, ports[0], ports[1], ports[0], ports[1])
            return addresses, []
        if self._first_port:
            ports[2] = self._first_port + node_id - 1
            taken[2].close()
            taken[2] = _bound(ports[2])
        for bound in taken[:2]:
            bound.close()
        return NodeAddresses(node_id, is_controller, *ports), taken[2:]

    def _add_process(
        self, node: NodeAddresses, listeners: list[socket.socket], directory_ids: Mapping[int, Any]
    ) -> None:
        properties = node_properties(node, self._stored.nodes, self.data_dir / str(node.node_id), self._changes)
        voters = [other for other in self._stored.nodes if other.is_controller] if node.is_controller else []
        format_node(properties, self._stored.cluster_id, voters, directory_ids)
        process = NodeProcess(node.node_id, self.data_dir, properties, node.bootstrap_server)
        self._processes[node.node_id] = process
        if listeners:
            targets = (node.broker_port, node.controller_port)
            proxies = [
                TcpProxy(listener, target, lambda port: self._is_blocked(port, node.node_id))
                for listener, target in zip(listeners, targets, strict=True)
            ]
            self._proxies[node.node_id] = proxies
            self._call(lambda: _start_all(proxies))

    def _launch(self, *node_ids: int) -> None:
        deadline_s = time.monotonic() + self._timeout_s
        for node_id in node_ids:
            self._processes[node_id].launch()
        for node_id in node_ids:
            self._processes[node_id].wait_until_started(deadline_s)

    def _call(self, call: Callable[[], Coroutine[Any, Any, T]], timeout_s: float | None = None) -> T:
        return self._thread.call(call, what="cluster", timeout_s=timeout_s)

    def _ask(
        self, question: Callable[[RpcConnection], Coroutine[Any, Any, T]], *, timeout_s: float = _RPC_TIMEOUT_S
    ) -> T:
        """Put a question to the first broker that can answer.

        Raises:
            ClusterError: None can.
        """
        failure: object = "no node runs"
        for process in self._reachable():
            try:
                return self._call(lambda process=process: _ask_one(process, question, timeout_s))  # type: ignore[misc]
            except (KraftlogError, TimeoutError) as error:
                failure = error
        raise ClusterError(f"no broker answers: {failure}")

    def _states(self) -> list[ClusterState]:
        """The cluster as each node that can be asked describes it."""
        states = []
        for process in self._reachable():
            with suppress(KraftlogError, TimeoutError):
                states.append(self._call(lambda process=process: _ask_one(process, read_state, _RPC_TIMEOUT_S)))  # type: ignore[misc]
        return states

    def _reachable(self) -> Iterator[NodeProcess]:
        for node_id, process in self._processes.items():
            if process.is_running and not process.is_paused and node_id not in self._cut:
                yield process

    # On the loop of the proxies

    async def _nothing(self) -> None:
        """The loop waits for what it is asked."""

    async def _close_proxies(self) -> None:
        for proxies in self._proxies.values():
            for proxy in proxies:
                await proxy.close()
        self._proxies.clear()

    async def _apply_cut(self, cut: frozenset[int]) -> None:
        self._cut = cut
        proxies = [proxy for proxies in self._proxies.values() for proxy in proxies]
        # A connection that is there and that no node opened is a client's. To look for each of them again would take
        # seconds if the nodes have many files open, and no proxy forwards anything meanwhile.
        there = dict.fromkeys((port for proxy in proxies for port in proxy.sender_ports), 0)
        self._owners: dict[int, int] = there | self._find_owners()
        for proxy in proxies:
            proxy.apply_cut()

    def _find_owners(self) -> dict[int, int]:
        """Local port -> node id, of all connections that nodes opened."""
        if not self._cut:
            return {}
        node_ids = {process.process_id: process.node_id for process in self._processes.values()}
        owners = local_ports_of(process_id for process_id in node_ids if process_id is not None)
        return {port: node_ids[process_id] for port, process_id in owners.items()}

    def _is_blocked(self, sender_port: int, node_id: int) -> bool:
        if not self._cut:
            return False
        if sender_port not in self._owners:
            self._owners.update(self._find_owners())
        return (self._owners.get(sender_port) in self._cut) != (node_id in self._cut)


def _is_in_sync(partition: PartitionState) -> bool:
    return partition.leader > 0 and set(partition.isr) == set(partition.replicas)


async def _ask_one(
    process: NodeProcess, question: Callable[[RpcConnection], Coroutine[Any, Any, T]], timeout_s: float
) -> T:
    host, _, port = process.bootstrap_server.rpartition(":")
    loop = asyncio.get_running_loop()
    connection = await RpcConnection.open(loop, host, int(port), client_id="kraftlog-cluster", timeout_s=_RPC_TIMEOUT_S)
    try:
        async with asyncio.timeout(timeout_s):
            return await question(connection)
    finally:
        connection.close()


async def _start_all(proxies: list[TcpProxy]) -> None:
    for proxy in proxies:
        await proxy.start()


def _bound(port: int) -> socket.socket:
    bound = socket.socket()
    bound.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        bound.bind(("127.0.0.1", port))
    except OSError as error:
        bound.close()
        raise ClusterError(f"127.0.0.1:{port} cannot be used: {error.strerror}") from error
    return bound


def _bind_proxies(node: NodeAddresses) -> list[socket.socket]:
    return [_bound(node.broker_proxy_port), _bound(node.controller_proxy_port)]


def _clean_up(processes: Mapping[int, NodeProcess], temporary: Path | None) -> None:
    """What is left when a cluster was never closed: at the end of the interpreter, or when nothing refers to it."""
    for process in processes.values():
        process.kill()
    if temporary is not None:
        shutil.rmtree(temporary, ignore_errors=True)
