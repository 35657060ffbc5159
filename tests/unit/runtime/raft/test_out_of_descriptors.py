"""A replica that runs out of file descriptors waits for some and goes on; it does not end."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from descriptors import no_descriptors
from kraftlog.storage import metadata_log
from kraftlog.storage.election_store import ElectionStore
from kraftlog.storage.metadata_log import MetadataLog
from replicated_fixture import Recorder, bootstrap, propose, replicated
from waiting import until

EMFILE = OSError(errno.EMFILE, os.strerror(errno.EMFILE))


def fails_first(call: Callable[..., Any], times: int = 2) -> Callable[..., Any]:
    """``call``, refused for want of a descriptor the first few times."""
    refused = 0

    def refuse(*args: Any, **options: Any) -> Any:
        nonlocal refused
        if refused < times:
            refused += 1
            raise EMFILE
        return call(*args, **options)

    return refuse


@pytest.mark.parametrize("left", range(5))
def test_appends_without_descriptors_are_done_later(tmp_path: Path, left: int) -> None:
    values = [f"{number}".zfill(1500) for number in range(12)]  # some of them begin a segment

    async def run() -> None:
        bootstrap(tmp_path / "log", 1)
        machine = Recorder()
        log = replicated(tmp_path / "log", machine)
        await propose(log, "first")

        def append(value: str) -> Callable[[], object]:
            data = value.encode()
            return lambda: log.propose([data], size_bytes=len(data), payload=[data])

        with no_descriptors(left):
            for value in values:
                log.driver.tell(append(value))
            await until(lambda: log.driver._retry is not None or len(machine.values) == len(values) + 1)
        await until(lambda: len(machine.values) == len(values) + 1)
        assert machine.values == [b"first", *(value.encode() for value in values)]
        assert (machine.failures, log.failure) == ([], None)
        await log.stop()
        again = Recorder()
        reopened = replicated(tmp_path / "log", again)
        await until(lambda: len(again.values) == len(values) + 1)
        assert again.values == machine.values
        await reopened.stop()

    asyncio.run(run())


def test_an_election_state_without_descriptors_is_written_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def run() -> None:
        bootstrap(tmp_path / "log", 1)
        monkeypatch.setattr(ElectionStore, "write", fails_first(ElectionStore.write))
        machine = Recorder()
        log = replicated(tmp_path / "log", machine)
        assert not (tmp_path / "log" / "quorum-state").exists()
        log.driver.tell(lambda: log.propose([b"value"], size_bytes=5, payload=[b"value"]))
        await until(lambda: machine.values == [b"value"])
        assert (tmp_path / "log" / "quorum-state").exists()
        assert machine.failures == []
        await log.stop()

    asyncio.run(run())


def test_a_flush_without_descriptors_is_tried_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def run() -> None:
        bootstrap(tmp_path / "log", 1)
        machine = Recorder()
        log = replicated(tmp_path / "log", machine)
        monkeypatch.setattr(MetadataLog, "flush", fails_first(MetadataLog.flush))
        await propose(log, "value")
        assert (machine.values, machine.failures) == ([b"value"], [])
        await log.stop()

    asyncio.run(run())


def test_what_is_committed_is_applied_once_it_can_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = MetadataLog.batches

    def batches(self: MetadataLog, *args: Any, **options: Any) -> Iterator[Any]:
        nonlocal refused
        for batch in whole(self, *args, **options):
            if not refused:
                refused = True
                raise EMFILE
            yield batch

    async def run() -> None:
        bootstrap(tmp_path / "log", 1)
        first = Recorder()
        log = replicated(tmp_path / "log", first)
        await propose(log, "a", "b")
        await log.stop()
        machine = Recorder()
        again = replicated(tmp_path / "log", machine)
        monkeypatch.setattr(MetadataLog, "batches", batches)
        await until(lambda: machine.values == [b"a", b"b"])
        await propose(again, "c")
        assert machine.values == [b"a", b"b", b"c"]
        assert machine.failures == []
        await again.stop()

    refused = False
    asyncio.run(run())


def test_a_checkpoint_without_descriptors_is_made_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        bootstrap(tmp_path / "log", 1)
        machine = Recorder()
        monkeypatch.setattr("kraftlog.runtime.raft.checkpoints.RETRY_S", 0.05)
        monkeypatch.setattr(metadata_log, "SnapshotWriter", fails_first(metadata_log.SnapshotWriter))
        log = replicated(tmp_path / "log", machine, snapshot_max_bytes=150)
        for number in range(3):
            await propose(log, f"{number}")
        while not list((tmp_path / "log").glob("*[1-9]-*.checkpoint")):
            await propose(log, "more")
        assert machine.failures == []
        assert "no file descriptor is left for a checkpoint" in caplog.text
        await log.stop()

    asyncio.run(run())
