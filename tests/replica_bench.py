"""A replica manager over one metadata image, with threads that run by hand."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Future
from pathlib import Path
from typing import Any, TypeVar

from kraftlog.controller import MetadataDelta, MetadataImage
from kraftlog.errors import LogError
from kraftlog.node.config import NodeConfig
from kraftlog.node.settings import replica_settings
from kraftlog.node.standalone import standalone_properties
from kraftlog.runtime.replica.compactor import LogCleaner
from kraftlog.runtime.replica.replica_manager import ReplicaManager
from kraftlog.storage.log_dir import LogDir
from kraftlog.types import Uuid
from kraftlog.wire.messages.metadata_records import (
    PartitionChangeRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)

NODE = 1
FIRST, SECOND = Uuid(b"first-topic-id-1"), Uuid(b"second-topic-id-")


class HandWorkers:
    """Runs nothing before the test says so."""

    def __init__(self) -> None:
        self.waiting: deque[tuple[Future[Any], Callable[..., Any], tuple[Any, ...]]] = deque()
        self.is_shut_down = False

    def submit(self, work: Callable[..., Any], *arguments: Any) -> Future[Any]:
        future: Future[Any] = Future()
        self.waiting.append((future, work, arguments))
        return future

    submit_in_order = submit

    def in_background(self, work: Callable[..., Any], *arguments: Any) -> None:
        self.submit(work, *arguments)

    def shut_down(self) -> None:
        self.is_shut_down = True

    def run(self, count: int | None = None) -> None:
        """Do what waits, all or the first so many."""
        for _ in range(len(self.waiting) if count is None else count):
            future, work, arguments = self.waiting.popleft()
            try:
                future.set_result(work(*arguments))
            except (LogError, OSError) as error:
                future.set_exception(error)

    def fail(self, error: Exception) -> None:
        """Let the first job fail."""
        self.waiting.popleft()[0].set_exception(error)


class NoControllers:
    """No partition here has a second replica."""

    async def request(self, message, *, timeout_s=None):
        raise AssertionError(message)


class Bench:
    """A replica manager over one image, with hand-driven threads."""

    def __init__(self, path: Path, directories: int = 1) -> None:
        self.paths = [path / f"d{number}" for number in range(directories)]
        for directory in self.paths:
            directory.mkdir(exist_ok=True)
        config = NodeConfig(
            standalone_properties(
                path / "d0",
                port=0,
                is_durable=False,
                changes={"log.dirs": ",".join(map(str, self.paths)), "kraftlog.follower.fetches": "native"},
            )
        )
        self.log_dirs = [LogDir(directory) for directory in self.paths]
        for number, log_dir in enumerate(self.log_dirs):
            log_dir.was_clean_shutdown = True
            log_dir.directory_id = Uuid(bytes([number + 1] * 16))
        self.image = MetadataImage()
        self.now_ms = 1_700_000_000_000
        self.workers = HandWorkers()
        self.fatal: list[LogError] = []
        settings = replica_settings(config)
        self.manager = ReplicaManager(
            settings,
            loop=asyncio.get_running_loop(),
            now_ms=lambda: self.now_ms,
            log_dirs=self.log_dirs,
            image=lambda: self.image,
            compactor=LogCleaner(settings.cleaner, lambda: 0),
            workers=self.workers,
            on_fatal=self.fatal.append,
            controllers=NoControllers(),
            broker_epoch=lambda: 0,
            security=lambda: None,
        )
        self.partitions = self.manager.partitions

    def commit(self, *records: Any) -> None:
        """Replay records and tell the manager."""
        delta = MetadataDelta()
        for record in records:
            self.image.replay(record, delta)
        self.manager.apply(self.image, delta)

    def create(
        self,
        topic_id: Uuid = FIRST,
        partitions: int = 1,
        *,
        leader_epoch: int = 0,
        replicas: tuple[int, ...] = (NODE,),
        leader: int = NODE,
        directories: tuple[Uuid, ...] = (),
    ) -> None:
        self.commit(
            TopicRecord(name="t", topic_id=topic_id),
            *(
                PartitionRecord(
                    partition_id=index,
                    topic_id=topic_id,
                    replicas=replicas,
                    isr=replicas,
                    leader=leader,
                    leader_epoch=leader_epoch,
                    partition_epoch=0,
                    directories=directories,
                )
                for index in range(partitions)
            ),
        )

    def delete(self, topic_id: Uuid = FIRST) -> None:
        self.commit(RemoveTopicRecord(topic_id=topic_id))

    async def turns(self, count: int = 10) -> None:
        for _ in range(count):
            await asyncio.sleep(0)

    async def settle(self) -> None:
        """Run everything that waits, and what follows from it."""
        for _ in range(50):
            await self.turns()
            self.workers.run()
            await self.turns()
            if self.manager.is_settled and not self.workers.waiting:
                return
        raise AssertionError("does not settle")

    def names(self) -> list[str]:
        return sorted(path.name for directory in self.paths for path in directory.iterdir() if path.is_dir())

    def error(self, index: int = 0) -> int:
        assert self.partitions.get_by_name("t", index) is None
        return self.partitions.missing_error("t", index)


BenchType = TypeVar("BenchType", bound=Bench)


def run_on(make_bench: Callable[[], BenchType], test: Callable[[BenchType], Coroutine[Any, Any, None]]) -> None:
    """Run a test with a bench, which is stopped after it."""

    async def main() -> None:
        bench = make_bench()
        try:
            await test(bench)
            await bench.manager.stop()
        finally:
            for log_dir in bench.log_dirs:
                log_dir.release()

    asyncio.run(asyncio.wait_for(main(), 60))


def change(index: int = 0, topic_id: Uuid = FIRST, **fields: Any) -> PartitionChangeRecord:
    """A change of a partition of the first topic, unless said otherwise."""
    return PartitionChangeRecord(partition_id=index, topic_id=topic_id, **fields)
