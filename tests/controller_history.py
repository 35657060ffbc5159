"""Drawn histories of the active controller: brokers come, go, fail and change in-sync sets; operators reassign.

After each request the change of every partition is compared with what was there before, and each answer with what the
controller knew when it was asked. No replica runs: what partitions lose or keep is the business of other histories.
"""

from __future__ import annotations

from collections import Counter
from random import Random
from typing import Any

from kraftlog.controller import ControllerConfig, ControllerCore
from kraftlog.controller.operations import operation_of
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.features import LATEST_PRODUCTION, metadata_version
from kraftlog.testing.log_invariants import InvariantViolationError
from kraftlog.types import Uuid
from kraftlog.wire.messages.alter_partition import AlterPartitionRequest
from kraftlog.wire.messages.alter_partition_reassignments import AlterPartitionReassignmentsRequest
from kraftlog.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from kraftlog.wire.messages.elect_leaders import ElectLeadersRequest
from metadata_fixture import CLUSTER_ID, Cluster

STEPS = 150
BROKERS = (1, 2, 3, 4, 5)
SESSION_MS = 9_000
RECOVERING = 1
# From 3.6-IV0 on a smaller in-sync set is no new leader epoch.
NO_EPOCH_FROM = 12
# 3.4-IV0, 3.5-IV2, 3.9-IV0, 4.0-IV3 and the newest.
VERSIONS = (8, 11, 21, 25, LATEST_PRODUCTION.feature_level)


def violated(rule: str, reason: str) -> InvariantViolationError:
    return InvariantViolationError(rule, reason, [])


