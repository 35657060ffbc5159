"""Kafka's LocalTieredStorage layout: which of the copies of segments hold which offsets.

A broker with tiered storage copies each segment under a name of its own, and after a change of leader the new one may
copy offsets again that the old one had copied. Kafka keeps in ``__remote_log_metadata`` which copy serves an offset
of a leader epoch; here the copies tell it themselves, each by the leader epochs that were copied with it:

1. A copy without ``.leader_epoch_checkpoint``, which is written after the log and its indexes, is not finished.
2. The history is that of the copy with the newest last epoch; of several the one that goes furthest.
3. A copy counts up to where its epochs differ from the history (KIP-101): what is behind was truncated by a leader.
4. Of the offsets that are left each is read from the copy with the greatest base offset that has it, and a copy that
   another one wholly contains is not read. By 3 all copies of an offset are the same bytes.
5. An offset that no copy has between the first and the last is an error.

Source: KIP-405; ``RemoteLogManager`` and ``RemoteLogMetadataCache`` of Kafka, ``LocalTieredStorage`` of its tests.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import pairwise

from kraftlog._kraftlog import log_end_offset
from kraftlog.errors import LogError
from kraftlog.reading.directory import parse_leader_epochs
from kraftlog.reading.facts import LeaderEpoch
from kraftlog.reading.remote_fetch import RetryPolicy, small_file
from kraftlog.reading.remote_files import TIERED_FILE
from kraftlog.reading.remote_partition import WINDOW_BYTES, RemoteObject, RemotePartition

__all__ = ["Copy", "chosen_copies", "tiered_partition"]

logger = logging.getLogger("kraftlog.reading")

EPOCHS_SUFFIX = "leader_epoch_checkpoint"

# Looks at the ends of segments at once.
_THREADS = 8


@dataclass(frozen=True, slots=True)
class Copy:
    """A copy of a segment.

    Args:
        objects: Its objects by suffix.
        base_offset: First offset of its file.
        end_offset: The offset after its last record.
        epochs: Leader epochs up to its end with their first offsets.
    """

    objects: dict[str, RemoteObject] = field(repr=False)
    base_offset: int
    end_offset: int
    epochs: tuple[LeaderEpoch, ...]

    @property
    def name(self) -> str:
        """The URL of its log, for people."""
        return self.objects["log"].url


def tiered_partition(
    url: str, objects: Sequence[RemoteObject], retry: RetryPolicy
) -> tuple[RemotePartition, tuple[LeaderEpoch, ...]]:
    """A partition of the copies in its directory, and its leader epochs.

    Takes three small requests for each copy: its leader epochs, its index, and the end of its log.

    Raises:
        LogError: Offsets are missing, or a file of leader epochs is none; names the directory or the file.
        RemoteLogError: An object cannot be read.
    """
    by_copy: dict[str, dict[str, RemoteObject]] = {}
    for stored in objects:
        name = stored.path.rpartition("/")[2]
        if TIERED_FILE.match(name):
            stem, _, suffix = name.partition(".")
            by_copy.setdefault(stem, {})[suffix] = stored
    whole = [files for _, files in sorted(by_copy.items()) if "log" in files and EPOCHS_SUFFIX in files]
    if len(whole) < len(by_copy):
        logger.warning("%s: %d copies of segments are not finished and are not read", url, len(by_copy) - len(whole))
    with ThreadPoolExecutor(_THREADS, thread_name_prefix="kraftlog-plan") as pool:
        copies = list(pool.map(lambda files: _look_at(url, files, retry), whole))
    chosen, epochs = chosen_copies(url, copies)
    kept: list[RemoteObject] = []
    for copy, end_offset in chosen:
        for suffix, stored in copy.objects.items():
            if suffix == "snapshot":
                # It is of the end of the segment, unlike the file with the same digits in a log directory.
                if end_offset == copy.end_offset:
                    kept.append(replace(stored, kind="snapshot", offset=copy.end_offset))
            elif suffix != EPOCHS_SUFFIX:
                kept.append(replace(stored, end_offset=end_offset if suffix == "log" else None))
    return RemotePartition(url, tuple(kept), None, WINDOW_BYTES, retry), epochs


def chosen_copies(url: str, copies: Sequence[Copy]) -> tuple[list[tuple[Copy, int]], tuple[LeaderEpoch, ...]]:
    """The copies that are read, each with the exclusive end of the offsets that it is read for, and the history.

    Raises:
        LogError: Offsets are missing; names them.
    """
    if not copies:
        return [], ()
    newest = max(copies, key=lambda copy: (copy.epochs[-1].epoch if copy.epochs else -1, copy.end_offset))
    counting = [(copy, _valid_end(copy, newest.epochs)) for copy in copies]
    counting = [(segment_copy, end) for segment_copy, end in counting if segment_copy.base_offset < end]
    # Of copies that begin at the same offset the longest is first, and makes the others superfluous.
    counting.sort(key=lambda pair: (pair[0].base_offset, -pair[1]))
    kept: list[tuple[Copy, int]] = []
    for segment_copy, end in counting:
        if not kept or end > kept[-1][1]:
            kept.append((segment_copy, end))
    for (segment_copy, end), (following, _) in pairwise(kept):
        if end < following.base_offset:
            message = (
                f"{url}: no copy has the offsets from {end} up to {following.base_offset}, behind {segment_copy.name}"
            )
            raise LogError(message)
    ends = [following.base_offset for following, _ in kept[1:]] + [end for _, end in kept[-1:]]
    return [(segment_copy, end) for (segment_copy, _), end in zip(kept, ends, strict=True)], newest.epochs


def _valid_end(copy: Copy, history: Sequence[LeaderEpoch]) -> int:
    """Up to which offset the copy has the records of the history."""
    starts = sorted({start for _, start in [*copy.epochs, *history] if copy.base_offset < start < copy.end_offset})
    for offset in [copy.base_offset, *starts]:
        if _epoch_of(copy.epochs, offset) != _epoch_of(history, offset):
            return offset
    return copy.end_offset


def _epoch_of(epochs: Sequence[LeaderEpoch], offset: int) -> int | None:
    found = None
    for epoch, start_offset in epochs:
        if start_offset <= offset:
            found = epoch
    return found


def _look_at(url: str, files: dict[str, RemoteObject], retry: RetryPolicy) -> Copy:
    log = files["log"]
    epochs_file = files[EPOCHS_SUFFIX]
    epochs = parse_leader_epochs(small_file(epochs_file, retry), origin=epochs_file.url)
    alone = RemotePartition(url, tuple(file for file in files.values() if file.kind in {"log", "index"}), retry=retry)
    return Copy(files, log.offset, log_end_offset(alone), epochs)
