"""What the checkers of whole clusters say of states that were once taken for broken rules, and of broken ones."""

from __future__ import annotations

import errno
import math
import struct
from dataclasses import replace
from types import SimpleNamespace

import pytest

from kraftlog._kraftlog import encode_values
from kraftlog.controller.topic_image import RECOVERED, RECOVERING, PartitionImage
from kraftlog.features import ELIGIBLE_LEADER_REPLICAS_VERSION
from kraftlog.testing import InvariantViolationError
from kraftlog.testing.world.answer_checker import AnswerChecker
from kraftlog.testing.world.metadata_checker import MetadataChecker
from kraftlog.testing.world.partition_checker import PartitionChecker
from kraftlog.testing.world.quorum_checker import QuorumChecker
from kraftlog.testing.world.recovery import NO_CLEAN_LEADER, missing_leader
from kraftlog.testing.world.story import Story
from kraftlog.types import ElectionState, Uuid
from kraftlog.wire.frame import encode_request
from kraftlog.wire.messages.fetch import FetchRequest
from kraftlog.wire.messages.produce import ProduceRequest

TOPIC_ID = "topic"
CLEAN = SimpleNamespace(was_unclean=lambda *_: False, lost_epoch=lambda *_: -1)


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
        maximal_isr=[1, 2],
    )
    log = SimpleNamespace(log_start_offset=0, read=read)
    config = SimpleNamespace(cleanup_policy="delete")
    return SimpleNamespace(topic_id=TOPIC_ID, topic="t", index=0, replica=replica, log=log, config=config)


def machine_of(node_id, partition):
    partitions = Partitions([partition])
    return SimpleNamespace(
        node_id=node_id,
        name=f"broker-{node_id}",
        node=SimpleNamespace(
            replicas=None, partitions=partitions, metadata=SimpleNamespace(image=SimpleNamespace(features={}))
        ),
        world=SimpleNamespace(now_ms=10.0),
        start_count=1,
        replaced_count=0,
        disk_since_ms=0.0,
        is_running=True,
        is_disk_failing=False,
        has_bad_disk=True,  # bytes are not compared
    )


class Partitions(list):
    def get(self, _topic_id, _index):
        return self[0]

    def add_listener(self, _listener):
        """They stay the same."""


def raised_past_a_follower(newest_isr, waited_for=(1, 2)):
    """The leader commits offset 5, which follower 2 does not have."""
    leader = machine_of(1, partition_of(1, 1, high_watermark=3, log_end=5))
    follower = machine_of(2, partition_of(1, 2, high_watermark=3, log_end=4))
    metadata = SimpleNamespace(
        newest_state=lambda *_: SimpleNamespace(
            leader_epoch=0, partition_epoch=1, isr=newest_isr, leader_recovery_state=RECOVERED
        ),
        changes=CLEAN,
    )
    checker = PartitionChecker({1: leader, 2: follower}, metadata, story())
    checker.after_turn(leader)
    checker.after_turn(follower)
    leader.node.partitions[0].replica.high_watermark = 5
    leader.node.partitions[0].replica.maximal_isr = list(waited_for)
    checker.after_turn(leader)


def test_a_leader_commits_without_a_follower_that_the_controller_has_dropped():
    """Seed 111: the answer of AlterPartition came before the leader's own image had the record (RINV-08)."""
    raised_past_a_follower((1,))
    with pytest.raises(InvariantViolationError, match="RINV-08"):
        raised_past_a_follower((1, 2))
    with pytest.raises(InvariantViolationError, match="RINV-24"):
        raised_past_a_follower((1, 2), waited_for=(1,))


def raised_and_resigned(*, has_led):
    """A replica is a follower with a new high watermark after an event; it led before the event, or did not."""
    image = SimpleNamespace(leader_epoch=1, partition_epoch=2, isr=(), leader_recovery_state=RECOVERED)
    machine = machine_of(1, partition_of(1, 1 if has_led else 2, high_watermark=3, log_end=5))
    checker = PartitionChecker({1: machine}, SimpleNamespace(newest_state=lambda *_: image, changes=CLEAN), story())
    checker._leader_high_watermarks[TOPIC_ID, 0] = 3
    checker.after_turn(machine)
    replica = machine.node.partitions[0].replica
    replica.high_watermark, replica.leader_epoch, replica.is_leader = 5, 1, False
    checker.after_turn(machine)
    assert checker._leader_high_watermarks[TOPIC_ID, 0] == 5


