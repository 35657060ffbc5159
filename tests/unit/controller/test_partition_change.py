"""The record that takes a partition to its next leader, by tables of plain values."""

from __future__ import annotations

import pytest

from kraftlog.controller.partition_change import Election, PartitionChange, PartitionRules
from kraftlog.controller.topic_image import PartitionImage
from kraftlog.features import metadata_version_from_string
from kraftlog.types import Uuid

TOPIC, DIRECTORY = Uuid(b"t" * 16), Uuid(b"d" * 16)
RULES = PartitionRules(metadata_version=metadata_version_from_string("4.1"), min_isr=2, is_elr_enabled=True)
ONLINE, PREFERRED, UNCLEAN = Election.ONLINE, Election.PREFERRED, Election.UNCLEAN


def change(*, live, rules=RULES, election=ONLINE, isr_target=None, **fields):
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
        ({"isr": (3,), "leader": 3}, {2}, UNCLEAN, 2),
        ({"isr": (3,), "leader": 3}, {2}, ONLINE, -1),
        ({"isr": (3,), "leader": 3}, set(), UNCLEAN, -1),
    ],
)
def test_leader_after_a_change(fields, live, election, leader):
    """CPRT-30, CPRT-31."""
    record = change(live=live, election=election, **fields)
    assert (None if record is None or record.leader == -2 else record.leader) == leader


@pytest.mark.parametrize("election", [ONLINE, PREFERRED, UNCLEAN])
def test_change_that_changes_nothing_is_no_record(election):
    """CPRT-42."""
    same = {"isr": (1, 2, 3), "leader": 1, "live": {1, 2, 3}, "election": election}
    assert change(**same) is None
    assert change(**same, isr_target=(1, 2, 3)) is None
    assert change(**same, isr_target=(1, 2)) is not None
