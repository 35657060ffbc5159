"""Types that users of ``kraftlog.Quorum`` see; read by mypy (``.ci/dev type``), never run."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, assert_type

from kraftlog import AsyncQuorum, Quorum, StateMachine
from kraftlog.quorum import CommittedBatch, QuorumInfo


class Total(StateMachine):
    """Adds up what is committed."""

    def __init__(self) -> None:
        self.value = 0

    def apply(self, batch: CommittedBatch) -> Sequence[int]:
        results = []
        for offset, command in batch:
            assert_type(offset, int)
            assert_type(command, bytes)
            self.value += int(command)
            results.append(self.value)
        assert_type(batch.last_offset, int)
        return results

    def snapshot(self) -> Iterable[bytes]:
        return [b"%d" % self.value]

    def restore(self, records: Sequence[bytes]) -> None:
        self.value = int(records[0])


class Lazy(Total):
    """A snapshot may be a function, which is called on another thread."""

    def snapshot(self) -> Callable[[], Iterable[bytes]]:  # type: ignore[override]  # Total promises an iterable
        return lambda: iter([b"1"])


class Incomplete(StateMachine):
    """Without ``snapshot`` and ``restore``."""

    def apply(self, batch: CommittedBatch) -> None:
        pass


def blocking() -> None:
    with Quorum(Total(), data_dir="q1", node_id=1, voters={1: "localhost:9093"}) as quorum:
        assert_type(quorum, Quorum)
        assert_type(quorum.propose([b"1"]), int)
        quorum.propose(["1"])  # type: ignore[list-item]
        assert_type(quorum.call([b"1"]), Sequence[Any])
        assert_type(quorum.read_barrier(timeout_s=1.5), int)
        assert_type(quorum.describe(), QuorumInfo)
        assert_type(quorum.leader_id, int | None)
        assert_type(quorum.epoch, int)
        assert_type(quorum.is_leader, bool)
        assert_type(quorum.failure, BaseException | None)
        assert_type(quorum.data_dir, Path)
    Quorum(Total())  # type: ignore[call-arg]
    Quorum(Incomplete(), data_dir="q1")  # type: ignore[abstract]


async def on_a_loop() -> None:
    async with Quorum(Total(), data_dir="q1") as quorum:
        assert_type(quorum, AsyncQuorum)
        assert_type(await quorum.propose([b"1"]), int)
        assert_type(await quorum.read_barrier(), int)
        quorum.propose([b"1"])  # type: ignore[unused-coroutine]
