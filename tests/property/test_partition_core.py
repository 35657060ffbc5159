"""The state machine of a replica in Rust has the effects and the state of its oracle in Python, event by event."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kraftlog.partition.assignment import Assignment
from oracle.native_replica import NativeReplica
from oracle.partition_replica import PartitionReplica

NODE = 1
FACTS = (
    "min_insync_replicas",
    "effective_min_insync_replicas",
    "log_end_offset",
    "flushed_offset",
    "high_watermark",
    "leader_id",
    "leader_epoch",
    "partition_epoch",
    "epoch_start_offset",
    "is_leader",
    "is_high_watermark_settled",
)

nodes = st.integers(1, 4)
epochs = st.integers(-1, 5)


@st.composite
def assignments(draw):
    replicas = tuple(draw(st.lists(nodes, min_size=1, max_size=4, unique=True)))
    isr = tuple(draw(st.lists(st.sampled_from(replicas), max_size=4, unique=True)))
    # A leader is in the in-sync set; the controller elects no other.
    leader = draw(st.sampled_from((*isr, -1)))
    if draw(st.booleans()) and NODE in isr:
        leader = NODE
    return Assignment(
        leader_id=leader,
        leader_epoch=draw(st.integers(0, 4)),
        partition_epoch=draw(st.integers(0, 8)),
        replicas=replicas,
        isr=isr,
    )


events = st.one_of(
    st.tuples(st.just("assign"), assignments()),
    st.tuples(st.just("append"), st.integers(1, 5)),
    st.tuples(st.just("append and wait"), st.integers(1, 5)),
    st.tuples(st.just("flushed"), st.integers(0, 60)),
    st.tuples(st.just("fetch"), nodes, st.integers(0, 60)),
    st.tuples(st.just("min.insync"), st.integers(1, 4)),
    st.tuples(st.just("truncate"), st.integers(0, 60)),
    st.tuples(st.just("fail")),
    st.tuples(st.just("close")),
)


class Pair:
    """Both machines, told the same."""

    def __init__(self, **start):
        self.native = NativeReplica(**start)
        self.oracle = PartitionReplica(**start)
        self.token = 0

    def tell(self, name, *fields):
        getattr(self.native, name)(*fields)
        getattr(self.oracle, name)(*fields)

    def play(self, event, now_ms):
        match event:
            case "assign", assignment:
                self.tell("handle_assignment", assignment, now_ms)
            case ("append" | "append and wait") as kind, count:
                if not self.oracle.check_append(-1 if kind == "append and wait" else 1):
                    self.tell("on_appended", self.oracle.log_end_offset + count)
                    if kind == "append and wait":
                        self.token += 1
                        self.tell("wait_for_ack", self.oracle.log_end_offset, self.token)
            case "flushed", offset:
                self.tell("on_flushed", min(offset, self.oracle.log_end_offset))
            case "fetch", node, offset:
                if node in self.oracle._followers:
                    self.tell("on_follower_fetch", node, min(offset, self.oracle.log_end_offset), now_ms)
            case "min.insync", count:
                self.tell("update_min_insync_replicas", count)
            case "truncate", offset:
                # Only a follower's log is emptied, so that nothing waits there.
                if not self.oracle.is_leader and not self.oracle._pending_acks:
                    self.tell("on_truncated_fully", offset)
            case ("fail",):
                self.tell("on_log_failed")
            case ("close",):
                self.tell("close")

    def compare(self):
        assert self.native.take_effects() == self.oracle.take_effects()
        for fact in FACTS:
            assert getattr(self.native, fact) == getattr(self.oracle, fact), fact
        for epoch in range(-2, 6):
            for needs_leader in (False, True):
                expected = self.oracle.check_leader_epoch(epoch, needs_leader=needs_leader)
                assert self.native.check_leader_epoch(epoch, needs_leader=needs_leader) == expected
            assert self.native.follower_refusal(epoch) == self.oracle.follower_refusal(epoch)
        for acks in (-1, 0, 1):
            assert self.native.check_append(acks) == self.oracle.check_append(acks)
        for node in range(1, 5):
            follower = self.oracle._followers.get(node)
            assert self.native.last_caught_up_ms(node) == (follower and follower.last_caught_up_ms)


@settings(max_examples=400, deadline=None)
@given(
    flush_on_ack=st.booleans(),
    min_insync=st.integers(1, 3),
    offsets=st.tuples(st.integers(0, 9), st.integers(0, 9), st.integers(0, 9)),
    played=st.lists(events, max_size=40),
)
def test_equal_events_have_equal_effects(flush_on_ack, min_insync, offsets, played):
    flushed, high_watermark, end = sorted(offsets)
    pair = Pair(
        node_id=NODE,
        flush_on_ack=flush_on_ack,
        min_insync_replicas=min_insync,
        log_end_offset=end,
        flushed_offset=flushed,
        high_watermark=high_watermark,
    )
    for now_ms, event in enumerate(played):
        pair.play(event, now_ms)
        pair.compare()
