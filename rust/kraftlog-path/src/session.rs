//! Fetch sessions (KIP-227): what a client asked for is remembered, so requests and answers carry changes only.
//!
//! A session subscribes to its partitions. An incremental fetch looks only at those that moved since, that the request
//! changed, or that had more than the last answer took: its cost follows from what changed, not from the number of
//! partitions.
use std::collections::hash_map::Entry as MapEntry;
use std::collections::HashMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::exchange::Peer;
use crate::partition::{FollowerSession, Listener, Partition, PartitionKey};
use crate::wire::fetch::FetchPartition;

mod bell;
mod cache;
mod polls;
#[cfg(test)]
mod tests;

pub(crate) use bell::Bell;
pub use cache::{SessionCache, SessionLimits};
pub use polls::{FollowerPolls, PollWait};

/// One partition of a session, with what the client was told last.
#[derive(Debug)]
pub(crate) struct SessionPartition {
    pub(crate) partition: Arc<Partition>,
    pub(crate) wanted: FetchPartition,
    pub(crate) told_high_watermark: i64,
    pub(crate) told_log_start_offset: i64,
    /// No two partitions of a session ever have the same; a place is used again.
    pub(crate) number: u64,
    /// Served in this order.
    pub(crate) order: u64,
    /// Where the request that is being served keeps what it read.
    pub(crate) read_at: usize,
    /// Whether its place is among the candidates.
    is_candidate: bool,
}

/// A broker that fetches to replicate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FollowingBroker {
    /// Its id.
    pub replica_id: i32,
    /// Of its registration, -1 where the request does not say.
    pub broker_epoch: i64,
}

/// Whose a session is, on a node with an authorizer: another client must not read by it.
#[derive(Debug)]
pub(crate) struct SessionOwner {
    principal: Box<str>,
    host: Box<str>,
    /// Of the ACLs that allow its partitions.
    generation: u64,
}

impl SessionOwner {
    pub(crate) fn new(peer: &Peer, generation: u64) -> Self {
        Self { principal: peer.principal.as_str().into(), host: peer.host.as_str().into(), generation }
    }
}

/// The partitions that one client follows.
pub struct FetchSession {
    bell: Arc<Bell>,
    listener: Arc<dyn Listener>,
    as_follower: Arc<dyn FollowerSession>,
    /// `None` for a consumer.
    follower: Option<FollowingBroker>,
    /// `None` without an authorizer.
    owner: Option<SessionOwner>,
    partition_count: AtomicUsize,
    set: Mutex<FetchSet>,
}

/// What a session follows, locked by the request that it serves.
#[derive(Debug, Default)]
pub(crate) struct FetchSet {
    places: Vec<Option<SessionPartition>>,
    free: Vec<u32>,
    by_key: HashMap<PartitionKey, u32>,
    /// Places that the next request looks at, each once.
    candidates: Vec<u32>,
    next_order: u64,
    is_subscribed: bool,
    /// Of the last request: with another one, other records may be read.
    isolation_level: i8,
    /// Requests and [`FetchSession::end_wait`] so far: one that waits ends with the next of them.
    pub(crate) request_count: u64,
}

impl fmt::Debug for FetchSession {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("FetchSession").field("bell", &self.bell).field("set", &self.set).finish()
    }
}

impl FetchSession {
    /// A session without partitions, and without an id; `follower` is `None` for a consumer.
    pub(crate) fn new(follower: Option<FollowingBroker>) -> Self {
        let bell = Arc::new(Bell::default());
        let listener = Arc::clone(&bell) as Arc<dyn Listener>;
        let as_follower = Arc::clone(&bell) as Arc<dyn FollowerSession>;
        let set = Mutex::new(FetchSet::default());
        Self { bell, listener, as_follower, follower, owner: None, partition_count: AtomicUsize::new(0), set }
    }

    /// The session of this client alone.
    pub(crate) fn set_owner(&mut self, owner: SessionOwner) {
        self.owner = Some(owner);
    }

    /// Whether this client may go on with it.
    pub(crate) fn is_of(&self, peer: &Peer) -> bool {
        self.owner.as_ref().is_none_or(|owner| *owner.principal == peer.principal && *owner.host == peer.host)
    }

    /// Of the ACLs that allow its partitions; `None` without an authorizer.
    pub(crate) fn generation(&self) -> Option<u64> {
        self.owner.as_ref().map(|owner| owner.generation)
    }

    /// The broker that it belongs to; `None` for a consumer.
    pub fn follower(&self) -> Option<FollowingBroker> {
        self.follower
    }

    /// What partitions know of the session of a follower.
    pub(crate) fn as_follower(&self) -> &Arc<dyn FollowerSession> {
        &self.as_follower
    }

    fn join(&self, partition: &Partition, place: u32) {
        match self.follower {
            Some(follower) => partition.follow(&self.as_follower, place, follower.replica_id),
            None => partition.subscribe(&self.listener, u64::from(place)),
        }
    }

    fn leave(&self, partition: &Partition, place: u32) {
        match self.follower {
            Some(_) => partition.unfollow(&self.as_follower, place),
            None => partition.unsubscribe(&self.listener, u64::from(place)),
        }
    }

    /// How many partitions it has.
    pub fn partition_count(&self) -> usize {
        self.partition_count.load(Ordering::Relaxed)
    }

    pub(crate) fn bell(&self) -> &Bell {
        &self.bell
    }

    pub(crate) fn lock(&self) -> MutexGuard<'_, FetchSet> {
        self.set.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Answer the request that waits, if there is one, with what it has read.
    pub(crate) fn end_wait(&self) {
        self.lock().request_count += 1;
        self.bell.wake();
    }

