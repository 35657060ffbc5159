"""Bugs of replicated partitions in the native state machine and the log, of which the extension is compiled anew.

Each is a known bug of Kafka, numbered as in area 29 of ``docs/behaviours``.
"""

from __future__ import annotations

from put_back.bug import NativeBug

IN_SYNC = "unit/partition/test_in_sync.py"
REPLICA = "unit/partition/test_replica.py"
LEADING = "unit/runtime/replica/test_leading.py"
FOLLOWING = "unit/runtime/replica/test_following.py"

CORE = "kraftlog-path/src/core.rs"
CORE_IN_SYNC = "kraftlog-path/src/core/in_sync.rs"
CORE_FOLLOWER = "kraftlog-path/src/core/follower.rs"
PARTITION = "kraftlog-path/src/partition.rs"
PARTITION_LEADING = "kraftlog-path/src/partition/leading.rs"
PARTITION_FOLLOWING = "kraftlog-path/src/partition/following.rs"

NATIVE_BUGS = (
    # Truncation and epochs.
    NativeBug(
        "a follower that diverged does not hear of the high watermark, from the I/O threads (RINV-36)",
        "kraftlog-path/src/serve/fetch.rs",
        "let is_taken = read.error_code == error_code::NONE && read.diverging_epoch.is_none();",
        "let is_taken = read.error_code == error_code::NONE;",
        "integration/cluster/test_puppet_follower.py",
    ),
    NativeBug(
        "KIP-101, second case: an end of the asked epoch is enough (RINV-43)",
        PARTITION_LEADING,
        "if epoch < position.last_fetched_epoch || end_offset < fetch.fetch_offset {",
        "if end_offset < fetch.fetch_offset {",
        "simulation/test_replication_model.py",
    ),
    NativeBug(
        "KAFKA-7415: a leader has no entry for its epoch (RINV-45)",
        CORE,
        "        if is_new_epoch || !was_leader {\n            self.epoch_start_offset = self.log_end_offset;\n"
        "            self.effects.push(",
        "        if is_new_epoch || !was_leader {\n            self.epoch_start_offset = self.log_end_offset;\n"
        "        }\n        if self.leader_epoch < -1 {\n            self.effects.push(",
        REPLICA,
    ),
    NativeBug(
        "KAFKA-13207: records of an earlier leader epoch are appended (RINV-47)",
        PARTITION_FOLLOWING,
        "        if state.is_withdrawn || self.is_leader() || self.leader_epoch() != fetched.leader_epoch {\n",
        "        if state.is_withdrawn || self.is_leader() {\n",
        FOLLOWING,
    ),
    NativeBug(
        "a follower goes on behind records that its leader has deleted, and cannot append (RFET-28, RFET-39)",
        PARTITION_FOLLOWING,
        "        let appended = self.follow_log_start(fetched.log_start_offset).and_then(|()| {\n",
        "        let appended = Ok::<(), Error>(()).and_then(|()| {\n",
        FOLLOWING,
    ),
    NativeBug(
        "KAFKA-15510: an empty answer loses the last fetched epoch (RINV-49)",
        PARTITION_FOLLOWING,
        "            last_epoch: self.log.latest_epoch().unwrap_or(-1),",
        "            last_epoch: if is_unflushed { self.log.latest_epoch().unwrap_or(-1) } else { -1 },",
        FOLLOWING,
    ),
    NativeBug(
        "KAFKA-14704: a high watermark beyond the log is taken (RINV-50)",
        CORE,
        "leader_high_watermark.min(log_end_offset).max(log_start_offset)",
        "leader_high_watermark.max(log_start_offset)",
        IN_SYNC,
    ),
    NativeBug(
        "KAFKA-12996: a follower below the log start gets a diverging epoch (RINV-51)",
        PARTITION_LEADING,
        "            if fetch.fetch_offset < answer.log_start_offset {\n"
        "                answer.error_code = error_code::OFFSET_OUT_OF_RANGE;\n"
        "                return (answer, false);\n            }\n",
        "",
        LEADING,
    ),
    NativeBug(
        "KAFKA-9491: a log that begins anew keeps its high watermark (RINV-52)",
        CORE,
        "        self.flushed_offset = start_offset;\n        self.set_high_watermark(start_offset);\n",
        "        self.flushed_offset = start_offset;\n",
        "unit/runtime/replica/test_fetcher_loop.py",
    ),
    NativeBug(
        "KAFKA-10432: epochs beyond the end of a cut log stay (RINV-54)",
        "kraftlog-log/src/epoch_checkpoint.rs",
        "last.start_offset >= end_offset) {",
        "last.start_offset > i64::MAX - end_offset.min(0)) {",
        FOLLOWING,
    ),
    NativeBug(
        "KAFKA-18723: records of an epoch newer than the request are appended (RINV-55)",
        "kraftlog-log/src/log/append.rs",
        "            if batch.partition_leader_epoch() > leader_epoch {\n                break;\n            }\n",
        "",
        FOLLOWING,
    ),
    # In-sync sets and the high watermark.
    NativeBug(
        "KAFKA-7128: a follower joins below the beginning of the epoch (RINV-57)",
        CORE_IN_SYNC,
        "\n            && follower.log_end_offset >= self.epoch_start_offset;",
        ";",
        IN_SYNC,
    ),
    NativeBug(
        "KAFKA-13141: a diverging fetch moves what is known of the follower (RINV-58)",
        PARTITION_LEADING,
        "                answer.diverging_epoch = Some((epoch, end_offset));\n",
        "                answer.diverging_epoch = Some((epoch, end_offset));\n"
        "                answer.proposal = core.on_follower_fetch(fetch);\n",
        LEADING,
    ),
    NativeBug(
        "KAFKA-6880: a fetch of another leader epoch counts (RINV-59)",
        PARTITION_LEADING,
        "core.check_leader_epoch(position.current_leader_epoch, true);",
        "core.check_leader_epoch(-1, true);",
        LEADING,
    ),
    NativeBug(
        "KAFKA-15221: a fetch of an earlier life of a broker counts (RINV-61)",
        CORE,
        "live.any(|broker| broker.broker_id == replica_id && broker_epoch < broker.epoch)",
        "live.any(|broker| broker.broker_id == replica_id && broker_epoch < broker.epoch - 1_000)",
        IN_SYNC,
    ),
    NativeBug(
        "KAFKA-14617: a replica joins by a fetch of its earlier life (RINV-60)",
        CORE_IN_SYNC,
        "follower.broker_epoch.is_some_and(|epoch| epoch == -1 || epoch == broker.epoch)",
        "follower.broker_epoch.is_some()",
        IN_SYNC,
    ),
    NativeBug(
        "KAFKA-14140: a replica that shuts down joins (RINV-62)",
        CORE_IN_SYNC,
        "                && !broker.is_shutting_down\n",
        "",
        IN_SYNC,
    ),
    NativeBug(
        "KAFKA-12686: an answer to AlterPartition overwrites newer metadata (RINV-63)",
        CORE_IN_SYNC,
        "        let is_current = self.pending_proposal() == Some(number)\n"
        "            && leader_epoch == self.leader_epoch\n"
        "            && partition_epoch >= self.partition_epoch;\n",
        "        let is_current = self.pending_proposal() == Some(number) || leader_epoch < self.leader_epoch;\n",
        IN_SYNC,
    ),
    NativeBug(
        "a member that is to leave does not count before that is confirmed (RINV-64)",
        CORE_IN_SYNC,
        "        self.pending = Some(Pending::Shrink { number });\n",
        "        self.pending = Some(Pending::Shrink { number });\n        self.isr.clone_from(&isr);\n"
        "        self.advance_high_watermark();\n",
        IN_SYNC,
    ),
    NativeBug(
        "KAFKA-13091: the high watermark stays after a confirmed change (RINV-66)",
        CORE_IN_SYNC,
        "            self.effects.push(Effect::IsrChanged);\n            self.advance_high_watermark();\n",
        "            self.effects.push(Effect::IsrChanged);\n",
        IN_SYNC,
    ),
    NativeBug(
        "KAFKA-12751: a refused change stays in flight (RINV-66)",
        CORE_IN_SYNC,
        "        if self.pending_proposal() == Some(number) {\n            self.pending = None;\n",
        "        if self.pending_proposal() == Some(number) {\n",
        IN_SYNC,
    ),
    NativeBug(
        "KAFKA-7152: an idle follower that has everything is dropped (RINV-70)",
        CORE_FOLLOWER,
        "        self.log_end_offset == leader_end_offset\n            || now_ms",
        "        leader_end_offset < 0 || now_ms",
        IN_SYNC,
    ),
    NativeBug(
        "KAFKA-4485: a follower that always has the earlier end is dropped (RINV-70)",
        CORE_FOLLOWER,
        "            self.last_caught_up_ms = self.last_caught_up_ms.max(self.last_fetch_ms);\n",
        "",
        IN_SYNC,
    ),
    NativeBug(
        "KAFKA-15583: commits go on under min.insync.replicas (RINV-71)",
        CORE,
        "if !self.is_leader() || self.is_under_min_isr() {\n            return;",
        "if !self.is_leader() {\n            return;",
        IN_SYNC,
    ),
    NativeBug(
        "KAFKA-2334: latest offsets go back after an election (RINV-72)",
        PARTITION,
        "        self.high_watermark() >= self.epoch_start_offset.load(Ordering::Acquire)\n",
        "        self.high_watermark() >= 0\n",
        FOLLOWING,
    ),
    NativeBug(
        "KAFKA-9835: a read goes beyond the high watermark (RINV-73)",
        "kraftlog-path/src/serve/read.rs",
        "let end_offset = if limits.is_read_committed { last_stable_offset } else { high_watermark };",
        "let end_offset = if limits.is_read_committed { last_stable_offset } else { log.log_end_offset() };",
        "unit/runtime/replica/test_data_path.py",
    ),
    NativeBug(
        "KAFKA-5634: retention deletes what is not committed (RINV-76)",
        "kraftlog-log/src/log/retention.rs",
        "if is_empty_last || high_watermark < end_offset || !breached(inner, segment, next)? {",
        "if is_empty_last || !breached(inner, segment, next)? {",
        "unit/runtime/replica/test_metadata_races.py",
    ),
    NativeBug(
        "what was deleted comes back after a power failure (RINV-19)",
        "kraftlog-log/src/log/open.rs",
        "        self.options.log_start_offset = first.start_offset;\n",
        "",
        "simulation/world/test_trims.py",
    ),
    NativeBug(
        "deleted segments that come back in part are a hole, behind which all is cut",
        "kraftlog-log/src/log/open/recover.rs",
        "let next = next.filter(|(next_base, _)| **next_base > self.deleted_end);",
        "let next = next.filter(|(next_base, _)| **next_base > i64::MIN);",
        "simulation/world/test_trims.py",
    ),
    # Metadata and consumers.
    NativeBug(
        "a leader that is elected again believes followers that truncated meanwhile (RINV-23)",
        CORE,
        "Some(follower) if was_leader && !is_epoch_missed => {",
        "Some(follower) if was_leader => {",
        IN_SYNC,
    ),
    NativeBug(
        "KAFKA-13161: a new partition epoch alone is ignored (RINV-86)",
        CORE,
        "                && assignment.partition_epoch < self.partition_epoch)\n",
        "                && assignment.partition_epoch < i32::MAX)\n",
        IN_SYNC,
    ),
    NativeBug(
        "KAFKA-14372: a consumer is sent to a replica out of sync (RINV-91)",
        CORE,
        "let followers = self.isr().iter().filter_map(of).filter(has);",
        "let followers = self.replicas.iter().filter_map(of).filter(has);",
        "unit/partition/test_replica_selector.py",
    ),
)