def test_a_leader_may_raise_the_high_watermark_in_the_event_in_which_it_resigns():
    """Seed 910018 with share groups: its broker took in a record and lost its leadership after a pause (RINV-13)."""
    raised_and_resigned(has_led=True)
    with pytest.raises(InvariantViolationError, match="RINV-13"):
        raised_and_resigned(has_led=False)


def led_by_one_that_lost_all(state, start_counts, last_in_sync=(1, 2), log_end=0):
    """Broker 1 leads with an empty log, or one up to ``log_end``; broker 2 has shown that 5 records are committed."""
    image = SimpleNamespace(leader_epoch=0, partition_epoch=1, isr=(1,), replicas=(1, 2), leader_recovery_state=state)
    new = machine_of(1, partition_of(1, 1, high_watermark=0, log_end=log_end))
    old = machine_of(2, partition_of(1, 2, high_watermark=5, log_end=5))
    new.start_count, old.start_count = start_counts
    metadata = SimpleNamespace(newest_state=lambda *_: image, last_in_sync=lambda *_: last_in_sync, changes=CLEAN)
    checker = PartitionChecker({1: new, 2: old}, metadata, story())
    checker._leader_high_watermarks[TOPIC_ID, 0] = 5
    checker.after_turn(old)
    checker.after_turn(new)


def test_the_last_known_leader_may_have_lost_all_once_every_replica_may_have():
    """Seed 61002 with records: two disks and the power of all were lost; Apache Kafka elects it, too (CPRT-64)."""
    with pytest.raises(InvariantViolationError) as found:
        led_by_one_that_lost_all(RECOVERING, (2, 2))
    assert found.value.identifier == NO_CLEAN_LEADER, "the run ends, and breaks no rule"
    for state, start_counts in ((RECOVERED, (2, 2)), (RECOVERING, (2, 1))):
        with pytest.raises(InvariantViolationError, match="RINV-23"):
            led_by_one_that_lost_all(state, start_counts)


def test_the_last_known_leader_leads_if_it_lacks_nothing():
    """Everything that is committed is on its disk, which only lost its power."""
    led_by_one_that_lost_all(RECOVERING, (2, 2), log_end=5)


def test_a_replica_that_was_no_longer_eligible_does_not_keep_the_last_known_leader_from_leading():
    """Seed 75074 with records: two in-sync replicas lost a disk and their power; the third one lagged before."""
    with pytest.raises(InvariantViolationError) as found:
        led_by_one_that_lost_all(RECOVERING, (2, 1), last_in_sync=(1,))
    assert found.value.identifier == NO_CLEAN_LEADER


def led_by_the_last_in_sync(*, disk_since_ms, level, isr=(1,)):
    """Broker 1 leads with an empty log; broker 2 showed at 10 s that 5 records are committed."""
    image = SimpleNamespace(
        leader_epoch=0, partition_epoch=1, isr=isr, replicas=(1, 2), leader_recovery_state=RECOVERED
    )
    last = machine_of(1, partition_of(1, 1, high_watermark=0, log_end=0))
    last.disk_since_ms = disk_since_ms
    last.node.metadata.image.features = {ELIGIBLE_LEADER_REPLICAS_VERSION: level} if level else {}
    other = machine_of(2, partition_of(1, 2, high_watermark=5, log_end=5))
    other.world.now_ms = 10_000.0
    metadata = SimpleNamespace(newest_state=lambda *_: image, last_in_sync=lambda *_: (1, 2), changes=CLEAN)
    checker = PartitionChecker({1: last, 2: other}, metadata, story())
    checker._leader_high_watermarks[TOPIC_ID, 0] = 5
    checker.after_turn(other)
    with pytest.raises(InvariantViolationError) as found:
        checker.after_turn(last)
    return found.value.identifier


