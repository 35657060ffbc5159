"""State machines, and quorums of several replicas in one process."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import asynccontextmanager

import kraftlog
from free_ports import free_addresses
from waiting import until

QUICK = {
    "controller.quorum.election.timeout.ms": 300,
    "controller.quorum.fetch.timeout.ms": 600,
    "controller.quorum.election.backoff.max.ms": 100,
    "controller.quorum.request.timeout.ms": 500,
}


class Journal(kraftlog.StateMachine):
    """Keeps every command, and every call."""

    def __init__(self):
        self.commands: list[bytes] = []
        self.batches: list[kraftlog.quorum.CommittedBatch] = []
        self.calls: list[tuple[object, ...]] = []

    def apply(self, batch):
        self.batches.append(batch)
        self.commands += batch.commands
        self.calls.append(("apply", batch.base_offset, batch.last_offset))
        return [len(self.commands) - len(batch) + index for index in range(len(batch))]

    def snapshot(self):
        self.calls.append(("snapshot",))
        return list(self.commands)

    def restore(self, records):
        self.commands = list(records)
        self.calls.append(("restore", len(records)))

    def on_leader_change(self, leader_id, epoch):
        self.calls.append(("leader", leader_id, epoch, len(self.commands)))

    def on_stop(self, error):
        self.calls.append(("stop", error))

    def named(self, name):
        return [call for call in self.calls if call[0] == name]


class Members:
    """Replicas by node id, each with its machine."""

    def __init__(self, home, voters, config):
        self.home, self.voters, self.config = home, voters, config
        self.machines: dict[int, Journal] = {}
        self.nodes: dict[int, kraftlog.AsyncQuorum] = {}

    async def start(self, node_id, machine=None, **options):
        self.machines[node_id] = machine = machine or Journal()
        options = {"voters": self.voters, **options} if "join" not in options else options
        quorum = kraftlog.Quorum(
            machine,
            node_id=node_id,
            data_dir=self.home / str(node_id),
            timeout_s=20,
            config={**QUICK, **self.config},
            **options,
        )
        self.nodes[node_id] = node = await quorum.__aenter__()
        return node

    async def stop(self, node_id):
        await self.nodes.pop(node_id).close()

    async def crash(self, node_id):
        """Stop without handing leadership over: the others have to notice."""
        node = self.nodes.pop(node_id)
        node._replica.tell_stop(None)
        node._log.is_open = False
        await node._log.stop(node._replica.close)
        node._routes.close()
        node._server.close()
        node._log_dir.release()

    async def leader(self) -> kraftlog.AsyncQuorum:
        await until(lambda: any(node.is_leader for node in self.nodes.values()))
        return next(node for node in self.nodes.values() if node.is_leader)

    def followers(self) -> Iterator[kraftlog.AsyncQuorum]:
        return (node for node in self.nodes.values() if not node.is_leader)

    def machine(self, node) -> Journal:
        return self.machines[node.node_id]

    async def close(self):
        await asyncio.gather(*(node.close() for node in self.nodes.values()))


@asynccontextmanager
async def members(home, count, **config):
    """A quorum of so many voters; config with underscores for dots."""
    addresses = free_addresses(count)
    found = Members(
        home,
        {index + 1: address for index, address in enumerate(addresses)},
        {key.replace("_", "."): value for key, value in config.items()},
    )
    try:
        for node_id in found.voters:
            await found.start(node_id)
        yield found
    finally:
        await found.close()
