"""Consumer groups under any order of heartbeats, leaving, time-outs, failed appends and moves of the coordinator."""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from group_fixture import ConsumerShard, Parts, make_group_shard
from kraftlog.coordinator.group.consumer_group import ConsumerGroup
from kraftlog.errors import ErrorCode

MEMBERS = st.sampled_from("ABCD")
LOST = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND})
SESSION_MS, REBALANCE_MS = 45_000, 30_000


class Client:
    """A member as a consumer is one: what it has to give up stays its own until it has reported that."""

    def __init__(self) -> None:
        self.epoch = 0
        self.assigned: dict[str, set[int]] = {}
        self.owned: dict[str, set[int]] = {}
        self.heard_ms = 0
        self.revoking_ms: int | None = None

    def take(self, parts: Parts, now_ms: int) -> None:
        """Take what is new; what is gone has to be given up within the rebalance timeout."""
        self.assigned = {name: set(indexes) for name, indexes in parts.items()}
        for name, indexes in self.assigned.items():
            self.owned.setdefault(name, set()).update(indexes)
        if self.owned == self.assigned:
            self.revoking_ms = None
        elif self.revoking_ms is None:
            self.revoking_ms = now_ms

    def give_up(self) -> Parts:
        """Give up what is not assigned any more; what it reports."""
        self.owned = {name: set(indexes) for name, indexes in self.assigned.items()}
        self.revoking_ms = None
        return {name: sorted(indexes) for name, indexes in self.owned.items() if indexes}

    def is_silent(self, now_ms: int) -> bool:
        """Whether its session or its time to give up partitions is over by now: it stops by itself."""
        is_late = self.revoking_ms is not None and self.revoking_ms + REBALANCE_MS <= now_ms
        return is_late or self.heard_ms + SESSION_MS <= now_ms


class Ownership(RuleBasedStateMachine):
    """NGRP-42: no partition has two owners, as the coordinator's records say and as members with a session do."""

    def __init__(self) -> None:
        super().__init__()
        self.s = ConsumerShard({"t": 4, "u": 3}, group_consumer_assignment_interval_ms=0)
        self.clients: dict[str, Client] = {}

    def take(self, member_id: str, answer: Any) -> None:
        client = self.clients[member_id]
        if answer.error_code:
            if answer.error_code in LOST:
                del self.clients[member_id]
            return
        client.heard_ms = self.s.now_ms
        client.epoch = answer.member_epoch
        if answer.assignment is not None:
            client.take(self.s.got(answer)[1] or {}, self.s.now_ms)

    @rule(member_id=MEMBERS, topics=st.sampled_from([("t",), ("u",), ("t", "u")]))
    def join(self, member_id: str, topics: tuple[str, ...]) -> None:
        if member_id not in self.clients:
            self.clients[member_id] = Client()
            self.take(member_id, self.s.join(member_id, *topics))

    @rule(member_id=MEMBERS)
    def beat(self, member_id: str) -> None:
        client = self.clients.get(member_id)
        if client is not None:
            self.take(member_id, self.s.beat(member_id, client.epoch, client.give_up()))

    @rule(member_id=MEMBERS, topics=st.sampled_from([("t",), ("u",), ("t", "u")]))
    def subscribe(self, member_id: str, topics: tuple[str, ...]) -> None:
        client = self.clients.get(member_id)
        if client is not None:
            self.take(member_id, self.s.beat(member_id, client.epoch, subscribed_topic_names=topics))

    @rule(member_id=MEMBERS)
    def leave(self, member_id: str) -> None:
        if member_id in self.clients:
            self.s.beat(member_id, -1)
            del self.clients[member_id]

    @rule(ms=st.sampled_from([1_000, 20_000, SESSION_MS]))
    def time(self, ms: int) -> None:
        """A member whose time is over has stopped before the coordinator removes it."""
        for member_id, client in list(self.clients.items()):
            if client.is_silent(self.s.now_ms + ms):
                del self.clients[member_id]
        self.s.advance(ms)

    @rule(member_id=MEMBERS)
    def append_fails(self, member_id: str) -> None:
        """The next coordinator error leaves the member as it was."""
        self.s.append_error = int(ErrorCode.COORDINATOR_NOT_AVAILABLE)
        self.beat(member_id)
        self.s.append_error = 0

    @rule()
    def coordinator_moves(self) -> None:
        self.s.shard = make_group_shard(self.s.config, topics=self.s.topics)
        for record in self.s.log:
            self.s.shard.replay(record, now_ms=self.s.now_ms)
        self.s.shard.finish_loading(self.s.now_ms)
        self.s.run()

    def group(self) -> ConsumerGroup | None:
        return self.s.shard._consumers.groups.get("g")

    @invariant()
    def no_partition_has_two_owners(self) -> None:
        group = self.group()
        stored = [
            (topic_id, partition)
            for member in ({} if group is None else group.members).values()
            for parts in (member.assigned, member.pending_revocation)
            for topic_id, partitions in parts.items()
            for partition in partitions
        ]
        assert len(stored) == len(set(stored))
        owned = [(name, index) for c in self.clients.values() for name, parts in c.owned.items() for index in parts]
        assert len(owned) == len(set(owned))


TestOwnership = Ownership.TestCase
TestOwnership.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
