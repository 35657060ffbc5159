//! A node with an authorizer: what is served, and to whom, follows from the grants of the moment.
use super::grants::{Allowed, GrantLimits, Grants, Identity, TopicId, TopicOperation};
use super::tests::*;
use super::*;
use crate::error_code;
use crate::testing::batch;
use kraftlog_log::builder::{BatchBuilder, BatchOptions};
use kraftlog_log::log::AppendOptions;
use kraftlog_log::producer_state::Origin;

const READ: Allowed<'_> = Allowed::Topics(TopicOperation::Read, &[TOPIC]);
const WRITE: Allowed<'_> = Allowed::Topics(TopicOperation::Write, &[TOPIC]);
const FOLLOWER: i32 = 2;

struct Granting {
    bench: Bench,
    grants: Arc<Grants>,
}

fn alice() -> Peer {
    Peer { principal: "User:alice".to_owned(), ..Peer::anonymous(0, "192.0.2.1") }
}

/// Others who must not have what Alice has: another principal, and Alice at another address.
fn others() -> [Peer; 2] {
    [Peer::anonymous(0, "192.0.2.1"), Peer { host: "192.0.2.2".to_owned(), ..alice() }]
}

impl Granting {
    fn new() -> Self {
        let grants = Arc::new(Grants::new(GrantLimits::default()));
        Self { bench: Bench::with_grants(2, false, Some(Arc::clone(&grants))), grants }
    }

    fn allow(&self, allowed: Allowed<'_>) {
        let generation = self.grants.generation();
        assert!(self.grants.allow(generation, Identity::from(&alice()), allowed));
    }

    fn ask(&mut self, peer: &Peer, ask: Ask) -> Outcome {
        self.bench.handle_of(peer, &Ask { max_wait_ms: 0, ..ask }.frame())
    }

    fn code(&mut self, peer: &Peer, ask: Ask) -> i16 {
        fetched(self.ask(peer, ask)).error_code
    }

    /// A session with both partitions.
    fn open(&mut self) -> i32 {
        let opened = fetched(self.ask(&alice(), Ask::of((0, 0), &[(0, 0), (1, 0)])));
        assert_ne!(opened.session_id, 0);
        opened.session_id
    }

    fn session_count(&self) -> usize {
        self.bench.service.shared.sessions().len()
    }
}

fn is_handed_over(outcome: &Outcome) -> bool {
    matches!(outcome, Outcome::HandOver)
}

#[test]
fn a_produce_is_served_while_its_topic_is_granted() {
    let mut node = Granting::new();
    let records = batch("a");
    let frame = produce(-1, 1000, &[(0, &records), (1, &records)]);
    assert!(is_handed_over(&node.bench.handle_of(&alice(), &frame)));
    node.allow(READ);
    assert!(is_handed_over(&node.bench.handle_of(&alice(), &frame)), "to read is another operation");
    node.allow(WRITE);
    assert_eq!(produced(node.bench.handle_of(&alice(), &frame)), [(0, 0, 0), (1, 0, 0)]);
    for other in others() {
        assert!(is_handed_over(&node.bench.handle_of(&other, &frame)));
    }
    node.grants.revoke(1);
    assert!(is_handed_over(&node.bench.handle_of(&alice(), &frame)));
    assert_eq!([node.bench.end_offset(0), node.bench.end_offset(1)], [1, 1]);
}

#[test]
fn records_of_a_transaction_need_its_id() {
    let mut node = Granting::new();
    let in_transaction = |base_sequence| {
        let options = BatchOptions {
            producer_id: 7,
            producer_epoch: 0,
            base_sequence,
            is_transactional: true,
            ..BatchOptions::default()
        };
        let mut builder = BatchBuilder::new(options).unwrap();
        builder.append(1, None, Some(b"a"), &[]).unwrap();
        builder.finish().unwrap()
    };
    // Its coordinator has agreed to the transaction: Python appended its first batch.
    let options =
        AppendOptions { transaction_version: Some(0), ..AppendOptions::new(-1, 5, Origin::Coordinator) };
    node.bench.fixtures[0].partition.append_with(&in_transaction(0), 1, options, None).unwrap();
    node.allow(WRITE);
    let records = in_transaction(1);
    let frame = produce_in(&[2, b't'], -1, 1000, &[(0, &records)]);
    assert!(is_handed_over(&node.bench.handle_of(&alice(), &frame)));
    node.allow(Allowed::TransactionalId("other"));
    assert!(is_handed_over(&node.bench.handle_of(&alice(), &frame)));
    node.allow(Allowed::TransactionalId("t"));
    assert_eq!(produced(node.bench.handle_of(&alice(), &frame)), [(0, 0, 1)]);
    // As in Kafka, the id alone is no reason to ask.
    let plain = batch("a");
    let frame = produce_in(&[2, b'u'], -1, 1000, &[(0, &plain)]);
    assert_eq!(produced(node.bench.handle_of(&alice(), &frame)), [(0, 0, 2)]);
}

