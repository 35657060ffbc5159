//! What an authorizer has allowed: an I/O thread serves a request without asking it if all that the request needs is here.
//!
//! The authorizer decides, in Python, about each request that the threads hand over; what it allowed is granted to the
//! identity that asked. A change of the ACLs revokes all grants. Each grant names the generation of the ACLs that it
//! follows from, so that a decision that was made before a change grants nothing after it.
use std::collections::{HashMap, HashSet};
use std::sync::{PoisonError, RwLock, RwLockReadGuard, RwLockWriteGuard};

use crate::exchange::Peer;

/// An id of a topic: ids are never used again, so what is granted for one stays right if the topic is deleted.
pub type TopicId = [u8; 16];

/// What a table may hold, in bytes as they are counted here. A table that is full forgets everything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GrantLimits {
    /// Of one identity.
    pub identity_bytes: usize,
    /// Of all.
    pub total_bytes: usize,
}

impl Default for GrantLimits {
    /// 26 000 topics of an identity, which is more than an I/O thread serves in one request; sixteen times as many of all.
    fn default() -> Self {
        Self { identity_bytes: 1 << 20, total_bytes: 16 << 20 }
    }
}

/// Memory of one topic, with the room that a hash table keeps free.
const TOPIC_BYTES: usize = 40;
/// Memory of a text besides its own length, and of an identity besides its texts.
const TEXT_BYTES: usize = 64;
const IDENTITY_BYTES: usize = 256;

/// What is done to a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TopicOperation {
    /// Fetch.
    Read = 1,
    /// Produce.
    Write = 2,
}

/// The principal and the host of a client: what decisions of an authorizer depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Identity<'a> {
    /// As ACLs name it: `User:alice`.
    pub principal: &'a str,
    /// The client's address.
    pub host: &'a str,
}

impl<'a> From<&'a Peer> for Identity<'a> {
    fn from(peer: &'a Peer) -> Self {
        Self { principal: &peer.principal, host: &peer.host }
    }
}

/// What is allowed.
#[derive(Clone, Copy, Debug)]
pub enum Allowed<'a> {
    /// An operation on topics.
    Topics(TopicOperation, &'a [TopicId]),
    /// WRITE on a transactional id.
    TransactionalId(&'a str),
    /// CLUSTER_ACTION: to fetch as a replica.
    Replication,
}

impl Allowed<'_> {
    fn size_bytes(&self) -> usize {
        match self {
            Self::Topics(_, topic_ids) => topic_ids.len() * TOPIC_BYTES,
            Self::TransactionalId(id) => TEXT_BYTES + id.len(),
            Self::Replication => 0,
        }
    }
}

/// Grants of one identity.
#[derive(Debug, Default)]
struct Granted {
    /// Topic to the operations, as bits.
    topics: HashMap<TopicId, u8>,
    transactional_ids: HashSet<Box<str>>,
    may_replicate: bool,
    size_bytes: usize,
}

impl Granted {
    fn allow(&mut self, allowed: Allowed<'_>) {
        match allowed {
            Allowed::Topics(operation, topic_ids) => {
                for topic_id in topic_ids {
                    *self.topics.entry(*topic_id).or_insert_with(|| {
                        self.size_bytes += TOPIC_BYTES;
                        0
                    }) |= operation as u8;
                }
            }
            Allowed::TransactionalId(id) => {
                if !self.transactional_ids.contains(id) {
                    self.transactional_ids.insert(id.into());
                    self.size_bytes += allowed.size_bytes();
                }
            }
            Allowed::Replication => self.may_replicate = true,
        }
    }

    /// What it takes to allow this as well; a topic that is named twice counts twice.
    fn growth_bytes(&self, allowed: &Allowed<'_>) -> usize {
        match allowed {
            Allowed::Topics(_, topic_ids) => {
                topic_ids.iter().filter(|id| !self.topics.contains_key(*id)).count() * TOPIC_BYTES
            }
            Allowed::TransactionalId(id) if self.transactional_ids.contains(*id) => 0,
            _ => allowed.size_bytes(),
        }
    }

    fn may(&self, operation: TopicOperation, topic_id: &TopicId) -> bool {
        self.topics.get(topic_id).is_some_and(|operations| operations & operation as u8 != 0)
    }
}

/// Principal to host to grants.
type ByIdentity = HashMap<Box<str>, HashMap<Box<str>, Granted>>;

#[derive(Debug, Default)]
struct Table {
    generation: u64,
    by_principal: ByIdentity,
    size_bytes: usize,
}

impl Table {
    fn find(&self, who: Identity<'_>) -> Option<&Granted> {
        self.by_principal.get(who.principal)?.get(who.host)
    }

