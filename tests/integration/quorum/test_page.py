"""The store of docs/how-to/replicated-state-machine.md: three processes, one killed, reads still linearizable."""

from __future__ import annotations

import asyncio
import contextlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import kraftlog
from certificates import Authority
from free_ports import free_addresses
from waiting import until

PAGE = Path(__file__).resolve().parents[3] / "docs" / "how-to" / "replicated-state-machine.md"
EXAMPLE, SESSION, FEED, GROWTH, MANY, ENCRYPTION = re.findall(r"```python[^\n]*\n(.*?)```", PAGE.read_text(), re.DOTALL)


def test_the_example_is_short():
    assert len(EXAMPLE.splitlines()) < 60


class Terminal:
    """One process that a person types into."""

    def __init__(self, home, node_id):
        self.node_id = node_id
        self.process = subprocess.Popen(
            [sys.executable, "kv.py", str(node_id)],
            cwd=home,
            env={**os.environ, "PYTHONPATH": str(Path(kraftlog.__file__).parents[1])},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def type(self, line):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.process.stdout.readline().strip()


@pytest.fixture
def home(tmp_path):
    code = EXAMPLE
    for port, address in zip((7001, 7002, 7003), free_addresses(3), strict=True):
        code = code.replace(f"127.0.0.1:{port}", address)
    (tmp_path / "kv.py").write_text(code)
    return tmp_path


def test_the_store_of_the_page_outlives_a_killed_process(home):
    nodes = [Terminal(home, node_id) for node_id in (1, 2, 3)]
    try:
        assert nodes[0].type("set colour green") == "None -> green"
        assert [node.type("get colour") for node in nodes] == ["green"] * 3
        assert nodes[1].type("swap colour green blue") == "green -> blue"
        assert nodes[2].type("swap colour green red") == "refused, it is blue"
        for round_, killed in enumerate((0, 1)):
            nodes[killed].process.kill()
            nodes[killed].process.wait()
            rest = [node for node in nodes if node is not nodes[killed]]
            for index, terminal in enumerate(rest):
                value = f"{round_}-{index}"
                assert terminal.type(f"set colour {value}").endswith(f"-> {value}")
                assert [other.type("get colour") for other in rest] == [value] * 2
            nodes[killed] = Terminal(home, killed + 1)
            assert nodes[killed].type("get colour") == value
        assert nodes[0].type("what") == "get KEY | set KEY VALUE | swap KEY EXPECTED VALUE"
    finally:
        for node in nodes:
            with contextlib.suppress(OSError):
                node.process.stdin.close()
        for node in nodes:
            node.process.wait(30)


def run_page(continuation):
    """The names that the example, short of its last line, and a continuation of it define."""
    space = {"__name__": "page"}
    code = EXAMPLE[: EXAMPLE.index("asyncio.run(")] + continuation
    for port, address in zip((7001, 7002, 7003, 7004), free_addresses(4), strict=True):
        code = code.replace(f"127.0.0.1:{port}", address)
    exec(compile(code, str(PAGE), "exec"), space)
    return space


def test_the_session_of_the_page_and_what_follows_it(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    space = run_page(SESSION + FEED)
    found = []

    async def run():
        stores = [space["KeyValue"]() for _ in range(3)]
        async with contextlib.AsyncExitStack() as stack:
            for node_id in (2, 3):
                machine = kraftlog.SessionMachine(stores[node_id - 1])
                quorum = kraftlog.Quorum(
                    machine, node_id=node_id, data_dir=tmp_path / str(node_id), voters=space["VOTERS"]
                )
                last = await stack.enter_async_context(quorum)
            await space["count"](1, stores[0])
            assert stores[0].data == {"visits": 1}
            await last.propose([b'{"key": "a", "value": "b"}'])

            def handle(offset, command):
                called = kraftlog.quorum.session_command(command)
                found.append((offset, command if called is None else called.command))

            feeding = asyncio.ensure_future(space["feed"](last, handle, 0))
            await until(lambda: found and b'"a"' in found[-1][1])
            feeding.cancel()

    asyncio.run(asyncio.wait_for(run(), 60))
    assert [command for _, command in found if command.startswith(b"{")] == [
        b'{"key": "visits", "value": 1}',
        b'{"key": "a", "value": "b"}',
    ]


def test_the_members_of_the_page_grow(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    space = run_page(GROWTH)

    async def run():
        async with contextlib.AsyncExitStack() as stack:
            for node_id in (1, 2, 3):
                quorum = kraftlog.Quorum(
                    space["KeyValue"](), node_id=node_id, data_dir=tmp_path / str(node_id), voters=space["VOTERS"]
                )
                last = await stack.enter_async_context(quorum)
            await last.propose([b'{"key": "a", "value": "b"}'])
            store = space["KeyValue"]()
            await space["grow"](None, store)
            assert store.data == {"a": "b"}

    asyncio.run(run())
    assert "leader_id=" in capsys.readouterr().out


def test_the_shards_of_the_page(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    space = run_page(MANY)

    async def run():
        async with contextlib.AsyncExitStack() as stack:
            for node_id in (2, 3):
                host = kraftlog.QuorumHost(data_dir=tmp_path / str(node_id), node_id=node_id, voters=space["VOTERS"])
                await stack.enter_async_context(host)
                for number in range(3):
                    await host.open(f"shard-{number}", space["KeyValue"]())
            await space["shards"](1, 3)

    asyncio.run(asyncio.wait_for(run(), 60))
    assert capsys.readouterr().out.count("None -> 1") == 3


def test_the_members_of_the_page_encrypt(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    authority = Authority()
    authority.issue("replica").write(tmp_path / "identity.pem")
    (tmp_path / "trusted.pem").write_text(authority.certificate)
    space = run_page(ENCRYPTION)

    async def run():
        stores = [space["KeyValue"]() for _ in range(3)]
        async with contextlib.AsyncExitStack() as stack:
            nodes = [
                await stack.enter_async_context(space["encrypted"](store, node_id))
                for node_id, store in enumerate(stores, 1)
            ]
            for node in nodes:
                await node.propose([b'{"key": "a", "value": "b"}'])
            await nodes[0].read_barrier()
            assert stores[0].data == {"a": "b"}

    asyncio.run(run())
