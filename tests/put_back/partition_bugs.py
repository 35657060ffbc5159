"""Bugs of replicated partitions: the controller's decisions and the followers'."""

from __future__ import annotations

from put_back.bug import Bug

ISR = "unit/controller/test_isr_control.py"
CHANGE = "unit/controller/test_partition_change.py"
BROKER = "unit/controller/test_broker_control.py"
STATES = "unit/controller/test_broker_states.py"
FETCHER = "unit/partition/test_replica_fetcher.py"

PARTITION_BUGS = (
    Bug(
        "KAFKA-14617 (RINV-60)",
        "controller.isr_control",
        "return broker_epoch in {_ANY_EPOCH, cluster.brokers[broker_id].epoch}",
        "return True",
        ISR,
    ),
    Bug(
        "KAFKA-13916 (RINV-62)",
        "controller.isr_control",
        "        if not cluster.is_active(broker_id):\n            return False\n",
        "",
        ISR,
    ),
    Bug(
        "KAFKA-14154 (RINV-67)",
        "controller.isr_control",
        "            return ErrorCode.NOT_CONTROLLER\n",
        "            return ErrorCode.FENCED_LEADER_EPOCH\n",
        ISR,
    ),
    Bug(
        "two changes of one partition epoch are both taken (RINV-22)",
        "controller.isr_control",
        "        if wanted.partition_epoch < partition.partition_epoch:\n"
        "            return ErrorCode.INVALID_UPDATE_VERSION\n",
        "",
        ISR,
    ),
    Bug(
        "a leader of an earlier epoch changes the in-sync set (RINV-25)",
        "controller.isr_control",
        "        if wanted.leader_epoch < partition.leader_epoch:\n            return ErrorCode.FENCED_LEADER_EPOCH\n",
        "",
        ISR,
    ),
    Bug(
        "a broker that does not lead changes the in-sync set",
        "controller.isr_control",
        "        if broker_id != partition.leader:\n            return ErrorCode.INVALID_REQUEST\n",
        "",
        ISR,
    ),
    Bug(
        "an in-sync set without the leader is taken (RINV-26)",
        "controller.isr_control",
        " or partition.leader not in isr:",
        ":",
        ISR,
    ),
    Bug(
        "an in-sync set of brokers without a replica is taken (RINV-26)",
        "controller.isr_control",
        " or not set(isr) <= set(partition.replicas)",
        "",
        ISR,
    ),
    Bug(
        "a leader recovers for ever in company (KIP-704)",
        "controller.isr_control",
        "return isr_size == 1 and partition.leader_recovery_state == RECOVERING",
        "return partition.leader_recovery_state == RECOVERING",
        ISR,
    ),
    Bug(
        "KAFKA-15021 (RINV-80)",
        "controller.partition_change",
        "if new_isr is None or not self.rules.metadata_version.is_leader_epoch_bump_required_on_isr_shrink:",
        "if new_isr is None:",
        CHANGE,
    ),
    Bug(
        "a replica that cannot lead is elected (RINV-27)",
        "controller.partition_change",
        "            return replica in safe and self.can_lead(partition, replica)\n",
        "            return replica in safe\n",
        CHANGE,
    ),
    Bug(
        "a replica out of sync is elected (RINV-23)",
        "controller.partition_change",
        "            return replica in safe and self.can_lead(partition, replica)\n",
        "            return self.can_lead(partition, replica)\n",
        CHANGE,
    ),
    Bug(
        "an unclean leader keeps the in-sync set (RINV-29)",
        "controller.partition_change",
        "        if is_unclean:\n            isr = (elected.leader,)\n",
        "",
        CHANGE,
    ),
    Bug(
        "an unclean leader is not recovering (RINV-29)",
        "controller.partition_change",
        "return RECOVERING if is_unclean and before != RECOVERING else -1",
        "return -1",
        CHANGE,
    ),
    Bug(
        "the last in-sync replica leaves",
        "controller.partition_change",
        "            new_isr = None  # the last in-sync replica stays\n",
        "            pass\n",
        CHANGE,
    ),
    Bug(
        "KAFKA-19522 (RINV-81)",
        "controller.partition_change",
        "            if self.can_lead(partition, last_known):\n                return",
        "            if last_known >= 0:\n                return",
        CHANGE,
    ),
    Bug(
        "eligible replicas stay though enough are in sync (RINV-26)",
        "controller.partition_change",
        "        if len(isr) >= self.rules.min_isr:\n            return ()\n",
        "",
        CHANGE,
    ),
    Bug(
        "a replica that lost data stays eligible (RINV-28)",
        "controller.partition_change",
        "candidates.difference(isr, self.unclean_replicas)",
        "candidates.difference(isr)",
        CHANGE,
    ),
    Bug(
        "KAFKA-1120 (RINV-77)",
        "controller.broker_control",
        "            records = yield from self._leave_partitions(broker_id, is_clean=is_clean)\n",
        "",
        BROKER,
    ),
    Bug(
        "KAFKA-16952 (RINV-78)",
        "controller.broker_control",
        "broker_epoch = next_offset if amended is None else amended.epoch",
        "broker_epoch = next_offset",
        BROKER,
    ),
    Bug(
        "KAFKA-13959 (RINV-79)",
        "controller.broker_control",
        "request.current_metadata_offset >= self._image.cluster.registration_offset(broker_id)",
        "request.current_metadata_offset > self._image.cluster.registration_offset(broker_id) + 1000",
        BROKER,
    ),
    Bug(
        "a second process takes a live broker's id",
        "controller.broker_control",
        "        if is_alive and amended is None and not takes_over:\n",
        "        if is_alive and amended is None and takes_over:\n",
        BROKER,
    ),
    Bug(
        "a fenced broker stays in sync (RINV-27)",
        "controller.broker_control",
        "        records = yield from changes.where(lambda partition: broker_id in partition.isr)\n"
        "        record = BrokerRegistrationChangeRecord(",
        "        records = []\n        record = BrokerRegistrationChangeRecord(",
        BROKER,
    ),
    Bug(
        "no leader is elected when a broker is back (RINV-34)",
        "controller.broker_control",
        "        elections = yield from changes.where(lambda partition: not partition.has_leader)\n",
        "        elections = yield from changes.where(lambda _partition: False)\n",
        BROKER,
    ),
    Bug(
        "a broker leaves while it leads",
        "controller.broker_control",
        "            if (yield from self._leads_anything(broker.broker_id)):\n                return state\n",
        "",
        STATES,
    ),
    Bug(
        "a new controller fences brokers at once",
        "controller.broker_control",
        "                self._sessions.touch(broker.broker_id, broker.epoch, now_ms)\n\n    def fence_silent",
        "                self._sessions.touch(broker.broker_id, broker.epoch, 0)\n\n    def fence_silent",
        "unit/controller/test_broker_sessions.py",
    ),
    # Followers
    Bug(
        "a log without epochs is not cut (RFET-21)",
        "partition.replica_fetcher",
        "        self._enter(start.key, partition, FetcherState.CUTTING)\n        return Next(NextStep.TRUNCATE",
        "        return None\n        return Next(NextStep.TRUNCATE",
        FETCHER,
    ),
    Bug(
        "an answer to an earlier question is taken (RFET-26)",
        "partition.replica_fetcher",
        "return partition.is_ready and self._told[key] == partition.asked(key)",
        "return partition.is_ready",
        FETCHER,
    ),
    Bug(
        "an answer that does not fit the session is taken (RFET-12)",
        "partition.replica_fetcher",
        "        if not self._told.keys() >= named or (was_full and named != self._told.keys()):\n",
        "        if not session_id and not self._told:\n",
        FETCHER,
    ),
    Bug(
        "a fenced follower goes on (RFET-38)",
        "partition.replica_fetcher",
        "            case ErrorCode.FENCED_LEADER_EPOCH:\n                self._enter(",
        "            case -1000:\n                self._enter(",
        FETCHER,
    ),
    Bug(
        "a diverging answer is appended",
        "partition.replica_fetcher",
        "            case ErrorCode.NONE if answer.diverging_epoch is not None:\n",
        "            case ErrorCode.NONE if answer.diverging_epoch is not None and answer.high_watermark < -1:\n",
        FETCHER,
    ),
    Bug(
        "a cut of an earlier leadership changes the fetcher",
        "partition.replica_fetcher",
        "return partition if partition is not None and partition.leader_epoch == leader_epoch else None",
        "return partition",
        FETCHER,
    ),
    Bug(
        "one partition is served first for ever (RFET-18)",
        "partition.replica_fetcher",
        "self._partitions[key] = self._partitions.pop(key)\n            partition.rank = self._take_rank()\n",
        "pass\n",
        FETCHER,
    ),
    Bug(
        "a refused follower does not wait (RINV-39)",
        "partition.replica_fetcher",
        "            partition.delayed_until_ms = now_ms + self._backoff_ms\n",
        "            partition.delayed_until_ms = now_ms\n",
        FETCHER,
    ),
    Bug(
        "a pause is prolonged for ever (RFET-68)",
        "partition.replica_fetcher",
        "        if partition is not None and partition.delayed_until_ms is None:\n            partition.delayed",
        "        if partition is not None:\n            partition.delayed",
        FETCHER,
    ),
    Bug(
        "a follower keeps the end of its log beyond the leader's (RFET-60)",
        "partition.replica_fetcher",
        "        if offset < log_end_offset:\n            self._enter(key, partition, FetcherState.CUTTING)\n",
        "        if offset < -1:\n            self._enter(key, partition, FetcherState.CUTTING)\n",
        FETCHER,
    ),
)
