"""Classic groups under any order of joins, commits, time-outs, failed appends and moves of the coordinator."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, rule

from classic_fixture import ClassicShard
from group_fixture import make_group_shard
from kraftlog.coordinator.effects import AppendRecords
from kraftlog.errors import ErrorCode
from kraftlog.wire.messages.group_coordinator_records import OffsetCommitKey

CLIENTS = st.sampled_from("ABC")
PARTITIONS = 3
LOST = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION})


class Client:
    """A consumer: it gives up its partitions before it joins again, and begins where the group has committed.

    It waits for the answers of its commits first: a member that joins without a rebalance stays in its generation,
    where nothing keeps its own older commits from arriving after newer ones.
    """

    def __init__(self) -> None:
        self.member_id = ""
        self.generation = -1
        self.positions: dict[int, int] = {}
        self.waits_for: str | None = None
        self.commits: list[str] = []

    def stop(self) -> None:
        self.positions = {}
        self.waits_for = None

    def forget(self) -> None:
        self.stop()
        self.member_id = ""


class Moves(RuleBasedStateMachine):
    """CGRP-99: no committed offset goes back, and no partition has two owners in a generation."""

    def __init__(self) -> None:
        super().__init__()
        self.h = ClassicShard()
        self.h.held = []
        self.clients = {name: Client() for name in "ABC"}
        self.owners: dict[tuple[int, int], str] = {}
        self.committed: dict[int, int] = {}
        self.late: list[tuple[tuple[str, int], Callable[[str], Any]]] = []
        self.rotation = self.moves = 0
        self.tokens = 0

    @initialize()
    def all_consume(self) -> None:
        """Random rules alone seldom have commits of a member arrive after those of the next owner."""
        for _ in range(3):
            self.rebalance()
        assert all(client.positions for client in self.clients.values())
        self.consume(count=1, is_late=True)
        self.rebalance()
        self.consume(count=2, is_late=False)
        self.commits_arrive()
        self.disk_takes(9)

    def token(self) -> str:
        self.tokens += 1
        return str(self.tokens)

    @rule()
    def rebalance(self) -> None:
        """Random rules alone seldom get all members into a generation."""
        self.disk_takes(9)
        for name in self.clients:
            self.join(name)
        for _ in range(3):
            self.disk_takes(9)

    @rule(name=CLIENTS)
    def join(self, name: str) -> None:
        client = self.clients[name]
        is_committed = all(token in self.h.answers for token in client.commits)
        if client.waits_for is None and is_committed:
            client.stop()
            client.waits_for = self.token()
            self.h.join(client.waits_for, client.member_id)
            self.settle()

    @rule(name=CLIENTS)
    def beat(self, name: str) -> None:
        client = self.clients[name]
        if client.positions:
            code = self.h.heartbeat(client.member_id, client.generation)
            if code in LOST:
                client.forget()
            elif code == ErrorCode.REBALANCE_IN_PROGRESS:
                self.join(name)
            self.settle()

    @rule(count=st.integers(1, 3), is_late=st.booleans())
    def consume(self, count: int, is_late: bool) -> None:
        """Every client commits some records of each partition that it believes to be its own."""
        for client in self.clients.values():
            sender = client.member_id, client.generation
            for partition in client.positions:
                client.positions[partition] += count
                fields = {"member_id": sender[0], "generation_id_or_member_epoch": sender[1]}
                offset = client.positions[partition]
                self.late.append((sender, partial(self.h.commit, offset=offset, partition=partition, **fields)))
            if not is_late:
                self.arrive(sender)
        self.settle()

    @rule()
    def commits_arrive(self) -> None:
        """Some of them from before a rebalance."""
        for sender in dict.fromkeys(sender for sender, _ in self.late):
            self.arrive(sender)
        self.settle()

    def arrive(self, sender: tuple[str, int]) -> None:
        """What a client has sent in one generation comes in its order."""
        for _, commit in [found for found in self.late if found[0] == sender]:
            token = self.token()
            commit(token)
            for client in self.clients.values():
                if (client.member_id, client.generation) == sender:
                    client.commits.append(token)
        self.late = [found for found in self.late if found[0] != sender]

    @rule(name=CLIENTS, how=st.sampled_from(["leaves", "dies", "times out"]))
    def lose(self, name: str, how: str) -> None:
        """A client ends; after a time-out others may have lost their session, too, and be late to notice."""
        client = self.clients[name]
        if how == "leaves" and client.member_id and client.waits_for is None:
            self.h.leave((client.member_id, None))
        elif how == "times out":
            self.h.advance(30_000)
        self.clients[name] = Client()
        self.settle()

    @rule(count=st.integers(1, 4))
    def disk_takes(self, count: int) -> None:
        """The oldest appends are committed, in order."""
        for append in self.taken(count):
            self.h.shard.on_appended(append.append_id, ErrorCode.NONE)
            self.h.run()
        self.settle()

    @rule()
    def disk_refuses_the_last(self) -> None:
        if self.h.held:
            append = self.h.held.pop()
            self.h.shard.on_appended(append.append_id, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            self.h.run()
            self.settle()

    @rule(kept=st.integers(0, 3))
    def coordinator_moves(self, kept: int) -> None:
        """The next one has what was committed, and may have some of what was on its way; nobody is answered."""
        self.taken(kept)
        self.h.held = []
        self.moves += 1
        self.h.shard = make_group_shard(self.h.config, seed=1_000 + self.moves)  # other member ids
        for record in self.h.log:
            self.h.shard.replay(record, now_ms=self.h.now_ms)
        self.h.shard.finish_loading(self.h.now_ms)
        for client in self.clients.values():
            client.waits_for = None
            client.commits.clear()
        self.h.run()

    def taken(self, count: int) -> list[AppendRecords]:
        """Move appends to the log, which never has a smaller offset behind a larger one."""
        assert self.h.held is not None
        taken, self.h.held = self.h.held[:count], self.h.held[count:]
        for append in taken:
            for record in append.records:
                if isinstance(record.key, OffsetCommitKey) and record.value is not None:
                    partition, offset = record.key.partition, record.value.offset
                    assert offset >= self.committed.get(partition, 0), f"partition {partition} goes back to {offset}"
                    self.committed[partition] = offset
            self.h.log.extend(append.records)
        return taken

    def settle(self) -> None:
        """Let clients take their answers and ask what follows."""
        while answered := [client for client in self.clients.values() if client.waits_for in self.h.answers]:
            for client in answered:
                answer = self.h.answers[str(client.waits_for)]
                client.waits_for = None
                if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
                    client.member_id = answer.member_id
                elif answer.error_code in LOST:
                    client.forget()
                elif not answer.error_code and hasattr(answer, "leader"):
                    self.sync(client, answer)
                elif not answer.error_code:
                    self.own(client, answer.assignment)

    def sync(self, client: Client, joined: Any) -> None:
        """The leader hands out the partitions in another way each time."""
        client.generation = joined.generation_id
        parts: dict[str, list[int]] = {}
        if joined.leader == client.member_id:
            self.rotation += 1
            for partition in range(PARTITIONS):
                chosen = joined.members[(partition + self.rotation) % len(joined.members)]
                parts.setdefault(chosen.member_id, []).append(partition)
        client.waits_for = self.token()
        assignments = {member_id: bytes(partitions) for member_id, partitions in parts.items()}
        self.h.sync(client.waits_for, client.member_id, client.generation, assignments)

    def own(self, client: Client, assignment: bytes) -> None:
        # In the generation that it was in: what it sent before went over a connection that it has closed.
        self.late = [found for found in self.late if found[0] != (client.member_id, client.generation)]
        known = self.h.shard.committed("g")
        for partition in assignment:
            owner = self.owners.setdefault((client.generation, partition), client.member_id)
            assert owner == client.member_id, f"partition {partition} has two owners in {client.generation}"
            found = known.get(("orders", partition))
            client.positions[partition] = 0 if found is None else found.offset


TestMoves = Moves.TestCase
TestMoves.settings = settings(max_examples=30, stateful_step_count=25, deadline=None)
