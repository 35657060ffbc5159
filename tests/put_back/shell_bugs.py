"""Bugs of files, of the shell around the consensus core, and of the shell around partitions."""

from __future__ import annotations

from put_back.bug import Bug

ISR_CHANGES = "unit/runtime/replica/test_isr_changes.py"
REASSIGNMENT = "unit/controller/test_reassignment.py"
DIRECTORIES = "unit/runtime/replica/test_directory_assignments.py"
SESSIONS = "unit/runtime/replica/test_fetch_session.py"
WATCH = "unit/runtime/metadata/test_broker_watch.py"
DRIVER = "unit/runtime/raft/test_flushes.py"

SHELL_BUGS = (
    # Files.
    Bug(
        "an empty quorum-state counts as none",
        "storage.election_store",
        "        if not text.strip():\n",
        "        if not text.strip():\n            return None\n        if not text:\n",
        "unit/storage/test_election_store.py",
    ),
    Bug(
        "a replaced file is not flushed",
        "storage.atomic_file",
        "            file.sync()\n",
        "",
        "unit/storage/test_election_store.py",
    ),
    Bug(
        "KAFKA-15312: the name of a replaced file is not durable",
        "storage.atomic_file",
        "    if syncs_directory:\n",
        "    if not syncs_directory:\n",
        "unit/storage/test_election_store.py",
    ),
    Bug(
        "an offset checkpoint that is cut off is read",
        "storage.checkpoints",
        "    if count != len(entries):\n",
        "    if count < 0:\n",
        "unit/storage/test_checkpoints.py",
    ),
    Bug(
        "KAFKA-1647 (RINV-74)",
        "runtime.replica.checkpoint_writer",
        "{log_dir: log_dir.unopened_offsets(name) for",
        "{log_dir: {} for",
        "unit/runtime/replica/test_high_watermark_checkpoint.py",
    ),
    Bug(
        "checkpoints keep what they say of a deleted log",
        "runtime.replica.log_remover",
        "            self._forget(log_dir, names[log_dir])\n",
        "",
        "unit/runtime/replica/test_log_remover.py",
    ),
    Bug(
        "offsets that were taken before a deletion are written after it",
        "runtime.replica.checkpoint_writer",
        "                of_dir.pop(key, None)\n",
        "                pass\n",
        "unit/runtime/replica/test_checkpoint_writer.py",
    ),
    # The shell of the consensus core.
    Bug(
        "KAFKA-10533: an answer leaves before the flush that it acknowledges",
        "runtime.raft.driver",
        "if wanted is not None and wanted > self._flushed_end_offset:",
        "if wanted is not None and wanted < 0:",
        DRIVER,
    ),
    Bug(
        "a flush counts for records that replaced those it covered",
        "runtime.raft.driver",
        "        if truncations != self._truncations:\n",
        "        if truncations < 0:\n",
        DRIVER,
    ),
    Bug(
        "what is cut off stays flushed",
        "runtime.raft.driver",
        "        self._flushed_end_offset = min(self._flushed_end_offset, end_offset)\n",
        "",
        DRIVER,
    ),
    # Answers of the active controller.
    Bug(
        "an operation succeeds before its records are committed",
        "runtime.metadata.active_controller",
        "        answer.future, answer.response = future, result.response\n",
        "        answer.future, answer.response = future, 0\n        future.set_result(result.response)\n",
        "unit/runtime/metadata/test_metadata_quorum.py",
    ),
    Bug(
        "an operation succeeds whose records were lost with the leadership",
        "runtime.metadata.active_controller",
        "        _fail([proposed.payload.future for proposed in lost], error)\n",
        "        ActiveController.complete(lost)\n",
        "simulation/world/test_operator.py::test_a_controller_cut_off_from_the_others_promises_nothing",
    ),
    # Brokers whose process has ended.
    Bug(
        "one refused connection fences a broker",
        "runtime.metadata.broker_watch",
        "_REFUSALS_NEEDED: Final = 2",
        "_REFUSALS_NEEDED: Final = 1",
        WATCH,
    ),
    Bug(
        "a heartbeat over another connection does not count",
        "runtime.metadata.broker_watch",
        "lambda: self._losses.get(broker_id) is loss)\n        if is_gone and self._losses.get(broker_id) is loss:",
        "lambda: True)\n        if is_gone:",
        WATCH,
    ),
    Bug(
        "a new controller fences brokers of a cluster that starts",
        "runtime.metadata.broker_watch",
        "        if Finding.ALIVE not in found:\n            return\n",
        "",
        WATCH,
    ),
    Bug(
        "clients are sent back to a leader whose process has ended",
        "runtime.replica.gone_brokers",
        "        if was_open:\n            self._ids |= {broker_id}\n",
        "",
        "unit/runtime/replica/test_gone_brokers.py",
    ),
    Bug(
        "a new leader waits for the end of its followers' long polls",
        "runtime.replica.follower_polls",
        "                wait.end()\n",
        "                pass\n",
        "unit/runtime/replica/test_follower_polls.py",
    ),
    # Changes of in-sync sets and of replicas.
    Bug(
        "KAFKA-14010 (RINV-65)",
        "runtime.replica.isr_changes",
        'proposed again: %s", partition, name)\n        return False\n',
        'proposed again: %s", partition, name)\n        partition.replica.isr_refused(number)\n        return True\n',
        ISR_CHANGES,
    ),
    Bug(
        "KAFKA-14144 (RINV-69)",
        "runtime.replica.isr_changes",
        "                    await asyncio.sleep(_RETRY_S)\n                    continue\n",
        "                    self._queue.clear()\n                    continue\n",
        ISR_CHANGES,
    ),
    Bug(
        "KAFKA-15353 (RINV-68)",
        "runtime.replica.isr_changes",
        "new_isr=[member.broker_id for member in partition.new_isr_with_epochs],",
        "new_isr=(),",
        ISR_CHANGES,
    ),
    Bug(
        "KAFKA-15665 (RINV-82)",
        "controller.reassignment",
        "    if len(adding) < len(removing) and not set(target) <= set(target_isr):\n        return None\n",
        "",
        REASSIGNMENT,
    ),
    Bug(
        "KAFKA-9672 (RINV-83)",
        "controller.reassignment",
        "return CompletedReassignment(target, target_isr)",
        "return CompletedReassignment(target, isr)",
        REASSIGNMENT,
    ),
    Bug(
        "KAFKA-16297 (RINV-88)",
        "runtime.replica.directory_assignments",
        "if sent.get(key) == directory.id and not partition.error_code:",
        "if sent.get(key) == directory.id:",
        DIRECTORIES,
    ),
    # Fetches of followers and consumers.
    Bug(
        "KAFKA-9137 (RINV-89)",
        "runtime.replica.fetch_session",
        "        rank = (is_privileged, partition_count)\n",
        "        rank = (True, partition_count)\n",
        SESSIONS,
    ),
    Bug(
        "KAFKA-9338 (RINV-89)",
        "runtime.replica.fetch_session",
        "        self.current_leader_epoch = wanted.current_leader_epoch\n",
        "",
        SESSIONS,
    ),
    Bug(
        "KAFKA-4313 (RINV-90)",
        "runtime.replica.follower_reads",
        "self.quota.is_exceeded(self.clock_ms()) and self.replica_id not in partition.replica.isr",
        "self.quota.is_exceeded(self.clock_ms())",
        "unit/runtime/replica/test_throttles.py",
    ),
    Bug(
        "the way to the controllers opens a connection behind its end",
        "runtime.metadata.controller_channel",
        "                if self._is_stopped:\n                    self.close()\n",
        "",
        "unit/runtime/metadata/test_controller_channel.py",
    ),
    Bug(
        "timers of replicas outlast them",
        "runtime.replica.replica_timers",
        "        for timer in self._timers.values():\n            timer.cancel()\n",
        "",
        "unit/runtime/replica/test_replica_timers.py",
    ),
    Bug(
        "a broker that answers one of two probes is fenced",
        "runtime.metadata.broker_watch",
        "            if self._answers[broker.broker_id] != answers:\n",
        "            if finding is Finding.ALIVE:\n",
        "unit/runtime/metadata/test_broker_watch.py",
    ),
)
