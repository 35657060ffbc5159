"""Replicas in processes of their own, behind proxies, and what can be done to them."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import json
import os
import resource
import signal
import sys
from pathlib import Path

from free_ports import free_ports
from linearizability.proxy import Network

MEMBER = Path(__file__).with_name("member.py")
SHORT_TIMERS = {
    "controller.quorum.election.timeout.ms": 300,
    "controller.quorum.fetch.timeout.ms": 600,
    "controller.quorum.election.backoff.max.ms": 100,
    "controller.quorum.request.timeout.ms": 600,
}


class MemberGoneError(Exception):
    """The process ended, or its answer did not come."""


class Member:
    """One replica; its process may change."""

    def __init__(self, node_id, home, *, voters, listen, config, arguments):
        self.node_id = node_id
        self.options = {
            "node_id": node_id,
            "data_dir": str(home / str(node_id)),
            "voters": voters,
            "listen": listen,
            "config": config,
        }
        self.arguments = arguments
        self.errors_path = home / f"{node_id}.err"
        self.process = None
        self._numbers = itertools.count(1)
        self._waiting = {}
        self._reading = None
        self._writer = None

    async def start(self):
        """Start the process and wait until it takes requests; its port may be somebody's for a moment."""
        for _ in range(20):
            with self.errors_path.open("w") as errors:
                self.process = await asyncio.create_subprocess_exec(
                    sys.executable,
                    str(MEMBER),
                    json.dumps(self.options),
                    *self.arguments,
                    stdout=asyncio.subprocess.PIPE,
                    stderr=errors,
                    env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
                )
            line = await self.process.stdout.readline()
            if line:
                break
            await self.process.wait()
            await asyncio.sleep(0.25)
        else:
            raise MemberGoneError(f"replica {self.node_id} did not start: {self.errors_path.read_text()[-2000:]}")
        reader, self._writer = await asyncio.open_connection("127.0.0.1", json.loads(line)["port"], limit=1 << 24)
        self._reading = asyncio.ensure_future(self._read(reader))

    async def _read(self, reader):
        with contextlib.suppress(OSError):
            while line := await reader.readline():
                answer = json.loads(line)
                future = self._waiting.pop(answer["id"], None)
                if future is not None and not future.done():
                    future.set_result(answer)
        self._give_up()

    def _give_up(self):
        waiting, self._waiting = self._waiting, {}
        for future in waiting.values():
            if not future.done():
                future.set_exception(MemberGoneError(f"replica {self.node_id} is gone"))

    async def ask(self, timeout_s=8.0, **request):
        """Its answer.

        Raises:
            MemberGoneError: None came; whether it did anything is not known.
        """
        if self._writer is None or self._reading is None or self._reading.done():
            raise MemberGoneError(f"replica {self.node_id} is down")
        number = next(self._numbers)
        future = self._waiting[number] = asyncio.get_running_loop().create_future()
        try:
            self._writer.write(json.dumps({"id": number, **request}).encode() + b"\n")
            async with asyncio.timeout(timeout_s):
                return await future
        except (TimeoutError, OSError) as error:
            raise MemberGoneError(f"replica {self.node_id} does not answer") from error
        finally:
            self._waiting.pop(number, None)

    @property
    def is_running(self):
        return self.process is not None and self.process.returncode is None

    async def kill(self):
        """SIGKILL."""
        if self.is_running:
            with contextlib.suppress(ProcessLookupError):
                self.process.kill()
        if self.process is not None:
            await self.process.wait()
        if self._writer is not None:
            self._writer.close()
        if self._reading is not None:
            await asyncio.wait({self._reading})

    def signal(self, number):
        if self.is_running:
            with contextlib.suppress(ProcessLookupError):
                self.process.send_signal(number)

    def fill_disk(self):
        """No file of the process may grow from now on: writes fail as on a full disk."""
        if self.is_running:
            _, hard = resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE)
            resource.prlimit(self.process.pid, resource.RLIMIT_FSIZE, (1, hard))


class Cluster:
    """Replicas behind proxies; use as an asynchronous context."""

    def __init__(self, home, count=3, *, config=SHORT_TIMERS, arguments=()):
        self.network = Network()
        ports = free_ports(2 * count)
        self._ports = dict(zip(range(1, count + 1), zip(ports[:count], ports[count:], strict=True), strict=True))
        voters = {str(node_id): f"127.0.0.1:{port}" for node_id, (port, _) in self._ports.items()}
        self.members = {
            node_id: Member(node_id, home, voters=voters, listen=f"127.0.0.1:{own}", config=config, arguments=arguments)
            for node_id, (_, own) in self._ports.items()
        }

    async def __aenter__(self):
        for node_id, (port, own) in self._ports.items():
            await self.network.listen(node_id, port, own)
        await asyncio.gather(*(member.start() for member in self.members.values()))
        return self

    async def __aexit__(self, *_):
        for member in self.members.values():
            member.signal(signal.SIGCONT)
            await member.kill()
        await self.network.close()

    async def leader(self, *, above_epoch=0, pause_s=0.005, timeout_s=60.0):
        """The replica that leads the highest epoch, once there is one; with that epoch."""

        async def look(member):
            try:
                answer = await member.ask(timeout_s=0.5, do="status")
            except MemberGoneError:
                return None
            is_leader, _, epoch, _ = answer["result"]
            return (epoch, member) if is_leader and epoch > above_epoch else None

        async with asyncio.timeout(timeout_s):
            while True:
                found = [answer for answer in await asyncio.gather(*map(look, self.members.values())) if answer]
                if found:
                    epoch, member = max(found, key=lambda one: one[0])
                    return member, epoch
                await asyncio.sleep(pause_s)
