"""Acceptors: connections of the controller's listeners do not wait behind clients."""

from __future__ import annotations

import asyncio
import socket
import struct

from kraftlog.transport.acceptor import Acceptor, ConnectionLimits, Connections
from kraftlog.transport.listener import EndPoint
from kraftlog.transport.scheduler import SLICE_S, TURN_S
from waiting import until

CLIENTS = 90
LIMITS = ConnectionLimits(
    max_connections=1000,
    max_connections_per_ip=1000,
    max_idle_ms=-1,
    max_frame_bytes=1 << 20,
    send_buffer_bytes=-1,
    receive_buffer_bytes=-1,
    listen_backlog=CLIENTS,
)


class Exchange:
    """Takes more than a slice for each request, by a clock that moves with nothing else."""

    def __init__(self):
        self.now_s = 100.0
        self.handled = []

    def clock(self):
        return self.now_s

    def handle(self, peer, _frame):
        self.now_s += 1.2 * SLICE_S
        self.handled.append(peer.is_controller_listener)
        return []


def test_request_to_the_controller_is_served_in_its_turn_however_many_clients_wait():
    async def run():
        loop = asyncio.get_running_loop()
        exchange = Exchange()
        connections = Connections(loop, LIMITS)
        connections.scheduler.clock = connections.controller_scheduler.clock = exchange.clock
        acceptors = [
            Acceptor(loop, EndPoint(name, "127.0.0.1", 0), connections, is_controller_listener=name == "CONTROLLER")
            for name in ("PLAINTEXT", "CONTROLLER")
        ]
        for acceptor in acceptors:
            acceptor.start(exchange)
        broker, controller = (("127.0.0.1", acceptor.end_point.port) for acceptor in acceptors)
        clients = [socket.create_connection(broker) for _ in range(CLIENTS)]
        other_node = socket.create_connection(controller)
        await until(lambda: len(connections) == CLIENTS + 1)
        for sock in (*clients, other_node):  # all of them become readable in the same turn
            sock.sendall(struct.pack(">i", 4) + b"work")
        await until(lambda: True in exchange.handled)
        turn = 4 * TURN_S / SLICE_S
        assert exchange.handled.index(True) <= turn < CLIENTS
        await until(lambda: len(exchange.handled) == CLIENTS + 1)
        for acceptor in acceptors:
            acceptor.close()
        connections.close_all()
        for sock in (*clients, other_node):
            sock.close()

    asyncio.run(run())
