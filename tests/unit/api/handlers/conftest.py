"""A node that has metadata and settings but no sockets: handlers are called straight."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any

import pytest

from kraftlog._kraftlog import read_batches
from kraftlog.api.context import RequestContext
from kraftlog.api.handler_table import APIS, LazyHandler
from kraftlog.api.topic_views import TopicViews
from kraftlog.controller.delta import MetadataDelta
from kraftlog.controller.image import MetadataImage
from kraftlog.node.config import NodeConfig
from kraftlog.node.dynamic_settings import DynamicSettings
from kraftlog.node.settings import api_settings
from kraftlog.security.principal import ANONYMOUS
from kraftlog.transport.exchange import PeerContext
from kraftlog.types import Uuid
from kraftlog.wire.messages.metadata_records import FeatureLevelRecord, RegisterBrokerRecord
from kraftlog.wire.records import decode_metadata_record

GOLDEN = Path(__file__).resolve().parents[3] / "golden"

PROPERTIES = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093",
    "controller.listener.names": "CONTROLLER",
    "controller.quorum.bootstrap.servers": "127.0.0.1:9093",
    "log.dirs": "/nowhere",
}


@dataclass
class Metadata:
    """What handlers see of the metadata quorum, with every submitted operation committed at once."""

    image: MetadataImage
    loop: asyncio.AbstractEventLoop
    node_id: int = 1
    cluster_id: str = "6ukEYB2qBMCQ4OIrSkFKQA"
    is_leader: bool = True
    quorum: Any = None
    listeners: list[Callable[[MetadataImage, MetadataDelta], None]] = field(default_factory=list)

    def describe_quorum(self) -> Any:
        return self.quorum

    def add_listener(self, listener: Callable[[MetadataImage, MetadataDelta], None]) -> None:
        self.listeners.append(listener)

    def submit_request(
        self, request: Any, *, timeout_s: float | None = None, charge: Any = None
    ) -> asyncio.Future[Any]:
        from kraftlog.controller.core import ControllerConfig, ControllerCore
        from kraftlog.controller.operations import operation_of

        config = ControllerConfig(cluster_id=self.cluster_id, static_broker_configs=self.static)
        core = ControllerCore(config, self.image.copy(), rng=Random(1))
        future: asyncio.Future[Any] = self.loop.create_future()
        result = operation_of(request).run(core, request, 0)
        delta = MetadataDelta()
        for record, _ in result.records:
            self.image.replay(record, delta)
        for listener in self.listeners:
            listener(self.image, delta)
        future.set_result(result.response)
        return future

    static: Mapping[str, str] = field(default_factory=dict)


@contextmanager
def running(loop: asyncio.AbstractEventLoop) -> Iterator[None]:
    """Let handlers make futures of a loop that does not run at the moment."""
    asyncio._set_running_loop(loop)
    try:
        yield
    finally:
        asyncio._set_running_loop(None)


class HandlerNode:
    """Gives handlers the services that a node without sockets and logs has."""

    def __init__(self, loop: asyncio.AbstractEventLoop, properties: Mapping[str, str]) -> None:
        self.loop = loop
        self.config = NodeConfig({**PROPERTIES, **properties})
        image = MetadataImage()
        self.metadata = Metadata(image, loop, static=self.config.properties)
        self.clock_ms = 1_700_000_000_000
        tasks = SimpleNamespace(spawn=loop.create_task)
        self.services: dict[str, object] = {
            "cluster": self.metadata,
            "raft": self.metadata,
            "controller": self.metadata,
            "settings": api_settings(self.config),
            "tasks": tasks,
            "topic_views": TopicViews(),
            "authorizer": None,
            "dynamic_settings": DynamicSettings(self.config, lambda: image, None),
            "forwarding": SimpleNamespace(send=lambda *_: None),  # this node is the active controller
        }
        for name in ("replicas", "log_dirs", "sessions", "groups", "producer_ids", "topic_creation"):
            self.services[name] = None  # asked of a node with sockets only

    def now_ms(self) -> int:
        return self.clock_ms

    def replay(self, *records: Any) -> None:
        for record in records:
            self.metadata.image.replay(record)

    def register_broker(self, broker_id: int = 1, *, fenced: bool = False) -> None:
        self.replay(
            FeatureLevelRecord(name="metadata.version", feature_level=30),
            RegisterBrokerRecord(
                broker_id=broker_id,
                incarnation_id=Uuid(bytes(15) + bytes([broker_id])),
                broker_epoch=broker_id,
                fenced=fenced,
                end_points=[
                    RegisterBrokerRecord.BrokerEndpoint(
                        name="PLAINTEXT", host="127.0.0.1", port=9000 + broker_id, security_protocol=0
                    )
                ],
                log_dirs=[Uuid(bytes(14) + b"\x07" + bytes([broker_id]))],
            ),
        )

    def ask(self, request: Any, version: int, *, listener: str = "PLAINTEXT", client_id: str = "test") -> Any:
        """The handler's answer, waited for."""
        context = RequestContext(
            api_key=request.API_KEY,
            api_version=version,
            correlation_id=1,
            client_id=client_id,
            peer=PeerContext(
                listener_name=listener,
                is_controller_listener=listener == "CONTROLLER",
                principal=ANONYMOUS,
                client_host="127.0.0.1",
                peer="127.0.0.1:1",
            ),
        )
        kind = "controller" if context.is_controller_listener else "broker"
        handle = LazyHandler(APIS[request.API_KEY], kind, self.services.__getitem__)
        with running(self.loop):
            answer = handle(context, request)
        return self.loop.run_until_complete(answer) if asyncio.isfuture(answer) else answer


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


@pytest.fixture
def make_node(loop: asyncio.AbstractEventLoop) -> Callable[..., HandlerNode]:
    def make(**properties: str) -> HandlerNode:
        return HandlerNode(loop, {name.replace("_", "."): text for name, text in properties.items()})

    return make


@pytest.fixture
def node(make_node: Callable[..., HandlerNode]) -> HandlerNode:
    """One broker, no topics."""
    node = make_node()
    node.register_broker()
    return node


@pytest.fixture
def golden_node(loop: asyncio.AbstractEventLoop) -> HandlerNode:
    """The node that ``kraft/captures.jsonl`` was taken from: its metadata log replayed up to the high watermark."""
    folder = GOLDEN / "kraft" / "logs" / "standalone"
    moment = next(
        entry for entry in json.loads((folder / "moments.json").read_text()) if entry["moment"] == "01-started"
    )
    listeners = "PLAINTEXT://127.0.0.1:21172,CONTROLLER://127.0.0.1:21171"
    node = HandlerNode(loop, {"listeners": listeners, "auto.create.topics.enable": "false"})
    data = (folder / "01-started" / "node-1" / "__cluster_metadata-0" / "00000000000000000000.log").read_bytes()
    for batch in read_batches(data):
        if batch.is_control or batch.last_offset >= moment["quorum"]["highWatermark"]:
            continue
        for _, _, _, value, _ in batch.records():
            node.replay(decode_metadata_record(value)[0])
    node.metadata.quorum = SimpleNamespace(leader_id=1)
    return node
