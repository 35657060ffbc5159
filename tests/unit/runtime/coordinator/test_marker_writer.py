"""Markers on ``__consumer_offsets``: the answer while the group coordinator is not there."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.runtime.coordinator.marker_writer import MarkerWriter
from kraftlog.vocabulary import CONSUMER_OFFSETS_TOPIC
from kraftlog.wire.messages.write_txn_markers import WriteTxnMarkersRequest


class Groups:
    """A group coordinator whose shard is not loaded, not here, or loses its partition."""

    def __init__(self, code: int | None = None) -> None:
        self._code = code

    def runner_of(self, _index: int) -> Any:
        return None if self._code is None else self

    def append_marker(self, _batch: bytes, _end: object, *, transaction_version: int) -> asyncio.Future[int]:
        assert transaction_version == 2
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        future.set_exception(KafkaError(self._code or 0))
        return future


@pytest.mark.spec("TXNC-90")
@pytest.mark.parametrize("groups", [Groups(), Groups(ErrorCode.NOT_LEADER_OR_FOLLOWER)])
def test_marker_of_offsets_whose_group_coordinator_is_away_is_sent_again_elsewhere(groups: Any) -> None:
    async def run() -> int:
        lookup: Any = SimpleNamespace(get_by_name=lambda _topic, _index: SimpleNamespace())
        topic = WriteTxnMarkersRequest.WritableTxnMarkerTopic(name=CONSUMER_OFFSETS_TOPIC, partition_indexes=[3])
        marker = WriteTxnMarkersRequest.WritableTxnMarker(
            producer_id=7, producer_epoch=1, transaction_result=True, topics=[topic], transaction_version=2
        )
        answer = await MarkerWriter(lookup, groups, lambda: 5).write(WriteTxnMarkersRequest(markers=[marker]))
        code: int = answer.markers[0].topics[0].partitions[0].error_code
        return code

    assert asyncio.run(run()) == ErrorCode.NOT_LEADER_OR_FOLLOWER
