"""Groups whose members come and go while nodes fail, in virtual time."""

from __future__ import annotations

import pytest

from kraftlog.testing import InvariantViolationError
from kraftlog.testing.world.history import GroupHistory
from kraftlog.testing.world.swarm import ClusterScenario, run

from .group_workload import groups

FAULTS = """
at 6000 kill node=leader2 for_ms=500
at 8000 power_off node=leader0 data=torn names=suffix for_ms=500
at 12000 isolate node=leader1 for_ms=3000
at 16000 jump_clock node=leader3 by_ms=-3600000
at 17000 isolate node=controller for_ms=2000
end 20000
"""
SETTINGS = """
set default.replication.factor=3
set min.insync.replicas=2
set num.partitions=4
set offsets.topic.replication.factor=3
"""


# The protocol, how members commit and how long they stay are drawn from the seed.
@pytest.mark.parametrize(
    ("seed", "drawn"),
    [
        (18, "enable.auto.commit=false, auto.commit.interval.ms=3000, group.protocol=consumer"),
        (
            25,
            "group.protocol=consumer, group.remote.assignor=range",
        ),
        (9, "group.protocol=classic, partition.assignment.strategy=range"),
        (28, "group.protocol=classic, partition.assignment.strategy=cooperative-sticky"),
    ],
)
def test_a_group_skips_nothing_and_catches_up(seed, drawn):
    outcome = run(ClusterScenario.parse(f"world seed={seed} controllers=3 brokers=3{SETTINGS}{FAULTS}"), groups)
    assert outcome.error is None, outcome.error
    story = "\n".join(outcome.story)
    assert drawn in story
    assert "none was skipped" in story


def test_a_session_outlives_a_wall_clock_that_is_set_forward_and_back():
    """Seed 6: a member died while the clock was a day ahead; once it was set back, nobody missed it for a day."""
    text = """
    world seed=6 controllers=1 brokers=1
    set default.replication.factor=1
    set min.insync.replicas=1
    set num.partitions=1
    set offsets.topic.replication.factor=1
    at 8802 jump_clock node=leader35 by_ms=86400000
    end 13802
    """
    outcome = run(ClusterScenario.parse(text), groups)
    assert outcome.error is None, outcome.error


def test_a_skipped_record_is_noticed():
    history = GroupHistory()
    for offset in (0, 1, 3):
        history.processed("records", 0, offset)
    history.committed("records", 0, 2)
    history.check("records", 0, [0, 1, 2, 3])
    history.committed("records", 0, 4)
    history.committed("records", 0, 1)
    with pytest.raises(InvariantViolationError) as raised:
        history.check("records", 0, [0, 1, 2, 3])
    assert raised.value.identifier == "offsets"
    assert "[2]" in str(raised.value)
