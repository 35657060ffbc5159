"""What the checkers of whole clusters say of states that were once taken for broken rules, and of broken ones."""

from __future__ import annotations

import errno
from types import SimpleNamespace

import pytest

from kraftlog.testing import InvariantViolationError
from kraftlog.testing.world.metadata_checker import MetadataChecker
from kraftlog.testing.world.partition_checker import PartitionChecker
from kraftlog.testing.world.story import Story

TOPIC_ID = "topic"


def story():
    return Story(SimpleNamespace(now_ms=0.0))


def partition_of(leader_id, node_id, *, high_watermark, log_end, read=None):
    replica = SimpleNamespace(
        high_watermark=high_watermark,
        leader_epoch=0,
        leader_id=leader_id,
        is_leader=leader_id == node_id,
        log_end_offset=log_end,
        min_insync_replicas=1,
        partition_epoch=0,
    )
    log = SimpleNamespace(log_start_offset=0, read=read)
    return SimpleNamespace(topic_id=TOPIC_ID, topic="t", index=0, replica=replica, log=log)


def machine_of(node_id, partition):
    partitions = Partitions([partition])
    return SimpleNamespace(
        node_id=node_id,
        name=f"broker-{node_id}",
        node=SimpleNamespace(replicas=None, partitions=partitions),
        start_count=1,
        disk_number=0,
        is_running=True,
        is_disk_failing=False,
        has_bad_disk=True,  # bytes are not compared
    )


class Partitions(list):
    def get(self, _topic_id, _index):
        return self[0]

    def add_listener(self, _listener):
        """They stay the same."""


def raised_past_a_follower(newest_isr):
    """The leader commits offset 5, which follower 2 does not have."""
    leader = machine_of(1, partition_of(1, 1, high_watermark=3, log_end=5))
    follower = machine_of(2, partition_of(1, 2, high_watermark=3, log_end=4))
    metadata = SimpleNamespace(
        newest_state=lambda *_: SimpleNamespace(leader_epoch=0, partition_epoch=1, isr=newest_isr)
    )
    checker = PartitionChecker({1: leader, 2: follower}, metadata, story())
    checker.after_turn(leader)
    checker.after_turn(follower)
    leader.node.partitions[0].replica.high_watermark = 5
    checker.after_turn(leader)


def test_a_leader_commits_without_a_follower_that_the_controller_has_dropped():
    """Seed 111: the answer of AlterPartition came before the leader's own image had the record (RINV-08)."""
    raised_past_a_follower((1,))
    with pytest.raises(InvariantViolationError, match="RINV-08"):
        raised_past_a_follower((1, 2))


def test_a_disk_that_fails_under_the_checker_breaks_no_rule():
    """Seed 5003: the checker's own read ran into the injected EIO."""

    def fail(*_args, **_options):
        raise OSError(errno.EIO, "Input/output error")

    machine = machine_of(1, partition_of(1, 1, high_watermark=3, log_end=5, read=fail))
    machine.has_bad_disk = False
    machine.is_disk_failing = True
    checker = PartitionChecker({1: machine}, SimpleNamespace(newest_state=lambda *_: None), story())
    checker.after_turn(machine)
    machine.is_disk_failing = False
    machine.node.partitions[0].replica.high_watermark = 4
    with pytest.raises(OSError, match="Input/output"):
        checker.after_turn(machine)


def epochs(*lives):
    """A node that shows, in one life after the other, epochs of its core and of its disk."""
    checker = MetadataChecker(story())
    image = SimpleNamespace(offset=0, epoch=0, topics=(), cluster=SimpleNamespace(brokers={}))
    for number, life in enumerate(lives):
        core = SimpleNamespace(is_leader=False, high_watermark=None, log_end_offset=0)
        driver = SimpleNamespace()
        replica = SimpleNamespace(is_opened=True, log=SimpleNamespace(raft=core, driver=driver), raft=core)
        node = SimpleNamespace(metadata=SimpleNamespace(replica=replica, image=image))
        machine = SimpleNamespace(node_id=1, name="broker-1", node=node, start_count=number, disk_number=0)
        for epoch, stored_epoch in life:
            core.epoch, core.role, driver.stored_epoch = epoch, SimpleNamespace(epoch=epoch), stored_epoch
            checker.after_turn(machine)


def test_an_epoch_that_was_never_stored_may_be_forgotten():
    """Seed 5009: the disk refused to store epoch 2, and the next process began with epoch 1 (INV-04)."""
    epochs([(1, 1), (2, 1)], [(1, 1)])
    with pytest.raises(InvariantViolationError, match="INV-04"):
        epochs([(1, 1), (2, 2)], [(1, 1)])
    with pytest.raises(InvariantViolationError, match="INV-04"):
        epochs([(2, 1), (1, 1)])
