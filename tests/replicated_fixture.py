"""A replicated log of one voter over a real directory, and a state machine that is the list of its commands."""

from __future__ import annotations

import asyncio

from kraftlog.raft.config import RaftConfig
from kraftlog.raft.voter_set import Endpoint, Voter, VoterSet
from kraftlog.runtime.raft.control_records import to_voters_record
from kraftlog.runtime.raft.replicated_log import ReplicatedLog
from kraftlog.storage.metadata_log import MetadataLogConfig
from kraftlog.storage.snapshot_file import BOOTSTRAP_SNAPSHOT_ID, Snapshot, encode_snapshot, write_snapshot
from kraftlog.types import Epoch, NodeId, ReplicaKey, Uuid

LOG_CONFIG = MetadataLogConfig(segment_bytes=4096, max_batch_bytes=4096)


def voters(*ids):
    return VoterSet(
        Voter(
            ReplicaKey(NodeId(identifier), Uuid(bytes([identifier] * 16))),
            (Endpoint("CONTROLLER", "127.0.0.1", 1),),
            0,
            1,
        )
        for identifier in ids
    )


def bootstrap(directory, *ids):
    """The 0-0 checkpoint that a format writes."""
    directory.mkdir(exist_ok=True)
    snapshot = Snapshot(kraft_version=1, voters=to_voters_record(voters(*ids)))
    write_snapshot(directory, BOOTSTRAP_SNAPSHOT_ID, encode_snapshot(snapshot, epoch=Epoch(0), now_ms=1))


class Recorder:
    """A state machine that is the list of its commands."""

    def __init__(self):
        self.values = []
        self.loaded = []
        self.failures = []
        self.applied = asyncio.Event()

    def load_snapshot(self, snapshot_id, snapshot):
        self.loaded.append(snapshot_id)
        self.values = list(snapshot.each_value())

    def apply_proposed(self, proposed):
        self.values += proposed.payload

    def apply_batch(self, batch):
        if not batch.is_control:
            self.values += [value for _, _, _, value, _ in batch.records()]

    def on_applied(self, done):
        self.applied.set()

    def take_state(self):
        return list(self.values)

    def on_control_appended(self, last_offset, epoch):
        pass

    def on_leading(self, epoch):
        pass

    def on_leader_changed(self, leader_id, epoch, lost):
        pass

    def on_failure(self, error):
        self.failures.append(error)


def replicated(directory, machine, *, snapshot_max_bytes=1 << 30, log_config=LOG_CONFIG, **options):
    log = ReplicatedLog(
        machine,
        directory=directory,
        log_config=log_config,
        clean_shutdown=False,
        static_voters=VoterSet(),
        snapshot_max_bytes=snapshot_max_bytes,
        snapshot_max_interval_ms=0,
        wall_ms=lambda: 1,
        name="test",
        **options,
    )
    log.start(RaftConfig(cluster_id="c", local_key=ReplicaKey(NodeId(1), Uuid(bytes([1] * 16)))))
    return log


async def propose(log, *values):
    encoded = [value.encode() for value in values]
    log.driver.tell(lambda: log.propose(encoded, size_bytes=100, payload=encoded))
    await log.wait_for_offset(log.raft.log_end_offset - 1)
