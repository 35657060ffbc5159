"""A network between nodes and their clients that can be cut: a proxy before each listener of each node."""

from __future__ import annotations

import asyncio
import socket
import threading
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Self

from kraftlog.cluster.socket_owner import local_ports_of
from kraftlog.cluster.tcp_proxy import TcpProxy


class CutNetwork:
    """Proxies on a loop of their own thread.

    Args:
        targets: Addresses of the listeners of each node, by node id.

    Attributes:
        addresses: Where clients and other nodes connect instead, in the same order.
    """

    def __init__(self, targets: Mapping[int, list[str]]) -> None:
        self.addresses: dict[int, list[str]] = {}
        self._cut = 0
        self._node_of_process: dict[int, int] = {}
        self._node_of_port: dict[int, int] = {}
        self._proxies: list[TcpProxy] = []
        for node_id, found in targets.items():
            self.addresses[node_id] = []
            for address in found:
                listener = socket.create_server(("127.0.0.1", 0), backlog=128)
                target_port = int(address.rpartition(":")[2])
                self._proxies.append(TcpProxy(listener, target_port, partial(self._is_blocked, node_id)))
                self.addresses[node_id].append(f"127.0.0.1:{self._proxies[-1].port}")
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        for proxy in self._proxies:
            asyncio.run_coroutine_threadsafe(proxy.start(), self._loop).result()
        return self

    def __exit__(self, *_: object) -> None:
        for proxy in self._proxies:
            asyncio.run_coroutine_threadsafe(proxy.close(), self._loop).result()
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()

    def cut(self, node_id: int, process_ids: Mapping[int, int]) -> None:
        """Hold back every byte between a node and all others, in both directions, until ``heal``.

        ``process_ids`` has the process of each node, by its id: they say who has opened a connection.
        """
        self._call(lambda: self._apply(node_id, {process: node for node, process in process_ids.items()}))

    def heal(self) -> None:
        """What was held back arrives."""
        self._call(lambda: self._apply(0, {}))

    def _call(self, function: Callable[[], Any]) -> None:
        async def run() -> None:
            function()

        asyncio.run_coroutine_threadsafe(run(), self._loop).result()

    def _apply(self, node_id: int, node_of_process: dict[int, int]) -> None:
        self._cut, self._node_of_process = node_id, node_of_process
        self._find_owners()
        for proxy in self._proxies:
            proxy.apply_cut()

    def _find_owners(self) -> None:
        owners = local_ports_of(self._node_of_process)
        self._node_of_port = {port: self._node_of_process[process] for port, process in owners.items()}

    def _is_blocked(self, node_id: int, sender_port: int) -> bool:
        if not self._cut:
            return False
        if sender_port not in self._node_of_port:
            self._find_owners()
        return (self._node_of_port.get(sender_port) == self._cut) != (node_id == self._cut)
