//! The fetch sessions that the data path opened, shared by its threads.
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use super::{FetchSession, FollowingBroker};
use crate::error_code;
use crate::exchange::Peer;

/// All sessions, bounded.
///
/// Ids are even, so that an incremental fetch finds its owner by the id: sessions of the Python handlers have odd ones.
#[derive(Debug)]
pub struct SessionCache {
    state: Mutex<State>,
}

#[derive(Debug)]
struct State {
    sessions: HashMap<i32, Cached>,
    /// Ids by last use, the oldest first.
    by_use: BTreeMap<u64, i32>,
    next_use: u64,
    random: u64,
}

#[derive(Debug)]
struct Cached {
    session: Arc<FetchSession>,
    /// What the next incremental request must carry.
    epoch: i32,
    has_topic_ids: bool,
    created_ms: i64,
    last_used_ms: i64,
    /// Key in `by_use`.
    used: u64,
}

/// How many sessions there may be, and when one has to go for another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SessionLimits {
    /// `max.incremental.fetch.session.cache.slots`; 0 turns sessions off.
    pub max_slots: usize,
    /// A session unused this long may be evicted, and so may a younger one for a larger or for a follower's one.
    /// Milliseconds.
    pub eviction_ms: i64,
}

/// Whether a session is a follower's, and how many partitions it has.
type Rank = (bool, usize);

fn rank_of(session: &FetchSession) -> Rank {
    (session.follower().is_some(), session.partition_count())
}

impl State {
    fn remove(&mut self, id: i32) -> Option<Arc<FetchSession>> {
        let cached = self.sessions.remove(&id)?;
        self.by_use.remove(&cached.used);
        Some(cached.session)
    }

    /// A new id: even, positive, not in use.
    fn new_id(&mut self) -> i32 {
        loop {
            // SplitMix64.
            self.random = self.random.wrapping_add(0x9e37_79b9_7f4a_7c15);
            let mut mixed = self.random;
            mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
            mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
            mixed ^= mixed >> 31;
            let id = i32::try_from(mixed >> 34).unwrap_or(0) * 2;
            if id > 0 && !self.sessions.contains_key(&id) {
                return id;
            }
        }
    }

    /// Remove the sessions that this follower does not use any more: those of an earlier life of its broker, and those
    /// without a fetch for longer than any fetch waits. Partitions would tell them of each append.
    fn take_dead(
        &mut self,
        broker: FollowingBroker,
        limits: SessionLimits,
        now_ms: i64,
    ) -> Vec<Arc<FetchSession>> {
        let is_dead = |cached: &Cached| {
            let owner = cached.session.follower();
            owner.is_some_and(|owner| owner.replica_id == broker.replica_id)
                && (owner.is_some_and(|owner| owner.broker_epoch < broker.broker_epoch)
                    || now_ms - cached.last_used_ms > limits.eviction_ms)
        };
        let dead = self.sessions.iter().filter(|(_, cached)| is_dead(cached)).map(|(id, _)| *id);
        let dead: Vec<i32> = dead.collect();
        dead.into_iter().filter_map(|id| self.remove(id)).collect()
    }

    /// A session that goes for one of this rank: `Err` if there is no room, else what to remove.
    fn victim(&self, rank: Rank, limits: SessionLimits, now_ms: i64) -> Result<Option<i32>, ()> {
        if self.sessions.len() < limits.max_slots {
            return Ok(None);
        }
        let oldest = self.by_use.values().next().filter(|_| limits.max_slots > 0).ok_or(())?;
        let is_idle = |cached: &Cached| now_ms - cached.last_used_ms > limits.eviction_ms;
        if self.sessions.get(oldest).is_some_and(is_idle) {
            return Ok(Some(*oldest));
        }
        // Only sessions that had their time may lose: consumers before followers, small before large, in the order of use.
        self.by_use
            .values()
            .filter_map(|id| self.sessions.get_key_value(id))
            .filter(|(_, cached)| now_ms - cached.created_ms > limits.eviction_ms)
            .map(|(id, cached)| (rank_of(&cached.session), *id))
            .min_by_key(|(found, _)| *found)
            .filter(|(found, _)| *found < rank)
            .map(|(_, id)| Some(id))
            .ok_or(())
    }
}

