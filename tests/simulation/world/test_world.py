"""Whole nodes in virtual time."""

from __future__ import annotations

import asyncio
import errno
import hashlib
import io
import logging
import random
import time
from collections.abc import Iterator

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from kraftlog.storage.atomic_file import replace_file
from kraftlog.storage.memory_path import MEMORY_ROOT, MemoryPath
from kraftlog.testing.world.machine import Machine
from kraftlog.testing.world.node_machine import ClusterShape, NodeMachine, make_cluster
from kraftlog.testing.world.world import StuckError, World

MINUTE_MS = 60_000.0
DAMAGES = ("nothing", "suffix", "torn", "pages")


@pytest.fixture
def world() -> Iterator[World]:
    with World(7) as world:
        yield world


def started(world: World, machines: list[NodeMachine]) -> None:
    for machine in machines:
        if machine.start_task is None:
            machine.start_node()
    world.run_until(lambda: all(machine.is_serving for machine in machines), within_ms=2 * MINUTE_MS)


def unexpected(machines: list[NodeMachine]) -> list[object]:
    """What no callback of a node may raise."""
    return [failure for machine in machines for failure in machine.loop.failures]


def test_an_hour_passes_at_once(world):
    machine = Machine(world, "machine")

    async def sleep() -> tuple[float, float]:
        began_s = asyncio.get_running_loop().time(), time.monotonic()
        await asyncio.sleep(3600)
        return asyncio.get_running_loop().time() - began_s[0], time.monotonic() - began_s[1]

    by_loop_s, by_module_s = world.run(machine, sleep(), within_ms=2 * 3_600_000)
    assert 3600 <= by_loop_s < 3601
    assert 3600 <= by_module_s < 3601


@pytest.mark.parametrize("cancel_at", ["its way", "its arrival"])
def test_a_connection_whose_caller_has_gone_is_closed(world, monkeypatch, cancel_at):
    """A task that ended while its connection was being made kept a socket (INV-33)."""
    server, client = Machine(world, "server"), Machine(world, "client")
    world.network.listen(server, 9092)
    tasks: list[asyncio.Task[object]] = []

    async def connect() -> None:
        await client.loop.create_connection(asyncio.Protocol, server.address, 9092)

    async def begin() -> None:
        tasks.append(asyncio.ensure_future(connect()))

    connect_to = world.network.connect

    def cancelling(machine, address, connected):
        def heard(result):
            connected(result)
            if cancel_at == "its arrival":
                tasks[0].cancel()

        connect_to(machine, address, heard)

    monkeypatch.setattr(world.network, "connect", cancelling)
    world.run(client, begin())
    if cancel_at == "its way":
        world.run_until(lambda: any(sock.machine is client for sock in world.network.sockets.values()), within_ms=100)
        client.loop.call_soon(tasks[0].cancel)
    world.run_until(tasks[0].done, within_ms=100)
    assert tasks[0].cancelled()
    assert client.open_sockets() == []
    world.run_for(100)
    assert not [sock for sock in world.network.sockets.values() if sock.machine is client]


def test_the_process_keeps_its_clock_and_its_chance():
    random.seed(5)
    expected = random.random()
    random.seed(5)
    before_s = time.time()
    with World(1) as world:
        assert time.time() - before_s < 60, "outside a machine it is the time of the process"
        assert abs(world.wall_ms() / 1000 - before_s) > 3600
        random.random()
    assert random.random() == expected


def test_a_world_in_which_nothing_can_happen_says_so(world):
    with pytest.raises(StuckError, match="seed 7"):
        world.run_until(lambda: False, within_ms=1)


def test_a_crash_loses_what_was_not_synced(world):
    machine = Machine(world, "machine")
    kept, lost = machine.path / "kept", machine.path / "lost"
    replace_file(kept, b"durable")
    lost.write_bytes(b"gone")
    with kept.open("ab", buffering=0) as file:
        file.write(b" and more")
    assert kept.read_bytes() == b"durable and more"
    machine.stop(data="everything", names="everything")
    assert kept.read_bytes() == b"durable"
    assert not lost.exists()
    assert [path.name for path in machine.path.iterdir()] == ["kept"]


