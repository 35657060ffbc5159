"""How staged partition directories become part of a log directory, once and as a whole.

Each task attempt writes below ``<directory>/_temporary/<job>/<attempt>/``. The commit, on the driver and with Kafka's
lock on the directory, looks at what is there, writes the steps into ``_temporary/<job>/commit.json`` and makes that
durable: from then on the write counts. The steps are renames and small files, and each can be done again. A run that
finds a ``commit.json`` does what is left of it; a job directory without one counts for nothing.

While there is a ``_temporary`` Kafka does not start on the directory (its name is no partition's), so that no broker
sees half of a commit.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import time
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Final

from kraftlog._kraftlog import DirectoryLock, lock_directory
from kraftlog.errors import LogError
from kraftlog.spark.write_plan import (
    LEADER_EPOCHS,
    LOG_SUFFIX,
    Step,
    WritePlan,
    WrittenPartition,
    existing_partitions,
    plan_steps,
)
from kraftlog.storage.atomic_file import flush_directory, replace_file
from kraftlog.storage.checkpoints import (
    CLEANER_OFFSET_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    read_offset_checkpoint,
    write_offset_checkpoint,
)
from kraftlog.storage.log_dir import STAGING_DIRECTORY
from kraftlog.types import TopicPartition

__all__ = ["abort_job", "begin_attempt", "check_unused", "commit_job", "finish_writes", "new_job"]

TEMPORARY: Final = STAGING_DIRECTORY
JOURNAL: Final = "commit.json"
JOURNAL_VERSION: Final = 1
REPLACED: Final = "replaced"
# What a job that never committed left behind is removed when nothing in it has changed for so long.
STALE_S: Final = 3600.0
LOCK_WAIT_S = 5.0


def new_job() -> str:
    """A name for the directory of a job that no other job has."""
    return uuid.uuid4().hex


def check_unused(directory: Path) -> None:
    """Raises LogError when a node, or another commit, uses the directory."""
    if directory.is_dir():
        with _locked(directory):
            pass


def begin_attempt(directory: Path, job: str, task: int, attempt: int) -> Path:
    """A new directory for one attempt of one task; a second attempt, or a speculative one, gets another."""
    path = directory / TEMPORARY / job / f"{task:05d}-{attempt}-{uuid.uuid4().hex[:8]}"
    for _ in range(3):
        try:
            path.mkdir(parents=True)
            return path
        except FileNotFoundError:
            # Another job has just removed the empty directory of all jobs.
            continue
    path.mkdir(parents=True)
    return path


def abort_job(directory: Path, job: str) -> None:
    """Remove what a job staged, unless it has begun to commit: then the next run finishes it."""
    if (directory / TEMPORARY / job / JOURNAL).exists():
        return
    shutil.rmtree(directory / TEMPORARY / job, ignore_errors=True)
    _remove_if_empty(directory / TEMPORARY)


def commit_job(plan: WritePlan, written: Sequence[WrittenPartition]) -> None:
    """Make what the tasks wrote part of the directory, durably.

    Args:
        plan: The driver's plan.
        written: What the attempts that count have staged; of other attempts nothing is taken.

    Raises:
        LogError: Another process uses the directory, or it is not as it was; nothing of it was changed then.
        OSError: The disk failed. When ``commit.json`` was written the next run finishes the commit.
    """
    staging = plan.directory / TEMPORARY / plan.job
    plan.directory.mkdir(parents=True, exist_ok=True)
    with _locked(plan.directory):
        steps = plan_steps(plan, written, staging)
        if not steps:
            abort_job(plan.directory, plan.job)
            return
        staging.mkdir(parents=True, exist_ok=True)
        for path in {staging / step.staged for step in steps if step.staged}:
            flush_directory(path)
            flush_directory(path.parent)
        journal = {"version": JOURNAL_VERSION, "steps": [asdict(step) for step in steps]}
        replace_file(staging / JOURNAL, json.dumps(journal, indent=1).encode())
        for path in (staging.parent, plan.directory, plan.directory.parent):
            flush_directory(path)
        _apply(plan.directory, staging, steps)


def finish_writes(directory: str | os.PathLike[str]) -> list[str]:
    """Finish commits that were interrupted, and remove what jobs left that never committed.

    Every write does this first. A job directory without a commit is left alone while something in it has changed
    within the last hour, as its job may be running.

    Args:
        directory: A log directory that was written to.

    Returns:
        Names of the partition directories that were finished, such as ``orders-0``.

    Raises:
        LogError: A partition was changed since; names it. Another process uses the directory.
    """
    target = Path(directory).absolute()
    temporary = target / TEMPORARY
    if not temporary.is_dir():
        return []
    finished: list[str] = []
    for staging in sorted(path for path in temporary.iterdir() if path.is_dir()):
        if (staging / JOURNAL).exists():
            with _locked(target):
                steps = _read_journal(staging / JOURNAL)
                if steps is None:
                    continue
                for step in steps:
                    _check_unchanged(target, staging, step)
                _apply(target, staging, steps)
                finished += [step.name for step in steps]
        elif time.time() - _last_change(staging) > STALE_S:
            shutil.rmtree(staging, ignore_errors=True)
    _remove_if_empty(temporary)
    return finished


@contextlib.contextmanager
def _locked(directory: Path) -> Iterator[None]:
    lock = _lock(directory)
    try:
        yield
    finally:
        lock.release()


def _lock(directory: Path) -> DirectoryLock:
    deadline = time.monotonic() + LOCK_WAIT_S
    while True:
        try:
            return lock_directory(directory)
        except LogError as error:
            # Another write may be committing, to other topics; a node stays.
            if time.monotonic() > deadline:
                message = f"{directory} is in use: stop the node that runs on it, or the other write ({error})"
                raise LogError(message) from error
            time.sleep(0.05)


def _read_journal(path: Path) -> list[Step] | None:
    """The steps of a journal; None when another run has just finished it."""
    try:
        journal = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    except ValueError as error:
        message = f"{path} is no journal of a commit: {error}"
        raise LogError(message) from error
    if journal.get("version") != JOURNAL_VERSION:
        message = f"{path}: version {journal.get('version')!r} of the journal is not {JOURNAL_VERSION}"
        raise LogError(message)
    return [_step(values) for values in journal["steps"]]


def _step(values: dict[str, object]) -> Step:
    tail = values.pop("tail")
    return Step(**values, tail=tuple(tail) if tail else None)  # type: ignore[arg-type]  # from JSON, as asdict wrote it


def _check_unchanged(target: Path, staging: Path, step: Step) -> None:
    """Refuse to finish a step on a partition that something else has changed since the commit began."""
    path = target / step.name
    if not (step.staged and (staging / step.staged).is_dir()):
        return
    if step.kind == "place" and path.exists() and (not step.replaces or (staging / REPLACED / step.name).exists()):
        message = f"{path} was made since the commit in {staging} was interrupted: remove one of them"
        raise LogError(message)
    if step.kind == "append" and step.tail is not None:
        known = dict([step.tail, *step.moved])
        found = {
            file.name: file.stat().st_size for file in path.glob(f"*{LOG_SUFFIX}") if file.name not in step.emptied
        }
        last = max(found, default="")
        if last not in known or found[last] != known[last]:
            message = f"{path} was written to since the commit in {staging} was interrupted: remove {staging}"
            raise LogError(message)


def _apply(target: Path, staging: Path, steps: Sequence[Step]) -> None:
    """Do what is left of a journal's steps, then forget the journal."""
    gone = [step for step in steps if step.kind != "append"]
    # What the checkpoints say of a log that is about to be another one must not be taken for the new one.
    _set_offsets(target, {name: {_key(step): None for step in gone} for name in _CHECKPOINTS})
    (staging / REPLACED).mkdir(exist_ok=True)
    for step in steps:
        if step.kind == "append":
            _append(target, staging, step)
        else:
            _place(target, staging, step)
    flush_directory(target)
    ends: dict[TopicPartition, int | None]
    ends = {_key(step): step.end_offset for step in steps if step.end_offset is not None}
    high_watermarks = ends
    if not (target / REPLICATION_OFFSET_CHECKPOINT).exists():
        # Readers take logs to their end where there is no such file, and where there is one only what it names.
        others = {TopicPartition(*key): found.end_offset for key, found in existing_partitions(target).items()}
        high_watermarks = {**others, **ends}
    starts: dict[TopicPartition, int | None]
    starts = {_key(step): step.log_start_offset or None for step in steps if step.log_start_offset is not None}
    _set_offsets(
        target,
        {
            LOG_START_OFFSET_CHECKPOINT: starts,
            RECOVERY_POINT_CHECKPOINT: ends,
            REPLICATION_OFFSET_CHECKPOINT: high_watermarks,
        },
    )
    (staging / JOURNAL).unlink()
    flush_directory(staging)
    abort_job(target, staging.name)