def test_the_last_replica_in_sync_leads_with_a_new_disk_where_none_is_eligible_besides():
    """Seeds 80070, 80096 and 80194: its disk was replaced while the controllers were down (level 0, as in Kafka)."""
    assert led_by_the_last_in_sync(disk_since_ms=10_001.0, level=0) == NO_CLEAN_LEADER
    # Topics 9200004: the last fetch of the process that had the old disk came half a second after its end.
    assert led_by_the_last_in_sync(disk_since_ms=9_500.0, level=0) == NO_CLEAN_LEADER
    for broken in (
        {"disk_since_ms": 10_001.0, "level": 1},
        {"disk_since_ms": 7_900.0, "level": 0},
        {"disk_since_ms": 10_001.0, "level": 0, "isr": (1, 2)},
    ):
        assert led_by_the_last_in_sync(**broken) == "RINV-23"


def test_the_last_set_with_enough_replicas_in_sync_is_known():
    checker = MetadataChecker({}, story())
    for partition_epoch, isr in ((0, (1, 2, 3)), (1, (1, 2)), (2, (1,)), (4, ())):
        state = SimpleNamespace(partition_epoch=partition_epoch, isr=isr, replicas=(1, 2, 3))
        checker._states[TOPIC_ID, 0, partition_epoch] = checker._newest[TOPIC_ID, 0] = state
    assert [checker.last_in_sync(TOPIC_ID, 0, least) for least in (1, 2, 3, 4)] == [(1,), (1, 2), (1, 2, 3), (1, 2, 3)]
    # Bursts 9200018: eligible leader replicas were enabled when one replica was in sync, which had lost its disk.
    checker._states_without_elr.update((TOPIC_ID, 0, partition_epoch) for partition_epoch in (0, 1, 2))
    assert [checker.last_in_sync(TOPIC_ID, 0, least) for least in (1, 2, 3, 4)] == [(1,)] * 4


def registered_again(*, partition_epoch, is_clean, level=1):
    """Broker 2 registers again; the partition in which it is in sync has this epoch then, and had 3."""

    def image(broker_epoch, epoch):
        partition = SimpleNamespace(partition_epoch=epoch, isr=(1, 2), elr=())
        topic = SimpleNamespace(topic_id=TOPIC_ID, name="t", partitions={0: partition})
        brokers = {1: SimpleNamespace(epoch=10), 2: SimpleNamespace(epoch=broker_epoch)}
        features = {ELIGIBLE_LEADER_REPLICAS_VERSION: level}
        return SimpleNamespace(cluster=SimpleNamespace(brokers=brokers), features=features, topics=[topic])

    broker = SimpleNamespace(was_ended_cleanly=is_clean)
    machine = SimpleNamespace(name="broker-1", node_id=1, start_count=1)
    checker = MetadataChecker({1: machine, 2: broker}, story())
    life = SimpleNamespace(broker_epochs={}, has_eligible_replicas=False)
    before = image(11, 3)
    checker._check_registrations(machine, life, before)
    checker._latest[1_000_001, TOPIC_ID, 0] = before.topics[0].partitions[0]
    checker._check_registrations(machine, life, image(12, partition_epoch))


def test_a_broker_that_ended_uncleanly_is_in_sync_only_if_it_came_back():
    """The set may have the broker again, by a change that came after its registration (RINV-28)."""
    registered_again(partition_epoch=4, is_clean=False)
    registered_again(partition_epoch=3, is_clean=True)
    registered_again(partition_epoch=3, is_clean=False, level=0)
    with pytest.raises(InvariantViolationError, match="RINV-28"):
        registered_again(partition_epoch=3, is_clean=False)


def test_a_disk_that_fails_under_the_checker_breaks_no_rule():
    """Seed 5003: the checker's own read ran into the injected EIO."""

    def fail(*_args, **_options):
        raise OSError(errno.EIO, "Input/output error")

    machine = machine_of(1, partition_of(1, 1, high_watermark=3, log_end=5, read=fail))
    machine.has_bad_disk = False
    machine.is_disk_failing = True
    checker = PartitionChecker({1: machine}, SimpleNamespace(newest_state=lambda *_: None, changes=CLEAN), story())
    checker.after_turn(machine)
    machine.is_disk_failing = False
    machine.node.partitions[0].replica.high_watermark = 4
    with pytest.raises(OSError, match="Input/output"):
        checker.after_turn(machine)


