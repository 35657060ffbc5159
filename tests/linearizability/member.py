"""A process with one replica of a ``kraftlog.Quorum`` whose state are registers; many requests at a time.

    python member.py '{"node_id": 1, "data_dir": ..., "voters": {"1": "127.0.0.1:7001"}}' [stale]

It prints one line of JSON with the port where it takes requests: lines of JSON, each answered by a line with the same
``id``. With ``stale`` it reads without asking whether it is up to date.
"""

from __future__ import annotations

import asyncio
import json
import sys

import kraftlog
from kraftlog.errors import DeadlineError, KraftlogError, QuorumError


class Registers(kraftlog.StateMachine):
    """Values by key, and how often each command was applied, by its id."""

    def __init__(self):
        self.values = {}
        self.applied = {}

    def apply(self, batch):
        return [self._apply(json.loads(command)) for command in batch.commands]

    def _apply(self, command):
        key, value = command["key"], command["value"]
        self.applied[value] = self.applied.get(value, 0) + 1
        before = self.values.get(key)
        if command["do"] == "write" or before == command["expected"]:
            self.values[key] = value
            return True
        return False

    def snapshot(self):
        return [json.dumps([self.values, self.applied]).encode()]

    def restore(self, records):
        self.values, self.applied = json.loads(records[0])


async def answer(quorum, registers, request, *, is_stale):
    """The result of a request, or what is known of one that failed."""
    timeout_s = request.get("timeout_s", 5)
    try:
        match request["do"]:
            case "read":
                if not is_stale:
                    await quorum.read_barrier(timeout_s=timeout_s)
                return {"result": registers.values.get(request["key"])}
            case "write" | "cas":
                (result,) = await quorum.call([json.dumps(request).encode()], timeout_s=timeout_s)
                return {"result": result}
            case "propose":
                await quorum.propose([json.dumps({**request, "do": "write"}).encode()], timeout_s=timeout_s)
                return {"result": True}
            case "status":
                return {"result": [quorum.is_leader, quorum.leader_id, quorum.epoch, quorum.applied_end_offset]}
            case "applied":
                await quorum.read_barrier(timeout_s=timeout_s)
                return {"result": registers.applied}
            case other:
                raise ValueError(other)
    except (DeadlineError, QuorumError) as error:
        return {"error": repr(error), "may_be_committed": error.may_be_committed}
    except KraftlogError as error:
        return {"error": repr(error), "may_be_committed": True}


async def main():
    options = json.loads(sys.argv[1])
    options["voters"] = {int(node_id): address for node_id, address in options["voters"].items()}
    is_stale = "stale" in sys.argv[2:]
    registers = Registers()
    tasks = set()
    async with kraftlog.Quorum(registers, **options) as quorum:

        async def serve(reader, writer):
            async def handle(line):
                request = json.loads(line)
                found = await answer(quorum, registers, request, is_stale=is_stale)
                writer.write(json.dumps({"id": request["id"], **found}).encode() + b"\n")

            while line := await reader.readline():
                task = asyncio.ensure_future(handle(line))
                tasks.add(task)
                task.add_done_callback(tasks.discard)

        server = await asyncio.start_server(serve, "127.0.0.1", 0, limit=1 << 24)
        print(json.dumps({"port": server.sockets[0].getsockname()[1]}), flush=True)
        print(json.dumps({"failure": repr(await quorum.wait_failed())}), flush=True)
    sys.exit(3)


if __name__ == "__main__":
    asyncio.run(main())
