"""A transactional producer whose cluster is upgraded to transaction version 2 while it runs (KIP-890)."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from kraftlog.client.config import PRODUCER, ClientConfig
from kraftlog.client.transactions import END_TXN_VERSION_1, Transactions
from kraftlog.types import TopicPartition
from kraftlog.wire.messages.add_partitions_to_txn import AddPartitionsToTxnResponse
from kraftlog.wire.messages.end_txn import EndTxnRequest, EndTxnResponse
from kraftlog.wire.messages.init_producer_id import InitProducerIdRequest, InitProducerIdResponse


class Coordinator:
    """Knows one producer; its epoch rises with InitProducerId, and with EndTxn of version 2."""

    def __init__(self, level: int) -> None:
        self.level = level
        self.epoch = -1
        self.asked: list[tuple[str, int | None, int]] = []

    async def ask(self, request: Any, highest: int | None = None) -> Any:
        name = type(request).__name__.removesuffix("Request")
        self.asked.append((name, highest, self.epoch))
        if isinstance(request, InitProducerIdRequest):
            assert request.producer_epoch == self.epoch
            self.epoch += 1
            return InitProducerIdResponse(producer_id=7, producer_epoch=self.epoch)
        if isinstance(request, EndTxnRequest):
            assert request.producer_epoch == self.epoch
            if highest is None:
                self.epoch += 1
            return EndTxnResponse(producer_id=7, producer_epoch=self.epoch)
        return AddPartitionsToTxnResponse()

    async def coordinator(self) -> Any:
        return None

    def forget_coordinator(self) -> None:
        """It does not move."""


@pytest.mark.spec("TXNC-78")
def test_producer_takes_up_version_2_with_its_next_transaction_and_one_new_epoch() -> None:
    """Once a connection says so; fails before the fix, where the version of the first transaction stayed."""

    async def run() -> Coordinator:
        coordinator = Coordinator(level=1)
        connection = SimpleNamespace(common_version=lambda _key: 5)

        async def connect(_node: Any) -> Any:
            connection.finalized_features = {"transaction.version": coordinator.level}
            return connection

        config = ClientConfig({"bootstrap.servers": "h:1", "transactional.id": "x"}, PRODUCER)
        transactions = Transactions(config, SimpleNamespace(connect=connect), None)  # type: ignore[arg-type]
        transactions._coordinator = coordinator  # type: ignore[assignment]
        await transactions.initialize()
        for number in range(4):
            if number == 1:
                coordinator.level = 2
            transactions.tracker.begin()
            assert transactions.tracker.is_version_2 is (number > 1)
            await transactions.add_partitions([TopicPartition("t", 0)])
            transactions.tracker.end(is_commit=True)
            is_new = await transactions.end(is_commit=True)
            assert is_new is (number >= 1)
            assert transactions.producer == (7, coordinator.epoch)
        return coordinator

    asked = asyncio.run(run()).asked
    version_1 = [("AddPartitionsToTxn", 3), ("EndTxn", END_TXN_VERSION_1)]
    assert [found[:2] for found in asked] == [
        ("InitProducerId", 5),
        *version_1,
        *version_1,
        ("InitProducerId", 5),
        ("EndTxn", None),
        ("EndTxn", None),
    ]
