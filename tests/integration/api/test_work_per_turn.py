"""A request of very many entries is handled a few at a time, whatever the API: no clock, only calls are counted.

Slices end after their first step here. One callback of the event loop then makes as many calls of functions as the
handler needs for the entries between two of its places where others are served. A handler that goes through all
entries without such a place makes at least one call per entry.
"""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import pytest

import kraftlog
from kraftlog.api.handler_table import APIS
from kraftlog.api.slices import Pauses
from kraftlog.runtime.metadata import active_controller
from kraftlog.transport import connection, scheduler
from kraftlog.types import Uuid
from kraftlog.wire.registry import API_BY_KEY
from large_shapes import World, make_world, shapes_of
from raw_client import RawClient

ENTRIES = 7_000
# Calls of one callback: 64 entries that take 100 calls each. One call per entry is more.
CALLS_MAX = 6_500
PARTITIONS = 50
# Handlers that have a step of one or two calls per entry, and how many calls those are; 0.1 microseconds each.
STEPS_PER_ENTRY = {
    "DescribeLogDirs": 2,
    "DescribeShareGroupOffsets": 2,
    "ElectLeaders": 2,
    "ListPartitionReassignments": 4,
    "OffsetDelete": 2,
    "CreateTopics": 2,
    "CreatePartitions": 3,
    "AlterPartitionReassignments": 2,
}


@dataclass
class Loop:
    """What the callbacks of the event loop of a node did since ``begin``.

    Attributes:
        calls: Of functions, Python's and others, by the callback that made most of them.
        callback: The method or function.
        thread: Of the loop; others are not counted.
    """

    calls: int = 0
    callback: str = ""
    thread: int = 0
    _counted: list[int] = field(default_factory=lambda: [0])

    def begin(self) -> None:
        self.calls = 0
        self.callback = ""

    def run(self, handle: Any, original: Any) -> None:
        if threading.get_ident() != self.thread:
            original(handle)
            return
        counted = self._counted
        counted[0] = 0
        text = getattr(handle._callback, "__qualname__", repr(handle._callback))

        def count(_frame: Any, event: str, _argument: Any) -> None:
            if event in ("call", "c_call"):
                counted[0] += 1

        sys.setprofile(count)
        try:
            original(handle)
        finally:
            sys.setprofile(None)
            if counted[0] > self.calls:
                self.calls, self.callback = counted[0], text


@contextmanager
def small_slices() -> Iterator[Loop]:
    """Each slice has one step; the callbacks of one event loop are counted."""
    loop = Loop()
    original = asyncio.events.Handle._run
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(scheduler, "SLICE_S", 0.0)
        patch.setattr(scheduler, "TURN_S", 0.0)
        patch.setattr(connection, "SLICE_S", 0.0)
        patch.setattr(active_controller, "TURN_NS", 0)
        patch.setattr(asyncio.events.Handle, "_run", lambda handle: loop.run(handle, original))
        yield loop


class Node:
    """A node in this process, whose loop is counted.

    Args:
        broker: Is running.
        loop: Of the broker.
    """

    def __init__(self, broker: kraftlog.Broker, loop: Loop) -> None:
        self.loop = loop
        ports = {end_point.listener_name: end_point.port for end_point in broker._embedded.running.end_points()}
        controller_port = next(port for name, port in ports.items() if "CONTROLLER" in name)
        self.addresses = {"broker": broker.bootstrap_servers, "controller": f"127.0.0.1:{controller_port}"}
        self.world = make_world(broker.bootstrap_servers, PARTITIONS, "")
        loop.thread = next(thread.ident or 0 for thread in threading.enumerate() if thread.name == "kraftlog-broker")

    def calls_of(self, key: int, listener: str) -> dict[str, int]:
        """The most calls of one callback for each large request of an API."""
        calls = {}
        shapes = {shape.name.rpartition(" ")[0]: shape for shape in shapes_of(key, self.world, ENTRIES)}
        for name, shape in shapes.items():  # those of known things, if there are any
            self.loop.begin()
            with RawClient(self.addresses[listener], timeout_s=60) as client:
                client.send(shape.request, shape.version)
                size = client.sock.recv(4, socket.MSG_WAITALL)
                if size:  # else an API without a place for an error, or a request that the node refuses
                    client._exactly(int.from_bytes(size, "big"))
            calls[f"{name} in {self.loop.callback}"] = self.loop.calls
        return calls


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Node]:
    config = {"kraftlog.data.path": "python", "auto.create.topics.enable": "false", "log.flush.on.ack": "false"}
    with small_slices() as loop, kraftlog.Broker(tmp_path_factory.mktemp("data"), config=config) as broker:
        yield Node(broker, loop)


def listener_of(key: int) -> str:
    """The listener of clients, or else that of the controller."""
    return "broker" if "broker" in API_BY_KEY[key].listeners else "controller"


def has_array(key: int) -> bool:
    return next(shapes_of(key, World(topic="", topic_id=Uuid(bytes(16)), partitions=1), 1), None) is not None


@pytest.mark.parametrize(
    "key",
    [key for key in APIS if API_BY_KEY[key].listeners and has_array(key)],
    ids=lambda key: API_BY_KEY[key].name,
)
def test_no_callback_handles_all_entries_of_a_request(node: Node, key: int) -> None:
    calls = node.calls_of(key, listener_of(key))
    assert calls
    most = max(CALLS_MAX, ENTRIES * STEPS_PER_ENTRY.get(API_BY_KEY[key].name, 0))
    assert {name: count for name, count in calls.items() if count > most} == {}


def test_a_handler_that_lets_nobody_in_is_noticed(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Pauses, "is_due", lambda _pauses: False)
    assert max(node.calls_of(32, "broker").values()) > CALLS_MAX  # DescribeConfigs