def test_paths_in_memory_behave_like_paths(world):
    directory = Machine(world, "machine").path / "a" / "b"
    with pytest.raises(FileNotFoundError):
        directory.mkdir()
    directory.mkdir(parents=True)
    directory.mkdir(exist_ok=True)
    file = directory / "one.log"
    file.write_text("text", encoding="utf-8")
    assert type(directory / "x") is type(file.parent) is MemoryPath
    assert file.stat().st_size == 4
    with pytest.raises(FileExistsError):
        file.open("xb")
    with pytest.raises(io.UnsupportedOperation):
        file.open("rb", buffering=0).fileno()
    assert [path.name for path in directory.glob("*.log")] == ["one.log"]
    directory.rename(directory.with_name("c"))
    assert (directory.with_name("c") / "one.log").read_text(encoding="utf-8") == "text"
    with pytest.raises(FileNotFoundError):
        file.read_bytes()
    with pytest.raises(FileNotFoundError):
        MemoryPath(MEMORY_ROOT, "no-such-disk", "x").read_bytes()


def test_a_full_disk_is_the_errors_of_a_full_disk(world):
    machine = Machine(world, "machine")
    machine.disk.set_capacity(3)
    with pytest.raises(OSError, match="No space left") as raised:
        replace_file(machine.path / "file", b"too long")
    assert raised.value.errno == errno.ENOSPC


def digest(machines: list[NodeMachine]) -> str:
    """Of all files on all disks, and of how it came to them."""
    found = hashlib.sha256()

    def add(path: MemoryPath) -> None:
        for entry in path.iterdir():
            if entry.is_dir():
                add(entry)
            else:
                found.update("/".join(entry.parts[3:]).encode() + entry.read_bytes())

    for machine in machines:
        add(machine.path)
        found.update(f"{machine.world.now_ns} {machine.world.event_count}".encode())
    return found.hexdigest()


def run_controllers(seed: int) -> str:
    with World(seed) as world:
        machines = make_cluster(world, ClusterShape(controllers=3, brokers=1))
        started(world, machines)
        for _ in range(4):
            machine = world.rng.choice(machines)
            machine.stop(data=world.rng.choice(DAMAGES), names=world.rng.choice(("nothing", "suffix")))
            world.run_for(world.rng.uniform(100, 8000))
            machine.start_node()
        started(world, machines)
        world.run_for(10_000)

        def offsets() -> set[int]:
            return {machine.node.metadata.image.offset for machine in machines if machine.node is not None}

        # A record is on its way now and then: the controller writes one every half second.
        world.run_until(lambda: len(offsets()) == 1, within_ms=1_000)
        assert not unexpected(machines)
        return digest(machines)


@pytest.mark.parametrize("seed", range(3))
def test_the_same_seed_leaves_the_same_bytes_on_every_disk(seed):
    assert run_controllers(seed) == run_controllers(seed)


def test_aiokafka_reads_what_it_wrote_through_a_group_of_a_replicated_cluster(world, caplog):
    caplog.set_level(logging.CRITICAL, "aiokafka")
    machines = make_cluster(world, ClusterShape(controllers=3, brokers=3))
    started(world, machines)
    servers = ",".join(f"{machine.name}:9092" for machine in machines if "broker" in machine.roles)

    async def exchange() -> list[int]:
        admin = AIOKafkaAdminClient(bootstrap_servers=servers)
        await admin.start()
        await admin.create_topics([NewTopic("numbers", 3, 3)])
        await admin.close()
        producer = AIOKafkaProducer(bootstrap_servers=servers, acks="all", enable_idempotence=True)
        await producer.start()
        for number in range(50):
            await producer.send_and_wait("numbers", str(number).encode())
        await producer.stop()
        consumer = AIOKafkaConsumer(
            "numbers",
            bootstrap_servers=servers,
            group_id="readers",
            auto_offset_reset="earliest",
            session_timeout_ms=30 * 60_000,
        )
        await consumer.start()
        found = [int((await consumer.getone()).value) for _ in range(50)]
        await consumer.commit()
        await consumer.stop()
        return found

    assert sorted(world.run(Machine(world, "client"), exchange(), within_ms=5 * MINUTE_MS)) == list(range(50))
    assert not unexpected(machines)
