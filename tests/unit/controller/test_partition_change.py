"""The record that takes a partition to its next leader, by tables of plain values."""

from __future__ import annotations

import pytest

from kraftlog.controller.partition_change import Election, PartitionChange, PartitionRules
from kraftlog.controller.topic_image import RECOVERING, PartitionImage
from kraftlog.features import metadata_version_from_string
from kraftlog.types import Uuid

TOPIC, DIRECTORY = Uuid(b"t" * 16), Uuid(b"d" * 16)
RULES = PartitionRules(metadata_version=metadata_version_from_string("4.1"), min_isr=2, is_elr_enabled=True)
NO_ELR = PartitionRules(metadata_version=metadata_version_from_string("4.1"), min_isr=1, is_elr_enabled=False)
ONLINE, PREFERRED, UNCLEAN = Election.ONLINE, Election.PREFERRED, Election.UNCLEAN


def change(
    *, live, rules=RULES, election=ONLINE, isr_target=None, replicas_target=None, unclean_replicas=frozenset(), **fields
):
    image = PartitionImage(**({"replicas": (1, 2, 3), "directories": (DIRECTORY,) * 3} | fields))
    return PartitionChange(
        topic_id=TOPIC,
        index=0,
        partition=image,
        rules=rules,
        can_lead=lambda _, replica: replica in live,
        default_directory=lambda _: DIRECTORY,
        election=election,
        isr=isr_target,
        replicas=replicas_target,
        unclean_replicas=unclean_replicas,
    ).build()


@pytest.mark.parametrize(
    ("fields", "live", "election", "leader"),
    [
        # CPRT-30: a leader that is in the target set and can lead stays, though others could lead.
        ({"isr": (1, 2, 3), "leader": 2}, {1, 2, 3}, ONLINE, None),
        ({"isr": (1, 2, 3), "leader": 2}, {1, 2, 3}, UNCLEAN, None),
        ({"isr": (1, 2, 3), "leader": 2}, {1, 2, 3}, PREFERRED, 1),
        ({"isr": (), "elr": (2,), "leader": 2}, {1, 2, 3}, ONLINE, None),
        ({"isr": (1,), "elr": (2,), "leader": 2}, {1, 2, 3}, ONLINE, 1),  # the ELR counts while the set is empty
        # CPRT-31: else the first valid one in the order of the replicas,
        ({"isr": (3, 2), "leader": 1}, {1, 2, 3}, ONLINE, 2),
        ({"isr": (3, 2), "leader": 2}, {1, 3}, ONLINE, 3),
        ({"isr": (), "elr": (3,), "leader": -1}, {1, 2, 3}, ONLINE, 3),
        # else the last known leader,
        ({"isr": (), "elr": (), "leader": -1, "last_known_elr": (3,)}, {1, 3}, ONLINE, 3),
        ({"isr": (), "elr": (), "leader": -1, "last_known_elr": (3,)}, {1, 3}, UNCLEAN, 3),
        # else, uncleanly, the first one that can lead; else nobody.
        ({"isr": (), "elr": (), "leader": -1, "last_known_elr": (3,)}, {1, 2}, UNCLEAN, 1),
        ({"isr": (), "elr": (), "leader": -1}, {2, 3}, UNCLEAN, 2),
        ({"isr": (3,), "leader": 3}, {2}, UNCLEAN, 2),
        ({"isr": (3,), "leader": 3}, {2}, ONLINE, -1),
        ({"isr": (3,), "leader": 3}, set(), UNCLEAN, -1),
    ],
)
def test_leader_after_a_change(fields, live, election, leader):
    """CPRT-30, CPRT-31."""
    record = change(live=live, election=election, **fields)
    assert (None if record is None or record.leader == -2 else record.leader) == leader


@pytest.mark.parametrize(("replicas", "leader", "last_known"), [((1, 3), 3, ()), ((1, 2), -1, ())])
def test_last_known_leader_that_is_no_replica_any_more_is_forgotten(replicas, leader, last_known):
    # It deletes its log; Kafka elects it once it is a replica again.
    record = change(live={1, 2, 3}, isr=(), leader=-1, last_known_elr=(3,), replicas_target=replicas)
    assert (record.leader, record.last_known_elr) == (leader, last_known)


def test_unclean_leader_recovers_and_is_the_only_one_in_sync():
    record = change(live={2}, rules=NO_ELR, election=UNCLEAN, isr=(3,), leader=3)
    assert (record.leader, record.isr, record.leader_recovery_state) == (2, (2,), RECOVERING)


def test_last_in_sync_replica_stays_without_eligible_replicas():
    record = change(live=set(), rules=NO_ELR, isr=(1,), leader=1, isr_target=())
    assert (record.leader, record.isr) == (-1, None)


def test_eligible_replicas_are_those_that_left_a_small_set_and_lost_nothing():
    large_enough = change(live={1, 2, 3}, isr=(1,), elr=(2,), leader=1, isr_target=(1, 3))
    assert large_enough.eligible_leader_replicas == ()
    assert change(live={1}, isr=(1, 3), leader=1, isr_target=(1,)).eligible_leader_replicas == (3,)
    unclean = change(live={1}, isr=(1, 3), leader=1, isr_target=(1,), unclean_replicas=frozenset({3}))
    assert unclean.eligible_leader_replicas is None


@pytest.mark.parametrize(
    ("fields", "left", "last_known"),
    [
        ({"isr": (3,)}, {3}, (3,)),
        ({"isr": (), "elr": (2,)}, {2}, (2,)),
        ({"isr": (), "elr": (2, 3)}, {2}, None),  # replica 3 may still lead cleanly
        ({"isr": (3,)}, {2}, None),
        ({"isr": (2, 3)}, {2, 3}, None),  # either may have led last
        ({"isr": (), "elr": ()}, {3}, None),
        ({"isr": (3,), "last_known_elr": (1,)}, {3}, None),
    ],
)
def test_last_replica_that_could_lead_becomes_the_last_known_leader(fields, left, last_known):
    """CPRT-66: the partition lost its leader while eligible leader replicas were disabled."""
    in_sync = tuple(replica for replica in fields["isr"] if replica not in left)
    record = change(live=set(), leader=-1, isr_target=in_sync, unclean_replicas=frozenset(left), **fields)
    assert (None if record is None else record.last_known_elr) == last_known


@pytest.mark.parametrize(("version", "leader"), [("4.1", -2), ("3.6-IV0", -2), ("3.5-IV2", 1)])
def test_smaller_in_sync_set_raises_the_leader_epoch_only_below_3_6(version, leader):
    """CPRT-40: writing the leader raises its epoch."""
    rules = PartitionRules(metadata_version=metadata_version_from_string(version), min_isr=1, is_elr_enabled=False)
    record = change(live={1, 2, 3}, rules=rules, isr=(1, 2, 3), leader=1, isr_target=(1, 2))
    assert (record.isr, record.leader) == ((1, 2), leader)


@pytest.mark.parametrize("election", [ONLINE, PREFERRED, UNCLEAN])
def test_change_that_changes_nothing_is_no_record(election):
    """CPRT-42."""
    same = {"isr": (1, 2, 3), "leader": 1, "live": {1, 2, 3}, "election": election}
    assert change(**same) is None
    assert change(**same, isr_target=(1, 2, 3)) is None
    assert change(**same, isr_target=(1, 2)) is not None
