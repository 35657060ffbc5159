"""Share partitions on their leader, with a persister that answers when a test says so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kraftlog._kraftlog import Log, LogConfig, encode_batch
from kraftlog.coordinator.share.share_key import ShareKey
from kraftlog.coordinator.share.share_partition import Acknowledgement, AcquireLimits
from kraftlog.errors import ErrorCode
from kraftlog.metrics import Metrics
from kraftlog.metrics.share import SharedMetrics
from kraftlog.runtime.share.group_settings import ShareBrokerSettings
from kraftlog.runtime.share.share_service import SharedPartition, ShareFetchLimits, ShareService
from kraftlog.runtime.tasks import NodeTasks
from kraftlog.types import Uuid
from waiting import settle

TOPIC = Uuid(b"t" * 16)
KEY = ShareKey("g", TOPIC, 0)
ACCEPT, RELEASE = 1, 2


class Partition:
    """A partition that this node leads."""

    is_leader = True
    leader_epoch = 3

    def __init__(self, path: Path) -> None:
        self.log = Log.open(path, config=LogConfig(), now_ms=0)
        self.waiters: set[Any] = set()

    @property
    def high_watermark(self) -> int:
        return self.log.log_end_offset

    def add_waiter(self, waiter: Any) -> None:
        self.waiters.add(waiter)

    def remove_waiter(self, waiter: Any) -> None:
        self.waiters.discard(waiter)


class Persister:
    """Answers reads and writes when a test says so."""

    def __init__(self) -> None:
        self.reads: list[tuple[int, asyncio.Future[Any]]] = []
        self.writes: list[tuple[Any, int, int, asyncio.Future[Any]]] = []

    async def read(self, key: ShareKey, *, leader_epoch: int) -> Any:
        assert key == KEY
        self.reads.append((leader_epoch, asyncio.get_running_loop().create_future()))
        return await self.reads[-1][1]

    async def write(self, key: ShareKey, write: Any, *, state_epoch: int, leader_epoch: int) -> Any:
        assert key == KEY
        self.writes.append((write, state_epoch, leader_epoch, asyncio.get_running_loop().create_future()))
        return await self.writes[-1][3]


def state(start_offset: int = 0, **fields: Any) -> Any:
    return SimpleNamespace(
        **({"error_code": 0, "start_offset": start_offset, "state_epoch": 7, "state_batches": []} | fields)
    )


class Leader:
    """A share service with one partition, and a session of one member."""

    def __init__(self, path: Path) -> None:
        self.partition: Any = Partition(path)
        self.persister = Persister()
        self.tasks = NodeTasks()
        self.places: dict[tuple[Uuid, int], Any] = {(TOPIC, 0): self.partition}
        image = SimpleNamespace(configs=SimpleNamespace(get=lambda *_: {}), features={"share.version": 1})
        self.service = ShareService(
            ShareBrokerSettings(),
            replicas=SimpleNamespace(  # type: ignore[arg-type]
                get=lambda *place: self.places.get(place),
                missing_error_by_id=lambda *_: int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ),
            coordinator=None,  # type: ignore[arg-type]
            persister=self.persister,  # type: ignore[arg-type]
            metadata=SimpleNamespace(image=image),  # type: ignore[arg-type]
            tasks=self.tasks,
            now_ms=lambda: 1_000,
            meter=SharedMetrics(Metrics()),
        )
        self.session = self.service.open_session("g", "A", object(), None)
        self.session.add(TOPIC, 0)

    def append(self, count: int) -> None:
        batch = encode_batch([(0, None, b"v", ()) for _ in range(count)])
        self.partition.log.append_as_leader(batch, leader_epoch=3, now_ms=0)
        for waiter in list(self.partition.waiters):
            waiter.partition_moved(self.partition)

    def fetch(self, max_wait_ms: int = 10_000) -> asyncio.Task[dict[Any, SharedPartition]]:
        limits = ShareFetchLimits(
            acquire=AcquireLimits(max_records=500, batch_size=500),
            max_wait_ms=max_wait_ms,
            min_bytes=1,
            max_bytes=1 << 20,
        )
        return self.tasks.spawn(self.service.fetch(self.session, list(self.session.partitions), limits))


def ranges(found: dict[Any, SharedPartition]) -> list[tuple[int, int, int]]:
    shared = found[TOPIC, 0]
    assert shared.error_code == 0
    return [(part.first, part.last, part.delivery_count) for part in shared.acquired]


def run(tmp_path: Path, story: Callable[[Leader], Any]) -> None:
    async def whole() -> None:
        leader = Leader(tmp_path / "t-0")
        try:
            async with asyncio.timeout(20):
                await story(leader)
        finally:
            await leader.tasks.cancel_all()

    asyncio.run(whole())


@pytest.mark.parametrize(
    ("stored", "told"),
    [
        (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.FENCED_STATE_EPOCH, ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.GROUP_ID_NOT_FOUND),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_SERVER_ERROR),
    ],
)
def test_a_fetch_gets_the_mapped_error_of_the_state_and_the_next_one_reads_it_again(
    tmp_path: Path, stored: int, told: int
) -> None:
    """SHGR-53, SHGR-57; before, the fetch read the state again and again until its wait was over."""

    async def story(leader: Leader) -> None:
        leader.append(2)
        fetch = leader.fetch()
        await settle()
        ((epoch, read),) = leader.persister.reads
        assert (epoch, fetch.done()) == (3, False)
        read.set_result(state(error_code=int(stored)))
        assert (await fetch)[TOPIC, 0].error_code == told
        again = leader.fetch()
        await settle()
        leader.persister.reads[1][1].set_result(state())
        assert ranges(await again) == [(0, 1, 1)]

    run(tmp_path, story)


def test_a_fetch_waits_for_the_state_no_longer_than_its_own_wait(tmp_path: Path) -> None:
    """SHGR-57."""

    async def story(leader: Leader) -> None:
        leader.append(1)
        assert await leader.fetch(max_wait_ms=20) == {}
        assert len(leader.persister.reads) == 1
        leader.persister.reads[0][1].set_result(state())
        assert ranges(await leader.fetch()) == [(0, 0, 1)]
        assert len(leader.persister.reads) == 1

    run(tmp_path, story)


def test_two_fetches_never_get_the_same_records(tmp_path: Path) -> None:
    """SHGR-34: reading and acquiring happen in one turn of the loop."""

    async def story(leader: Leader) -> None:
        first, second = leader.fetch(), leader.fetch(max_wait_ms=50)
        await settle()
        leader.persister.reads[0][1].set_result(state())
        await settle()
        leader.append(3)
        found = [await first, await second]
        assert sorted(len(each) for each in found) == [0, 1]
        assert ranges(max(found, key=len)) == [(0, 2, 1)]

    run(tmp_path, story)


@pytest.mark.parametrize("change", ["follower", "other epoch", "deleted"])
def test_a_partition_that_moves_ends_the_fetches_and_the_writes_that_wait(tmp_path: Path, change: str) -> None:
    """SHGR-56."""

    async def story(leader: Leader) -> None:
        leader.append(2)
        fetch = leader.fetch()
        await settle()
        leader.persister.reads[0][1].set_result(state())
        assert ranges(await fetch) == [(0, 1, 1)]
        acknowledged = leader.service.acknowledge(KEY, "A", [Acknowledgement(0, 0, [ACCEPT])])
        assert isinstance(acknowledged, asyncio.Future)
        await settle()
        waiting = leader.fetch()
        await settle()
        ((_, state_epoch, leader_epoch, _),) = leader.persister.writes
        assert (state_epoch, leader_epoch) == (7, 3)
        assert not acknowledged.done()
        assert not waiting.done()
        if change == "follower":
            leader.partition.is_leader = False
        elif change == "other epoch":
            leader.partition.leader_epoch = 4
        else:
            leader.places.clear()
        leader.service.on_partition_changed(leader.partition)
        assert await acknowledged == ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (await waiting)[TOPIC, 0].error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
        if change == "other epoch":
            again = leader.fetch()
            await settle()
            assert leader.persister.reads[1][0] == 4
            leader.persister.reads[1][1].set_result(state(1))
            assert ranges(await again) == [(1, 1, 1)]
        else:
            code = leader.service.acknowledge(KEY, "A", [Acknowledgement(0, 0, [ACCEPT])])
            gone = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if change == "deleted" else ErrorCode.NOT_LEADER_OR_FOLLOWER
            assert code == gone

    run(tmp_path, story)


@pytest.mark.parametrize(("source", "target"), [(1, 3), (5, 3)])
def test_a_write_that_went_to_the_wrong_place_is_no_gap_of_compaction(
    tmp_path: Path, source: int, target: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Batch ``source`` lies upon ``target``, whose record must not be archived: members hear of the damage."""

    async def story(leader: Leader) -> None:
        for _ in range(7):
            leader.append(1)
        (path,) = (tmp_path / "t-0").glob("*.log")
        data = bytearray(path.read_bytes())
        size = len(data) // 7
        data[target * size : (target + 1) * size] = data[source * size : (source + 1) * size]
        path.write_bytes(data)
        first = leader.fetch()
        await settle()
        leader.persister.reads[0][1].set_result(state())
        assert ranges(await first) == [(0, target - 1, 1)]
        for _ in range(2):
            assert (await leader.fetch(max_wait_ms=50))[TOPIC, 0].error_code == ErrorCode.CORRUPT_MESSAGE
        assert not leader.persister.writes
        told = [record.getMessage() for record in caplog.records]
        assert len(told) == len(set(told))
        assert all(str(path) in message and str(target * size) in message for message in told)

    run(tmp_path, story)


