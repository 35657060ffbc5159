"""What the checkers say of elections, of moves that end, and of replicas after an unclean election."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from types import SimpleNamespace

import pytest

from kraftlog._kraftlog import encode_values
from kraftlog.controller.config_image import ConfigsImage
from kraftlog.controller.topic_image import NO_LEADER, RECOVERING, PartitionImage
from kraftlog.testing import InvariantViolationError
from kraftlog.testing.world.committed_batches import CommittedBatches
from kraftlog.testing.world.election_requests import ElectionRequests
from kraftlog.testing.world.followed_log import ScannedBatch
from kraftlog.testing.world.partition_change_checker import PartitionChangeChecker
from kraftlog.testing.world.partition_checker import PartitionChecker
from kraftlog.testing.world.partition_log_checker import PartitionLogChecker, ReplicaLog
from kraftlog.types import Uuid
from kraftlog.vocabulary import ConfigResourceType
from kraftlog.wire.frame import encode_request
from kraftlog.wire.messages.elect_leaders import ElectLeadersRequest
from kraftlog.wire.messages.metadata_records import ConfigRecord

from .test_checkers import TOPIC_ID, Thing, machine_of, partition_of, story

LED = PartitionImage(replicas=(1, 2, 3), directories=(Uuid.ZERO,) * 3, isr=(1, 2), leader=1)
UNCLEAN = {"leader": 3, "isr": (3,), "leader_recovery_state": RECOVERING}
MOVING = replace(LED, replicas=(4, 1, 2, 3), adding_replicas=(4,), removing_replicas=(3,))


def checker_of(*settings):
    """A checker of a cluster with one topic and these settings of it."""
    checker = PartitionChangeChecker({}, Counter())
    configs = ConfigsImage()
    for name, value in settings:
        record = ConfigRecord(resource_type=ConfigResourceType.TOPIC, resource_name="t", name=name, value=value)
        configs.replay(record, SimpleNamespace(changed_configs=set()))
    topic = SimpleNamespace(name="t", topic_id=TOPIC_ID)
    checker.note_settings(SimpleNamespace(configs=configs, topics=[topic]))
    return checker


LAX = ("unclean.leader.election.enable", "true")


def rule(was, *settings, **now):
    found = checker_of(*settings).broken(TOPIC_ID, 0, was, replace(was, **now))
    return None if found is None else found[0]


def test_who_was_in_sync_or_eligible_may_lead():
    assert rule(LED, leader=2, isr=(2,)) is None
    assert rule(replace(LED, isr=(), elr=(3,), leader=NO_LEADER), leader=3, isr=(3,), elr=()) is None


def test_an_unclean_leader_needs_a_reason():
    """The setting, an operator, or that the last known leader is the only one left (RINV-29)."""
    assert rule(LED, **UNCLEAN) == "RINV-29"
    assert rule(LED, LAX, **UNCLEAN) is None
    lost = replace(LED, isr=(), leader=NO_LEADER, last_known_elr=(3,))
    assert rule(lost, **UNCLEAN) is None
    assert rule(replace(lost, last_known_elr=(2,)), **UNCLEAN) == "RINV-29"
    checker = checker_of()
    checker.note_unclean_request()
    assert checker.broken(TOPIC_ID, 0, LED, replace(LED, **UNCLEAN)) is None


def test_a_request_for_an_unclean_election_is_seen():
    sock = Thing(is_closed=False)
    for election_type, found in ((0, "RINV-29"), (1, None)):
        checker = checker_of()
        request = ElectLeadersRequest(election_type=election_type, timeout_ms=1)
        frame = b"".join(encode_request(request.API_KEY, 2, 7, "operator", request))
        ElectionRequests(checker).arrived(sock, frame)
        problem = checker.broken(TOPIC_ID, 0, LED, replace(LED, **UNCLEAN))
        assert (problem and problem[0]) == found


@pytest.mark.parametrize("wrong", [{"isr": (3, 1)}, {"leader_recovery_state": 0}])
def test_an_unclean_leader_recovers_alone(wrong):
    assert rule(LED, LAX, **{**UNCLEAN, **wrong}) == "RINV-29"


def test_records_may_be_lost_by_the_leave_of_an_operator_only():
    """The last known leader may lead, and lacks nothing unless its disk was lost."""
    for settings, lost_epoch in ((), -1), ((LAX,), 0):
        checker = checker_of(*settings)
        lost = replace(LED, isr=(), leader=NO_LEADER, last_known_elr=(3,))
        assert checker.broken(TOPIC_ID, 0, lost, replace(lost, **UNCLEAN)) is None
        assert checker.was_unclean(TOPIC_ID, 0)
        assert checker.lost_epoch(TOPIC_ID, 0) == lost_epoch
    assert not checker_of(LAX).was_unclean(TOPIC_ID, 0)


def test_a_move_ends_once_the_new_replicas_are_in_sync():
    ended = {"replicas": (4, 1, 2), "adding_replicas": (), "removing_replicas": ()}
    assert rule(MOVING, **ended, isr=(1, 2, 4)) is None
    assert rule(MOVING, **ended, isr=(1, 2)) == "RINV-33"
    assert rule(MOVING, **ended, isr=(4,), leader=4) is None, "who has joined with this change may lead"
    lagging = replace(MOVING, replicas=(2, 4, 1), isr=(1, 4), adding_replicas=(4,), removing_replicas=(1,))
    joined = {"replicas": (2, 4), "adding_replicas": (), "removing_replicas": (), "isr": (2, 4), "leader": 2}
    assert rule(lagging, **joined) is None, "nor need it be a new replica"


def test_a_move_that_is_given_up_leaves_in_sync_who_was():
    given_up = {"replicas": (1, 2, 3), "adding_replicas": (), "removing_replicas": ()}
    assert rule(MOVING, **given_up) is None
    assert rule(MOVING, **given_up, isr=(1, 2, 3)) == "RINV-33"
    other = {"replicas": (5, 1, 2, 3), "adding_replicas": (5,), "removing_replicas": (3,)}
    assert rule(MOVING, **other) is None
    assert rule(MOVING, **other, isr=(1, 2, 5)) == "RINV-33"


def zombie(high_watermark, *, is_clean=True):
    """Broker 1 leads in epoch 0 and raises its high watermark; broker 2 has led in epoch 1 from offset 4 on."""
    changes = SimpleNamespace(was_unclean=lambda *_: not is_clean, lost_epoch=lambda *_: -1)
    metadata = SimpleNamespace(newest_state=lambda *_: None, changes=changes)
    old = machine_of(1, partition_of(1, 1, high_watermark=3, log_end=6))
    new = machine_of(2, partition_of(2, 2, high_watermark=3, log_end=4))
    new.node.partitions[0].replica.leader_epoch = 1
    checker = PartitionChecker({1: old, 2: new}, metadata, story())
    checker.after_turn(old)
    checker.after_turn(new)
    old.node.partitions[0].replica.high_watermark = high_watermark
    checker.after_turn(old)
    return checker.looked["RINV-25"]


def test_a_leader_that_others_have_replaced_commits_nothing_of_its_own():
    """A fetch that was on its way may reach it; what every in-sync replica has, the next leader has (RINV-25)."""
    assert zombie(4) == 1
    assert zombie(6, is_clean=False) == 0
    with pytest.raises(InvariantViolationError, match="RINV-25"):
        zombie(5)


class LostHistory:
    """Broker 1 has committed five records in epoch 0; broker 2, which has three of them, is elected uncleanly."""

    def __init__(self, *, lost_epoch=1):
        self.lost_epoch = -1
        changes = SimpleNamespace(was_unclean=lambda *_: self.lost_epoch >= 0, lost_epoch=lambda *_: self.lost_epoch)
        metadata = SimpleNamespace(newest_state=lambda *_: None, changes=changes)
        self.machines = {
            1: machine_of(1, partition_of(1, 1, high_watermark=5, log_end=5)),
            2: machine_of(2, partition_of(1, 2, high_watermark=3, log_end=3)),
        }
        for machine in self.machines.values():
            machine.node.partitions[0].log.epoch_entries = lambda: [(0, 0)]
        self.checker = PartitionChecker(self.machines, metadata, story())
        for machine in self.machines.values():
            self.checker.after_turn(machine)
        self.lost_epoch = lost_epoch
        self.show(2, epoch=1, is_leader=True)

    def show(self, broker_id, *, epochs=None, **state):
        partition = self.machines[broker_id].node.partitions[0]
        vars(partition.replica).update({{"epoch": "leader_epoch"}.get(name, name): state[name] for name in state})
        if epochs is not None:
            partition.log.epoch_entries = lambda: epochs
        self.checker.after_turn(self.machines[broker_id])

    def is_bound(self, broker_id):
        machine = self.machines[broker_id]
        return self.checker.has_history(machine, machine.node.partitions[0])


def test_an_unclean_leader_begins_a_history_that_is_kept():
    with pytest.raises(InvariantViolationError, match="RINV-23"):
        LostHistory(lost_epoch=-1)
    lost = LostHistory()
    lost.show(1, epoch=2, is_leader=True, log_end_offset=3, high_watermark=3)
    lost = LostHistory()
    with pytest.raises(InvariantViolationError, match="RINV-23"):
        lost.show(1, epoch=2, is_leader=True, log_end_offset=2, high_watermark=2)


def test_a_replica_is_bound_by_a_new_history_once_it_got_records_of_it():
    lost = LostHistory()
    assert lost.is_bound(2)
    lost.show(1, epoch=1, is_leader=False)
    assert not lost.is_bound(1), "it still has what was lost, and its high watermark"
    lost.show(1, epochs=[(0, 0), (1, 3)], log_end_offset=4, high_watermark=3)
    assert lost.is_bound(1)
    with pytest.raises(InvariantViolationError, match="RINV-13"):
        lost.show(1, high_watermark=4)


def replica(*values, start=0):
    data = b"".join(
        encode_values([value], timestamps=1, base_offset=offset, partition_leader_epoch=0)
        for offset, value in enumerate(values)
        if offset >= start
    )
    log = SimpleNamespace(log_start_offset=start, read=lambda *_, **__: SimpleNamespace(read=lambda: data))
    config = SimpleNamespace(cleanup_policy="delete")
    return SimpleNamespace(log=log, high_watermark=len(values), config=config)


def test_replicas_have_one_history_after_an_unclean_election():
    checker = PartitionLogChecker(Counter())
    checker.check_alike([("first", replica(b"a", b"b")), ("second", replica(b"a", b"b"))])
    checker.check_alike([("first", replica(b"a", b"b")), ("second", replica(b"x", b"b", start=1))])
    for other in (replica(b"a", b"c"), replica(b"a"), replica(b"a", b"b", b"c")):
        with pytest.raises(InvariantViolationError, match="RINV-30 second and first"):
            checker.check_alike([("first", replica(b"a", b"b")), ("second", other)])


def in_epochs(*epochs):
    """A partition whose log has one record per offset, of these leader epochs."""
    batches = [
        encode_values([b"a"], timestamps=1, base_offset=offset, partition_leader_epoch=epoch)
        for offset, epoch in enumerate(epochs)
    ]
    log = SimpleNamespace(
        read=lambda offset, **_: SimpleNamespace(read=lambda: b"".join(batches[offset:])),
        epoch_entries=lambda: [(epoch, epochs.index(epoch)) for epoch in sorted(set(epochs))],
    )
    return SimpleNamespace(topic_id="id", index=0, log=log, config=SimpleNamespace(cleanup_policy="delete"))


@pytest.mark.parametrize("log_start", [0, 1, 2])
def test_records_that_are_deleted_as_they_get_committed_are_compared_with_none(log_start):
    """Trims 3800007: a replica that was down had others where its leader had deleted some."""
    checker = PartitionLogChecker(Counter())
    machine = SimpleNamespace(has_bad_disk=False)
    checker.check(machine, in_epochs(0, 2, 2), ReplicaLog(), "first", None, (3, 2, True, 0, 3))
    second, behind = ReplicaLog(), (1, 2, False, 0, 2)
    replica = in_epochs(0, 1)
    checker.check(machine, replica, second, "second", None, behind)
    vars(replica.log).update(vars(in_epochs(0, 1, 2).log))

    def go_on():
        checker.check(machine, replica, second, "second", behind, (3, 2, False, log_start, 3))

    if log_start == 2:
        go_on()
    else:
        with pytest.raises(InvariantViolationError, match="RINV-15"):
            go_on()


def test_a_consumer_may_get_a_batch_before_a_replica_shows_the_one_below():
    """Losses 2600020: the batch below came from a disk whose bytes are not looked at, to a consumer that went on."""
    batches = CommittedBatches()

    def batch(base, content=b"x"):
        return ScannedBatch(base, base + 1, 0, False, content)

    batches.check("t", "first", batch(0))
    batches.check_served("t", "first", batch(2))
    batches.check("t", "second", batch(1))
    batches.check("t", "second", batch(2))
    batches.check_served("t", "first", batch(3))
    batches.check_served("t", "first", batch(3))
    for show in (batches.check, batches.check_served):
        with pytest.raises(InvariantViolationError, match="RINV-11"):
            show("t", "second", batch(3, b"y"))
        batches.check_served("t", "first", batch(3))
    with pytest.raises(InvariantViolationError, match="RINV-15"):
        batches.check_served("t", "first", batch(2, b"y"))
