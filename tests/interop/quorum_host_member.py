"""A process with a ``kraftlog.QuorumHost``: a line of JSON in, a line of JSON out.

python quorum_host_member.py '{"node_id": 1, "data_dir": ..., "voters": {...}, "names": ["a", "b"]}'
"""

from __future__ import annotations

import asyncio
import json
import sys

import kraftlog
from kraftlog.errors import KraftlogError


class Journal(kraftlog.StateMachine):
    """Every command in order."""

    def __init__(self):
        self.commands = []

    def apply(self, batch):
        self.commands.extend(command.decode() for command in batch.commands)

    def snapshot(self):
        return [command.encode() for command in self.commands]

    def restore(self, records):
        self.commands = [record.decode() for record in records]


async def answer(host, machines, request):
    """What a line asks for."""
    name = request["name"]
    quorum = host.quorums[name]
    match request["do"]:
        case "propose":
            return await quorum.propose([request["command"].encode()], timeout_s=30)
        case "read":
            await quorum.read_barrier(timeout_s=30)
            return machines[name].commands
        case "leader":
            return quorum.leader_id
        case "lead":
            return await quorum.transfer_leadership(request["node_id"])
    raise ValueError(request["do"])


async def main():
    """Serve until the end of the input."""
    options = json.loads(sys.argv[1])
    names = options.pop("names")
    options["voters"] = {int(node_id): address for node_id, address in options["voters"].items()}
    machines = {name: Journal() for name in names}
    loop = asyncio.get_running_loop()
    async with kraftlog.QuorumHost(**options) as host:
        await asyncio.gather(*(host.open(name, machine) for name, machine in machines.items()))
        print(json.dumps({"address": host.address}), flush=True)
        while line := await loop.run_in_executor(None, sys.stdin.readline):
            try:
                print(json.dumps({"answer": await answer(host, machines, json.loads(line))}), flush=True)
            except KraftlogError as error:
                print(json.dumps({"error": type(error).__name__, "text": str(error)}), flush=True)


if __name__ == "__main__":
    asyncio.run(main())
