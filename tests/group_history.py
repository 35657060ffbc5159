"""Drawn histories of a shard of the group coordinator: members of both protocols, offsets, and appends that wait.

The log is a list of encoded records. An append waits until it is drawn that the disk took it, or refused it; the shard
moves to another broker at any time, which knows what is in the log. Clients are models: a member owns partitions until
it has reported that it gave them up, and loses answers.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Any

from classic_fixture import SUBSCRIPTION
from group_fixture import FakeTopics, make_group_shard, topic_id
from kraftlog._kraftlog import PlainOffsetCommit
from kraftlog.coordinator.effects import AppendRecords, Respond
from kraftlog.coordinator.group.config import ClientInfo, GroupConfig
from kraftlog.errors import ErrorCode
from kraftlog.runtime.coordinator.record_codec import decode_group_record, encode_records
from kraftlog.testing.log_invariants import InvariantViolationError
from kraftlog.wire.frame import encode_request
from kraftlog.wire.messages.consumer_group_heartbeat import ConsumerGroupHeartbeatRequest
from kraftlog.wire.messages.group_coordinator_records import GroupMetadataKey, OffsetCommitKey
from kraftlog.wire.messages.heartbeat import HeartbeatRequest
from kraftlog.wire.messages.join_group import JoinGroupRequest
from kraftlog.wire.messages.leave_group import LeaveGroupRequest
from kraftlog.wire.messages.offset_commit import OffsetCommitRequest
from kraftlog.wire.messages.offset_delete import OffsetDeleteRequest
from kraftlog.wire.messages.sync_group import SyncGroupRequest

STEPS = 250
SESSION_MS, REBALANCE_MS = 45_000, 30_000
_LEAVE, _LEAVE_FOR_A_WHILE = -1, -2
_COMMIT_VERSION = 8
_SIMPLE = ("s", "u")
_OWNED = ConsumerGroupHeartbeatRequest.TopicPartitions
_LOST = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_MEMBER_EPOCH,
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.FENCED_INSTANCE_ID,
        ErrorCode.UNRELEASED_INSTANCE_ID,
    }
)


def violated(rule: str, reason: str) -> InvariantViolationError:
    return InvariantViolationError(rule, reason, [])


@dataclass(slots=True, eq=False)
class Consumer:
    """A member of the consumer protocol.

    Attributes:
        epochs: Those that it has had, in order; the last one is its own.
        owned: What it consumes: what it was given and has not given up, by topic.
        heard_ms: When it sent the last heartbeat that was answered.
        asked_ms: When it sent the first one since then; what it has to give up may have been decided there.
        waits: Token of the heartbeat under way.
    """

    member_id: str
    instance_id: str | None
    topics: tuple[str, ...]
    epochs: list[int] = field(default_factory=lambda: [0])
    assigned: dict[str, set[int]] = field(default_factory=dict)
    owned: dict[str, set[int]] = field(default_factory=dict)
    heard_ms: int = 0
    asked_ms: int | None = None
    revoking_ms: int | None = None
    waits: int | None = None

    def give_up(self) -> dict[str, list[int]]:
        self.owned = {name: set(indexes) for name, indexes in self.assigned.items()}
        self.revoking_ms = None
        return self.reported()

    def reported(self) -> dict[str, list[int]]:
        return {name: sorted(indexes) for name, indexes in self.owned.items() if indexes}

    def is_silent(self, now_ms: int) -> bool:
        # Without an answer it may have to give up partitions and not know of it.
        since_ms = self.asked_ms if self.revoking_ms is None else self.revoking_ms
        is_late = since_ms is not None and since_ms + REBALANCE_MS <= now_ms
        return is_late or self.heard_ms + SESSION_MS <= now_ms


class GroupHistory:
    """One history; ``play`` runs it. Group ``n`` has the consumer protocol, ``c`` the classic one, others none.

    Args:
        seed: Of all chance.
    """

    def __init__(self, seed: int) -> None:
        self.rng = rng = Random(f"{seed}/groups")
        self.counts: Counter[str] = Counter()
        self.now_ms = 1_000
        self.topics = FakeTopics({"t": rng.randint(1, 5), "u": rng.randint(1, 3)})
        self.config = GroupConfig(
            group_consumer_assignment_interval_ms=rng.choice((0, 1_000)),
            group_initial_rebalance_delay_ms=rng.choice((0, 3_000)),
            offsets_retention_ms=rng.choice((15_000, 60_000, 1 << 40)),
            offsets_retention_check_interval_ms=5_000,
        )
        self.log: list[tuple[bytes, bytes | None]] = []
        self.waiting: list[tuple[AppendRecords, list[Any]]] = []
        self.shard = self.loaded()
        self.token = 0
        # What each request waits for: called with the answer.
        self.asked: dict[int, Any] = {}
        self.consumers: dict[str, Consumer] = {}
        self.member_ids = 0
        # Classic members, with the generation that each was told.
        self.classic: dict[str, int] = {}
        self.offsets: dict[str, dict[tuple[str, int], int]] = {}
        # Groups with offsets in the log that no tombstone has ended.
        self.stored: set[str] = set()
        self.loss = rng.choice((0.0, 0.05, 0.3))
        names = (
            *("join", "beat", "beat", "probe", "subscribe", "leave", "time", "commit", "delete", "delete_group"),
            *("disk_takes", "disk_refuses", "move", "classic_join", "classic_sync", "classic_beat", "classic_leave"),
            "grow",
        )
        self.weights = Counter({name: rng.choice((1, 3, 6)) for name in names})
        self.weights["disk_takes"] += 12
        self.weights["beat"] += 6
        self.weights["move"] = self.weights["grow"] = 1
        self.most_waiting = rng.choice((1, 3, 12))

    # -- the shell ---------------------------------------------------------------------------------------------------

    def loaded(self) -> Any:
        shard = make_group_shard(self.config, topics=self.topics, seed=self.rng.getrandbits(32))
        for key, value in self.log:
            for record in decode_group_record(key, value):
                shard.replay(record, now_ms=self.now_ms)
        shard.finish_loading(self.now_ms)
        return shard

    def ask(self, then: Any) -> int:
        self.token += 1
        self.asked[self.token] = then
        return self.token

    def drain(self) -> list[list[Any]]:
        """Take what the shard wants; the records of its appends."""
        new: list[list[Any]] = []
        while effects := self.shard.take_effects():
            for effect in effects:
                if isinstance(effect, Respond):
                    then = self.asked.pop(effect.token, None)
                    if then is None:
                        raise violated("one answer", f"request {effect.token} is answered twice: {effect.response}")
                    if self.rng.random() >= self.loss:
                        then(effect.response)
                    else:
                        then(None)
                    continue
                records = list(effect.records)
                for key, value in effect.encoded:
                    records += decode_group_record(key, value)
                new.append(records)
                self.waiting.append((effect, records))
        return new

    def disk_takes(self) -> None:
        """The oldest appends are committed, in order."""
        for _ in range(min(self.rng.randint(1, 3), len(self.waiting))):
            append, records = self.waiting.pop(0)
            self.log += encode_records(append.records) if append.records else append.encoded
            for record in records:
                self.apply(record)
            self.shard.on_appended(append.append_id, ErrorCode.NONE)
            self.drain()

    def disk_refuses(self) -> None:
        """The newest append fails; those before it are still on their way."""
        if self.waiting:
            append, _ = self.waiting.pop()
            self.counts["refused append"] += 1
            self.shard.on_appended(append.append_id, ErrorCode.COORDINATOR_NOT_AVAILABLE)
            self.drain()

    def move(self) -> None:
        """Another broker loads the shard: what is not in the log never happened, and nobody is answered."""
        self.waiting.clear()
        waits, self.asked = self.asked, {}
        for then in waits.values():
            then(None)
        self.shard = self.loaded()
        self.drain()
        self.counts["moved"] += 1

    def apply(self, record: Any) -> None:
        key = record.key
        if isinstance(key, GroupMetadataKey):
            if record.value is None and not self.offsets.get(key.group):
                self.stored.discard(key.group)
        elif isinstance(key, OffsetCommitKey):
            offsets = self.offsets.setdefault(key.group, {})
            if record.value is None:
                offsets.pop((key.topic, key.partition), None)
            else:
                offsets[key.topic, key.partition] = record.value.offset
                self.stored.add(key.group)

    # -- the consumer protocol ---------------------------------------------------------------------------------------

    def group(self) -> Any:
        return self.shard._consumers.groups.get("n")

    def send(self, consumer: Consumer, epoch: int, owned: dict[str, list[int]] | None, **fields: Any) -> None:
        sent_ms = self.now_ms
        expected = self.expected_code(consumer, epoch, owned)
        found: list[Any] = []

        def then(answer: Any) -> None:
            found.append(answer)
            consumer.waits = None
            if answer is not None and self.consumers.get(consumer.member_id) is consumer and epoch >= 0:
                self.take(consumer, answer, sent_ms)

        token = self.ask(then)
        consumer.waits = token
        if consumer.asked_ms is None:
            consumer.asked_ms = sent_ms
        request = ConsumerGroupHeartbeatRequest(
            group_id="n",
            member_id=consumer.member_id,
            member_epoch=epoch,
            instance_id=consumer.instance_id,
            topic_partitions=None
            if owned is None
            else [_OWNED(topic_id=topic_id(name), partitions=parts) for name, parts in owned.items()],
            **fields,
        )
        self.shard.consumer_group_heartbeat(token, request, ClientInfo("c", "/h", 1), self.now_ms)
        self.drain()
        if expected and (not found or (found[0] is not None and found[0].error_code != expected)):
            answer = found[0] if found else "no answer yet"
            raise violated("fencing", f"{consumer} with epoch {epoch} and {owned} is not refused: {answer}")

    def expected_code(self, consumer: Consumer, epoch: int, owned: dict[str, list[int]] | None) -> int:
        """The error that KIP-848 demands of a heartbeat; 0 if nothing is to be said of it here."""
        group = self.group()
        if group is None:
            return 0
        if consumer.instance_id is not None:
            known = group.static_member(consumer.instance_id)
            if epoch == 0 and known is not None and known.epoch != _LEAVE_FOR_A_WHILE:
                return int(ErrorCode.UNRELEASED_INSTANCE_ID)
        member = group.members.get(consumer.member_id)
        if member is None or epoch <= 0 or epoch == member.epoch or member.instance_id != consumer.instance_id:
            return 0
        if epoch == member.previous_epoch and owned is not None:
            has = {name: member.assigned.get(topic_id(name), {}).keys() for name in owned}
            if all(set(parts) <= has[name] for name, parts in owned.items()):
                return 0
        return int(ErrorCode.FENCED_MEMBER_EPOCH)

    def take(self, consumer: Consumer, answer: Any, sent_ms: int) -> None:
        if answer.error_code:
            self.counts[f"error {answer.error_code}"] += 1
            if answer.error_code in _LOST:
                del self.consumers[consumer.member_id]
            elif consumer.asked_ms == sent_ms:
                consumer.asked_ms = None  # nothing was decided
            return
        consumer.heard_ms = sent_ms
        asked_ms, consumer.asked_ms = consumer.asked_ms, None
        if answer.member_epoch != consumer.epochs[-1]:
            consumer.epochs.append(answer.member_epoch)
        if answer.assignment is None:
            return
        names = {topic_id(name): name for name in self.topics.counts}
        consumer.assigned = {names[part.topic_id]: set(part.partitions) for part in answer.assignment.topic_partitions}
        for name, indexes in consumer.assigned.items():
            consumer.owned.setdefault(name, set()).update(indexes)
            self.counts["assigned"] += bool(indexes)
        if all(indexes <= consumer.assigned.get(name, set()) for name, indexes in consumer.owned.items()):
            consumer.revoking_ms = None
        elif consumer.revoking_ms is None:
            self.counts["revoking"] += 1
            consumer.revoking_ms = asked_ms

    def a_consumer(self) -> Consumer | None:
        free = [consumer for consumer in self.consumers.values() if consumer.waits is None]
        return self.rng.choice(free) if free else None

    def join(self) -> None:
        if len(self.consumers) >= 4:
            return
        self.member_ids += 1
        instance_id = self.rng.choice((None, None, "i", "j"))
        topics = self.rng.choice((("t",), ("u",), ("t", "u")))
        consumer = Consumer(f"m{self.member_ids}", instance_id, topics, heard_ms=self.now_ms)
        self.consumers[consumer.member_id] = consumer
        self.send(consumer, 0, {}, rebalance_timeout_ms=REBALANCE_MS, subscribed_topic_names=topics)

    def beat(self) -> None:
        """A heartbeat; one of three reports nothing, and gives up nothing.

        If the answer to the one before was lost, it says everything, so that the assignment comes again.
        """
        consumer = self.a_consumer()
        if consumer is None:
            return
        everything = {"rebalance_timeout_ms": REBALANCE_MS, "subscribed_topic_names": consumer.topics}
        if consumer.epochs[-1] == 0:
            self.send(consumer, 0, {}, **everything)
        elif consumer.asked_ms is not None:
            self.send(consumer, consumer.epochs[-1], consumer.reported(), **everything)
        else:
            self.send(consumer, consumer.epochs[-1], None if self.rng.random() < 0.3 else consumer.give_up())

    def subscribe(self) -> None:
        consumer = self.a_consumer()
        if consumer is not None and consumer.epochs[-1]:
            consumer.topics = self.rng.choice((("t",), ("u",), ("t", "u")))
            everything = {"rebalance_timeout_ms": REBALANCE_MS, "subscribed_topic_names": consumer.topics}
            self.send(consumer, consumer.epochs[-1], consumer.give_up(), **everything)

    def probe(self) -> None:
        """A request of an earlier epoch comes late, or one of another process with the same instance id."""
        consumer = self.a_consumer()
        if consumer is None:
            return
        epoch = self.rng.choice(consumer.epochs)
        owned = consumer.reported()
        if epoch and epoch != consumer.epochs[-1]:
            copy = Consumer(consumer.member_id, consumer.instance_id, consumer.topics, list(consumer.epochs))
            self.send(copy, epoch, owned if self.rng.random() < 0.7 else None)
            # The answer is lost to it, as it waits for that of a later request.
            consumer.asked_ms = self.now_ms if consumer.asked_ms is None else consumer.asked_ms
            self.counts["earlier epoch"] += 1

    def leave(self) -> None:
        consumer = self.a_consumer()
        if consumer is not None:
            del self.consumers[consumer.member_id]
            is_for_a_while = consumer.instance_id is not None and self.rng.random() < 0.6
            self.send(consumer, _LEAVE_FOR_A_WHILE if is_for_a_while else _LEAVE, None)

    def grow(self) -> None:
        """A topic has more partitions."""
        name = self.rng.choice(("t", "u"))
        self.topics.set(name, min(self.topics.counts[name] + 1, 8))

    # -- the classic protocol ----------------------------------------------------------------------------------------

    def classic_join(self) -> None:
        member_id = self.rng.choice(("", *self.classic))

        def then(answer: Any) -> None:
            if answer is None:
                return
            if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED and len(self.classic) < 3:
                self.classic[answer.member_id] = -1
            elif not answer.error_code:
                self.classic[answer.member_id] = answer.generation_id
                self.counts["generation"] += 1
            elif answer.error_code == ErrorCode.UNKNOWN_MEMBER_ID:
                self.classic.pop(member_id, None)

        if not member_id and len(self.classic) >= 3:
            return
        protocols = (JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=SUBSCRIPTION),)
        request = JoinGroupRequest(
            group_id="c",
            member_id=member_id,
            session_timeout_ms=10_000,
            rebalance_timeout_ms=20_000,
            protocol_type="consumer",
            protocols=protocols,
        )
        self.shard.join_group(self.ask(then), request, ClientInfo("c", "/h", 9), self.now_ms)
        self.drain()

    def classic_sync(self) -> None:
        if not self.classic:
            return
        member_id = self.rng.choice(list(self.classic))
        assignments = tuple(
            SyncGroupRequest.SyncGroupRequestAssignment(member_id=each, assignment=b"A") for each in self.classic
        )
        request = SyncGroupRequest(
            group_id="c", generation_id=self.classic[member_id], member_id=member_id, assignments=assignments
        )
        self.shard.sync_group(self.ask(lambda _answer: None), request, self.now_ms)
        self.drain()

    def classic_beat(self) -> None:
        if self.classic:
            member_id = self.rng.choice(list(self.classic))
            generation = self.classic[member_id]
            request = HeartbeatRequest(group_id="c", generation_id=generation, member_id=member_id)
            if self.shard.heartbeat(request, self.now_ms).error_code == ErrorCode.UNKNOWN_MEMBER_ID:
                del self.classic[member_id]
            self.drain()

    def classic_leave(self) -> None:
        if self.classic and self.rng.random() < 0.3:
            member_id = self.rng.choice(list(self.classic))
            del self.classic[member_id]
            leaving = (LeaveGroupRequest.MemberIdentity(member_id=member_id),)
            request = LeaveGroupRequest(group_id="c", member_id=member_id, members=leaving)
            self.shard.leave_group(request, 5, self.now_ms)
            self.drain()

    # -- offsets -----------------------------------------------------------------------------------------------------

    def commit(self) -> None:
        """A commit of a client without a group, or of a classic member, now and then of an earlier generation."""
        group_id, member_id, generation = self.rng.choice(_SIMPLE), "", -1
        if self.classic and self.rng.random() < 0.5:
            group_id, member_id = "c", self.rng.choice(list(self.classic))
            generation = self.classic[member_id] - (self.rng.random() < 0.3)
        group = self.shard._groups.get(group_id)
        current = None if group is None else group.generation_id
        offset = self.rng.randrange(1 << 40)
        part = OffsetCommitRequest.OffsetCommitRequestPartition(
            partition_index=self.rng.randrange(2), committed_offset=offset, committed_metadata=""
        )
        topic = OffsetCommitRequest.OffsetCommitRequestTopic(name="t", topic_id=topic_id("t"), partitions=(part,))
        request = OffsetCommitRequest(
            group_id=group_id, generation_id_or_member_epoch=generation, member_id=member_id, topics=(topic,)
        )
        key = ("t", part.partition_index)

        def then(answer: Any) -> None:
            code = answer if answer is None or isinstance(answer, int) else answer.topics[0].partitions[0].error_code
            if code != 0:
                self.counts["refused commit"] += code is not None
                return
            self.counts["committed"] += 1
            if generation >= 0 and generation != current:
                raise violated("generation", f"generation {generation} of {group_id} commits, it has {current}")
            # Behind it in the log nothing else came before the answer.
            if self.offsets.get(group_id, {}).get(key) != offset:
                raise violated("durable offsets", f"{offset} of {group_id} is committed, the log has {self.offsets}")

        token = self.ask(then)
        if self.rng.random() < 0.5:
            frame = b"".join(map(bytes, encode_request(8, _COMMIT_VERSION, 1, "c", request)))[4:]
            encoded = PlainOffsetCommit.parse(frame, partitions_max=16)
            names = [("t", topic_id("t"))]
            each = [(topic_id("t"), part.partition_index)]
            self.shard.commit_encoded_offsets(
                token, encoded, names, self.now_ms, partitions=each, api_version=_COMMIT_VERSION
            )
        else:
            self.shard.commit_offsets(token, request, self.now_ms, api_version=_COMMIT_VERSION)
        self.drain()

    def delete(self) -> None:
        part = OffsetDeleteRequest.OffsetDeleteRequestPartition(partition_index=self.rng.randrange(2))
        topics = [OffsetDeleteRequest.OffsetDeleteRequestTopic(name="t", partitions=[part])]
        request = OffsetDeleteRequest(group_id=self.rng.choice((*_SIMPLE, "c")), topics=topics)
        self.shard.delete_offsets(self.ask(lambda _answer: None), request)
        self.drain()

    def delete_group(self) -> None:
        if self.rng.random() < 0.2:
            group_id = self.rng.choice((*_SIMPLE, "c", "n"))
            self.shard.delete_group(self.ask(lambda _answer: None), group_id, self.now_ms)
            self.drain()

    # -- time --------------------------------------------------------------------------------------------------------

    def time(self) -> None:
        """Time goes on; a member whose own time is over has stopped before the coordinator removes it."""
        self.now_ms += self.rng.choice((200, 1_000, 5_000, 20_000, SESSION_MS))
        for member_id, consumer in list(self.consumers.items()):
            if consumer.is_silent(self.now_ms):
                del self.consumers[member_id]
        on_their_way = {
            record.key.group
            for _, records in self.waiting
            for record in records
            if isinstance(record.key, OffsetCommitKey) and record.value is not None
        }
        self.shard.handle_timeout(self.now_ms)
        for record in (record for records in self.drain() for record in records):
            if isinstance(record.key, GroupMetadataKey) and record.value is None:
                self.counts["expired"] += 1
                if record.key.group in on_their_way:
                    raise violated("expiration", f"{record.key.group} expires while offsets of it are on their way")

    # -- rules -------------------------------------------------------------------------------------------------------

    def check(self) -> None:
        for group_id, offsets in self.offsets.items():
            found = {key: committed.offset for key, committed in self.shard.committed(group_id).items()}
            if found != offsets:
                raise violated("durable offsets", f"{group_id} has {found}, the log has {offsets}")
        for group_id in _SIMPLE:
            if self.shard.committed(group_id) and group_id not in self.offsets:
                raise violated("durable offsets", f"{group_id} has offsets that are not in the log")
            if group_id in self.shard._groups and group_id not in self.stored:
                raise violated("durable groups", f"{group_id} exists, and the log has nothing of it")
        consuming: dict[tuple[str, int], str] = {}
        for member_id, consumer in self.consumers.items():
            for owned in ((name, index) for name, indexes in consumer.owned.items() for index in indexes):
                if consuming.setdefault(owned, member_id) != member_id:
                    raise violated("NGRP-42", f"{owned} is consumed by {consuming[owned]} and by {member_id}")
        group = self.group()
        if group is None:
            return
        owners: dict[tuple[Any, int], str] = {}
        for member_id, member in group.members.items():
            has: set[tuple[Any, int]] = set()
            for parts in (member.assigned, member.pending_revocation):
                has |= {(name, index) for name, indexes in parts.items() for index in indexes}
            for owned in has:
                if owners.setdefault(owned, member_id) != member_id:
                    raise violated("NGRP-42", f"{owned} is of {owners[owned]} and of {member_id}")
            consumer = self.consumers.get(member_id)
            if consumer is not None and member.epoch > 0:
                own = {(topic_id(name), index) for name, indexes in consumer.owned.items() for index in indexes}
                if not own <= has:
                    raise violated("NGRP-42", f"{member_id} owns {own}, the coordinator knows of {has}")

    def play(self) -> Counter[str]:
        """Run the history.

        Returns:
            How often what happened.

        Raises:
            InvariantViolationError: A rule is broken.
        """
        names, weights = list(self.weights), list(self.weights.values())
        for name in self.rng.choices(names, weights, k=STEPS):
            getattr(self, name)()
            while len(self.waiting) > self.most_waiting:
                self.disk_takes()
            self.check()
        return self.counts