def epochs(*lives):
    """A node that shows, in one life after the other, epochs of its core and of its disk."""
    checker = QuorumChecker({}, story())
    for number, life in enumerate(lives):
        log = SimpleNamespace(end_offset=0, last_epoch=0)
        core = SimpleNamespace(
            is_leader=False, high_watermark=None, log_end_offset=0, log=log, voters=(), unanswered_count=0
        )
        driver = SimpleNamespace(flushed_end_offset=0, told_count=math.nan)  # never what it was
        machine = SimpleNamespace(
            acknowledged=[],
            node_id=1,
            name="broker-1",
            replicated_log=SimpleNamespace(raft=core, driver=driver, log=None, pending=()),
            start_count=number,
            disk_number=0,
            has_bad_disk=True,  # its log is not read
        )
        for epoch, stored_epoch in life:
            core.epoch, core.role = epoch, SimpleNamespace(epoch=epoch)
            driver.stored_state = ElectionState(epoch=stored_epoch)
            checker.after_turn(machine)


def test_an_epoch_that_was_never_stored_may_be_forgotten():
    """Seed 5009: the disk refused to store epoch 2, and the next process began with epoch 1 (INV-04)."""
    epochs([(1, 1), (2, 1)], [(1, 1)])
    with pytest.raises(InvariantViolationError, match="INV-04"):
        epochs([(1, 1), (2, 2)], [(1, 1)])
    with pytest.raises(InvariantViolationError, match="INV-04"):
        epochs([(2, 1), (1, 1)])


class Replicas:
    """A leader and a follower of one partition, whose logs are given as batches: base offset, end offset and epoch."""

    def __init__(self):
        self.machines = [machine_of(number, partition_of(1, number, high_watermark=0, log_end=0)) for number in (1, 2)]
        self.checker = PartitionChecker(
            dict(enumerate(self.machines, 1)), SimpleNamespace(newest_state=lambda *_: None, changes=CLEAN), story()
        )
        for machine in self.machines:
            machine.has_bad_disk = False

    def show(self, number, *batches, high_watermark=0, epoch=0, entries=None, start=0):
        """Let a replica have these batches, and look at it."""
        partition = self.machines[number - 1].node.partitions[0]
        scanned = []
        for base, _, batch_epoch in batches:
            if not scanned or scanned[-1][0] != batch_epoch:
                scanned.append((batch_epoch, base))

        def read(offset, *, max_bytes, end_offset):
            del max_bytes
            data = b"".join(
                encode_values([b"r"] * (end - base), timestamps=1, base_offset=base, partition_leader_epoch=batch_epoch)
                for base, end, batch_epoch in batches
                if offset < end <= end_offset
            )
            return SimpleNamespace(read=lambda: data)

        partition.log.read, partition.log.log_start_offset = read, start
        partition.log.epoch_entries = lambda: scanned if entries is None else entries
        partition.replica.log_end_offset = batches[-1][1] if batches else start
        partition.replica.high_watermark, partition.replica.leader_epoch = high_watermark, epoch
        self.checker.after_turn(self.machines[number - 1])


def test_replicas_that_write_the_same_break_no_rule():
    replicas = Replicas()
    replicas.show(1, (0, 2, 0), (2, 3, 0))
    replicas.show(2, (0, 2, 0))
    replicas.show(1, (0, 2, 0), (2, 3, 0), high_watermark=2)
    replicas.show(2, (0, 2, 0), (2, 3, 0), high_watermark=2)
    replicas.show(2, (0, 2, 0), (2, 4, 1), high_watermark=2, epoch=1)
    assert replicas.checker.looked["RINV-14"] == 2
    assert replicas.checker.looked["RINV-16"] == 3


