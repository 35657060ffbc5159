"""Drawn histories of the files of a metadata quorum, on a disk that loses what was not flushed.

The metadata log with its checkpoints, quorum-state and an offset checkpoint are changed, flushed and cut; calls fail in
their midst, the power fails, and all is opened again. What was promised before has to be there, and nothing else.
"""

from __future__ import annotations

import errno
import itertools
import os
from collections import Counter
from collections.abc import Callable
from random import Random

from kraftlog.errors import KraftlogError, LogError
from kraftlog.storage.checkpoints import RECOVERY_POINT_CHECKPOINT, read_offset_checkpoint, write_offset_checkpoint
from kraftlog.storage.election_store import ELECTION_STATE_NAME, ElectionStore
from kraftlog.storage.files import make_directory
from kraftlog.storage.memory_path import MEMORY_ROOT, MemoryPath, add_disk, remove_disk
from kraftlog.storage.metadata_log import MetadataLog, MetadataLogConfig
from kraftlog.storage.snapshot_file import Snapshot, encode_snapshot
from kraftlog.testing.log_invariants import InvariantViolationError
from kraftlog.types import ElectionState, Epoch, NodeId, Offset, ReplicaKey, SnapshotId, TopicPartition, Uuid

STEPS = 60
_DATA = ("nothing", "everything", "suffix", "torn", "pages", "contents")
_NAMES = ("nothing", "everything", "suffix", "any")
_FAULTS = ("write", "sync", "change", "open")
_NUMBERS = itertools.count()

Record = tuple[int, bytes]


def violated(rule: str, reason: str) -> InvariantViolationError:
    return InvariantViolationError(rule, reason, [])