    /// Be told of moves from now on; every partition counts as moved.
    pub(crate) fn subscribe(&self, set: &mut FetchSet) {
        set.is_subscribed = true;
        for place in 0..set.places.len() as u32 {
            if let Some(entry) = set.entry(place) {
                self.join(&entry.partition, place);
            }
            set.mark(place);
        }
    }

    /// Add a partition, or change what is wanted of it. False if it was there. The client may have dropped an answer to
    /// an earlier leader epoch: after a change of epoch, the next one names the partition even if nothing else has changed.
    pub(crate) fn upsert(
        &self,
        set: &mut FetchSet,
        partition: &Arc<Partition>,
        wanted: FetchPartition,
    ) -> bool {
        let key = partition.key();
        if let Some(&place) = set.by_key.get(key) {
            let known = set.places.get_mut(place as usize).and_then(Option::as_mut);
            if let Some(known) = known.filter(|known| Arc::ptr_eq(&known.partition, partition)) {
                if known.wanted.current_leader_epoch != wanted.current_leader_epoch {
                    (known.told_high_watermark, known.told_log_start_offset) = (-1, -1);
                }
                known.wanted = wanted;
                set.mark(place);
                return false;
            }
            // The same partition under a new object: it was closed and opened again.
            self.remove(set, key);
        }
        let place = self.push(set, partition, wanted);
        set.by_key.insert(*key, place);
        true
    }

    /// Add a partition that may be there already: a fetch without a session answers it twice.
    pub(crate) fn push(&self, set: &mut FetchSet, partition: &Arc<Partition>, wanted: FetchPartition) -> u32 {
        let entry = SessionPartition {
            partition: Arc::clone(partition),
            wanted,
            told_high_watermark: -1,
            told_log_start_offset: -1,
            number: set.next_order,
            order: set.next_order,
            read_at: usize::MAX,
            is_candidate: false,
        };
        set.next_order += 1;
        let place = set.free.pop().unwrap_or(set.places.len() as u32);
        match set.places.get_mut(place as usize) {
            Some(free) => *free = Some(entry),
            None => set.places.push(Some(entry)),
        }
        if set.is_subscribed {
            self.join(partition, place);
        }
        set.mark(place);
        self.partition_count.fetch_add(1, Ordering::Relaxed);
        place
    }

    /// Take a partition out; one that is not there is nothing to worry about.
    pub(crate) fn remove(&self, set: &mut FetchSet, key: &PartitionKey) {
        let MapEntry::Occupied(known) = set.by_key.entry(*key) else { return };
        let place = known.remove();
        let Some(entry) = set.places.get_mut(place as usize).and_then(Option::take) else { return };
        if set.is_subscribed {
            self.leave(&entry.partition, place);
        }
        set.free.push(place);
        self.partition_count.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Drop for FetchSession {
    fn drop(&mut self) {
        let set = std::mem::take(self.set.get_mut().unwrap_or_else(PoisonError::into_inner));
        if !set.is_subscribed {
            return;
        }
        for (place, entry) in (0..).zip(&set.places) {
            if let Some(entry) = entry {
                self.leave(&entry.partition, place);
            }
        }
    }
}

impl FetchSet {
    /// The partition at a place, unless it was taken out.
    pub(crate) fn entry(&self, place: u32) -> Option<&SessionPartition> {
        self.places.get(place as usize).and_then(Option::as_ref)
    }

    /// As [`Self::entry`], to change it.
    pub(crate) fn entry_mut(&mut self, place: u32) -> Option<&mut SessionPartition> {
        self.places.get_mut(place as usize).and_then(Option::as_mut)
    }

    /// Whether its session is told of moves.
    pub(crate) fn is_subscribed(&self) -> bool {
        self.is_subscribed
    }

    /// Whether no partition is left.
    pub(crate) fn is_empty(&self) -> bool {
        self.places.len() == self.free.len()
    }

    /// Look at this partition with the next request.
    pub(crate) fn mark(&mut self, place: u32) {
        if let Some(entry) = self.places.get_mut(place as usize).and_then(Option::as_mut) {
            if !std::mem::replace(&mut entry.is_candidate, true) {
                self.candidates.push(place);
            }
        }
    }

    /// A request with this isolation level begins; it ends those before.
    pub(crate) fn begin_request(&mut self, isolation_level: i8) {
        self.request_count += 1;
        if std::mem::replace(&mut self.isolation_level, isolation_level) != isolation_level {
            for place in 0..self.places.len() as u32 {
                self.mark(place);
            }
        }
    }

    /// The partitions to look at, in the order in which they are served; `into` is cleared first. They stay until
    /// [`Self::settle`]: a request that is never answered leaves them to the next one.
    pub(crate) fn candidates(&self, into: &mut Vec<u32>) {
        into.clear();
        into.extend(self.candidates.iter().copied().filter(|&place| self.entry(place).is_some()));
        into.sort_unstable_by_key(|&place| self.entry(place).map(|entry| entry.order));
        // A place may be there twice if its partition was taken out and another one came.
        into.dedup();
    }

    /// The request is answered: nothing is to be looked at but what is marked from now on.
    pub(crate) fn settle(&mut self) {
        for place in std::mem::take(&mut self.candidates) {
            if let Some(entry) = self.entry_mut(place) {
                entry.is_candidate = false;
            }
        }
    }

    /// Serve this partition last next time, so that a busy one does not starve the others.
    pub(crate) fn move_to_end(&mut self, place: u32) {
        let order = self.next_order;
        if let Some(entry) = self.entry_mut(place) {
            entry.order = order;
            self.next_order += 1;
        }
    }
}