class ControllerHistory:
    """One history; ``play`` runs it.

    Args:
        seed: Of all chance.
    """

    def __init__(self, seed: int) -> None:
        self.rng = rng = Random(f"{seed}/controller")
        self.counts: Counter[str] = Counter()
        self.version = metadata_version(rng.choice(VERSIONS))
        self.cluster = Cluster(self.version)
        self.now_ms = 0
        self.incarnations = dict.fromkeys(BROKERS, 0)
        # When the active controller last heard of each broker, or began to be the active one.
        self.heard_ms: dict[int, int] = {}
        self.epochs: dict[int, int] = {}
        # Processes that want to end, and those that have.
        self.leaving: set[int] = set()
        self.ended: set[int] = set()
        self.directories = {broker_id: [_directory(broker_id, 0), _directory(broker_id, 1)] for broker_id in BROKERS}
        self.min_isr = {"safe": 2, "unclean": rng.choice((1, 2))}
        self.cluster.core = self._controller()
        self.is_unclean_asked, self.joined = False, set()
        for broker_id in BROKERS:
            self.register(broker_id)
            self.heartbeat(broker_id, current_metadata_offset=self.image.offset)
        for name, least in self.min_isr.items():
            is_unclean = str(name == "unclean").lower()
            configs = {"min.insync.replicas": str(least), "unclean.leader.election.enable": is_unclean}
            assignments = [(index, rng.sample(BROKERS, 3)) for index in range(3)]
            self.cluster.create(name, assignments=assignments, configs=configs)

    @property
    def image(self) -> Any:
        return self.cluster.image

    @property
    def is_elr_enabled(self) -> bool:
        return self.image.features.get("eligible.leader.replicas.version", 0) > 0

    def _controller(self) -> ControllerCore:
        config = ControllerConfig(cluster_id=CLUSTER_ID, broker_session_timeout_ms=SESSION_MS)
        return ControllerCore(config, self.cluster.core.image, rng=Random(1))

    def partitions(self) -> dict[tuple[str, int], Any]:
        return {
            (topic.name, index): partition
            for topic in self.image.topics.all()
            for index, partition in topic.partitions.items()
        }

    def run(self, outcome: Any) -> Any:
        """Run an operation to its end, and look at what it made of every partition."""
        before = self.partitions()
        response = self.cluster.run(outcome)
        self.check(before)
        return response

    def ask(self, request: Any) -> Any:
        return self.run(operation_of(request).begin(self.cluster.core, request, self.now_ms))

    # -- requests ------------------------------------------------------------------------------------------------

    def register(self, broker_id: int) -> None:
        """A process begins; one in three knows that the one before ended cleanly."""
        known = self.image.cluster.brokers.get(broker_id)
        is_alive = known is not None and self.now_ms - self.heard_ms.get(broker_id, -SESSION_MS) < SESSION_MS
        is_again = known is not None and broker_id not in self.ended and self.rng.random() < 0.2
        self.incarnations[broker_id] += not is_again
        previous = known.epoch if known is not None and self.rng.random() < 0.3 else -1
        # A directory that failed comes back with another process, never to the same one.
        directories = self.directories[broker_id]
        if not is_again:
            directories = [_directory(broker_id, 0), _directory(broker_id, 1)]
        request = self.cluster.registration(
            broker_id,
            incarnation=self.incarnations[broker_id],
            previous=previous,
            log_dirs=directories,
        )
        before = self.partitions()
        try:
            response = self.run(self.cluster.core.register_broker(request, self.now_ms))
        except KafkaError as error:
            self.incarnations[broker_id] -= not is_again
            if error.code != ErrorCode.DUPLICATE_BROKER_REGISTRATION:
                raise
            if not is_alive:
                raise violated("RINV-76", f"broker {broker_id} may not come back") from error
            return
        if is_alive and not is_again:
            raise violated("RINV-76", f"broker {broker_id} is alive, and another process took its id")
        found = self.image.cluster.brokers[broker_id].epoch
        if found != response.broker_epoch:
            raise violated("RINV-78", f"broker {broker_id} is told epoch {response.broker_epoch}, it is {found}")
        if is_again and found != known.epoch:
            raise violated("RINV-78", f"the same process of broker {broker_id} has a new epoch")
        if not is_again:
            # A session begins with the first heartbeat.
            self.heard_ms.pop(broker_id, None)
            self.counts["registered"] += 1
            self.leaving.discard(broker_id)
            self.ended.discard(broker_id)
            self.check_left(broker_id, before, is_unclean=previous < 0)
        self.epochs[broker_id], self.directories[broker_id] = response.broker_epoch, directories

    def check_left(self, broker_id: int, before: dict[tuple[str, int], Any], *, is_unclean: bool) -> None:
        """A broker that begins anew may be behind: it leads nothing, and is in sync nowhere but where it is alone."""
        for name, partition in self.partitions().items():
            if partition.leader == broker_id:
                raise violated("RINV-77", f"{name}: broker {broker_id} begins, and leads")
            if broker_id in partition.isr and (len(partition.isr) > 1 or self.is_elr_enabled):
                raise violated("RINV-77", f"{name}: broker {broker_id} begins, and is in sync: {partition}")
            if is_unclean and self.is_elr_enabled and broker_id in partition.elr:
                raise violated("RINV-28", f"{name}: broker {broker_id} may have lost data: {before[name]}, {partition}")

    def heartbeat(self, broker_id: int, **changes: Any) -> None:
        known = self.image.cluster.brokers.get(broker_id)
        if known is None or broker_id in self.ended:
            return
        if changes.get("want_shut_down"):
            self.leaving.add(broker_id)
        elif broker_id in self.leaving:
            changes = {**changes, "want_shut_down": True}
        offset = changes.get("current_metadata_offset", self.image.offset - self.rng.choice((0, 0, 0, 50)))
        registered = self.image.cluster.registration_offset(broker_id)
        is_leader = any(partition.leader == broker_id for partition in self.partitions().values())
        values = {"broker_id": broker_id, "broker_epoch": self.epochs[broker_id], "current_metadata_offset": offset}
        request = BrokerHeartbeatRequest(**(values | changes))
        response = self.run(self.cluster.core.broker_heartbeat(request, self.now_ms))
        self.heard_ms[broker_id] = self.now_ms
        now = self.image.cluster.brokers[broker_id]
        if not changes and offset >= registered and now.fenced and not response.should_shut_down:
            raise violated("RINV-79", f"broker {broker_id} has caught up and stays fenced")
        if known.fenced and not now.fenced and offset < registered:
            raise violated("RINV-79", f"broker {broker_id} has not caught up and is not fenced any more")
        if response.should_shut_down:
            self.counts["shut down"] += 1
            self.ended.add(broker_id)
            self.heard_ms.pop(broker_id, None)
            if is_leader:
                raise violated("RINV-79", f"broker {broker_id} may end, and led until now")

    def fence_silent(self) -> None:
        """What recurs: look for sessions that are over, and elect where that is allowed to be unclean."""
        while self.cluster.core.sessions.has_expired(self.now_ms):
            broker_id = self.run(self.cluster.core.fence_silent_broker(self.now_ms))
            if broker_id is None:
                continue
            silent_ms = self.now_ms - self.heard_ms.get(broker_id, 0)
            if silent_ms < SESSION_MS:
                raise violated("sessions", f"broker {broker_id} is fenced {silent_ms} ms after it was heard of")
            self.counts["fenced"] += 1

    def move(self) -> None:
        """Another controller becomes active; it knows the metadata and has heard of nobody."""
        self.cluster.core = self._controller()
        self.run(self.cluster.core.activate(self.cluster.bootstrap.records, self.now_ms))
        for broker_id, broker in self.image.cluster.brokers.items():
            self.heard_ms.pop(broker_id, None)
            if not broker.fenced:
                self.heard_ms[broker_id] = self.now_ms

    def alter(self) -> None:
        """A leader, or a broker that was or never will be one, wants an in-sync set; it may know too much or little."""
        rng = self.rng
        (name, index), partition = rng.choice(sorted(self.partitions().items()))
        is_right = rng.random() < 0.6
        broker_id = partition.leader if is_right or rng.random() < 0.7 else rng.choice(BROKERS)
        if broker_id not in self.epochs:
            return
        wrong = [0, 0, 0] if is_right else [rng.choice((0, 0, -1, 1)) for _ in range(3)]
        pool = partition.replicas if is_right or rng.random() < 0.8 else BROKERS
        isr = sorted(rng.sample(pool, rng.randrange(1, len(pool) + 1)))
        if is_right or rng.random() < 0.7:
            isr = sorted({*isr, partition.leader})
        state = partition.leader_recovery_state
        if state and len(isr) > 1 and rng.random() < 0.7:
            state = 0
        members = [(member, self.epochs.get(member, 0) + wrong[2] * rng.randrange(2)) for member in isr]
        wanted = AlterPartitionRequest.PartitionData(
            partition_index=index,
            leader_epoch=partition.leader_epoch + wrong[0],
            new_isr_with_epochs=[
                AlterPartitionRequest.BrokerState(broker_id=member, broker_epoch=epoch) for member, epoch in members
            ],
            leader_recovery_state=state,
            partition_epoch=partition.partition_epoch + wrong[1],
        )
        topic_id = self.image.topics.by_name(name).topic_id
        topic = AlterPartitionRequest.TopicData(topic_id=topic_id, partitions=[wanted])
        # Another leader of the same request, one that is a moment too late.
        again = AlterPartitionRequest.TopicData(topic_id=topic_id, partitions=[wanted])
        epoch = self.epochs[broker_id]
        self.joined = set(isr)
        brokers = dict(self.image.cluster.brokers)
        for number, data in enumerate((topic, again)):
            request = AlterPartitionRequest(broker_id=broker_id, broker_epoch=epoch, topics=[data])
            try:
                response = self.run(self.cluster.core.alter_partition(request))
            except KafkaError:
                return
            code = response.topics[0].partitions[0].error_code
            if code in {ErrorCode.NONE, ErrorCode.NEW_LEADER_ELECTED} and partition.leader not in isr:
                raise violated("RINV-26", f"{name}-{index}: an in-sync set without the leader is taken: {wanted}")
            if code == ErrorCode.NEW_LEADER_ELECTED:
                return
            if code == ErrorCode.NONE:
                self.counts["altered"] += 1
                self.check_altered((name, index), partition, broker_id, wanted, brokers)
            elif number == 0 and wrong[0] > 0 and code != ErrorCode.NOT_CONTROLLER:
                raise violated("RINV-67", f"{name}-{index}: a leader that knows more is answered {code}")
            elif number == 0 and is_right and code and self.is_plain(partition, members, state, brokers):
                raise violated("RINV-34", f"{name}-{index}: a right change to {isr} is answered {code}")
            partition = self.partitions()[name, index]
            if number == 0 and partition.partition_epoch == wanted.partition_epoch:
                return

    def is_plain(self, partition: Any, members: list[tuple[int, int]], state: int, brokers: dict[int, Any]) -> bool:
        are_alive = all(
            member in brokers
            and not brokers[member].fenced
            and not brokers[member].in_controlled_shutdown
            and brokers[member].epoch == epoch
            for member, epoch in members
        )
        return are_alive and (not state or len(members) == 1)

    def check_altered(self, name: Any, before: Any, broker_id: int, wanted: Any, brokers: dict[int, Any]) -> None:
        if wanted.partition_epoch != before.partition_epoch or wanted.leader_epoch != before.leader_epoch:
            raise violated("RINV-22", f"{name}: a change of {wanted} is taken, behind {before}")
        if broker_id != before.leader:
            raise violated("RINV-25", f"{name}: broker {broker_id} changes what broker {before.leader} leads")
        for member in wanted.new_isr_with_epochs:
            broker = brokers[member.broker_id]
            if member.broker_id not in before.isr and (broker.fenced or broker.in_controlled_shutdown):
                raise violated("RINV-62", f"{name}: {member.broker_id} is in sync, and {broker}")
            if member.broker_epoch not in {-1, broker.epoch}:
                raise violated("RINV-60", f"{name}: {member} is in sync, its process is another one by now")
        if wanted.leader_recovery_state == RECOVERING and len(wanted.new_isr_with_epochs) > 1:
            raise violated("RINV-29", f"{name}: others are in sync with a leader that recovers")

    def reassign(self, *, is_cancel: bool) -> None:
        name = self.rng.choice(sorted(self.min_isr))
        replicas = None if is_cancel else self.rng.sample(BROKERS, self.rng.choice((2, 3, 3)))
        partition = AlterPartitionReassignmentsRequest.ReassignablePartition(
            partition_index=self.rng.randrange(3), replicas=replicas
        )
        topic = AlterPartitionReassignmentsRequest.ReassignableTopic(name=name, partitions=[partition])
        answer = self.ask(AlterPartitionReassignmentsRequest(topics=[topic]))
        self.counts["reassigned"] += not answer.responses[0].partitions[0].error_code

    def elect(self, kind: int) -> None:
        topics = [ElectLeadersRequest.TopicPartitions(topic=name, partitions=[0, 1, 2]) for name in self.min_isr]
        self.is_unclean_asked = kind == 1
        self.ask(ElectLeadersRequest(election_type=kind, topic_partitions=topics))

    def lose_directory(self, broker_id: int) -> None:
        """A directory fails; the broker stays, and says so."""
        lost = self.directories[broker_id][self.rng.randrange(len(self.directories[broker_id]))]
        if len(self.directories[broker_id]) > 1:
            self.directories[broker_id].remove(lost)
            self.heartbeat(broker_id, offline_log_dirs=[lost])
            self.counts["lost directory"] += 1

    # -- the history ---------------------------------------------------------------------------------------------

    def step(self) -> None:
        rng, broker_id = self.rng, self.rng.choice(BROKERS)
        self.is_unclean_asked, self.joined = False, set()
        match rng.choices(range(11), (25, 4, 5, 6, 10, 5, 40, 6, 2, 4, 2))[0]:
            case 0:
                self.heartbeat(broker_id)
            case 1:
                self.heartbeat(broker_id, want_fence=True)
            case 2:
                self.heartbeat(broker_id, want_shut_down=True)
            case 3:
                self.register(broker_id)
            case 4:
                for _ in range(rng.choice((1, 1, 3, 11))):
                    self.now_ms += SESSION_MS // 9 - 1
                    self.fence_silent()
            case 5 if rng.random() < 0.8:
                for other in BROKERS:
                    self.heartbeat(other)
            case 5:
                self.move()
            case 6:
                self.alter()
            case 7:
                self.reassign(is_cancel=False)
            case 8:
                self.reassign(is_cancel=True)
            case 9:
                self.elect(rng.choice((0, 0, 1)))
            case 10:
                self.lose_directory(broker_id)

    def can_lead(self, partition: Any, broker_id: int) -> bool:
        broker = self.image.cluster.brokers.get(broker_id)
        if broker is None or broker.fenced or broker.in_controlled_shutdown:
            return False
        return bool(broker.has_online_directory(partition.directory(broker_id)))

    def check(self, before: dict[tuple[str, int], Any]) -> None:
        """Every partition as it was and as it is."""
        for name, partition in self.partitions().items():
            self._check_state(name, partition)
            was = before.get(name)
            if was is not None and was is not partition and was != partition:
                self._check_change(name, was, partition)

    def _check_state(self, name: tuple[str, int], partition: Any) -> None:
        isr, elr, replicas = set(partition.isr), set(partition.elr), set(partition.replicas)
        if not isr | elr <= replicas or isr & elr or (partition.has_leader and partition.leader not in isr):
            raise violated("RINV-26", f"{name}: {partition}")
        if elr and (not self.is_elr_enabled or len(isr) >= self.min_isr[name[0]]):
            raise violated("RINV-26", f"{name}: eligible replicas, though enough are in sync: {partition}")
        if not isr and not self.is_elr_enabled:
            raise violated("RINV-26", f"{name}: nobody is in sync: {partition}")
        if partition.has_leader:
            broker = self.image.cluster.brokers.get(partition.leader)
            if broker is None or broker.fenced:
                raise violated("RINV-27", f"{name}: the leader is fenced: {partition}")
        fenced = {member for member in isr if self.image.cluster.brokers[member].fenced}
        if fenced and len(isr) > 1:
            raise violated("RINV-27", f"{name}: fenced brokers {fenced} are in sync: {partition}")
        if partition.leader_recovery_state == RECOVERING and len(isr) > 1:
            raise violated("RINV-29", f"{name}: others are in sync with a leader that recovers: {partition}")
        able = [member for member in (isr or elr) if self.can_lead(partition, member)]
        if not partition.has_leader and able:
            raise violated("RINV-34", f"{name}: nobody leads, {able} could: {partition}")
        if not partition.has_leader and not isr and not elr and len(partition.last_known_elr) == 1:
            last = partition.last_known_elr[0]
            if last in replicas and self.can_lead(partition, last):
                raise violated("RINV-34", f"{name}: nobody leads, the last known leader could: {partition}")

    def _check_change(self, name: tuple[str, int], was: Any, now: Any) -> None:
        if now.partition_epoch <= was.partition_epoch or now.leader_epoch < was.leader_epoch:
            raise violated("RINV-22", f"{name}: {was} became {now}")
        if now.leader != was.leader:
            if now.leader_epoch == was.leader_epoch:
                raise violated("RINV-21", f"{name}: another leader in the same epoch: {was} became {now}")
            self.counts["elected"] += now.has_leader
            if now.has_leader and now.leader not in {*was.isr, *was.elr, *self.joined}:
                self._check_unclean(name, was, now)
            if now.has_leader and not self.can_lead(now, now.leader):
                raise violated(
                    "RINV-27", f"{name}: {self.image.cluster.brokers[now.leader]} cannot lead: {was} became {now}"
                )
        elif now.leader_epoch != was.leader_epoch and self._needs_no_epoch(was, now):
            raise violated("RINV-80", f"{name}: a new epoch of the same leader: {was} became {now}")
        grown = set(now.elr) - {*was.isr, *was.elr, *self.joined}
        if grown:
            raise violated("RINV-28", f"{name}: {grown} are eligible, and may lack records: {was} became {now}")

    def _needs_no_epoch(self, was: Any, now: Any) -> bool:
        """Whether one change kept the leader and every replica, and no broker is so old that it needs an epoch."""
        is_one_change = now.partition_epoch == was.partition_epoch + 1
        return is_one_change and set(was.replicas) <= set(now.replicas) and self.version.feature_level >= NO_EPOCH_FROM

    def _check_unclean(self, name: tuple[str, int], was: Any, now: Any) -> None:
        if now.partition_epoch != was.partition_epoch + 1:
            return  # several changes within one request
        self.counts["unclean"] += 1
        # The eligible replicas that there were may have lost data within the same change.
        is_last_known = not was.isr and not now.elr and now.leader in was.last_known_elr
        if not (name[0] == "unclean" or self.is_unclean_asked or is_last_known):
            raise violated("RINV-23", f"{name}: {now.leader} leads and was not in sync: {was} became {now}")
        if now.leader_recovery_state != RECOVERING or set(now.isr) != {now.leader}:
            raise violated("RINV-29", f"{name}: an unclean leader is alone, and recovers: {was} became {now}")

    def play(self) -> Counter[str]:
        """Run the history.

        Raises:
            InvariantViolationError: A rule is broken.
        """
        for _ in range(STEPS):
            self.step()
        return self.counts


def _directory(broker_id: int, number: int) -> Uuid:
    return Uuid(bytes(13) + bytes([1, number, broker_id]))