def test_a_follower_shows_no_high_watermark_that_no_leader_had():
    replicas = Replicas()
    replicas.show(1, (0, 2, 0), high_watermark=1)
    with pytest.raises(InvariantViolationError, match="RINV-13"):
        replicas.show(2, (0, 2, 0), high_watermark=2)


def test_uncommitted_batches_of_one_offset_and_epoch_are_equal():
    replicas = Replicas()
    replicas.show(1, (0, 2, 0))
    with pytest.raises(InvariantViolationError, match="RINV-15"):
        replicas.show(2, (0, 1, 0))


def test_leader_epochs_are_those_of_the_batches():
    replicas = Replicas()
    replicas.show(1, (0, 2, 0), (2, 3, 1), entries=[(0, 0), (1, 2), (2, 3)], epoch=1)
    with pytest.raises(InvariantViolationError, match="RINV-16"):
        replicas.show(2, (0, 2, 0), (2, 3, 1), entries=[(0, 0)], epoch=1)


def test_committed_records_are_not_truncated():
    """A replica may cut what nobody committed, and begin anew where its leader's log begins (RINV-17)."""
    replicas = Replicas()
    replicas.show(1, (0, 2, 0), (2, 3, 0), high_watermark=3)
    replicas.show(2, (0, 2, 0), (2, 3, 0), (3, 4, 0))
    replicas.show(2, (0, 2, 0), (2, 3, 0))
    with pytest.raises(InvariantViolationError, match="RINV-17"):
        replicas.show(2, (0, 2, 0))
    replicas = Replicas()
    replicas.show(1, (0, 2, 0), (2, 3, 0), high_watermark=3)
    replicas.show(2, (0, 2, 0), high_watermark=2)
    replicas.show(2, high_watermark=1, start=1)
    replicas = Replicas()
    replicas.show(1, (0, 3, 0), high_watermark=3)
    replicas.show(2, (0, 2, 7), high_watermark=0)
    replicas.show(2)  # what it had was another record
    assert replicas.checker.looked["RINV-17"] == 1


class Thing(SimpleNamespace):
    __hash__ = object.__hash__


class Broker:
    """A machine with one connection, and what reaches and leaves it."""

    def __init__(self):
        self.world = SimpleNamespace(now_ns=0)
        self.machine = Thing(name="broker-1", world=self.world, paused_ns=0, flush_ms=(0, 0), is_paused=False)
        self.sock = Thing(
            machine=self.machine,
            peer=None,
            is_closed=False,
            is_broken=False,
            is_writable=True,
            getsockname=lambda: ("b", 9092),
        )
        self.checker = AnswerChecker(9092, story())

    def ask(self, request, version, correlation_id):
        frame = b"".join(encode_request(request.API_KEY, version, correlation_id, "someone", request))
        middle = len(frame) // 2
        self.checker.arrived(self.sock, frame[:middle])
        self.checker.arrived(self.sock, frame[middle:])

    def answer(self, correlation_id):
        self.checker.sent(self.sock, struct.pack(">iii", 8, correlation_id, 0))

    def after(self, time_ms):
        self.world.now_ns += int(time_ms * 1e6)
        self.checker.look()


FETCH = FetchRequest(replica_id=-1, max_wait_ms=500, min_bytes=1, max_bytes=1000)
PRODUCE = ProduceRequest(acks=-1, timeout_ms=1000)


@pytest.mark.parametrize(("request_", "version"), [(FETCH, 4), (FETCH, 12), (FETCH, 17), (PRODUCE, 3), (PRODUCE, 12)])
def test_a_request_is_answered_in_its_time(request_, version):
    """RINV-38."""
    broker = Broker()
    broker.ask(request_, version, 1)
    broker.after(1_000)
    broker.ask(request_, version, 2)
    broker.answer(1)
    broker.after(2_500)  # of which the first one took 1 000
    broker.answer(2)
    assert broker.checker.looked["RINV-38"] >= 2
    broker.ask(request_, version, 3)
    with pytest.raises(InvariantViolationError, match="RINV-38"):
        broker.after(4_000)


