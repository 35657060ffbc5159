"""A crash at any step of replacing a small file leaves the old content or the new one, for every kind of file.

The system calls of one write are recorded; what a disk may hold after each of them (unsynced bytes torn, unsynced
names missing) is laid out in a fresh directory and read by the file's own reader.
"""

from __future__ import annotations

import errno
import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlog.storage import atomic_file, files
from kraftlog.storage.checkpoints import read_offset_checkpoint, write_offset_checkpoint
from kraftlog.storage.election_store import ElectionStore
from kraftlog.storage.log_dir import CLEAN_SHUTDOWN_NAME
from kraftlog.storage.meta_properties import MetaProperties, read_meta_properties, write_meta_properties
from kraftlog.storage.snapshot_file import (
    Snapshot,
    SnapshotId,
    encode_snapshot,
    list_snapshots,
    read_snapshot,
    write_snapshot,
)
from kraftlog.types import ElectionState, ReplicaKey, TopicPartition, Uuid


class Calls:
    """Stands for the os module: passes calls on, remembers them, writes short, fails where it is told to."""

    O_CLOEXEC, O_CREAT, O_DIRECTORY = os.O_CLOEXEC, os.O_CREAT, os.O_DIRECTORY
    O_RDONLY, O_TRUNC, O_WRONLY = os.O_RDONLY, os.O_TRUNC, os.O_WRONLY

    def __init__(self, *, write_bytes: int = 7, fails_at: int | None = None) -> None:
        self.steps: list[tuple[Any, ...]] = []
        self._write_bytes = write_bytes
        self._fails_at = fails_at
        self._names: dict[int, str] = {}

    def _step(self, *step: Any) -> None:
        if self._fails_at == len(self.steps):
            self._fails_at = None
            raise OSError(errno.EIO, "made to fail", str(step))
        self.steps.append(step)

    def open(self, path: Path, flags: int, mode: int = 0o777) -> int:
        name = "." if flags & os.O_DIRECTORY else Path(path).name
        self._step("open", name)
        descriptor = os.open(path, flags, mode)
        self._names[descriptor] = name
        return descriptor

    def write(self, descriptor: int, data: memoryview) -> int:
        data = data[: self._write_bytes]
        self._step("write", self._names[descriptor], bytes(data))
        return os.write(descriptor, data)

    def fsync(self, descriptor: int) -> None:
        self._step("fsync", self._names[descriptor])

    def close(self, descriptor: int) -> None:
        os.close(descriptor)
        self.steps.append(("close", self._names.pop(descriptor)))

    def replace(self, source: Path, target: Path) -> None:
        self._step("replace", Path(source).name, Path(target).name)
        os.replace(source, target)


@contextmanager
def recorded(**options: Any) -> Iterator[Calls]:
    calls, real = Calls(**options), files.os
    files.os = calls  # type: ignore[attr-defined]
    try:
        yield calls
    finally:
        files.os = real  # type: ignore[attr-defined]


@dataclass
class Kind:
    """A sort of file: how it is written and read, and what its contents may be."""

    write: Callable[[Path, Any], object]
    read: Callable[[Path], Any]
    values: st.SearchStrategy[Any]
    temporary: str
    final: str


ids = st.integers(0, 2**31 - 1)
uuids = st.binary(min_size=16, max_size=16).filter(any).map(Uuid)
elections = st.builds(
    ElectionState, epoch=ids, leader_id=st.none() | ids, voted_key=st.none() | st.builds(ReplicaKey, ids, uuids)
)
names = st.text("abcdef.-_", min_size=1, max_size=9)
offsets = st.dictionaries(st.builds(TopicPartition, names, st.integers(0, 9)), st.integers(0, 2**63 - 1), max_size=4)
metas = st.builds(
    MetaProperties,
    cluster_id=names,
    node_id=ids,
    directory_id=uuids,
    version=st.just(1),
)
snapshots = st.builds(Snapshot, last_contained_log_timestamp=ids, values=st.lists(st.binary(max_size=20), max_size=4))
SNAPSHOT = SnapshotId(45, 3)  # type: ignore[arg-type]


def _read_snapshot(directory: Path) -> Snapshot | None:
    return read_snapshot(directory / SNAPSHOT.file_name) if SNAPSHOT in list_snapshots(directory) else None


def _checkpoint(name: str) -> Kind:
    return Kind(
        write=lambda directory, value: write_offset_checkpoint(directory / name, value),
        read=lambda directory: read_offset_checkpoint(directory / name),
        values=offsets,
        temporary=f"{name}.tmp",
        final=name,
    )


KINDS = {
    "quorum-state": Kind(
        write=lambda directory, state: ElectionStore(directory).write(state, kraft_version=1),
        read=lambda directory: ElectionStore(directory).read(),
        values=elections,
        temporary="quorum-state.tmp",
        final="quorum-state",
    ),
    "meta.properties": Kind(
        write=lambda directory, value: write_meta_properties(directory, value, written_at_s=0),
        read=read_meta_properties,
        values=metas,
        temporary="meta.properties.tmp",
        final="meta.properties",
    ),
    "snapshot": Kind(
        write=lambda directory, value: write_snapshot(
            directory,
            SNAPSHOT,
            encode_snapshot(value, epoch=3, now_ms=0),  # type: ignore[arg-type]
        ),
        read=_read_snapshot,
        values=snapshots,
        temporary=f"{SNAPSHOT.file_name}.part",
        final=SNAPSHOT.file_name,
    ),
    "clean shutdown": Kind(
        write=lambda directory, value: atomic_file.replace_file(directory / CLEAN_SHUTDOWN_NAME, value),
        read=lambda directory: (directory / CLEAN_SHUTDOWN_NAME).read_bytes(),
        values=st.binary(min_size=1, max_size=30),
        temporary=f"{CLEAN_SHUTDOWN_NAME}.tmp",
        final=CLEAN_SHUTDOWN_NAME,
    ),
} | {
    name: _checkpoint(name)
    for name in (
        "recovery-point-offset-checkpoint",
        "replication-offset-checkpoint",
        "log-start-offset-checkpoint",
        "cleaner-offset-checkpoint",
    )
}


