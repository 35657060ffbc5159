"""Flushes of logs that share a thread: those that wait are done together, and fail alone."""

from __future__ import annotations

import asyncio
import errno
from concurrent.futures import Executor, Future

import pytest

from kraftlog.errors import PoisonedLogError
from kraftlog.runtime.raft.flush_group import FlushGroup
from kraftlog.storage.memory_path import MEMORY_ROOT, MemoryPath, add_disk, remove_disk, unused_name
from kraftlog.storage.metadata_log import MetadataLog, MetadataLogConfig
from kraftlog.types import Epoch, Offset


class HeldThread(Executor):
    """Runs what was submitted when the test says so."""

    def __init__(self):
        self.rounds = []

    def submit(self, work, /, *arguments):
        future = Future()
        self.rounds.append((future, work, arguments))
        return future

    async def run_next(self):
        """Run the round that was submitted first, and let the loop hear of it."""
        future, work, arguments = self.rounds.pop(0)
        try:
            future.set_result(work(*arguments))
        except BaseException as error:  # noqa: BLE001  as an executor
            future.set_exception(error)
        for _ in range(5):
            await asyncio.sleep(0)


@pytest.fixture
def logs():
    """Three logs with a record each, on disks of their own."""
    names = [unused_name(f"flushes-{number}") for number in range(3)]
    disks = [add_disk(name) for name in names]
    logs = []
    for name in names:
        log = MetadataLog(MemoryPath(MEMORY_ROOT, name) / "log", MetadataLogConfig(), now_ms=0, clean_shutdown=False)
        log.append_values([b"value"], base_offset=Offset(0), epoch=Epoch(1), now_ms=1)
        logs.append((log, disks[len(logs)]))
    yield logs
    for name in names:
        remove_disk(name)


def test_what_waits_is_flushed_together(logs):
    thread = HeldThread()

    async def run():
        group = FlushGroup(thread)
        first, second, third = (group.flush(log) for log, _ in logs)
        assert [len(arguments[0]) for _, _, arguments in thread.rounds] == [1]
        await thread.run_next()
        assert first.result() == 1
        assert not second.done()
        again = group.flush(logs[0][0])
        assert [len(arguments[0]) for _, _, arguments in thread.rounds] == [2]
        await thread.run_next()
        assert (second.result(), third.result()) == (1, 1)
        await thread.run_next()
        assert again.result() == 1
        assert thread.rounds == []

    asyncio.run(run())
    for log, disk in logs:
        disk.crash("nothing", "nothing", seed=1)
        reopened = MetadataLog(log.directory, MetadataLogConfig(), now_ms=0, clean_shutdown=False)
        assert reopened.log_end_offset == 1


def test_a_log_that_cannot_be_flushed_leaves_the_others_alone(logs):
    thread = HeldThread()

    async def run():
        group = FlushGroup(thread)
        logs[1][1].fail("sync", 0, errno.EIO)
        results = [group.flush(log) for log, _ in logs]
        await thread.run_next()
        await thread.run_next()
        assert (results[0].result(), results[2].result()) == (1, 1)
        assert isinstance(results[1].exception(), PoisonedLogError | OSError)
        assert "flushes-1" in str(results[1].exception())

    asyncio.run(run())


def test_a_round_that_cannot_be_run_fails_each_of_its_flushes(logs):
    thread = HeldThread()

    async def run():
        group = FlushGroup(thread)
        waits = group.flush(logs[0][0])
        failed, cancelled = group.flush(logs[1][0]), group.flush(logs[2][0])
        cancelled.cancel()
        await thread.run_next()
        assert waits.result() == 1
        future, _, _ = thread.rounds.pop(0)
        future.set_exception(RuntimeError("no thread"))
        for _ in range(5):
            await asyncio.sleep(0)
        assert isinstance(failed.exception(), RuntimeError)
        later = group.flush(logs[2][0])
        await thread.run_next()
        assert later.result() == 1

    asyncio.run(run())


def test_flushes_end_with_an_error_once_their_thread_has_ended(logs):
    class EndedThread(HeldThread):
        def submit(self, work, /, *arguments):
            if self.rounds:
                raise RuntimeError("cannot schedule new futures after shutdown")
            return super().submit(work, *arguments)

    thread = EndedThread()

    async def run():
        group = FlushGroup(thread)
        first, second = group.flush(logs[0][0]), group.flush(logs[1][0])
        future, work, arguments = thread.rounds[0]
        future.set_result(work(*arguments))
        for _ in range(5):
            await asyncio.sleep(0)
        assert first.result() == 1
        for ended in (second, group.flush(logs[2][0])):
            with pytest.raises(RuntimeError, match="after shutdown"):
                await ended

    asyncio.run(run())
