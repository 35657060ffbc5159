"""Drawn histories of a replica fetcher: several partitions, one leader, elections, late metadata and lost answers.

The leader, its fetch sessions and both logs are models; all that the fetcher decides is the product's. Logs are lists
of (epoch, value), their positions offsets. Records below ``committed`` are on the follower as well while it is in sync.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from random import Random
from typing import Any

from kraftlog.errors import ErrorCode
from kraftlog.partition.replica_fetcher import (
    Answer,
    Asked,
    FetcherState,
    FetchRound,
    FetchStart,
    Next,
    NextStep,
    ReplicaFetcher,
    truncation_offset,
)
from kraftlog.testing.log_invariants import InvariantViolationError
from kraftlog.types import Uuid

STEPS = 300
BACKOFF_MS = 10
_LAST_TURNS = 400
_NO_EPOCH = -1
# What a leader may answer for a moment, although nothing is wrong with the request.
_PASSING = (ErrorCode.KAFKA_STORAGE_ERROR, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_LEADER_EPOCH)

Key = tuple[Uuid, int]
Record = tuple[int, int]


def violated(rule: str, reason: str) -> InvariantViolationError:
    return InvariantViolationError(rule, reason, [])


def epoch_end(log: list[Record], start: int, epoch: int) -> tuple[int, int]:
    """The largest epoch of a log not above ``epoch``, and its end; that of an older one ends where the log starts."""
    if start >= len(log) or log[-1][0] == _NO_EPOCH:
        return (-1, -1)
    if epoch < log[start][0]:
        return (epoch, start)
    end = max(offset for offset in range(start, len(log)) if log[offset][0] <= epoch) + 1
    return (log[end - 1][0], end)


@dataclass(slots=True, eq=False)
class Topic:
    """One partition: the log of its leader, which may be the follower itself, and that of the follower.

    Attributes:
        has_epochs: Whether its records have leader epochs; those of the oldest formats have none.
        leader: The leader that the fetcher follows, another one, or the follower.
        known: Leader and epoch, as the follower was told.
        acknowledged: What the leader of this epoch knows that the follower has.
    """

    key: Key
    has_epochs: bool
    log: list[Record] = field(default_factory=list)
    start: int = 0
    epoch: int = 1
    leader: str = "leader"
    committed: int = 0
    own: list[Record] = field(default_factory=list)
    own_start: int = 0
    own_high_watermark: int = 0
    flushed: int = 0
    is_in_sync: bool = False
    acknowledged: int = 0
    known: tuple[str, int] = ("", 0)

    @property
    def own_last_epoch(self) -> int:
        return self.own[-1][0] if len(self.own) > self.own_start else _NO_EPOCH

    def is_prefix(self) -> bool:
        """Whether the follower's log is a part of the leader's, as far as both reach back."""
        first = max(self.start, self.own_start)
        return self.own[first:] == self.log[first : len(self.own)]


class FetcherHistory:
    """One history; ``play`` runs it.

    Args:
        seed: Of all chance.
    """

    def __init__(self, seed: int) -> None:
        self.rng = rng = Random(f"{seed}/fetcher")
        self.counts: Counter[str] = Counter()
        self.now_ms = 0
        self.values = 0
        self.fetcher = ReplicaFetcher(BACKOFF_MS)
        self.topics = {
            key: Topic(key, has_epochs=rng.random() < 0.8)
            for key in ((Uuid(bytes([number] * 16)), 0) for number in range(1, rng.randint(2, 5)))
        }
        self.has_sessions = rng.random() < 0.6
        self.served_at_once = rng.randint(1, 3)
        self.is_calm = False
        # The leader's session.
        self.session_id = self.session_epoch = 0
        self.session: dict[Key, Asked] = {}
        self.sessions = 0
        # What the fetcher has told of, whether the leader has it or not.
        self.told: dict[Key, Asked] = {}
        # Since when a partition is paused, which epoch of it was fenced, and how often others were served instead.
        self.paused: dict[Key, int] = {}
        self.fenced: dict[Key, int] = {}
        self.passed_over: Counter[Key] = Counter()
        self.first_steps: list[Next] = []
        self.loop = self.run_loop()
        # The chances of what disturbs, of each run its own.
        self.unrest = {name: rng.choice((0.0, 0.02, 0.1, 0.3)) for name in ("error", "loss", "odd", "forget", "raise")}
        names = ("turn", "produce", "commit", "elect", "learn", "retain", "leave", "time")
        self.weights = {name: rng.choice((1, 2, 4)) for name in names} | {"turn": 12}

    # -- the loop, as the shell of a fetcher has it: one thing at a time, metadata between any two ------------------

    def run_loop(self) -> Iterator[None]:
        while True:
            steps, self.first_steps = self.first_steps, []
            for step in steps:
                yield from self.carry_out(step, None)
            asked = self.ask()
            yield
            if asked is None:
                continue
            outcome = self.answer(asked)
            yield
            if self.rng.random() < self.chance("loss"):
                self.fail()
                continue
            if isinstance(outcome, int):
                self.refuse(outcome)
                continue
            session_id, answers, data = outcome
            steps = self.take(session_id, answers, data)
            if steps and self.rng.random() < self.chance("raise"):
                # An unexpected error: the shell begins anew with what it had to do, but for appends.
                self.now_ms += self.rng.randrange(BACKOFF_MS)
                self.fail()
                self.first_steps += [step for step in steps if step.step is not NextStep.APPEND]
                continue
            for step in steps:
                yield from self.carry_out(step, data.get(step.key))

    def chance(self, name: str) -> float:
        return 0.0 if self.is_calm else self.unrest[name]

    def ask(self) -> FetchRound | None:
        found = self.fetcher.next_round(self.now_ms)
        told = self.told
        if found is not None:
            told = {} if not found.session_epoch else told
            for key in found.forgotten:
                told.pop(key, None)
            told |= {asked.key: asked for asked in found.partitions}
            self.told = told
        for key in list(self.paused):
            if self.now_ms >= self.paused[key] + BACKOFF_MS and self.fetcher.state(key) is FetcherState.FETCHING:
                del self.paused[key]
            elif found is not None and key in told and told[key].leader_epoch == self.fetcher.leader_epoch(key):
                raise violated("RINV-39", f"{key} is asked for {self.now_ms - self.paused[key]} ms after its refusal")
        for key in self.fetcher:
            is_due = self.fetcher.state(key) is FetcherState.FETCHING and key not in self.paused
            if is_due and (found is None or key not in told):
                raise violated("RFET-68", f"{key} is not asked for, though nothing keeps it")
        for key, asked in told.items():
            if found is not None and self.fenced.get(key) == asked.leader_epoch:
                raise violated("RFET-38", f"{key} is fenced in epoch {asked.leader_epoch}, and is asked for")
            if asked.fetch_offset > self.topics[key].flushed and found is not None and asked in found.partitions:
                raise violated("durable answers", f"{key} acknowledges {asked.fetch_offset} and may lose it")
        return found

    # -- the leader -----------------------------------------------------------------------------------------------

    def answer(self, asked: FetchRound) -> Any:
        """An error code, or session id, answers and what comes with each."""
        self.counts["requests"] += 1
        if self.rng.random() < self.chance("forget"):
            self.session_id, self.session = 0, {}
        if asked.session_epoch:
            if asked.session_id != self.session_id or not self.session_id:
                return int(ErrorCode.FETCH_SESSION_ID_NOT_FOUND)
            if asked.session_epoch != self.session_epoch:
                return int(ErrorCode.INVALID_FETCH_SESSION_EPOCH)
            for key in asked.forgotten:
                self.session.pop(key, None)
        else:
            self.session = {}
            self.sessions += self.has_sessions
            self.session_id = self.sessions if self.has_sessions else 0
            self.session_epoch = 0
        self.session_epoch += 1
        self.session |= {each.key: each for each in asked.partitions}
        is_full = not asked.session_epoch
        answers: list[Answer] = []
        data: dict[Key, Any] = {}
        left = self.served_at_once
        for key, each in list(self.session.items()):
            answer, records = self.answer_one(self.topics[key], each)
            if records and left:
                left -= 1
                self.passed_over[key] = 0
                # As Kafka's leader does: who was served goes behind the others.
                self.session[key] = self.session.pop(key)
            elif records:
                self.passed_over[key] += 1
                if self.passed_over[key] > 3 * len(self.topics):
                    raise violated("RFET-18", f"{key} has not been served for {self.passed_over[key]} requests")
                records = []
            answers.append(answer)
            data[key] = (each, records, self.topics[key].start, answer.high_watermark)
        if not is_full:
            answers = [answer for answer in answers if self.says_something(answer, data[answer.key])]
        if self.rng.random() < self.chance("odd"):
            self.counts["odd answer"] += 1
            odd = self.rng.choice(list(self.topics))
            if odd not in self.session:
                answers.append(Answer(key=odd, error_code=0, high_watermark=0))
                data[odd] = (None, [], 0, 0)
            elif is_full:
                answers = answers[1:]
        return self.session_id, answers, data

    def says_something(self, answer: Answer, data: Any) -> bool:
        return bool(answer.error_code or answer.diverging_epoch or data[1] or self.rng.random() < 0.5)

    def answer_one(self, topic: Topic, asked: Asked) -> tuple[Answer, list[Record]]:
        def refused(code: int) -> tuple[Answer, list[Record]]:
            self.counts[f"error {code}"] += 1
            return Answer(key=topic.key, error_code=int(code), high_watermark=-1), []

        if self.rng.random() < self.chance("error"):
            return refused(self.rng.choice(_PASSING))
        if topic.leader != "leader":
            return refused(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if asked.leader_epoch < topic.epoch:
            return refused(ErrorCode.FENCED_LEADER_EPOCH)
        if not topic.start <= asked.fetch_offset <= len(topic.log):
            return refused(ErrorCode.OFFSET_OUT_OF_RANGE)
        if asked.last_fetched_epoch >= 0:
            epoch, end = epoch_end(topic.log, topic.start, asked.last_fetched_epoch)
            if epoch == _NO_EPOCH:
                epoch, end = asked.last_fetched_epoch, topic.start
            if epoch < asked.last_fetched_epoch or end < asked.fetch_offset:
                self.counts["diverging"] += 1
                return (
                    Answer(key=topic.key, error_code=0, high_watermark=topic.committed, diverging_epoch=(epoch, end)),
                    [],
                )
        topic.acknowledged = asked.fetch_offset
        records = topic.log[asked.fetch_offset : asked.fetch_offset + self.rng.randint(1, 3)]
        return Answer(key=topic.key, error_code=0, high_watermark=topic.committed), records

    # -- answers ----------------------------------------------------------------------------------------------------

    def fail(self) -> None:
        self.counts["failed"] += 1
        self.fetcher.handle_failure(self.now_ms)
        for key in self.told:
            if key in self.fetcher:
                self.paused.setdefault(key, self.now_ms)

    def refuse(self, code: int) -> None:
        self.counts["refused"] += 1
        self.fetcher.handle_refusal(code, self.now_ms)

    def take(self, session_id: int, answers: list[Answer], data: dict[Key, Any]) -> list[Next]:
        expected = {
            answer.key: answer
            for answer in answers
            if answer.key in self.fetcher
            and self.fetcher.state(answer.key) is FetcherState.FETCHING
            and data[answer.key][0] is not None
            and self.fetcher.leader_epoch(answer.key) == data[answer.key][0].leader_epoch
            and answer.key not in self.paused
        }
        before = {key: self.fetcher.state(key) for key in self.fetcher}
        steps = self.fetcher.handle_answer(session_id, answers, self.now_ms)
        is_taken = all(answer.key in self.session for answer in answers) or bool(steps)
        for key, answer in expected.items():
            code = answer.error_code
            if code == ErrorCode.FENCED_LEADER_EPOCH and self.fetcher.state(key) is not before[key]:
                self.fenced[key] = data[key][0].leader_epoch
            elif code == ErrorCode.FENCED_LEADER_EPOCH and is_taken and not self.was_dropped(answers):
                raise violated("RFET-38", f"{key} is fenced, and is {self.fetcher.state(key)}")
            elif code and code != ErrorCode.OFFSET_OUT_OF_RANGE and is_taken and not self.was_dropped(answers):
                self.paused.setdefault(key, self.now_ms)
        return steps

    def was_dropped(self, answers: list[Answer]) -> bool:
        """Whether an answer does not fit the session: a full one names all of it, and none names anything else."""
        named = {answer.key for answer in answers}
        return not named <= self.session.keys() or (self.session_epoch == 1 and named != self.session.keys())

    def carry_out(self, step: Next | None, data: Any) -> Iterator[None]:
        while step is not None:
            topic = self.topics[step.key]
            match step.step:
                case NextStep.APPEND:
                    yield from self.append(topic, step, data)
                    return
                case NextStep.ASK_END | NextStep.ASK_START:
                    yield
                    step = self.ask_offset(topic, step)
                case NextStep.FLUSH:
                    topic.flushed = len(topic.own)
                    yield
                    end, epoch = len(topic.own), topic.own_last_epoch
                    self.fetcher.on_cut(step.key, step.leader_epoch, log_end_offset=end, last_epoch=epoch)
                    return
                case _:
                    yield from self.cut(topic, step)
                    return

    def append(self, topic: Topic, step: Next, data: Any) -> Iterator[None]:
        asked, records, start, high_watermark = data
        if topic.known != ("leader", step.leader_epoch):
            return  # the partition has another leader by now
        if asked is None or asked.fetch_offset != len(topic.own) or step.offset != len(topic.own):
            raise violated("RFET-26", f"{step.key} ends at {len(topic.own)}, and gets what is behind {asked}")
        topic.own += records
        topic.flushed = len(topic.own)
        topic.own_start = min(max(topic.own_start, start), len(topic.own))
        topic.own_high_watermark = min(high_watermark, len(topic.own))
        self.counts["appended"] += len(records)
        if topic.epoch == step.leader_epoch and not topic.is_prefix():
            raise violated("RINV-14", f"{step.key}: {topic.own} is appended from {topic.log}")
        end, epoch, own_start = len(topic.own), topic.own_last_epoch, topic.own_start
        yield
        self.fetcher.on_appended(
            step.key, step.leader_epoch, log_end_offset=end, log_start_offset=own_start, last_epoch=epoch
        )

    def ask_offset(self, topic: Topic, step: Next) -> Next | None:
        self.counts["out of range"] += 1
        code, offset = 0, topic.start if step.step is NextStep.ASK_START else len(topic.log)
        if self.rng.random() < self.chance("error"):
            code, offset = int(self.rng.choice(_PASSING)), -1
        elif topic.leader != "leader":
            code, offset = int(ErrorCode.NOT_LEADER_OR_FOLLOWER), -1
        elif step.leader_epoch < topic.epoch:
            code, offset = int(ErrorCode.FENCED_LEADER_EPOCH), -1
        is_expected = (
            self.fetcher.leader_epoch(step.key) == step.leader_epoch
            and self.fetcher.state(step.key) is FetcherState.ASKING
        )
        if is_expected and code == ErrorCode.FENCED_LEADER_EPOCH:
            self.fenced[step.key] = step.leader_epoch
        elif is_expected and code:
            self.paused.setdefault(step.key, self.now_ms)
        handle = self.fetcher.handle_leader_end
        if step.step is NextStep.ASK_START:
            handle = self.fetcher.handle_leader_start
        end = len(topic.own)
        return handle(
            step.key, step.leader_epoch, error_code=code, offset=offset, log_end_offset=end, now_ms=self.now_ms
        )

    def cut(self, topic: Topic, step: Next) -> Iterator[None]:
        if topic.known != ("leader", step.leader_epoch):
            return
        offset, end = step.offset, len(topic.own)
        self.counts["cut"] += 1
        if step.step is NextStep.RESTART:
            topic.own = [(_NO_EPOCH, 0)] * offset
            topic.own_start = offset
        else:
            if step.step is NextStep.DIVERGED:
                own_end = epoch_end(topic.own, topic.own_start, step.epoch)
                own_end = (-1, -1) if own_end[1] <= topic.own_start else own_end
                offset = truncation_offset(
                    diverging_epoch=step.epoch,
                    leader_end=step.offset,
                    own_end=own_end,
                    log_end_offset=end,
                    fetch_offset=topic.own_high_watermark,
                )
            del topic.own[offset:]
        topic.own_start = min(topic.own_start, len(topic.own))
        topic.flushed = len(topic.own)
        topic.own_high_watermark = min(topic.own_high_watermark, len(topic.own))
        end, epoch = len(topic.own), topic.own_last_epoch
        yield
        self.fetcher.on_cut(step.key, step.leader_epoch, log_end_offset=end, last_epoch=epoch)

    # -- what else happens --------------------------------------------------------------------------------------------

    def turn(self, _topic: Topic) -> None:
        next(self.loop)

    def produce(self, topic: Topic) -> None:
        log = topic.own if topic.leader == "follower" else topic.log
        if topic.leader == "follower" and topic.known != ("follower", topic.epoch):
            return
        for _ in range(self.rng.randint(1, 4)):
            self.values += 1
            log.append((topic.epoch if topic.has_epochs else _NO_EPOCH, self.values))
        if topic.leader == "follower":
            topic.log = list(topic.own)

    def commit(self, topic: Topic) -> None:
        """The high watermark rises as far as all members of the in-sync set are known to be."""
        end = len(topic.log)
        if topic.leader == "follower" and topic.known != ("follower", topic.epoch):
            return
        if topic.leader == "leader":
            if topic.acknowledged >= topic.committed and topic.known == ("leader", topic.epoch) and topic.is_prefix():
                topic.is_in_sync = topic.is_in_sync or self.rng.random() < 0.5
            end = topic.acknowledged if topic.is_in_sync else end
        elif topic.leader == "other" and topic.is_in_sync:
            return
        if end > topic.committed:
            topic.committed = self.rng.randint(topic.committed, end)
        if topic.leader == "follower":
            topic.own_high_watermark = topic.committed

    def elect(self, topic: Topic) -> None:
        can_lead = topic.is_in_sync and topic.known[0] != "" and len(topic.own) >= topic.committed
        # Without epochs a follower cuts to its high watermark, and may lose what is committed (KIP-101).
        can_lead = can_lead and topic.has_epochs and topic.own_start <= topic.start
        leader = self.rng.choice(("leader", "leader", "other", "follower") if can_lead else ("leader", "other"))
        if leader == "follower":
            topic.log = list(topic.own)
        elif leader != topic.leader:
            topic.log = topic.log[: self.rng.randint(max(topic.committed, topic.start), len(topic.log))]
        topic.leader, topic.epoch, topic.acknowledged = leader, topic.epoch + self.rng.choice((1, 1, 2)), 0
        self.counts["elected"] += 1
        if self.rng.random() < 0.5:
            self.learn(topic)

    def learn(self, topic: Topic) -> None:
        """The follower is told the newest metadata."""
        if topic.known == (topic.leader, topic.epoch):
            return
        topic.known = topic.leader, topic.epoch
        self.counts["learned"] += 1
        key = topic.key
        if topic.leader == "follower":
            # Until now it may have cut off what only it had, for the leader before.
            topic.log = list(topic.own)
        if topic.leader != "leader":
            if key in self.fetcher:
                self.fetcher.remove(key)
            self.paused.pop(key, None)
            self.fenced.pop(key, None)
            return
        self.paused.pop(key, None)
        self.passed_over[key] = 0
        is_durable = topic.flushed >= len(topic.own)
        step = self.fetcher.add(
            FetchStart(
                key=key,
                leader_epoch=topic.epoch,
                log_end_offset=len(topic.own),
                log_start_offset=topic.own_start,
                high_watermark=topic.own_high_watermark,
                last_epoch=topic.own_last_epoch,
                is_acknowledgeable=is_durable,
            )
        )
        if step is not None:
            self.first_steps.append(step)

    def retain(self, topic: Topic) -> None:
        """Retention removes the beginning of what is committed."""
        if topic.leader != "follower" and topic.committed > topic.start:
            topic.start = self.rng.randint(topic.start, topic.committed)

    def leave(self, topic: Topic) -> None:
        """The follower leaves the in-sync set."""
        topic.is_in_sync = topic.is_in_sync and topic.leader == "follower"

    def time(self, _topic: Topic) -> None:
        self.now_ms += self.rng.randrange(2 * BACKOFF_MS)

    def check(self) -> None:
        for topic in self.topics.values():
            if topic.is_in_sync and topic.has_epochs:
                first = max(topic.start, topic.own_start)
                if topic.own[first : topic.committed] != topic.log[first : topic.committed]:
                    raise violated(
                        "RINV-01", f"{topic.key} is in sync, and lost some of {topic.log[: topic.committed]}"
                    )

    def play(self) -> Counter[str]:
        """Run the history, then let it be calm: the follower has to have all that the leader has.

        Returns:
            How often what happened.

        Raises:
            InvariantViolationError: A rule is broken.
        """
        names, weights = list(self.weights), list(self.weights.values())
        for name in self.rng.choices(names, weights, k=STEPS):
            getattr(self, name)(self.rng.choice(list(self.topics.values())))
            self.check()
        self.is_calm = True
        for topic in self.topics.values():
            if topic.leader != "leader":
                topic.leader, topic.epoch = "leader", topic.epoch + 1
            self.learn(topic)
        for _ in range(_LAST_TURNS):
            self.now_ms += 1
            next(self.loop)
            self.check()
        for topic in self.topics.values():
            if len(topic.own) != len(topic.log) or not topic.is_prefix():
                state = self.fetcher.state(topic.key)
                raise violated("RINV-36", f"{topic.key} is {state}: it has {topic.own} of {topic.log}")
        return self.counts
