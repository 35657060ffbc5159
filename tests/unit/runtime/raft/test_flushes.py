"""A fetch says what a voter has on disk: what flushes and truncations of its log mean for it."""

from __future__ import annotations

import asyncio
import threading

from kraftlog._kraftlog import encode_batch
from kraftlog.raft.effects import AppendFetched, FlushLog, TruncateLog
from kraftlog.raft.messages import FetchedBatch, FetchRequest, FetchResponse
from kraftlog.runtime.raft.peer_connections import Peers
from kraftlog.storage.election_store import ElectionStore
from kraftlog.storage.metadata_log import MetadataLog
from kraftlog.types import ElectionState, Epoch, EpochEndOffset, NodeId, Offset
from replicated_fixture import Recorder, bootstrap, replicated
from waiting import until


def batch(offset, epoch):
    data = encode_batch([(0, None, b"value", ())], base_offset=offset, partition_leader_epoch=epoch)
    return FetchedBatch(
        base_offset=Offset(offset),
        last_offset=Offset(offset),
        epoch=Epoch(epoch),
        size_bytes=len(data),
        payload=memoryview(data),
    )


class Follower:
    """Voter 1 of three, which follows voter 2 in epoch 3; the test answers its fetches and ends its flushes."""

    def __init__(self, path, monkeypatch):
        self.fetches = []
        self._flush_count = 0
        self._released = threading.Semaphore(0)
        flush, follower = MetadataLog.flush, self

        def held_flush(log):
            end_offset = flush(log)
            follower._flush_count += 1
            assert follower._released.acquire(timeout=30)
            return end_offset

        def send(_peers, destination, correlation_id, request):
            if isinstance(request, FetchRequest):
                follower.fetches.append((destination.node_id, correlation_id, request))

        monkeypatch.setattr(MetadataLog, "flush", held_flush)
        monkeypatch.setattr(Peers, "send", send)
        bootstrap(path, 1, 2, 3)
        ElectionStore(path).write(ElectionState(epoch=Epoch(3), leader_id=NodeId(2)), kraft_version=1)
        self.log = replicated(path, Recorder())

    def answer(self, *batches, diverging=None):
        """Answer the last fetch, which was not answered yet."""
        node_id, correlation_id, _ = self.fetches[-1]
        response = FetchResponse(
            leader_id=NodeId(2),
            leader_epoch=Epoch(3),
            high_watermark=Offset(0),
            batches=batches,
            diverging_epoch=diverging,
        )
        driver = self.log.driver
        driver.tell(lambda: driver.core.handle_response(node_id, correlation_id, response, driver.now_ms()))

    async def begin_flush(self, count):
        """Wait until so many flushes have begun."""
        await until(lambda: self._flush_count == count)
        for _ in range(20):
            await asyncio.sleep(0)

    def end_flush(self):
        self._released.release()

    async def stop(self):
        for _ in range(10):
            self._released.release()
        await self.log.stop()


def run(path, monkeypatch, story):
    async def main():
        follower = Follower(path, monkeypatch)
        try:
            await asyncio.wait_for(story(follower), 30)
        finally:
            await follower.stop()

    asyncio.run(main())


def fetched_to(follower):
    return [request.fetch_offset for _, _, request in follower.fetches]


def test_fetch_leaves_once_what_it_acknowledges_is_flushed(tmp_path, monkeypatch):
    """KAFKA-10533."""

    async def story(follower):
        follower.answer(batch(0, 1), batch(1, 2))
        await follower.begin_flush(1)
        assert fetched_to(follower) == [0]
        follower.end_flush()
        await until(lambda: fetched_to(follower) == [0, 2])

    run(tmp_path / "log", monkeypatch, story)


def test_flush_does_not_count_for_records_that_replaced_those_it_covered(tmp_path, monkeypatch):
    """The truncation is an effect of the test's own: a voter's fetch, which could be answered with one, waits too."""

    async def story(follower):
        follower.answer(batch(0, 1), batch(1, 2))
        await follower.begin_flush(1)
        driver = follower.log.driver
        replaced = [
            TruncateLog(end_offset=Offset(1)),
            AppendFetched(batches=(batch(1, 3),)),
            FlushLog(log_end_offset=Offset(2)),
        ]
        driver.tell(lambda: driver._effects.extend(replaced))
        follower.end_flush()
        await follower.begin_flush(2)
        assert fetched_to(follower) == [0]
        assert driver._flushed_end_offset <= 1
        follower.end_flush()
        await until(lambda: fetched_to(follower) == [0, 2])
        assert driver._flushed_end_offset == 2

    run(tmp_path / "log", monkeypatch, story)


def test_what_replaces_a_tail_that_was_cut_off_is_flushed_before_it_is_acknowledged(tmp_path, monkeypatch):
    async def story(follower):
        follower.answer(batch(0, 1), batch(1, 2))
        await follower.begin_flush(1)
        follower.end_flush()
        await until(lambda: fetched_to(follower) == [0, 2])
        follower.answer(diverging=EpochEndOffset(epoch=Epoch(1), end_offset=Offset(1)))
        await until(lambda: fetched_to(follower)[-1] == 1)
        follower.answer(batch(1, 3))
        await follower.begin_flush(2)
        assert fetched_to(follower)[-1] == 1
        follower.end_flush()
        await until(lambda: fetched_to(follower)[-1] == 2)

    run(tmp_path / "log", monkeypatch, story)
