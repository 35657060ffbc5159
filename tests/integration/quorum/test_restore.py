"""A large state is taken in on another thread, record by record, while the replica's loop goes on."""

from __future__ import annotations

import asyncio
import threading

import pytest

import kraftlog
from kraftlog.errors import CorruptRecordError, StateMachineError
from waiting import until


class Words(kraftlog.StateMachine):
    """Keeps words; ``load`` waits until it may go on with the second record."""

    def __init__(self):
        self.words = []
        self.may_load = threading.Event()
        self.may_load.set()
        self.threads = []
        self.problem = None

    def apply(self, batch):
        self.words += batch.commands

    def snapshot(self):
        return list(self.words)

    def restore(self, records):
        raise AssertionError(records)

    def load(self, records):
        self.threads.append(threading.current_thread())
        words = []
        for word in records:
            words.append(word)
            self.may_load.wait(30)
            if self.problem is not None:
                raise self.problem

        def put_in_place():
            self.threads.append(threading.current_thread())
            self.words = words

        return put_in_place


async def written(directory, count=3_000):
    """A directory with a snapshot of so many words, and two behind it."""
    async with kraftlog.Quorum(Words(), data_dir=directory) as quorum:
        await quorum.propose([b"%d" % number for number in range(count)])
        taken = await quorum.snapshot()
        await quorum.propose([b"behind", b"it"])
    return taken, [b"%d" % number for number in range(count)] + [b"behind", b"it"]


@pytest.mark.parametrize("has_sessions", [False, True])
def test_a_state_is_loaded_on_another_thread(tmp_path, has_sessions):
    async def run():
        taken, expected = await written(tmp_path)
        words = Words()
        words.may_load.clear()
        quorum = kraftlog.Quorum(kraftlog.SessionMachine(words) if has_sessions else words, data_dir=tmp_path)
        starting = asyncio.ensure_future(quorum.__aenter__())
        await until(lambda: words.threads)
        replica = quorum._async
        await until(lambda: replica.restore_progress is not None and replica.restore_progress.record_count)
        progress = replica.restore_progress
        assert (progress.end_offset, progress.record_count) == (taken.end_offset, 1)
        assert progress.size_bytes == taken.size_bytes
        assert replica.leader_id == 1, "it votes meanwhile"
        assert (words.words, replica.applied_end_offset) == ([], 0)
        assert not starting.done()
        words.may_load.set()
        await starting
        await replica.read_barrier()
        assert words.words == expected
        assert replica.restore_progress is None
        assert words.threads[0] is not threading.main_thread()
        assert words.threads[1] is threading.main_thread()
        await replica.close()

    asyncio.run(asyncio.wait_for(run(), 60))


def test_a_state_that_cannot_be_loaded_ends_the_start(tmp_path):
    async def run():
        _, expected = await written(tmp_path, 10)
        words = Words()
        words.problem = ZeroDivisionError("no state")
        with pytest.raises(StateMachineError, match="ZeroDivisionError: no state"):
            await kraftlog.Quorum(words, data_dir=tmp_path).__aenter__()
        async with kraftlog.Quorum(Words(), data_dir=tmp_path) as quorum:  # the directory is free again
            assert await quorum.read_barrier() > len(expected)

    asyncio.run(asyncio.wait_for(run(), 60))


def test_a_snapshot_that_is_damaged_meanwhile_is_no_fault_of_the_state_machine(tmp_path, monkeypatch):
    async def run():
        await written(tmp_path, 10)
        from kraftlog.storage.snapshot_file import Snapshot

        def each_value(_):
            yield b"0"
            raise CorruptRecordError("position 1")

        monkeypatch.setattr(Snapshot, "each_value", each_value)
        with pytest.raises(CorruptRecordError, match="position 1"):
            await kraftlog.Quorum(Words(), data_dir=tmp_path).__aenter__()

    asyncio.run(asyncio.wait_for(run(), 60))


def test_a_replica_that_ends_while_it_loads_waits_for_no_more_records(tmp_path):
    async def run():
        await written(tmp_path)
        words = Words()
        words.may_load.clear()
        starting = asyncio.ensure_future(kraftlog.Quorum(words, data_dir=tmp_path).__aenter__())
        await until(lambda: words.threads)
        starting.cancel()
        words.may_load.set()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert words.words == []
        async with kraftlog.Quorum(Words(), data_dir=tmp_path):
            pass

    asyncio.run(asyncio.wait_for(run(), 60))
