"""Bugs of the coordinators, transactions and groups, and of the clients of groups."""

from __future__ import annotations

from put_back.bug import Bug

END = "unit/coordinator/test_end_transaction.py"
INIT = "unit/coordinator/test_init_producer_id.py"
PARTITIONS = "unit/coordinator/test_transaction_partitions.py"
CONSUMERS = "unit/coordinator/test_consumer_group.py"
OFFSETS = "unit/coordinator/test_classic_offsets.py"
SHARE_STATE = "unit/coordinator/test_share_state.py"


COORDINATOR_BUGS = (
    Bug(
        "a prepared transaction is forgotten by a new coordinator",
        "coordinator.transaction.transaction_shard",
        "            if entry.current.state in PREPARE_STATES:\n                self._emit_markers(entry.current)\n",
        "            if entry.current.state in PREPARE_STATES and now_ms < 0:\n"
        "                self._emit_markers(entry.current)\n",
        END,
    ),
    Bug(
        "a second change begins while one is written",
        "coordinator.transaction.transaction_shard",
        "        entry.is_pending = True\n\n        def appended",
        "        entry.is_pending = False\n\n        def appended",
        END,
    ),
    Bug(
        "a change that was not written counts",
        "coordinator.transaction.transaction_shard",
        "            if not error_code:\n                entry.current = changed\n",
        "            entry.current = changed\n            if not error_code:\n",
        END,
    ),
    Bug(
        "an earlier producer is not fenced",
        "coordinator.transaction.transaction_shard",
        "        if current.producer_epoch != producer[1]:\n            return int(ErrorCode.PRODUCER_FENCED), None\n",
        "",
        PARTITIONS,
    ),
    Bug(
        "another producer id continues a transaction",
        "coordinator.transaction.transaction_shard",
        "            return int(ErrorCode.INVALID_PRODUCER_ID_MAPPING), None\n        if current.producer_epoch",
        "            pass\n        if current.producer_epoch",
        PARTITIONS,
    ),
    Bug(
        "partitions are added to a transaction that ends",
        "coordinator.transaction.transaction_shard",
        "        if entry.is_pending or current.state in PREPARE_STATES:\n"
        "            return self._writes.respond(token, int(ErrorCode.CONCURRENT_TRANSACTIONS))\n",
        "",
        PARTITIONS,
    ),
    Bug(
        "a partition outside the transaction is verified",
        "coordinator.transaction.transaction_shard",
        "return {partition: 0 if partition in known else missing for partition in partitions}",
        "return dict.fromkeys(partitions, 0 if known else missing)",
        PARTITIONS,
    ),
    Bug(
        "a second InitProducerId keeps the epoch",
        "coordinator.transaction.transaction_shard",
        "            epoch, last_epoch = current.producer_epoch + 1, NO_EPOCH\n",
        "            epoch, last_epoch = max(0, current.producer_epoch), NO_EPOCH\n",
        INIT,
    ),
    Bug(
        "an open transaction is not aborted by InitProducerId",
        "coordinator.transaction.transaction_shard",
        "        if current.state is _S.ONGOING:\n            return None\n",
        "",
        INIT,
    ),
    Bug(
        "an exhausted epoch is raised once more",
        "coordinator.transaction.transaction_shard",
        "        if current.is_epoch_exhausted and (expected is None or expected[1] == current.producer_epoch):\n",
        "        if current.is_epoch_exhausted and expected is not None and expected[1] < 0:\n",
        INIT,
    ),
    Bug(
        "an aborted transaction gets the markers of a commit",
        "coordinator.transaction.transaction_shard",
        "                is_commit=prepared.state is _S.PREPARE_COMMIT,\n",
        "                is_commit=True,\n",
        END,
    ),
    Bug(
        "markers of an earlier transaction complete this one",
        "coordinator.transaction.transaction_shard",
        "        if current.state in PREPARE_STATES and producer == (markers.producer_id, markers.producer_epoch):\n",
        "        if producer[0] == markers.producer_id:\n",
        END,
    ),
    Bug(
        "a transaction never times out",
        "coordinator.transaction.transaction_shard",
        "            and current.start_ms + current.timeout_ms < self._now_ms\n",
        "            and current.start_ms + current.timeout_ms < 0\n",
        END,
    ),
    Bug(
        "a transactional id expires at once",
        "coordinator.transaction.transaction_shard",
        "return is_idle and not entry.is_pending and age_ms >= self._config.expiration_ms",
        "return is_idle and not entry.is_pending",
        END,
    ),
    Bug(
        "the markers of an abort are never sent",
        "coordinator.transaction.transaction_shard",
        "            if not error_code:\n                self._emit_markers(prepared)\n            then(error_code)\n",
        "            then(error_code)\n",
        END,
    ),
    # Groups.
    Bug(
        "two members of a group own one partition",
        "coordinator.group.reconciliation",
        "has_unreleased = True\n                else:\n                    free.append(partition)\n",
        "has_unreleased = True\n                free.append(partition)\n",
        CONSUMERS,
    ),
    Bug(
        "a member has a new epoch before it gave up its partitions",
        "coordinator.group.reconciliation",
        "        if revoked and self._still_owns(revoked):\n",
        "        if revoked and self.target_epoch < 0:\n",
        CONSUMERS,
    ),
    Bug(
        "a member of an earlier epoch stays",
        "coordinator.group.consumer_membership",
        "    elif request.epoch != member.previous_epoch or not member.has_all(request.owned):\n",
        "    elif request.epoch < 0:\n",
        CONSUMERS,
    ),
    Bug(
        "a static member takes the place of a live one",
        "coordinator.group.consumer_membership",
        "if not is_classic and known.classic is None and known.epoch != STATIC_LEAVE_EPOCH:",
        "if not is_classic and known.epoch < STATIC_LEAVE_EPOCH:",
        CONSUMERS,
    ),
    Bug(
        "a committed offset counts before it is written",
        "coordinator.group.group_offsets",
        "                self.apply(records)\n            self._appended(group_id, now_ms, is_stored=not error_code)\n",
        "                self.apply(records)\n            self._appended(group_id, now_ms, is_stored=True)\n",
        OFFSETS,
    ),
    Bug(
        "an offset of a plain request counts although it was not written",
        "coordinator.group.group_offsets",
        "            if not error_code:\n                self.store.put(",
        "            if error_code >= 0:\n                self.store.put(",
        OFFSETS,
    ),
    Bug(
        "a member of an earlier generation commits",
        "coordinator.group.group_offsets",
        "        if generation_id != group.generation_id:\n",
        "        if generation_id > group.generation_id:\n",
        OFFSETS,
    ),
    Bug(
        "a group expires while its offsets are on their way",
        "coordinator.group.group_offsets",
        "            if group.group_id not in self._committing:\n                self._expire_classic(group, now_ms)\n",
        "            self._expire_classic(group, now_ms)\n",
        OFFSETS,
    ),
    Bug(
        "states of share groups that are needed are pruned",
        "coordinator.share.state_shard",
        "        offset = min(self._snapshot_offsets.values(), default=self._end_offset)\n",
        "        offset = max(self._snapshot_offsets.values(), default=self._end_offset)\n",
        SHARE_STATE,
    ),
    Bug(
        "callers of a shard that moved wait for ever",
        "runtime.coordinator.shard_runner",
        "                future.set_exception(KafkaError(ErrorCode.NOT_COORDINATOR))\n",
        "                pass\n",
        "unit/runtime/coordinator/test_unloaded_shard.py",
    ),
    Bug(
        "a marker overtakes what its coordinator decided before",
        "runtime.coordinator.shard_runner",
        "        self._drive()\n        appended =",
        "        appended =",
        "unit/runtime/coordinator/test_shard_runner.py",
    ),
    Bug(
        "an assignment is left out while the one before is stored",
        "coordinator.group.membership",
        "        group.sync_append_id = None\n        if not group.members:\n",
        "        if not group.members:\n",
        "unit/coordinator/test_classic_generation.py",
    ),
    Bug(
        "sessions follow a wall clock that is set",
        "runtime.steady_clock",
        "        most_ns = passed_ns // _SLEW\n",
        "        most_ns = 10**30\n",
        "unit/runtime/test_steady_clock.py",
    ),
    Bug(
        "a member begins at an offset that an open transaction is about to change (KIP-447)",
        "client.group_offsets",
        "        is_stable = version >= FIRST_VERSION_WITH_STABLE\n",
        "        is_stable = False\n",
        "integration/client/test_transactions.py",
    ),
    Bug(
        "a heartbeat after a lost answer does not say everything",
        "client.broker_assigned_membership",
        "        is_full = is_joining or not self._is_answered\n",
        "        is_full = is_joining\n",
        "integration/client/test_rebalances.py::test_an_assignment_that_came_with_a_lost_answer_is_asked_for_again",
    ),
    Bug(
        "a share group reads the log once more after it has acquired records",
        "runtime.share.live_partition",
        "SharedRecords(records.part(position, end_position - position), acquired)\n",
        "SharedRecords(self.partition.log.read(first, max_bytes=max_bytes, end_offset=last + 1), acquired)\n",
        "unit/runtime/share/test_share_service.py",
    ),
    Bug(
        "a share group takes batches that do not ascend for a gap of compaction",
        "runtime.share.batch_bounds",
        "        if end is not None and batch.first < end:\n",
        "        if end is not None and batch.first < -1:\n",
        "unit/runtime/share/test_share_service.py",
    ),
    Bug(
        "a deleted group stays for a commit before its deletion if another one is on its way",
        "coordinator.group.group_offsets",
        "        if not self.store.of(group_id) and not self.store.pending_of(group_id):\n",
        "        if not (group_id in self._committing or self.store.of(group_id)):\n",
        "unit/coordinator/test_classic_offsets.py",
    ),
    Bug(
        "a completion that failed completes the next transaction without its markers",
        "coordinator.transaction.transaction_shard",
        "                self._unfinished.pop(changed.transactional_id, None)\n",
        "",
        "unit/coordinator/test_end_transaction.py",
    ),
    Bug(
        "a member that was not told to give up partitions is removed as if it had not",
        "coordinator.group.consumer_membership",
        " or current.state is not MemberState.UNREVOKED_PARTITIONS",
        "",
        "unit/coordinator/test_pending_changes.py",
    ),
    Bug(
        "a report that is taken back leaves a member without a time to give up partitions",
        "coordinator.group.consumer_membership",
        "                self._watch_revocation(group_id, member, now_ms)\n\n    def start_timers",
        "                pass\n\n    def start_timers",
        "unit/coordinator/test_pending_changes.py",
    ),
)
