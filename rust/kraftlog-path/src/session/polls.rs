//! Fetches of followers that wait here, and followers that have more to fetch than the fetch that waits names.
//!
//! Until an in-sync follower has fetched a partition from its new leader, nothing is acknowledged there with acks=all. A
//! fetch that waits names only what its follower knew of when it was sent. So it ends when this node begins to lead another
//! partition, and the next ones wait for some milliseconds only until one of them names that partition.
use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use super::FetchSession;
use crate::partition::PartitionKey;

/// A follower that names nothing for longer is dead, or throttled.
const AWAITED_FOR: Duration = Duration::from_secs(2);
const FIRST_WAIT_MS: i32 = 5;

/// What one follower has to name.
#[derive(Debug)]
struct Awaited {
    until: Instant,
    /// How long its next fetch may wait; twice as long each time, as a fetch of many partitions has its price.
    wait_ms: i32,
    partitions: HashSet<PartitionKey>,
}

#[derive(Debug, Default)]
struct Follower {
    awaited: Option<Awaited>,
    /// How often fetches of it had to end.
    end_count: u64,
    /// Sessions with a fetch that waits or waited.
    waiting: Vec<Weak<FetchSession>>,
}

/// The followers of the partitions that this node leads.
#[derive(Debug, Default)]
pub struct FollowerPolls {
    /// By broker id: those of the metadata, and of fetches that found what they asked for.
    followers: Mutex<HashMap<i32, Follower>>,
}

/// How long a fetch that has just arrived may wait.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PollWait {
    /// Milliseconds, at most what the follower wants.
    pub max_wait_ms: i32,
    /// For [`FollowerPolls::hold`]: what began to be led since would be missed otherwise.
    end_count: u64,
}

impl FollowerPolls {
    fn followers(&self) -> MutexGuard<'_, HashMap<i32, Follower>> {
        self.followers.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// This node begins to lead a partition that these brokers follow: their fetches that wait are answered.
    pub fn lead(&self, key: PartitionKey, follower_ids: &[i32], now: Instant) {
        let mut ended = Vec::new();
        let mut followers = self.followers();
        for broker_id in follower_ids {
            let follower = followers.entry(*broker_id).or_default();
            follower.awaited.take_if(|awaited| awaited.until < now);
            let awaited = follower.awaited.get_or_insert_with(|| Awaited {
                until: now,
                wait_ms: FIRST_WAIT_MS,
                partitions: HashSet::new(),
            });
            awaited.until = now + AWAITED_FOR;
            awaited.partitions.insert(key);
            follower.end_count += 1;
            ended.append(&mut follower.waiting);
        }
        drop(followers); // sessions are locked by requests, which then come here
        ended.iter().filter_map(Weak::upgrade).for_each(|session| session.end_wait());
    }

    /// A fetch of a follower that names these partitions arrived.
    pub fn arrived(
        &self,
        broker_id: i32,
        named: impl Iterator<Item = PartitionKey>,
        max_wait_ms: i32,
        now: Instant,
    ) -> PollWait {
        let mut followers = self.followers();
        let Some(follower) = followers.get_mut(&broker_id) else {
            return PollWait { max_wait_ms, end_count: 0 };
        };
        let end_count = follower.end_count;
        if let Some(awaited) = &mut follower.awaited {
            for key in named {
                awaited.partitions.remove(&key);
            }
        }
        follower.awaited.take_if(|awaited| awaited.partitions.is_empty() || awaited.until < now);
        let Some(awaited) = &mut follower.awaited else { return PollWait { max_wait_ms, end_count } };
        let wait_ms = awaited.wait_ms;
        awaited.wait_ms = wait_ms.saturating_mul(2);
        PollWait { max_wait_ms: max_wait_ms.min(wait_ms), end_count }
    }

    /// A fetch is about to wait, and ends when more is led here. False if that has happened since it arrived: it has to be
    /// answered now.
    pub(crate) fn hold(&self, broker_id: i32, session: &Arc<FetchSession>, wait: PollWait) -> bool {
        let mut followers = self.followers();
        let follower = followers.entry(broker_id).or_default();
        if follower.end_count != wait.end_count {
            return false;
        }
        let session = Arc::downgrade(session);
        if !follower.waiting.iter().any(|held| held.ptr_eq(&session)) {
            follower.waiting.retain(|held| held.strong_count() > 0);
            follower.waiting.push(session);
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const FOLLOWER: i32 = 2;

    fn key(index: i32) -> PartitionKey {
        PartitionKey { topic_id: [7; 16], index }
    }

    fn wait_ms(polls: &FollowerPolls, broker_id: i32, named: &[i32], now: Instant) -> i32 {
        polls.arrived(broker_id, named.iter().copied().map(key), 500, now).max_wait_ms
    }

    #[test]
    fn fetches_wait_for_a_short_time_until_one_names_what_is_led() {
        let (polls, now) = (FollowerPolls::default(), Instant::now());
        assert_eq!(wait_ms(&polls, FOLLOWER, &[], now), 500);
        polls.lead(key(0), &[FOLLOWER], now);
        polls.lead(key(1), &[FOLLOWER], now);
        assert_eq!(wait_ms(&polls, 3, &[], now), 500);
        let waits: Vec<_> = (0..3).map(|_| wait_ms(&polls, FOLLOWER, &[], now)).collect();
        assert_eq!(waits, [5, 10, 20]);
        assert_eq!(polls.arrived(FOLLOWER, std::iter::empty(), 8, now).max_wait_ms, 8);
        assert_eq!(wait_ms(&polls, FOLLOWER, &[0], now), 80);
        assert_eq!(wait_ms(&polls, FOLLOWER, &[1, 5], now), 500);
        assert_eq!(wait_ms(&polls, FOLLOWER, &[], now), 500);
    }

    #[test]
    fn a_follower_that_names_nothing_is_not_awaited_for_ever() {
        let (polls, now) = (FollowerPolls::default(), Instant::now());
        polls.lead(key(0), &[FOLLOWER], now);
        assert_eq!(wait_ms(&polls, FOLLOWER, &[], now + AWAITED_FOR), 5);
        let later = now + AWAITED_FOR + Duration::from_millis(1);
        polls.lead(key(1), &[FOLLOWER], later);
        // What was given up does not count any more.
        assert_eq!(wait_ms(&polls, FOLLOWER, &[1], later), 500);
        polls.lead(key(2), &[FOLLOWER], later);
        assert_eq!(wait_ms(&polls, FOLLOWER, &[], later + AWAITED_FOR + Duration::from_millis(1)), 500);
    }

    #[test]
    fn a_fetch_that_arrived_before_more_was_led_does_not_begin_to_wait() {
        let (polls, now) = (FollowerPolls::default(), Instant::now());
        let session = Arc::new(FetchSession::new(None));
        let arrived = |polls: &FollowerPolls| polls.arrived(FOLLOWER, std::iter::empty(), 500, now);
        let wait = arrived(&polls);
        polls.lead(key(0), &[FOLLOWER], now);
        assert!(!polls.hold(FOLLOWER, &session, wait));
        let wait = arrived(&polls);
        assert!(polls.hold(FOLLOWER, &session, wait) && polls.hold(FOLLOWER, &session, wait));
        let waiting = |polls: &FollowerPolls| polls.followers()[&FOLLOWER].waiting.len();
        assert_eq!(waiting(&polls), 1);
        drop(session);
        let other = Arc::new(FetchSession::new(None));
        assert!(polls.hold(FOLLOWER, &other, arrived(&polls)));
        assert_eq!(waiting(&polls), 1, "a session that is gone leaves nothing behind");
    }
}