def test_damage_behind_what_is_handed_out_costs_no_delivery(tmp_path: Path) -> None:
    """The log was read once more after records were acquired; ten such failures archived what no member had seen."""

    async def story(leader: Leader) -> None:
        for _ in range(7):
            leader.append(1)
        first = leader.fetch()
        await settle()
        leader.persister.reads[0][1].set_result(state())
        assert ranges(await first) == [(0, 6, 1)]
        leader.service.acknowledge(KEY, "A", [Acknowledgement(0, 6, [RELEASE])])
        await settle()
        leader.persister.writes[0][3].set_result(state())
        (path,) = (tmp_path / "t-0").glob("*.log")
        data = bytearray(path.read_bytes())
        size = len(data) // 7
        data[4 * size : 4 * size + 20] = bytes(20)
        path.write_bytes(data)
        found = await leader.fetch()
        assert ranges(found) == [(0, 3, 2)]
        records = found[TOPIC, 0].records
        assert records is not None
        assert records.read() == bytes(data[: 4 * size])
        assert (await leader.fetch(max_wait_ms=50))[TOPIC, 0].error_code == ErrorCode.CORRUPT_MESSAGE
        assert (await leader.fetch(max_wait_ms=50))[TOPIC, 0].error_code == ErrorCode.CORRUPT_MESSAGE
        assert len(leader.persister.writes) == 1

    run(tmp_path, story)


def test_a_gap_of_compaction_is_no_damage(tmp_path: Path) -> None:
    """Batches that ascend: the member says of what is missing between them that there is nothing."""

    async def story(leader: Leader) -> None:
        for offset in (0, 4, 5):
            batch = encode_batch([(0, None, b"v", ())], base_offset=offset, partition_leader_epoch=3)
            leader.partition.log.append_as_follower(batch, leader_epoch=3)
        fetch = leader.fetch()
        await settle()
        leader.persister.reads[0][1].set_result(state())
        assert ranges(await fetch) == [(0, 5, 1)]

    run(tmp_path, story)
