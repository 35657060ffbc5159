"""A TCP proxy in front of a replica that knows who connects, and can drop what one replica says to another.

A request of Kafka's protocol begins with its size, key, version, correlation id and the client's id, which ends in the
id of the node that asks.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import struct


class Network:
    """All the proxies of a cluster.

    Attributes:
        cut: Pairs (from, to): nothing that the first one sends reaches the second one, requests and answers alike.
    """

    def __init__(self):
        self.cut = set()
        self._servers = []
        self._tasks = set()

    async def listen(self, node_id, port, target_port):
        """Forward what comes to ``port`` to the replica that listens on ``target_port``."""

        async def serve(reader, writer):
            task = asyncio.current_task()
            self._tasks.add(task)
            try:
                await self._serve(node_id, target_port, reader, writer)
            except (OSError, asyncio.IncompleteReadError, asyncio.CancelledError):
                pass  # one end is gone, or all is over
            finally:
                self._tasks.discard(task)
                writer.close()

        self._servers.append(await asyncio.start_server(serve, "127.0.0.1", port))

    async def _serve(self, node_id, target_port, reader, writer):
        head = await reader.readexactly(14)
        (length,) = struct.unpack(">h", head[12:14])
        client_id = await reader.readexactly(max(0, length))
        found = re.search(rb"(\d+)$", client_id)
        asker = int(found[1]) if found else None
        target_reader, target_writer = await asyncio.open_connection("127.0.0.1", target_port)
        try:
            await self._pass_on(head + client_id, target_writer, (asker, node_id))
            there = asyncio.ensure_future(self._copy(reader, target_writer, (asker, node_id)))
            back = asyncio.ensure_future(self._copy(target_reader, writer, (node_id, asker)))
            _, pending = await asyncio.wait({there, back}, return_when=asyncio.FIRST_COMPLETED)
            for task in pending:
                task.cancel()
            for task in (there, back):
                with contextlib.suppress(asyncio.CancelledError, OSError):
                    await task
        finally:
            target_writer.close()

    async def _copy(self, reader, writer, way):
        while data := await reader.read(1 << 16):
            await self._pass_on(data, writer, way)

    async def _pass_on(self, data, writer, way):
        while way in self.cut:  # noqa: ASYNC110 - a set that tests change
            await asyncio.sleep(0.02)  # as TCP does: late, never lost in the middle
        writer.write(data)
        await writer.drain()

    async def close(self):
        """End everything."""
        for server in self._servers:
            server.close()
        for task in list(self._tasks):
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
