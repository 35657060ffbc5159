//! What a leader knows of another replica (Kafka's `ReplicaState`).

/// A fetch of a follower, as it arrived.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FollowerFetch {
    /// Who fetches.
    pub replica_id: i32,
    /// Under which registration, -1 where the request does not say (below version 15).
    pub broker_epoch: i64,
    /// It has everything below, durably.
    pub fetch_offset: i64,
    /// First offset it has.
    pub log_start_offset: i64,
    /// Wall clock, milliseconds.
    pub now_ms: i64,
}

/// A broker that is registered and not fenced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LiveBroker {
    /// Its id.
    pub broker_id: i32,
    /// Of its registration.
    pub epoch: i64,
    /// Whether it shuts down: it may replicate, and joins no in-sync set.
    pub is_shutting_down: bool,
}

/// Offsets are -1 while nothing is known of them in this epoch.
#[derive(Clone, Copy, Debug)]
pub(super) struct Follower {
    pub(super) log_end_offset: i64,
    pub(super) log_start_offset: i64,
    pub(super) last_caught_up_ms: i64,
    /// Of its last fetch, -1 where that did not say; `None` before any.
    pub(super) broker_epoch: Option<i64>,
    last_fetch_ms: i64,
    /// Log end offset of the leader at that fetch; it never falls.
    last_fetch_leader_end: i64,
}

impl Follower {
    /// Nothing is known yet; a member of the in-sync set has its time from now on (ISR-17).
    pub(super) fn new(is_in_sync: bool, now_ms: i64) -> Self {
        Self {
            log_end_offset: -1,
            log_start_offset: -1,
            last_caught_up_ms: if is_in_sync { now_ms } else { 0 },
            broker_epoch: None,
            last_fetch_ms: 0,
            last_fetch_leader_end: 0,
        }
    }

    /// The same leader was elected again: what the follower has is known (ISR-18).
    pub(super) fn renewed(self, is_in_sync: bool, leader_end_offset: i64, now_ms: i64) -> Self {
        let time_ms = if is_in_sync { now_ms } else { 0 };
        Self {
            last_caught_up_ms: time_ms,
            last_fetch_ms: time_ms,
            last_fetch_leader_end: leader_end_offset,
            ..self
        }
    }

    /// Take over a fetch that came while the leader's log ended at `leader_end_offset` (ISR-09 to ISR-13).
    pub(super) fn record(&mut self, fetch: &FollowerFetch, leader_end_offset: i64) {
        if fetch.fetch_offset >= leader_end_offset {
            self.last_caught_up_ms = self.last_caught_up_ms.max(fetch.now_ms);
        } else if self.broker_epoch.is_some() && fetch.fetch_offset >= self.last_fetch_leader_end {
            self.last_caught_up_ms = self.last_caught_up_ms.max(self.last_fetch_ms);
        }
        self.log_end_offset = fetch.fetch_offset;
        self.log_start_offset = fetch.log_start_offset;
        self.broker_epoch = Some(fetch.broker_epoch);
        self.last_fetch_ms = fetch.now_ms;
        self.last_fetch_leader_end = self.last_fetch_leader_end.max(leader_end_offset);
    }

    /// It fetched again at `at_ms`, from where it was, and the leader's log had not grown since its last fetch: if it had
    /// everything then, it had at `at_ms`.
    pub(super) fn repeat(&mut self, at_ms: i64) {
        if self.broker_epoch.is_some() && self.log_end_offset >= self.last_fetch_leader_end {
            self.last_caught_up_ms = self.last_caught_up_ms.max(at_ms);
            self.last_fetch_ms = self.last_fetch_ms.max(at_ms);
        }
    }

    /// Whether it has everything, or had it no longer than `lag_max_ms` ago (ISR-21).
    pub(super) fn is_caught_up(&self, leader_end_offset: i64, lag_max_ms: i64, now_ms: i64) -> bool {
        self.log_end_offset == leader_end_offset
            || now_ms.saturating_sub(self.last_caught_up_ms) <= lag_max_ms
    }
}