class StorageHistory:
    """One history; ``play`` runs it.

    Args:
        seed: Of all chance.
    """

    def __init__(self, seed: int) -> None:
        self.rng = rng = Random(f"{seed}/storage")
        self.counts: Counter[str] = Counter()
        self.now_ms = 1_000
        self.name = f"storage-history-{os.getpid()}-{next(_NUMBERS)}"
        self.disk = add_disk(self.name)
        self.directory = MemoryPath(MEMORY_ROOT, self.name) / "log"
        self.damaged = MemoryPath(MEMORY_ROOT, self.name) / "damaged"
        make_directory(self.directory)
        make_directory(self.damaged)
        self.config = MetadataLogConfig(
            segment_bytes=rng.choice((1_000, 4_096)),
            max_batch_bytes=4_096,
            retention_bytes=rng.choice((1_500, 1 << 20)),
            delete_delay_ms=rng.choice((0, 5_000)),
        )
        # Every record that the log has had from its first offset on; below ``committed`` nothing is ever cut off.
        self.records: list[Record] = []
        self.committed = 0
        # The log has at least this after a crash, and begins no later than there.
        self.durable_end = self.durable_start = 0
        # What a snapshot that is being installed makes of the log.
        self.installing: tuple[SnapshotId, list[Record]] | None = None
        self.epoch = 1
        # What the small files may hold: the last value that was written, and one whose write did not end.
        self.votes: list[ElectionState | None] = [None]
        self.offsets: list[dict[TopicPartition, int]] = [{}]
        self.log = self.opened()
        names = ("append", "flush", "cut", "commit", "checkpoint", "install", "clean", "vote", "store", "damage")
        self.weights = {name: rng.choice((1, 3, 6)) for name in names}
        self.weights |= {
            "append": 8,
            "flush": 6,
            "commit": 4,
            "install": rng.choice((0.2, 1)),
            "cut": rng.choice((0.2, 1)),
        }
        self.failure_rate = rng.choice((0.05, 0.2))

    def opened(self) -> MetadataLog:
        return MetadataLog(self.directory, self.config, now_ms=self.now_ms, clean_shutdown=False)

    # -- what is done -----------------------------------------------------------------------------------------

    def append(self) -> None:
        self.epoch += self.rng.random() < 0.1
        base_offset = len(self.records)
        values = [b"%d" % base_offset + b"." * self.rng.choice((10, 300)) for _ in range(self.rng.randint(1, 3))]
        # They may be in the log as soon as the write begins.
        self.records += [(self.epoch, value) for value in values]
        self.log.append_values(values, base_offset=Offset(base_offset), epoch=Epoch(self.epoch), now_ms=self.now_ms)

    def flush(self) -> None:
        self.durable_end = max(self.durable_end, self.log.flush())

    def cut(self) -> None:
        """A new leader does not have the end of this log."""
        ends = [base for base in self.boundaries() if base >= max(self.committed, self.log.log_start_offset)]
        if ends:
            end = self.rng.choice(ends)
            self.durable_end = min(self.durable_end, end)
            self.log.truncate_to(Offset(end))
            del self.records[end:]
            self.epoch += 1
            self.counts["cut"] += 1

    def boundaries(self) -> list[int]:
        start, end = self.log.log_start_offset, self.log.log_end_offset
        return [start, *(batch.last_offset + 1 for batch in self.log.batches(start, end))]

    def commit(self) -> None:
        """A majority has what is durable here."""
        self.committed = max(self.committed, self.durable_end)

    def state(self, end: int) -> list[bytes]:
        return [value for _, value in self.records[:end]]

    def checkpoint(self) -> None:
        ends = [end for end in self.boundaries() if self.log.log_start_offset < end <= self.committed]
        if not ends:
            return
        end = self.rng.choice(ends)
        snapshot_id = SnapshotId(Offset(end), Epoch(self.records[end - 1][0]))
        writer = self.log.create_snapshot(
            snapshot_id, epoch=Epoch(self.epoch), high_watermark=Offset(self.committed), now_ms=self.now_ms
        )
        if writer is None:
            return
        with writer:
            writer.append(self.state(end))
            writer.freeze()
        self.counts["checkpoint"] += 1

    def install(self) -> None:
        """The leader's log begins behind the end of this one: its checkpoint takes the place of all."""
        self.epoch += self.rng.randrange(2)
        number = len(self.records) + self.rng.randint(1, 20)
        new = [(self.epoch, b"%d!" % offset) for offset in range(self.committed, number)]
        records = [*self.records[: self.committed], *new]
        snapshot_id = SnapshotId(Offset(number), Epoch(self.epoch))
        content = encode_snapshot(
            Snapshot(values=[value for _, value in records]), epoch=self.epoch, now_ms=self.now_ms
        )
        position, piece = 0, self.rng.choice((100, 1_000, 1 << 20))
        while position < len(content):
            self.log.write_snapshot_chunk(snapshot_id, position, content[position : position + piece])
            position += piece
        if self.rng.random() < 0.1:
            self.log.abandon_snapshot(snapshot_id)
            return
        self.installing = snapshot_id, records
        self.log.install_snapshot(snapshot_id)
        self.installed()

    def installed(self) -> None:
        assert self.installing is not None
        snapshot_id, self.records = self.installing
        self.installing = None
        self.committed = self.durable_end = self.durable_start = snapshot_id.end_offset
        self.counts["installed"] += 1

    def clean(self) -> None:
        self.now_ms += self.rng.choice((0, 10_000))
        self.log.clean(now_ms=self.now_ms, high_watermark=self.committed)

    def vote(self) -> None:
        voted = None if self.rng.random() < 0.3 else ReplicaKey(NodeId(self.rng.randint(1, 5)), Uuid(bytes([7] * 16)))
        known = self.votes[0]
        state = ElectionState(epoch=Epoch(1 if known is None else known.epoch + 1), leader_id=None, voted_key=voted)
        self.votes.append(state)
        ElectionStore(self.directory).write(state, kraft_version=1)
        self.votes = [state]

    def store(self) -> None:
        names = [TopicPartition(self.rng.choice(("a", "bb")), index) for index in range(self.rng.randint(0, 4))]
        offsets = {name: self.rng.randrange(1 << 40) for name in names}
        self.offsets.append(offsets)
        write_offset_checkpoint(self.directory / RECOVERY_POINT_CHECKPOINT, offsets)
        self.offsets = [offsets]

    def damage(self) -> None:
        """A file is cut off by somebody else: it is refused, or as it was."""
        name = self.rng.choice((ELECTION_STATE_NAME, RECOVERY_POINT_CHECKPOINT))
        if not (self.directory / name).exists():
            return
        text = (self.directory / name).read_bytes()
        # Within the last line nothing tells a shorter number from the right one.
        ends = [0, *(index + 1 for index, byte in enumerate(text[:-1]) if byte == 0x0A)]
        if name == ELECTION_STATE_NAME:
            ends = list(range(len(text)))
        (self.damaged / name).write_bytes(text[: self.rng.choice(ends)])
        try:
            if name == ELECTION_STATE_NAME:
                is_right = ElectionStore(self.damaged).read() == self.votes[0]
            else:
                # An empty one has no entries.
                is_right = read_offset_checkpoint(self.damaged / name) in ({}, self.offsets[0])
        except LogError:
            self.counts["refused"] += 1
        else:
            if not is_right:
                rule = "INV-02" if name == ELECTION_STATE_NAME else "DISK-50"
                raise violated(rule, f"{name} is cut off, and is read all the same")

    # -- what fails -----------------------------------------------------------------------------------------------

    def attempt(self, action: Callable[[], None]) -> None:
        """Do something; one time of some a call within it fails, and the power as well."""
        is_failing = self.rng.random() < self.failure_rate
        if is_failing:
            self.disk.fail(self.rng.choice(_FAULTS), self.rng.choice((0, 1, 2, 5, 9)), errno.EIO)
        try:
            action()
        except (OSError, LogError):
            if not is_failing:
                raise
            self.counts["failed"] += 1
            self.counts["cut off"] += self.installing is not None
        if is_failing:
            self.power_failure()

    def power_failure(self) -> None:
        self.counts["power failure"] += 1
        self.disk.crash(self.rng.choice(_DATA), self.rng.choice(_NAMES), seed=self.rng.getrandbits(32))
        self.disk.clear_faults()
        self.now_ms += 1
        try:
            found = ElectionStore(self.directory).read()
            if found not in self.votes:
                raise violated("INV-02", f"the vote is {found}, written was {self.votes}")
            self.votes = [found]
            offsets = read_offset_checkpoint(self.directory / RECOVERY_POINT_CHECKPOINT)
            if offsets not in self.offsets:
                raise violated("DISK-07", f"the offsets are {offsets}, written were {self.offsets}")
            self.offsets = [offsets]
            self.log = self.opened()
            self.check()
        except (KraftlogError, OSError) as error:
            if isinstance(error, InvariantViolationError):
                raise
            raise violated("DISK-30", f"what a crash left is not read: {error}") from error

    def check(self) -> None:
        """The log that was opened has what was promised."""
        start, end = self.log.log_start_offset, self.log.log_end_offset
        if self.installing is not None:
            if start == self.installing[0].end_offset:
                self.installed()
            self.installing = None
        # A log that was cut to its start has no leader epochs, and they alone say where one begins that still has its
        # first segment: after a crash its deleted records are there again, as with Kafka.
        is_deleted_again = start == 0 < self.durable_start
        self.counts["deleted again"] += is_deleted_again
        if (start < self.durable_start and not is_deleted_again) or not self.durable_end <= end <= len(self.records):
            known = f"{self.durable_start} to {self.durable_end}"
            raise violated("DISK-30", f"the log has {start} to {end}, promised were {known} of {len(self.records)}")
        del self.records[end:]
        found = [
            (batch.partition_leader_epoch, value)
            for batch in self.log.batches(start, end)
            for value in batch.values(batch.base_offset)
        ]
        if found != self.records[start:end]:
            raise violated("DISK-30", f"the log from {start} to {end} is not what was appended: {found}")
        latest = self.log.read_latest_snapshot()
        if start > 0 and (latest is None or start not in {each.end_offset for each, _ in self.log.snapshots}):
            raise violated("INV-15", f"the log starts at {start}, the checkpoints are {self.log.snapshots}")
        values = [] if latest is None else list(latest[1].each_value())
        if latest is not None and values != self.state(latest[0].end_offset):
            raise violated("INV-16", f"checkpoint {latest[0]} has {values}")
        self.durable_end, self.durable_start = end, start
        self.log.flush()
        self.counts["opened"] += 1

    def play(self) -> Counter[str]:
        """Run the history.

        Returns:
            How often what happened.

        Raises:
            InvariantViolationError: A rule is broken.
        """
        names, weights = list(self.weights), list(self.weights.values())
        try:
            for name in self.rng.choices(names, weights, k=STEPS):
                if name == "damage":
                    self.damage()
                else:
                    self.attempt(getattr(self, name))
                if self.rng.random() < 0.05:
                    self.power_failure()
            self.power_failure()
        finally:
            remove_disk(self.name)
        return self.counts
