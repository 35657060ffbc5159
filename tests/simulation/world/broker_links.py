"""Connections of a workload that speaks the wire protocol itself."""

from __future__ import annotations

import asyncio
import random

from kraftlog.errors import KafkaError
from kraftlog.transport.rpc_client import RpcConnection

PASSING = (KafkaError, OSError, TimeoutError)
TIMEOUT_S = 10.0


class BrokerLinks:
    """Connections to brokers by their addresses."""

    def __init__(self, cluster, name):
        self.name = name
        self._bootstrap = [address.rsplit(":", 1) for address in cluster.bootstrap_servers.split(",")]
        self._rng = random.Random(f"{cluster.seed}/{name}/links")
        self.open = {}

    def any(self):
        return self._rng.choice(self.all())

    def all(self):
        return [(host, int(port)) for host, port in self._bootstrap]

    async def ask(self, address, message):
        async with asyncio.timeout(TIMEOUT_S):
            connection = self.open.get(address)
            if connection is None or connection.is_closed:
                loop = asyncio.get_running_loop()
                connection = await RpcConnection.open(loop, *address, client_id=self.name, timeout_s=3)
                self.open[address] = connection
            return await connection.request(message)

    async def ask_until(self, message, is_done, *, address=None):
        """Ask any broker, or that one, again and again until an answer will do; returns it."""
        while True:
            try:
                answer = await self.ask(self.any() if address is None else address, message)
                if is_done(answer):
                    return answer
            except PASSING:
                self.close()
            await asyncio.sleep(0.3)

    def close(self, address=None):
        for each in [address] if address is not None else list(self.open):
            connection = self.open.pop(each, None)
            if connection is not None:
                connection.close()
