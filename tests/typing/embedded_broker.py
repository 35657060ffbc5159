"""Types that users of ``kraftlog.Broker`` see; read by mypy (``.ci/dev type``), never run."""

from __future__ import annotations

from pathlib import Path
from typing import assert_type

import kraftlog
from kraftlog import AsyncBroker, Broker
from kraftlog.metrics import MetricsSnapshot


def blocking() -> None:
    with Broker() as broker:
        assert_type(broker, Broker)
        assert_type(broker.bootstrap_servers, str)
        assert_type(broker.data_dir, Path)
        assert_type(broker.metrics_url, str | None)
        assert_type(broker.metrics(), MetricsSnapshot)
        broker.create_topic("orders", partitions=3, config={"retention.ms": 1000, "cleanup.policy": "compact"})
        broker.create_topic("orders", partitions="3")  # type: ignore[arg-type]
        broker.create_topic()  # type: ignore[call-arg]
        broker.delete_topic("orders", timeout_s=1.5)
        broker.delete_topic(b"orders")  # type: ignore[arg-type]
    assert_type(kraftlog.Broker(data_dir=Path("data"), port=9092).start(), Broker)
    Broker("data")


async def on_a_loop() -> None:
    async with Broker(data_dir="data", config={"node.id": 1}) as broker:
        assert_type(broker, AsyncBroker)
        assert_type(broker.bootstrap_servers, str)
        await broker.create_topic("orders")
        broker.create_topic("orders")  # type: ignore[unused-coroutine]
        await broker.close()


class Fixture(Broker):
    """``start`` and ``with`` give the class that is used."""


with Fixture() as fixture:
    assert_type(fixture, Fixture)
assert_type(Fixture().start(), Fixture)