    /// What was there, to be freed when the lock is given up.
    fn forget(&mut self) -> ByIdentity {
        self.size_bytes = 0;
        std::mem::take(&mut self.by_principal)
    }

    fn identity(&mut self, who: Identity<'_>) -> &mut Granted {
        let by_host = self.by_principal.entry(who.principal.into()).or_default();
        by_host.entry(who.host.into()).or_default()
    }
}

/// The grants of all identities, shared by the I/O threads.
#[derive(Debug, Default)]
pub struct Grants {
    limits: GrantLimits,
    table: RwLock<Table>,
}

impl Grants {
    /// Nothing is granted, in generation 0.
    pub fn new(limits: GrantLimits) -> Self {
        Self { limits, table: RwLock::default() }
    }

    fn read(&self) -> RwLockReadGuard<'_, Table> {
        self.table.read().unwrap_or_else(PoisonError::into_inner)
    }

    fn write(&self) -> RwLockWriteGuard<'_, Table> {
        self.table.write().unwrap_or_else(PoisonError::into_inner)
    }

    /// The ACLs changed: nothing is granted any more, and only decisions of this generation grant anything. Once this
    /// returned, no request that arrives is served on an earlier grant.
    pub fn revoke(&self, generation: u64) {
        let mut table = self.write();
        table.generation = generation;
        let forgotten = table.forget();
        drop(table);
        drop(forgotten);
    }

    /// The authorizer allowed this to an identity, by the ACLs of `generation`. False, and nothing is granted, if those
    /// changed since or if one identity cannot have so many grants.
    pub fn allow(&self, generation: u64, who: Identity<'_>, allowed: Allowed<'_>) -> bool {
        let own_bytes = IDENTITY_BYTES + who.principal.len() + who.host.len();
        let size_bytes = own_bytes + allowed.size_bytes();
        if size_bytes > self.limits.identity_bytes.min(self.limits.total_bytes) {
            return false;
        }
        let mut forgotten = ByIdentity::new();
        let mut table = self.write();
        if table.generation != generation {
            return false;
        }
        let known = table.find(who);
        let known_bytes = known.map_or(0, |granted| granted.size_bytes);
        let mut grown_bytes = known.map_or(size_bytes, |granted| granted.growth_bytes(&allowed));
        if known_bytes + grown_bytes > self.limits.identity_bytes {
            table.size_bytes -= known_bytes;
            grown_bytes = size_bytes;
            if let Some(by_host) = table.by_principal.get_mut(who.principal) {
                by_host.remove(who.host);
            }
        }
        if table.size_bytes + grown_bytes > self.limits.total_bytes {
            forgotten = table.forget();
        }
        let granted = table.identity(who);
        let before_bytes = granted.size_bytes;
        if before_bytes == 0 {
            granted.size_bytes = own_bytes;
        }
        granted.allow(allowed);
        let added_bytes = granted.size_bytes - before_bytes;
        table.size_bytes += added_bytes;
        drop(table);
        drop(forgotten);
        true
    }

    /// Whether an identity may produce to all these topics, in a transaction if there is a transactional id.
    pub(super) fn may_write<'a>(
        &self,
        who: Identity<'_>,
        mut topic_ids: impl Iterator<Item = &'a TopicId>,
        transactional_id: Option<&str>,
    ) -> bool {
        let table = self.read();
        let Some(granted) = table.find(who) else { return false };
        transactional_id.is_none_or(|id| granted.transactional_ids.contains(id))
            && topic_ids.all(|topic_id| granted.may(TopicOperation::Write, topic_id))
    }

    /// The generation in which an identity may fetch all these topics, if it may.
    pub(super) fn may_read<'a>(
        &self,
        who: Identity<'_>,
        mut topic_ids: impl Iterator<Item = &'a TopicId>,
    ) -> Option<u64> {
        let table = self.read();
        let granted = table.find(who)?;
        topic_ids.all(|topic_id| granted.may(TopicOperation::Read, topic_id)).then_some(table.generation)
    }

    /// The generation in which an identity may fetch as a replica, if it may.
    pub(super) fn may_replicate(&self, who: Identity<'_>) -> Option<u64> {
        let table = self.read();
        table.find(who)?.may_replicate.then_some(table.generation)
    }

    /// Of the ACLs that the grants follow from.
    pub(super) fn generation(&self) -> u64 {
        self.read().generation
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALICE: Identity<'_> = Identity { principal: "User:alice", host: "192.0.2.1" };
    const ELSEWHERE: Identity<'_> = Identity { principal: "User:alice", host: "192.0.2.2" };
    const BOB: Identity<'_> = Identity { principal: "User:bob", host: "192.0.2.1" };

    fn topic_ids(count: u8) -> Vec<TopicId> {
        (0..count).map(|number| [number; 16]).collect()
    }

    fn may_read(grants: &Grants, who: Identity<'_>, topic_ids: &[TopicId]) -> bool {
        grants.may_read(who, topic_ids.iter()).is_some()
    }

    fn may_replicate(grants: &Grants, who: Identity<'_>) -> bool {
        grants.may_replicate(who).is_some()
    }

    #[test]
    fn a_grant_is_for_one_identity_one_operation_and_its_topics() {
        let grants = Grants::default();
        let topics = topic_ids(3);
        assert!(grants.allow(0, ALICE, Allowed::Topics(TopicOperation::Read, &topics[..2])));
        assert!(grants.allow(0, ALICE, Allowed::Topics(TopicOperation::Write, &topics[..1])));
        assert!(may_read(&grants, ALICE, &topics[..2]) && !may_read(&grants, ALICE, &topics));
        assert!(grants.may_write(ALICE, topics[..1].iter(), None));
        assert!(!grants.may_write(ALICE, topics[..2].iter(), None));
        for who in [ELSEWHERE, BOB] {
            assert!(!may_read(&grants, who, &topics[..1]) && !may_replicate(&grants, who));
        }
        assert!(!grants.may_write(ALICE, topics[..1].iter(), Some("t")));
        assert!(grants.allow(0, ALICE, Allowed::TransactionalId("t")));
        assert!(grants.may_write(ALICE, topics[..1].iter(), Some("t")));
        assert!(!grants.may_write(ALICE, topics[..1].iter(), Some("other")));
        assert!(!may_replicate(&grants, ALICE));
        assert!(grants.allow(0, BOB, Allowed::Replication));
        assert!(
            may_replicate(&grants, BOB) && !may_replicate(&grants, ALICE) && !may_read(&grants, BOB, &topics)
        );
    }

    #[test]
    fn a_change_revokes_all_and_an_earlier_decision_grants_nothing() {
        let grants = Grants::default();
        let topics = topic_ids(1);
        let read = Allowed::Topics(TopicOperation::Read, &topics);
        assert!(grants.allow(0, ALICE, read) && grants.allow(0, BOB, Allowed::Replication));
        grants.revoke(7);
        assert!(!may_read(&grants, ALICE, &topics) && !may_replicate(&grants, BOB));
        for generation in [0, 6, 8] {
            assert!(!grants.allow(generation, ALICE, read));
        }
        assert!(!may_read(&grants, ALICE, &topics));
        assert!(grants.allow(7, ALICE, read));
        assert_eq!(grants.may_read(ALICE, topics.iter()), Some(7));
        assert_eq!(grants.generation(), 7);
    }

    #[test]
    fn an_identity_and_the_table_forget_when_they_are_full() {
        let limits = GrantLimits { identity_bytes: 700, total_bytes: 1500 };
        let grants = Grants::new(limits);
        let topics = topic_ids(20);
        let read = |from: usize, to: usize| Allowed::Topics(TopicOperation::Read, &topics[from..to]);
        assert!(!grants.allow(0, ALICE, read(0, 20)), "more than one identity may have");
        assert!(grants.allow(0, ALICE, read(0, 4)) && grants.allow(0, BOB, read(0, 4)));
        // What is granted already takes no more room.
        for _ in 0..100 {
            assert!(grants.allow(0, BOB, read(3, 4)));
        }
        assert!(may_read(&grants, ALICE, &topics[..4]) && may_read(&grants, BOB, &topics[..4]));
        assert!(grants.allow(0, ALICE, read(4, 11)));
        assert!(may_read(&grants, ALICE, &topics[4..11]) && !may_read(&grants, ALICE, &topics[..1]));
        assert!(may_read(&grants, BOB, &topics[..4]));
        assert!(grants.allow(0, ELSEWHERE, read(0, 10)));
        assert!(may_read(&grants, ELSEWHERE, &topics[..10]));
        assert!(!may_read(&grants, ALICE, &topics[4..5]) && !may_read(&grants, BOB, &topics[..1]));
        for number in 0..1000 {
            let host = format!("192.0.2.{number}");
            assert!(grants.allow(0, Identity { principal: "User:many", host: &host }, read(0, 5)));
            assert!(grants.read().size_bytes <= limits.total_bytes);
        }
        let counted: usize = grants
            .read()
            .by_principal
            .values()
            .flat_map(HashMap::values)
            .map(|granted| granted.size_bytes)
            .sum();
        assert_eq!(grants.read().size_bytes, counted);
    }
}