def _place(target: Path, staging: Path, step: Step) -> None:
    path, replaced = target / step.name, staging / REPLACED / step.name
    staged = staging / step.staged if step.staged else None
    if staged is not None and not staged.exists():
        return
    if path.exists() and not replaced.exists():
        path.rename(replaced)
    if staged is not None:
        staged.rename(path)


def _append(target: Path, staging: Path, step: Step) -> None:
    path, staged = target / step.name, staging / step.staged
    if not staged.exists():
        return
    for name in step.emptied:
        (path / name).unlink(missing_ok=True)
    lines = ["0", str(len(step.epochs)), *(f"{epoch} {start}" for epoch, start in step.epochs)]
    replace_file(path / LEADER_EPOCHS, ("\n".join(lines) + "\n").encode())
    for name, _ in step.moved:
        with contextlib.suppress(FileNotFoundError):  # moved before the commit was interrupted
            os.replace(staged / name, path / name)
    flush_directory(path)


_CHECKPOINTS: Final = (
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
    REPLICATION_OFFSET_CHECKPOINT,
    CLEANER_OFFSET_CHECKPOINT,
)


def _key(step: Step) -> TopicPartition:
    return TopicPartition(step.topic, step.partition)


def _set_offsets(target: Path, changes: dict[str, dict[TopicPartition, int | None]]) -> None:
    """Change lines of checkpoint files; None takes a line away. Other lines stay."""
    for name, offsets in changes.items():
        present = read_offset_checkpoint(target / name)
        merged = {key: offset for key, offset in present.items() if key not in offsets}
        merged |= {key: offset for key, offset in offsets.items() if offset is not None}
        if merged != present:
            write_offset_checkpoint(target / name, merged)


def _last_change(directory: Path) -> float:
    """When anything below a directory was last changed, seconds since the epoch."""
    newest = 0.0
    for folder, _, names in os.walk(directory):
        for name in [".", *names]:
            with contextlib.suppress(FileNotFoundError):
                newest = max(newest, (Path(folder) / name).stat().st_mtime)
    return newest


def _remove_if_empty(directory: Path) -> None:
    with contextlib.suppress(OSError):
        directory.rmdir()
