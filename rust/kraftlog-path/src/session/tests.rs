use super::*;
use crate::core::NO_LEADER;
use crate::error_code;
use crate::flush::FlushPool;
use crate::testing::{assignment, batch, Fixture, Recorder, NODE};
use kraftlog_log::fs::MemoryFileSystem;
use kraftlog_log::producer_state::Origin;

const LIMITS: SessionLimits = SessionLimits { max_slots: 2, eviction_ms: 100 };

fn anybody() -> Peer {
    Peer::anonymous(0, "192.0.2.1")
}

fn wanted(index: i32) -> FetchPartition {
    FetchPartition {
        index,
        current_leader_epoch: -1,
        fetch_offset: 0,
        last_fetched_epoch: -1,
        log_start_offset: -1,
        max_bytes: 1000,
    }
}

fn fixtures(count: i32) -> Vec<Fixture> {
    let (fs, pool) = (MemoryFileSystem::new(), Arc::new(FlushPool::new("flush", 1)));
    (0..count).map(|index| Fixture::over(&fs, index, false, &pool)).collect()
}

fn session_of(fixtures: &[Fixture]) -> Arc<FetchSession> {
    let session = Arc::new(FetchSession::new(None));
    let mut set = session.lock();
    for (index, fixture) in (0..).zip(fixtures) {
        assert!(session.upsert(&mut set, &fixture.partition, wanted(index)));
    }
    drop(set);
    session
}

fn candidates(session: &FetchSession, set: &mut FetchSet) -> Vec<u32> {
    let mut places = Vec::new();
    session.bell().take(&mut places);
    places.iter().for_each(|&place| set.mark(place));
    set.candidates(&mut places);
    places
}

fn append(fixture: &Fixture) {
    fixture.partition.append(&batch("a"), 1, 5, Origin::Client, None).unwrap();
}

#[test]
fn what_was_told_is_told_again_under_another_leader_epoch() {
    let fixtures = fixtures(1);
    let session = session_of(&fixtures);
    let mut set = session.lock();
    let told = |set: &mut FetchSet| {
        let entry = set.entry_mut(0).unwrap();
        (entry.told_high_watermark, entry.told_log_start_offset)
    };
    let entry = set.entry_mut(0).unwrap();
    (entry.told_high_watermark, entry.told_log_start_offset) = (21, 3);
    let later = FetchPartition { fetch_offset: 21, ..wanted(0) };
    assert!(!session.upsert(&mut set, &fixtures[0].partition, later));
    assert_eq!(told(&mut set), (21, 3));
    let renewed = FetchPartition { current_leader_epoch: 4, ..later };
    assert!(!session.upsert(&mut set, &fixtures[0].partition, renewed));
    assert_eq!(told(&mut set), (-1, -1));
}

#[test]
fn a_request_looks_at_what_moved_and_not_at_its_partitions() {
    let fixtures = fixtures(1000);
    let session = session_of(&fixtures);
    let mut set = session.lock();
    session.subscribe(&mut set);
    assert_eq!(candidates(&session, &mut set).len(), 1000);
    set.settle();
    assert!(candidates(&session, &mut set).is_empty());
    append(&fixtures[700]);
    append(&fixtures[3]);
    append(&fixtures[700]);
    assert_eq!(candidates(&session, &mut set), [3, 700]);
    assert_eq!(candidates(&session, &mut set), [3, 700], "until the request is answered");
    set.settle();
    set.begin_request(1);
    assert_eq!(candidates(&session, &mut set).len(), 1000, "another isolation level sees other records");
}

#[test]
fn a_partition_that_had_records_is_served_last() {
    let fixtures = fixtures(3);
    let session = session_of(&fixtures);
    let mut set = session.lock();
    set.move_to_end(0);
    assert_eq!(candidates(&session, &mut set), [1, 2, 0]);
    session.remove(&mut set, fixtures[1].partition.key());
    assert_eq!((candidates(&session, &mut set), session.partition_count()), (vec![2, 0], 2));
    assert!(session.upsert(&mut set, &fixtures[1].partition, wanted(1)));
    assert_eq!(candidates(&session, &mut set), [2, 0, 1], "its place is used again, and is there once");
}

#[test]
fn a_session_leaves_its_partitions_when_it_ends() {
    let fixtures = fixtures(2);
    let session = session_of(&fixtures);
    session.subscribe(&mut session.lock());
    let bell = Arc::downgrade(&session.bell);
    let mut set = session.lock();
    session.remove(&mut set, fixtures[0].partition.key());
    drop(set);
    drop(session);
    assert!(bell.upgrade().is_none(), "no partition holds it");
}

#[test]
fn a_waiter_is_told_once_and_not_if_it_came_late() {
    let fixtures = fixtures(1);
    let session = session_of(&fixtures);
    let mut set = session.lock();
    session.subscribe(&mut set);
    let recorder = Arc::new(Recorder::default());
    assert!(session.bell().wait(&recorder.listener(), 4));
    append(&fixtures[0]);
    append(&fixtures[0]);
    assert_eq!(*recorder.moves.lock().unwrap(), [4]);
    assert!(!session.bell().wait(&recorder.listener(), 5), "something moved before");
    candidates(&session, &mut set);
    assert!(session.bell().wait(&recorder.listener(), 6));
    fixtures[0].partition.assign(assignment(NO_LEADER, 2, 1, &[NODE], &[NODE]), 0);
    assert_eq!(*recorder.moves.lock().unwrap(), [4, 6]);
}

