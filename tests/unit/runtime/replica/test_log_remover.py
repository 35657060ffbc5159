"""Deletions that a stop interrupts."""

from __future__ import annotations

from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from kraftlog.runtime.replica.log_remover import LogRemover
from kraftlog.storage.log_dir import LogDir
from kraftlog.types import TopicPartition


def test_deletions_that_wait_at_the_stop_are_renamed_for_the_next_start(tmp_path: Path) -> None:
    log_dir = LogDir(tmp_path)
    submitted: list[Future[Any]] = []

    def submit(*_work: object) -> Future[Any]:
        submitted.append(Future())
        return submitted[-1]

    loop: Any = SimpleNamespace(call_soon=lambda call: call())
    workers: Any = SimpleNamespace(submit_in_order=submit)
    steps: Any = None
    remover: LogRemover[Any] = LogRemover(
        loop,
        workers,
        steps,
        lambda *_: None,
        let_go=lambda _: None,
        forget=lambda log_dir, keys: forgotten.append((log_dir, sorted(keys))),
        removed=lambda *_: None,
    )
    config = SimpleNamespace(file_delete_delay_ms=60_000)
    discarded: list[str] = []
    forgotten: list[Any] = []
    for index in range(3):
        path = tmp_path / f"t-{index}"
        path.mkdir()
        log: Any = SimpleNamespace(path=str(path), discard=lambda path=path: discarded.append(path.name))
        name = TopicPartition("t", index)
        remover.remove(SimpleNamespace(topic_partition=name, log=log, log_dir=log_dir, config=config))
    assert len(submitted) == 1, "one round, and two logs that wait for the next"
    assert submitted[0].cancel(), "the threads are shut down"
    remover.finish()
    assert discarded == ["t-0", "t-1", "t-2"]
    assert forgotten == [(log_dir, [TopicPartition("t", index) for index in range(3)])]
    assert len(log_dir.deleted_directories()) == 3
    assert log_dir.partition_directories() == []
    log_dir.release()