def test_only_time_in_which_the_machine_runs_counts_and_the_client_takes_bytes():
    broker = Broker()
    broker.ask(FETCH, 12, 1)
    broker.machine.paused_ns = 60_000_000_000
    broker.after(61_000)
    broker.sock.is_writable = False
    broker.answer(1)
    broker.ask(FETCH, 12, 2)
    broker.after(60_000)
    broker.sock.is_writable = True
    broker.answer(2)
    assert broker.checker.looked["RINV-38"] == 3


@pytest.mark.parametrize("answers", [(2,), (1, 1), (1, 3)])
def test_answers_are_one_per_request_and_in_order(answers):
    broker = Broker()
    for number in (1, 2):
        broker.ask(FETCH, 12, number)
    *right, wrong = answers
    for number in right:
        broker.answer(number)
    with pytest.raises(InvariantViolationError, match="RINV-38"):
        broker.answer(wrong)


def test_a_request_that_wants_no_answer_and_one_of_a_lost_connection_are_not_waited_for():
    broker = Broker()
    broker.ask(ProduceRequest(acks=0, timeout_ms=1), 9, 1)
    broker.ask(FETCH, 12, 2)
    broker.answer(2)
    broker.ask(FETCH, 12, 3)
    broker.sock.is_broken = True
    broker.after(60_000)


def test_partition_without_leader_breaks_a_rule_unless_every_replica_may_have_lost_records():
    """RINV-34 promises a leader where somebody in sync or eligible is active; of nobody it promises nothing."""
    directories = (Uuid.ZERO,) * 3
    lost = PartitionImage(replicas=(1, 2, 3), directories=directories, isr=())
    assert missing_leader("t-0", lost, {1, 2, 3})[0] == NO_CLEAN_LEADER
    assert missing_leader("t-0", lost, {1, 2})[0] == "RINV-34", "broker 3 never ended: it has everything"
    assert missing_leader("t-0", replace(lost, isr=(2,)), {1, 2, 3})[0] == "RINV-34"
    assert missing_leader("t-0", replace(lost, elr=(2,)), {1, 2, 3})[0] == "RINV-34"


def test_the_last_replica_in_sync_with_a_new_disk_need_not_lead():
    """Seed 120048 with records: its broker was unfenced before its new directory was assigned (level 0)."""
    last = PartitionImage(replicas=(1, 2, 3), directories=(Uuid.ZERO,) * 3, isr=(2,))
    assert missing_leader("t-0", last, {1, 2, 3}, is_last_disk_lost=True)[0] == NO_CLEAN_LEADER
    assert missing_leader("t-0", last, {1, 2, 3}, is_last_disk_lost=False)[0] == "RINV-34"


@pytest.mark.parametrize(
    ("level", "sets", "is_lost"),
    [
        (0, {"isr": (2,)}, True),
        (0, {"isr": (2, 3)}, False),
        (0, {"isr": ()}, False),
        (0, {"isr": (1,)}, False),  # its disk is older
        (1, {"isr": (2,)}, False),
        (1, {"isr": (), "last_known_elr": (2,)}, True),
        (1, {"isr": (), "elr": (3,), "last_known_elr": (2,)}, False),
        (1, {"isr": (3,), "last_known_elr": (2,)}, False),
        (1, {"isr": (), "last_known_elr": (1,)}, False),
    ],
)
def test_a_last_disk_is_lost_if_it_is_newer_than_what_was_committed(level, sets, is_lost):
    leader = machine_of(1, partition_of(1, 1, high_watermark=5, log_end=5))
    leader.world.now_ms, leader.disk_since_ms = 10_000.0, 7_900.0
    replaced = SimpleNamespace(node_id=2, disk_since_ms=10_001.0)
    metadata = SimpleNamespace(newest_state=lambda *_: None, last_in_sync=lambda *_: (), changes=CLEAN)
    checker = PartitionChecker({1: leader, 2: replaced}, metadata, story())
    checker.after_turn(leader)  # at 10 ms
    partition = PartitionImage(replicas=(1, 2, 3), directories=(Uuid.ZERO,) * 3, **sets)
    assert checker.has_lost_last_disk(TOPIC_ID, 0, partition, {ELIGIBLE_LEADER_REPLICAS_VERSION: level}) == is_lost