#[test]
fn a_session_ends_with_the_acls_by_which_it_was_opened() {
    let mut node = Granting::new();
    assert!(is_handed_over(&node.ask(&alice(), Ask::of((0, 0), &[(0, 0)]))));
    node.allow(WRITE);
    assert!(is_handed_over(&node.ask(&alice(), Ask::of((0, 0), &[(0, 0)]))), "to write is another operation");
    node.allow(READ);
    let session = node.open();
    assert_eq!(node.code(&alice(), Ask::of((session, 1), &[])), error_code::NONE);
    assert_eq!(node.code(&alice(), Ask::of((session, 2), &[(1, 0)])), error_code::NONE);
    node.grants.revoke(1);
    assert_eq!(node.code(&alice(), Ask::of((session, 3), &[])), error_code::FETCH_SESSION_ID_NOT_FOUND);
    assert_eq!(node.session_count(), 0);
    assert!(is_handed_over(&node.ask(&alice(), Ask::of((session, 0), &[(0, 0)]))));
    // What is granted anew is granted by other ACLs.
    node.allow(READ);
    let session = node.open();
    node.grants.revoke(2);
    node.allow(READ);
    let named = Ask::of((session, 1), &[(0, 0), (1, 0)]);
    assert_eq!(node.code(&alice(), named), error_code::FETCH_SESSION_ID_NOT_FOUND);
}

#[test]
fn a_session_gives_nothing_to_others_and_is_not_ended_by_them() {
    let mut node = Granting::new();
    node.allow(READ);
    let session = node.open();
    for other in others() {
        let generation = node.grants.generation();
        assert!(node.grants.allow(generation, Identity::from(&other), READ));
        for epoch in [1, 2] {
            let code = node.code(&other, Ask::of((session, epoch), &[]));
            assert_eq!(code, error_code::FETCH_SESSION_ID_NOT_FOUND);
        }
        node.ask(&other, Ask::of((session, -1), &[(0, 0)]));
    }
    assert_eq!(node.code(&alice(), Ask::of((session, 1), &[])), error_code::NONE);
    node.ask(&alice(), Ask::of((session, -1), &[(0, 0)]));
    assert_eq!(node.session_count(), 0);
}

#[test]
fn a_partition_joins_a_session_only_if_it_is_granted() {
    let mut node = Granting::new();
    node.allow(READ);
    let session = fetched(node.ask(&alice(), Ask::of((0, 0), &[(0, 0)]))).session_id;
    // A table that is full forgets what it had, without a change of the ACLs.
    for first in [1, 2] {
        let topic_id = |number: u32| [[first; 12].as_slice(), &number.to_be_bytes()].concat();
        let topic_ids: Vec<TopicId> =
            (0..20_000).map(|number| topic_id(number).try_into().unwrap()).collect();
        node.allow(Allowed::Topics(TopicOperation::Write, &topic_ids));
    }
    assert_eq!(node.code(&alice(), Ask::of((session, 1), &[])), error_code::NONE);
    let joins = Ask::of((session, 2), &[(1, 0)]);
    assert_eq!(node.code(&alice(), joins), error_code::FETCH_SESSION_ID_NOT_FOUND);
}

#[test]
fn a_fetch_that_waits_was_judged_when_it_came() {
    let mut node = Granting::new();
    node.allow(READ);
    let waits = Ask::of((0, -1), &[(0, 0)]).frame();
    assert!(matches!(node.bench.handle_of(&alice(), &waits), Outcome::Pending));
    node.grants.revoke(1);
    let partition = &node.bench.fixtures[0].partition;
    partition.append(&batch("a"), 1, 5, Origin::Client, None).unwrap();
    assert_eq!(fetched(only(node.bench.turn())).partitions, [(0, 0, 1, batch("a").len())]);
    assert!(is_handed_over(&node.bench.handle_of(&alice(), &waits)));
}

#[test]
fn a_replica_is_asked_for_its_one_grant_with_each_fetch() {
    let mut node = Granting::new();
    let as_follower =
        |session, partitions: &[(i32, i64)]| Ask { replica_id: FOLLOWER, ..Ask::of(session, partitions) };
    node.allow(READ);
    assert!(is_handed_over(&node.ask(&alice(), as_follower((0, 0), &[(0, 0)]))), "to read is not enough");
    node.allow(Allowed::Replication);
    let session = fetched(node.ask(&alice(), as_follower((0, 0), &[(0, 0)]))).session_id;
    assert_ne!(session, 0);
    assert!(is_handed_over(&node.ask(&others()[0], as_follower((0, -1), &[(0, 0)]))));
    assert_eq!(
        node.code(&others()[0], as_follower((session, 1), &[])),
        error_code::FETCH_SESSION_ID_NOT_FOUND
    );
    // Its session outlives a change of ACLs that leaves it the grant.
    node.grants.revoke(1);
    node.allow(Allowed::Replication);
    assert_eq!(node.code(&alice(), as_follower((session, 1), &[(1, 0)])), error_code::NONE);
    node.grants.revoke(2);
    assert_eq!(node.code(&alice(), as_follower((session, 2), &[])), error_code::FETCH_SESSION_ID_NOT_FOUND);
    assert_eq!(node.session_count(), 0);
    assert!(is_handed_over(&node.ask(&alice(), as_follower((0, 0), &[(0, 0)]))));
}