#[test]
fn ids_are_even_and_epochs_follow_each_other() {
    let fixtures = fixtures(1);
    let cache = SessionCache::new(7);
    let session = session_of(&fixtures);
    let id = cache.register(&session, true, LIMITS, 0).unwrap();
    assert!(id > 0 && SessionCache::owns(id));
    let find = |id, epoch, has_topic_ids| cache.find(id, epoch, has_topic_ids, &anybody(), 1).map(|_| ());
    assert_eq!(find(id, 1, false), Err(error_code::FETCH_SESSION_TOPIC_ID_ERROR));
    assert_eq!(find(id, 2, true), Err(error_code::INVALID_FETCH_SESSION_EPOCH));
    assert_eq!((find(id, 1, true), find(id, 2, true)), (Ok(()), Ok(())));
    assert_eq!(find(id, 2, true), Err(error_code::INVALID_FETCH_SESSION_EPOCH));
    cache.remove(id);
    assert_eq!(find(id, 3, true), Err(error_code::FETCH_SESSION_ID_NOT_FOUND));
}

#[test]
fn a_session_with_an_owner_is_not_found_by_others_and_not_closed() {
    let fixtures = fixtures(1);
    let cache = SessionCache::new(7);
    let mut session = FetchSession::new(None);
    session.set_owner(SessionOwner::new(&anybody(), 3));
    assert_eq!(session.generation(), Some(3));
    assert!(session.upsert(&mut session.lock(), &fixtures[0].partition, wanted(0)));
    let id = cache.register(&Arc::new(session), true, LIMITS, 0).unwrap();
    let elsewhere = Peer::anonymous(0, "192.0.2.2");
    let somebody = Peer { principal: "User:alice".to_owned(), ..anybody() };
    for other in [&elsewhere, &somebody] {
        // Neither does its epoch move on.
        let found = cache.find(id, 1, true, other, 1).map(|_| ());
        assert_eq!(found, Err(error_code::FETCH_SESSION_ID_NOT_FOUND));
        assert_eq!(cache.find(id, 8, false, other, 1).map(|_| ()), found);
        cache.close(id, other);
    }
    assert!(cache.find(id, 1, true, &anybody(), 1).is_ok());
    cache.close(id, &anybody());
    assert!(cache.is_empty());
}

#[test]
fn a_full_cache_gives_up_idle_and_smaller_sessions() {
    let fixtures = fixtures(2);
    let cache = SessionCache::new(7);
    let small = || session_of(&fixtures[..1]);
    let first = cache.register(&small(), true, LIMITS, 0).unwrap();
    let second = cache.register(&small(), true, LIMITS, 50).unwrap();
    assert_eq!(cache.register(&session_of(&fixtures), true, LIMITS, 90), None, "both had no time yet");
    cache.find(first, 1, true, &anybody(), 90).unwrap();
    let large = cache.register(&session_of(&fixtures), true, LIMITS, 149).unwrap();
    assert!(cache.find(first, 2, true, &anybody(), 149).is_err(), "created longest ago, and smaller");
    assert_eq!(cache.register(&small(), true, LIMITS, 150), None, "none is smaller");
    cache.register(&small(), true, LIMITS, 151).unwrap();
    assert!(cache.find(second, 1, true, &anybody(), 151).is_err(), "unused for longer than the limit");
    assert!(cache.find(large, 1, true, &anybody(), 151).is_ok());
    let none = SessionLimits { max_slots: 0, eviction_ms: 0 };
    assert_eq!(cache.register(&small(), true, none, 999), None);
}

#[test]
fn a_follower_that_opens_a_session_leaves_no_dead_one_behind() {
    let fixtures = fixtures(1);
    let cache = SessionCache::new(7);
    let limits = SessionLimits { max_slots: 10, eviction_ms: 100 };
    let open = |replica_id, broker_epoch, now_ms| {
        let session = Arc::new(FetchSession::new(Some(FollowingBroker { replica_id, broker_epoch })));
        session.upsert(&mut session.lock(), &fixtures[0].partition, wanted(0));
        session.subscribe(&mut session.lock());
        let bell = Arc::downgrade(&session.bell);
        (cache.register(&session, true, limits, now_ms).unwrap(), bell)
    };
    let first = open(2, 5, 0);
    let second = open(2, 5, 100);
    let other = open(3, 4, 0);
    let consumer = cache.register(&session_of(&fixtures), true, limits, 0).unwrap();
    assert_eq!(cache.len(), 4, "a broker has one for each of its fetchers");
    assert!(cache.find(first.0, 1, true, &anybody(), 100).is_ok());
    let idle = open(2, 5, 201);
    assert!(
        cache.find(first.0, 2, true, &anybody(), 201).is_err() && first.1.upgrade().is_none(),
        "no partition tells it"
    );
    assert!(cache.find(second.0, 1, true, &anybody(), 201).is_err());
    let restarted = open(2, 6, 202);
    assert!(cache.find(idle.0, 1, true, &anybody(), 202).is_err() && idle.1.upgrade().is_none());
    for live in [restarted.0, other.0, consumer] {
        assert!(cache.find(live, 1, true, &anybody(), 202).is_ok());
    }
}
