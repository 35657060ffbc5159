"""Bugs of the consensus core, of its shell and of ``kraftlog.Quorum``."""

from __future__ import annotations

from put_back.bug import Bug

CORE = "unit/raft/test_core.py"
LEADER = "unit/raft/test_leader.py"
LEADERSHIP = "unit/raft/test_leadership.py"
FOLLOWERSHIP = "unit/raft/test_followership.py"
INSTALL = "unit/storage/test_snapshot_install.py"
PROPOSALS = "unit/quorum/test_proposals.py"
SESSIONS = "unit/quorum/test_sessions.py"
REPLICATED_LOG = "unit/runtime/raft/test_replicated_log.py"

CONSENSUS_BUGS = (
    # Those that no test noticed once.
    Bug(
        "a removed leader resigns before its removal is committed",
        "raft.leadership",
        "last_voters_offset is not None and last_voters_offset < high_watermark",
        "last_voters_offset is not None and last_voters_offset <= high_watermark",
        "unit/raft/test_reconfiguration.py",
    ),
    Bug(
        "a new directory id inherits the offset of the old one",
        "raft.roles.leader",
        "if known is not None and known.key.directory_id in {bytes(16), voter.key.directory_id}:",
        "if known is not None:",
        LEADER,
    ),
    Bug(
        "a fetched batch of an earlier epoch is appended",
        "raft.followership",
        "or not replica.log.last_epoch <= batch.epoch <= replica.epoch",
        "or not batch.epoch <= replica.epoch",
        FOLLOWERSHIP,
    ),
    Bug(
        "the log is emptied before the fetched checkpoint has its name",
        "storage.metadata_log",
        "            move_durably(source, target)\n"
        "            self._log.truncate_fully_and_start_at(snapshot_id.end_offset)\n",
        "            self._log.truncate_fully_and_start_at(snapshot_id.end_offset)\n"
        "            move_durably(source, target)\n",
        INSTALL,
    ),
    Bug(
        "a fetched checkpoint is named without a flush",
        "storage.metadata_log",
        "            move_durably(source, target)\n",
        "            source.replace(target)\n",
        INSTALL,
    ),
    Bug(
        "the end of an installation is not durable",
        "storage.metadata_log",
        "            flush_directory(self.directory)\n            self._snapshots = [snapshot_id]\n",
        "            self._snapshots = [snapshot_id]\n",
        INSTALL,
    ),
    Bug(
        "proposals of a lost leadership stay pending",
        "runtime.raft.replicated_log",
        "            lost, self.pending = tuple(self.pending), deque()\n",
        "            lost = tuple(self.pending)\n",
        REPLICATED_LOG,
    ),
    Bug(
        "the room of a lost leadership is not given back",
        "quorum.replica",
        "        self._pending_bytes = 0\n        for proposed in lost:\n",
        "        for proposed in lost:\n",
        PROPOSALS,
    ),
    Bug(
        "the proposal just below a loaded snapshot stays undecided",
        "quorum.proposals",
        "while self._heap and self._heap[0][0] < end_offset:",
        "while self._heap and self._heap[0][0] < end_offset - 1:",
        PROPOSALS,
    ),
    Bug(
        "a proposal that may be committed counts as not proposed",
        "quorum.proposals",
        'done = "proposed, and may be committed yet" if proposal.is_proposed else "not proposed"',
        'done = "not proposed"',
        PROPOSALS,
    ),
    # Of the core.
    Bug(
        "the proposal at the end of a snapshot is decided by it",
        "quorum.proposals",
        "while self._heap and self._heap[0][0] < end_offset:",
        "while self._heap and self._heap[0][0] <= end_offset:",
        PROPOSALS,
    ),
    Bug(
        "the epoch of a record does not decide about a proposal",
        "quorum.proposals",
        "    if applied.epoch == epoch:\n",
        "    if applied.epoch >= epoch:\n",
        PROPOSALS,
    ),
    Bug(
        "a minority commits",
        "raft.roles.leader",
        "candidate = Offset(known[len(known) // 2])",
        "candidate = Offset(known[(len(known) - 1) // 2])",
        LEADER,
    ),
    Bug(
        "records of an earlier epoch are committed by their count",
        "raft.roles.leader",
        "        if candidate <= self.epoch_start_offset:\n            return False\n",
        "",
        LEADER,
    ),
    Bug(
        "check-quorum waits for one voter too few",
        "raft.roles.leader",
        "needed = self.voters.majority_size - (1 if self.is_voter else 0)",
        "needed = self.voters.majority_size - 1 - (1 if self.is_voter else 0)",
        LEADER,
    ),
    Bug(
        "a removed voter counts for check-quorum",
        "raft.roles.leader",
        "        self._fetched_voters &= replicas.keys()\n",
        "",
        LEADER,
    ),
    Bug(
        "the confirmation of a leadership counts a minority",
        "raft.roles.leader",
        "return sorted(known, reverse=True)[self.voters.majority_size - 1] if known else 0",
        "return sorted(known, reverse=True)[0] if known else 0",
        "unit/quorum/test_confirmation.py",
    ),
    Bug(
        "an answer to a fetch of an earlier log is taken",
        "raft.followership",
        "if request.fetch_offset != replica.log.end_offset or request.current_leader_epoch > role.epoch:",
        "if request.current_leader_epoch > role.epoch:",
        "unit/raft/test_core_races.py",
    ),
    Bug(
        "batches behind a gap are appended",
        "raft.followership",
        "                batch.base_offset != replica.log.end_offset\n                or not",
        "                not",
        FOLLOWERSHIP,
    ),
    Bug(
        "what is fetched is not flushed",
        "raft.followership",
        "            replica.effects.append(FlushLog(log_end_offset=replica.log.end_offset))\n",
        "            pass\n",
        "scenarios/test_scenarios.py",
    ),
    Bug(
        "voters that are cut off stay",
        "raft.followership",
        "            replica.voters.truncate_to(end_offset)\n",
        "",
        FOLLOWERSHIP,
    ),
    Bug(
        "a piece of a snapshot from another place is taken",
        "raft.followership",
        "if found != download.snapshot_id or response.position != download.position:",
        "if found != download.snapshot_id:",
        FOLLOWERSHIP,
    ),
    Bug(
        "a loaded snapshot leaves the high watermark behind",
        "raft.followership",
        "            replica.advance_high_watermark(snapshot_id.end_offset)\n",
        "            pass\n",
        "scenarios/test_scenarios.py",
    ),
    # Of the shell.
    Bug(
        "what is committed is lost with the leadership",
        "runtime.raft.replicated_log",
        "            self._apply(_NO_LIMIT)  # what is committed is not lost\n",
        "            pass\n",
        REPLICATED_LOG,
    ),
    Bug(
        "a leader serves before it has applied its past",
        "runtime.raft.replicated_log",
        "            and self.applied_end_offset > self._epoch_start_offset\n",
        "",
        REPLICATED_LOG,
    ),
    Bug(
        "a whole backlog is applied in one turn",
        "runtime.raft.replicated_log",
        "        if not self._is_apply_scheduled:\n            self._apply(APPLY_BYTES_PER_TURN)\n",
        "        if not self._is_apply_scheduled:\n            self._apply(_NO_LIMIT)\n",
        REPLICATED_LOG,
    ),
    Bug(
        "waiters for an offset are woken one record early",
        "runtime.raft.replicated_log",
        "if offset_waiter[0] < self.applied_end_offset",
        "if offset_waiter[0] <= self.applied_end_offset",
        REPLICATED_LOG,
    ),
    Bug(
        "a voter that is behind is asked again at once while there is no leader",
        "raft.elections",
        "            return not isinstance(response, FetchResponse) or role.leader_id == node_id\n",
        "            return True\n",
        "unit/raft/test_answers.py",
    ),
    Bug(
        "calls that wait for a leader outlast their quorum",
        "quorum.routes",
        "        self._is_open = False\n",
        "",
        "simulation/world/test_shut_down.py",
    ),
    Bug(
        "a command of a session that comes again is applied again",
        "quorum.session_machine",
        "        if known is not None:\n",
        "        if known is not None and known.value is None:\n",
        SESSIONS,
    ),
    Bug(
        "a checkpoint has no results of sessions",
        "quorum.session_machine",
        "        for _ in range(count):\n            sequence, kind",
        "        for _ in range(0):\n            sequence, kind",
        SESSIONS,
    ),
    Bug(
        "leadership goes to the voter that is furthest, not to the chosen one",
        "raft.roles.leader",
        "(key.node_id != self.successor, self._shortest_last(key))",
        "self._shortest_last(key)",
        "simulation/world/test_quorum_calls.py",
    ),
    Bug(
        "a leader applies its batches with a time that is not the log's",
        "runtime.raft.replicated_log",
        "            proposed.timestamp_ms = timestamp_ms\n",
        "            pass\n",
        "unit/quorum/test_replica.py",
    ),
    Bug(
        "a flush that waits while others are done is forgotten",
        "runtime.raft.flush_group",
        "        if self._waiting:\n            self._begin()\n",
        "",
        "unit/runtime/raft/test_flush_group.py",
    ),
    Bug(
        "the error of one log is taken for a flush",
        "runtime.raft.flush_group",
        "        if isinstance(outcome, BaseException):\n",
        "        if outcome is None:\n",
        "unit/runtime/raft/test_flush_group.py",
    ),
    Bug(
        "proposals wait for a voter that does not answer",
        "quorum.transfer",
        "        if not await catches_up(deadline_s, raft.log_end_offset):\n",
        "        if loop.time() >= deadline_s:\n",
        "simulation/world/test_quorum_calls.py",
    ),
    Bug(
        "a stale read takes the age of the answer for that of the question",
        "quorum.routes",
        "max(self._known_read_offset, (asked_s, task.result()))",
        "max(self._known_read_offset, (self._loop.time(), task.result()))",
        "unit/quorum/test_routes.py",
    ),
    Bug(
        "a command that is proposed while its quorum closes is never answered",
        "quorum.async_quorum",
        "        self._routes.refuse()\n",
        "",
        "simulation/world/test_shut_down.py",
    ),
    Bug(
        "a leader that resigns without a commit forgets what was committed",
        "raft.replica_state",
        "        self._enter(leader)\n        self.high_watermark = None\n",
        "        self._enter(leader)\n        self.high_watermark, self.committed_end_offset = None, Offset(0)\n",
        "unit/raft/test_followership.py",
    ),
    Bug(
        "a snapshot that ends below the high watermark replaces the log",
        "raft.followership",
        "        if snapshot_id.end_offset < known:\n",
        "        if snapshot_id.end_offset < 0:\n",
        "unit/raft/test_followership.py",
    ),
)
