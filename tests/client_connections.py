"""Connections of a client to nodes that a test names, without a client around them."""

from __future__ import annotations

import asyncio

from kraftlog.client.config import ClientConfig
from kraftlog.client.connections import Connections
from kraftlog.metrics.client_requests import ClientRequests
from kraftlog.transport.traffic import Traffic


def client_connections(bootstrap_servers: str) -> Connections:
    """Connections on the running loop."""
    config = ClientConfig({"bootstrap.servers": bootstrap_servers}, "consumer")
    traffic = Traffic()
    return Connections(config, asyncio.get_running_loop(), traffic, ClientRequests(traffic.counters, {}))