class Disk:
    """What surely is on a disk, and what may be, after some system calls in one directory."""

    def __init__(self, files: dict[str, bytes]) -> None:
        self.inodes = [(data, data) for data in files.values()]  # surely there, and in the page cache
        self.durable = {name: number for number, name in enumerate(files)}
        self.changes: list[Callable[[dict[str, int]], None]] = []
        self.cached = dict(self.durable)

    def _rename(self, change: Callable[[dict[str, int]], None]) -> None:
        change(self.cached)
        self.changes.append(change)

    def apply(self, step: tuple[Any, ...]) -> None:
        match step:
            case ("open", "."):
                pass
            case ("open", name):
                number = self.cached.get(name, len(self.inodes))
                if number == len(self.inodes):
                    self.inodes.append((b"", b""))
                    self._rename(lambda names: names.update({name: number}))
                else:
                    self.inodes[number] = (self.inodes[number][0], b"")
            case ("write", name, data):
                durable, cached = self.inodes[self.cached[name]]
                self.inodes[self.cached[name]] = (durable, cached + data)
            case ("fsync", "."):
                self.durable, self.changes = dict(self.cached), []
            case ("fsync", name):
                cached = self.inodes[self.cached[name]][1]
                self.inodes[self.cached[name]] = (cached, cached)
            case ("replace", source, target):
                self._rename(lambda names: names.update({target: names.pop(source)}) if source in names else None)

    def after_crash(self) -> Iterator[dict[str, bytes]]:
        """Every directory that a restart may find: names as far as written, bytes of each file old, torn or new."""
        for kept in range(len(self.changes) + 1):
            names = dict(self.durable)
            for change in self.changes[:kept]:
                change(names)
            for torn in ("old", "half", "zeros", "new"):
                yield {name: self._bytes(number, torn) for name, number in names.items()}

    def _bytes(self, number: int, torn: str) -> bytes:
        durable, cached = self.inodes[number]
        if durable == cached or torn == "new":
            return cached
        return {"old": durable, "half": cached[: len(cached) // 2], "zeros": bytes(len(cached))}[torn]


def _lay_out(files: dict[str, bytes], directory: Path) -> None:
    for path in directory.iterdir():
        path.unlink()
    for name, data in files.items():
        (directory / name).write_bytes(data)


@pytest.mark.spec("DISK-07", "DISK-08", "DISK-29", "DISK-50")
@pytest.mark.parametrize("name", KINDS)
@settings(max_examples=25, deadline=None)
@given(data=st.data())
def test_a_crash_at_any_step_leaves_the_old_or_the_new_content(name, data):
    kind = KINDS[name]
    old, new = data.draw(kind.values), data.draw(kind.values)
    leftover = data.draw(st.none() | st.binary(max_size=40))
    with tempfile.TemporaryDirectory() as one, tempfile.TemporaryDirectory() as two:
        directory, restarted = Path(one), Path(two)
        kind.write(directory, old)
        if leftover is not None:
            (directory / kind.temporary).write_bytes(leftover)
        disk = Disk({path.name: path.read_bytes() for path in directory.iterdir()})
        with recorded(write_bytes=data.draw(st.integers(1, 50))) as calls:
            kind.write(directory, new)
        assert kind.read(directory) == new
        assert not (directory / kind.temporary).exists()
        for step in (("begin",), *calls.steps):
            disk.apply(step)
            for files in disk.after_crash():
                _lay_out(files, restarted)
                assert kind.read(restarted) in (old, new), (step, files)
        for files in disk.after_crash():
            _lay_out(files, restarted)
            assert kind.read(restarted) == new


@pytest.mark.spec("DISK-07", "DISK-29")
@pytest.mark.parametrize("name", KINDS)
@settings(max_examples=5, deadline=None)
@given(data=st.data())
def test_content_is_forced_and_closed_before_the_name_moves(name, data):
    kind = KINDS[name]
    with tempfile.TemporaryDirectory() as folder, recorded() as calls:
        kind.write(Path(folder), data.draw(kind.values))
    order = [step[:2] for step in calls.steps if step[0] != "write"]
    assert order == [
        ("open", kind.temporary),
        ("fsync", kind.temporary),
        ("close", kind.temporary),
        ("replace", kind.temporary),
        ("open", "."),
        ("fsync", "."),
        ("close", "."),
    ]
    assert calls.steps[-4] == ("replace", kind.temporary, kind.final)


@pytest.mark.spec("DISK-07")
@pytest.mark.parametrize("name", KINDS)
@settings(max_examples=5, deadline=None)
@given(data=st.data())
def test_a_failure_at_any_step_is_told_and_leaves_no_temporary_file(name, data):
    kind = KINDS[name]
    old, new = data.draw(kind.values), data.draw(kind.values)
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder)
        with recorded() as calls:
            kind.write(directory, new)
        attempted = [step for step in calls.steps if step[0] != "close"]
        for fails_at in range(len(calls.steps)):
            if calls.steps[fails_at][0] == "close":
                continue
            kind.write(directory, old)
            with recorded(fails_at=fails_at), pytest.raises(OSError, match="made to fail"):
                kind.write(directory, new)
            assert not (directory / kind.temporary).exists()
            assert kind.read(directory) in (old, new)
        assert len(attempted) >= 5