impl SessionCache {
    /// No session yet; `seed` decides about the ids.
    pub fn new(seed: u64) -> Self {
        let state = State { sessions: HashMap::new(), by_use: BTreeMap::new(), next_use: 0, random: seed };
        Self { state: Mutex::new(state) }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sessions there are.
    pub fn len(&self) -> usize {
        self.state().sessions.len()
    }

    /// Whether there is no session.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Partitions in all sessions.
    pub fn partition_count(&self) -> usize {
        self.state().sessions.values().map(|cached| cached.session.partition_count()).sum()
    }

    /// Whether a session with this id is one of the data path.
    pub fn owns(session_id: i32) -> bool {
        session_id > 0 && session_id % 2 == 0
    }

    /// The session that an incremental request of `peer` continues; its epoch moves on. Another client's is not found.
    ///
    /// # Errors
    /// The error code of the whole answer.
    pub fn find(
        &self,
        id: i32,
        epoch: i32,
        has_topic_ids: bool,
        peer: &Peer,
        now_ms: i64,
    ) -> Result<Arc<FetchSession>, i16> {
        let mut state = self.state();
        let state = &mut *state;
        let cached = state.sessions.get_mut(&id).filter(|cached| cached.session.is_of(peer));
        let cached = cached.ok_or(error_code::FETCH_SESSION_ID_NOT_FOUND)?;
        if cached.has_topic_ids != has_topic_ids {
            return Err(error_code::FETCH_SESSION_TOPIC_ID_ERROR);
        }
        if cached.epoch != epoch {
            return Err(error_code::INVALID_FETCH_SESSION_EPOCH);
        }
        cached.epoch = next_epoch(epoch);
        cached.last_used_ms = now_ms;
        state.by_use.remove(&cached.used);
        cached.used = state.next_use;
        state.by_use.insert(cached.used, id);
        state.next_use += 1;
        Ok(Arc::clone(&cached.session))
    }

    /// Give a session an id, or `None` if there is no slot for it: the fetch then goes without. Dead sessions of the same
    /// follower go.
    pub fn register(
        &self,
        session: &Arc<FetchSession>,
        has_topic_ids: bool,
        limits: SessionLimits,
        now_ms: i64,
    ) -> Option<i32> {
        let mut state = self.state();
        let dead = session.follower().map(|broker| state.take_dead(broker, limits, now_ms));
        let Ok(victim) = state.victim(rank_of(session), limits, now_ms) else {
            drop(state);
            drop(dead);
            return None;
        };
        let evicted = victim.and_then(|id| state.remove(id));
        let (id, used) = (state.new_id(), state.next_use);
        state.next_use += 1;
        state.by_use.insert(used, id);
        let cached = Cached {
            session: Arc::clone(session),
            epoch: next_epoch(0),
            has_topic_ids,
            created_ms: now_ms,
            last_used_ms: now_ms,
            used,
        };
        state.sessions.insert(id, cached);
        drop(state);
        // Only now: they leave their partitions, whose locks are not taken under that of the cache.
        drop((dead, evicted));
        Some(id)
    }

    /// Close a session for its client; that of another one stays.
    pub fn close(&self, id: i32, peer: &Peer) {
        let mut state = self.state();
        let is_own = state.sessions.get(&id).is_some_and(|cached| cached.session.is_of(peer));
        let removed = if is_own { state.remove(id) } else { None };
        drop(state); // as in `register`
        drop(removed);
    }

    /// Close a session; an unknown one is nothing to worry about.
    pub fn remove(&self, id: i32) {
        let removed = self.state().remove(id);
        drop(removed); // after the lock, as in `register`
    }
}

/// The epoch after `epoch`; -1 and 0 have other meanings and are skipped.
fn next_epoch(epoch: i32) -> i32 {
    match epoch {
        i32::MAX => 1,
        ..0 => -1,
        epoch => epoch + 1,
    }
}
