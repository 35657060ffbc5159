//! Fetches of followers: what they record, what wakes them, what is left to Python.
use super::tests::*;
use super::*;
use crate::core::LiveBroker;
use crate::error_code;
use crate::partition::PartitionSettings;
use crate::python_inbox::PythonEvent;
use crate::testing::{assignment, batch, NODE};
use crate::wire::fetch::FetchPartition;

const FOLLOWER: i32 = 2;
const LAG_MS: i64 = 30_000;

/// Partitions in epoch 2 with a follower that is in sync, or not.
fn replicated(partition_count: i32, is_in_sync: bool) -> Bench {
    let bench = Bench::new(partition_count, false);
    let isr: &[i32] = if is_in_sync { &[NODE, FOLLOWER] } else { &[NODE] };
    for fixture in &bench.fixtures {
        let partition = &fixture.partition;
        let assigned = partition.assign(assignment(NODE, 2, 1, &[NODE, FOLLOWER], isr), 900);
        if let Some((epoch, start_offset)) = assigned.epoch_start {
            partition.write_epoch_start(epoch, start_offset).unwrap();
        }
        partition.hold(false);
        let live = LiveBroker { broker_id: FOLLOWER, epoch: 5, is_shutting_down: false };
        partition.update_live_brokers(vec![live]);
    }
    bench
}

fn ask(session: (i32, i32), partitions: &[(i32, i64)]) -> Ask {
    Ask { replica_id: FOLLOWER, ..Ask::of(session, partitions) }
}

/// Open a session that waits for nothing; its id.
fn open(bench: &mut Bench, partitions: &[(i32, i64)]) -> i32 {
    let opened = fetched(bench.handle(&Ask { max_wait_ms: 0, ..ask((0, 0), partitions) }.frame()));
    assert_eq!((opened.error_code, opened.partitions.len()), (0, partitions.len()));
    assert_ne!(opened.session_id, 0);
    opened.session_id
}

fn append(bench: &Bench, index: usize) {
    let fixture = &bench.fixtures[index];
    fixture.partition.append(&batch("a"), 1, 5, kraftlog_log::producer_state::Origin::Client, None).unwrap();
}

fn caught_up_ms(bench: &Bench, index: usize) -> i64 {
    let partition = &bench.fixtures[index].partition;
    partition.with_core(|core| core.in_sync_followers_with(0))[0].2
}

#[test]
fn an_append_wakes_the_follower_and_its_next_fetch_commits() {
    let mut bench = replicated(2, true);
    let session = open(&mut bench, &[(0, 0), (1, 0)]);
    assert!(matches!(bench.handle(&ask((session, 1), &[]).frame()), Outcome::Pending));
    assert!(matches!(bench.handle(&produce(-1, 1000, &[(1, &batch("a"))])), Outcome::Pending));
    let answered = bench.turn().pop().unwrap();
    let answer = fetched(answered.outcome);
    assert_eq!(answer.partitions.len(), 1);
    assert_eq!((answer.partitions[0].0, answer.partitions[0].1, answer.partitions[0].2), (1, 0, 0));
    assert!(answer.partitions[0].3 > 0);
    assert!(bench.turn().is_empty(), "not committed yet");
    // The high watermark of the answer is that from before this fetch was recorded; the next one has it.
    assert!(matches!(bench.handle(&ask((session, 2), &[(1, 1)]).frame()), Outcome::Pending));
    let produced = bench.turn().pop().unwrap().outcome;
    assert!(matches!(produced, Outcome::Answer(_)), "{produced:?}");
    assert_eq!(bench.fixtures[1].partition.high_watermark(), 1);
    assert!(bench.turn().is_empty(), "the high watermark does not wake a follower");
    let told = fetched(bench.handle(&Ask { max_wait_ms: 0, ..ask((session, 3), &[]) }.frame()));
    assert_eq!(told.partitions, [(1, 0, 1, 0)]);
    let told = fetched(bench.handle(&Ask { max_wait_ms: 0, ..ask((session, 4), &[]) }.frame()));
    assert_eq!(told.partitions, []);
}

#[test]
fn a_follower_that_diverged_is_told_again_what_it_did_not_take_from_that_answer() {
    let mut bench = replicated(1, true);
    append(&bench, 0);
    let session = open(&mut bench, &[(0, 0)]);
    fetched(bench.handle(&Ask { max_wait_ms: 0, ..ask((session, 1), &[(0, 1)]) }.frame()));
    assert_eq!(bench.fixtures[0].partition.high_watermark(), 1);
    let ahead = FetchPartition { last_fetched_epoch: 1, ..wanted(0, 7) };
    let diverging = Ask { partitions: vec![ahead], ..ask((session, 2), &[]) };
    assert_eq!(fetched(bench.handle(&diverging.frame())).partitions.len(), 1);
    let told = fetched(bench.handle(&Ask { max_wait_ms: 0, ..ask((session, 3), &[(0, 1)]) }.frame()));
    assert_eq!(told.partitions, [(0, 0, 1, 0)], "the high watermark, which the last answer had, too");
    let told = fetched(bench.handle(&Ask { max_wait_ms: 0, ..ask((session, 4), &[]) }.frame()));
    assert_eq!(told.partitions, []);
}

#[test]
fn a_partition_that_no_request_names_stays_in_sync_while_the_session_fetches() {
    let mut bench = replicated(2, true);
    let session = open(&mut bench, &[(0, 0), (1, 0)]);
    let opened_ms = caught_up_ms(&bench, 0);
    let fetch = |bench: &mut Bench, epoch, partitions: &[(i32, i64)]| {
        fetched(bench.handle(&Ask { max_wait_ms: 0, ..ask((session, epoch), partitions) }.frame()))
    };
    (1..10).for_each(|epoch| drop(fetch(&mut bench, epoch, &[])));
    let last_ms = caught_up_ms(&bench, 0);
    assert!(last_ms > opened_ms);
    append(&bench, 0);
    assert!(bench.fixtures[0].partition.propose_shrink(last_ms + LAG_MS).is_none());
    // It was caught up when it last fetched, and does not get on since.
    (10..20).for_each(|epoch| drop(fetch(&mut bench, epoch, &[])));
    assert_eq!(caught_up_ms(&bench, 0), last_ms);
    assert!(caught_up_ms(&bench, 1) > last_ms);
    assert!(bench.fixtures[0].partition.propose_shrink(last_ms + LAG_MS + 1).is_some());
    // A partition that left the session is not fetched any more.
    let left_ms = caught_up_ms(&bench, 1);
    let forgotten = Ask { max_wait_ms: 0, forgotten: vec![1], ..ask((session, 20), &[]) };
    fetched(bench.handle(&forgotten.frame()));
    (21..30).for_each(|epoch| drop(fetch(&mut bench, epoch, &[])));
    assert_eq!(caught_up_ms(&bench, 1), left_ms);
}

#[test]
fn a_fetch_of_an_earlier_life_of_the_broker_counts_no_longer() {
    let mut bench = replicated(1, true);
    let session = open(&mut bench, &[(0, 0)]);
    let live = LiveBroker { broker_id: FOLLOWER, epoch: 6, is_shutting_down: false };
    // Version 13 does not say the broker epoch, and is believed; a change of members is looked at all the same.
    let before_ms = caught_up_ms(&bench, 0);
    bench.fixtures[0].partition.update_live_brokers(vec![live]);
    bench.fixtures[0].partition.assign(assignment(NODE, 3, 2, &[NODE, FOLLOWER], &[NODE, FOLLOWER]), 950);
    let reply = fetched(
        bench.handle(
            &Ask {
                max_wait_ms: 0,
                partitions: vec![FetchPartition { current_leader_epoch: 2, ..wanted(0, 0) }],
                ..ask((session, 1), &[])
            }
            .frame(),
        ),
    );
    assert_eq!(reply.partitions, [(0, error_code::FENCED_LEADER_EPOCH, -1, 0)]);
    let reply = fetched(bench.handle(&Ask { max_wait_ms: 0, ..ask((session, 2), &[]) }.frame()));
    assert_eq!(reply.partitions, [(0, error_code::FENCED_LEADER_EPOCH, -1, 0)], "with every fetch");
    assert!(caught_up_ms(&bench, 0) <= before_ms, "nothing was recorded");
}

#[test]
fn a_caught_up_follower_is_proposed_and_a_refusal_is_tried_again() {
    let mut bench = replicated(1, false);
    let session = open(&mut bench, &[(0, 0)]);
    let proposed = |bench: &Bench| {
        let events = bench.fixtures[0].events();
        let proposals = events.into_iter().filter_map(|event| match event {
            PythonEvent::InSyncProposed { key, proposal } => {
                assert_eq!(key, *bench.fixtures[0].partition.key());
                Some(proposal)
            }
            _ => None,
        });
        proposals.collect::<Vec<_>>()
    };
    let first = proposed(&bench);
    assert_eq!(first.len(), 1);
    assert_eq!(first[0].members, [(NODE, -1), (FOLLOWER, -1)]);
    let next = |bench: &mut Bench, epoch| {
        fetched(bench.handle(&Ask { max_wait_ms: 0, ..ask((session, epoch), &[]) }.frame()))
    };
    next(&mut bench, 1);
    assert!(proposed(&bench).is_empty(), "one is in flight");
    bench.fixtures[0].partition.isr_refused(first[0].number);
    next(&mut bench, 2);
    let second = proposed(&bench);
    assert_eq!(second.len(), 1);
    // The same while a fetch waits: it hears of it when its time is over, and only the next one is recorded.
    assert!(matches!(bench.handle(&ask((session, 3), &[]).frame()), Outcome::Pending));
    bench.fixtures[0].partition.isr_refused(second[0].number);
    let mut answered = Vec::new();
    bench.service.on_time(bench.start + std::time::Duration::from_secs(1), &mut answered);
    assert_eq!(fetched(answered.pop().unwrap().outcome).partitions, []);
    assert!(proposed(&bench).is_empty());
    next(&mut bench, 4);
    assert_eq!(proposed(&bench).len(), 1);
}

#[test]
fn what_is_not_plain_records_nothing() {
    let mut bench = replicated(2, true);
    let throttled = PartitionSettings {
        min_insync_replicas: 1,
        flush_messages: i64::MAX,
        flushes_in_time: false,
        answers_followers: false,
    };
    bench.fixtures[1].partition.update(throttled);
    append(&bench, 0);
    let end = bench.end_offset(0);
    assert!(matches!(bench.handle(&ask((0, 0), &[(0, end), (1, 0)]).frame()), Outcome::HandOver));
    assert!(matches!(bench.handle(&ask((0, -1), &[(0, end), (7, 0)]).frame()), Outcome::HandOver));
    let strange = Ask { replica_id: -2, ..Ask::of((0, -1), &[(0, end)]) };
    assert!(matches!(bench.handle(&strange.frame()), Outcome::HandOver));
    assert_eq!(bench.fixtures[0].partition.high_watermark(), 0);
    let session = open(&mut bench, &[(0, 0)]);
    bench.fixtures[0].partition.update(throttled);
    let ended = fetched(bench.handle(&ask((session, 1), &[(0, end)]).frame()));
    assert_eq!(ended.error_code, error_code::FETCH_SESSION_ID_NOT_FOUND);
    assert_eq!(bench.fixtures[0].partition.high_watermark(), 0);
}

#[test]
fn a_session_serves_the_broker_that_opened_it_alone() {
    let mut bench = replicated(1, true);
    let session = open(&mut bench, &[(0, 0)]);
    let other = Ask { replica_id: -1, max_wait_ms: 0, ..ask((session, 1), &[]) };
    assert_eq!(fetched(bench.handle(&other.frame())).error_code, error_code::FETCH_SESSION_ID_NOT_FOUND);
    // A broker that is no replica of the partition.
    let foreign = Ask { replica_id: 9, max_wait_ms: 0, ..Ask::of((0, -1), &[(0, 0)]) };
    let codes = [error_code::NOT_LEADER_OR_FOLLOWER];
    let found: Vec<_> =
        fetched(bench.handle(&foreign.frame())).partitions.iter().map(|part| part.1).collect();
    assert_eq!(found, codes);
}

#[test]
fn a_fetch_without_news_commits_once_a_replica_outside_the_in_sync_set_is_waited_for_no_longer() {
    const LOST: i32 = 3;
    let mut bench = Bench::new(1, false);
    let partition = Arc::clone(&bench.fixtures[0].partition);
    let members = |isr: &[i32], partition_epoch| {
        let mut assigned = assignment(NODE, 2, 1, &[NODE, FOLLOWER, LOST], isr);
        assigned.partition_epoch = partition_epoch;
        assigned
    };
    partition.assign(members(&[NODE, FOLLOWER, LOST], 1), 900);
    partition.hold(false);
    partition.update_lag_max_ms(8);
    let live = |broker_id| LiveBroker { broker_id, epoch: 5, is_shutting_down: false };
    partition.update_live_brokers(vec![live(FOLLOWER), live(LOST)]);
    let session = open(&mut bench, &[(0, 0)]);
    let lost = Ask { replica_id: LOST, max_wait_ms: 0, ..Ask::of((0, -1), &[(0, 0)]) };
    fetched(bench.handle(&lost.frame()));
    // Its directory failed: the controller takes it out of the set, and its broker stays live.
    partition.assign(members(&[NODE, FOLLOWER], 2), 901);
    assert!(matches!(bench.handle(&produce(-1, 60_000, &[(0, &batch("a"))])), Outcome::Pending));
    let fetch = |bench: &mut Bench, epoch, partitions: &[(i32, i64)]| {
        fetched(bench.handle(&Ask { max_wait_ms: 0, ..ask((session, epoch), partitions) }.frame()))
    };
    fetch(&mut bench, 1, &[]);
    fetch(&mut bench, 2, &[(0, 1)]);
    assert_eq!(partition.high_watermark(), 0, "it was caught up a moment ago, and may join again");
    (3..20).for_each(|epoch| drop(fetch(&mut bench, epoch, &[])));
    assert_eq!(partition.high_watermark(), 1);
    assert!(matches!(bench.turn().pop().unwrap().outcome, Outcome::Answer(_)));
}

#[test]
fn a_fetch_that_a_later_one_ends_answers_nothing_for_a_partition_that_left_the_session() {
    let mut bench = Bench::new(3, false);
    let opened = fetched(bench.handle(&Ask { max_wait_ms: 0, ..Ask::of((0, 0), &[(0, 0)]) }.frame()));
    let session = opened.session_id;
    append(&bench, 0);
    let waits = Ask { min_bytes: 1 << 19, ..Ask::of((session, 1), &[]) };
    assert!(matches!(bench.handle(&waits.frame()), Outcome::Pending));
    let replaced = Ask { max_wait_ms: 0, forgotten: vec![0], ..Ask::of((session, 2), &[(1, 0)]) };
    fetched(bench.handle(&replaced.frame()));
    // Partition 2 takes the place of partition 0, whose records the first request has read.
    fetched(bench.handle(&Ask { max_wait_ms: 0, ..Ask::of((session, 3), &[(2, 0)]) }.frame()));
    let ended = fetched(bench.turn().pop().unwrap().outcome);
    assert_eq!((ended.error_code, ended.partitions), (0, vec![]));
}

#[test]
fn a_fetch_that_waits_is_answered_when_another_partition_is_led() {
    let mut bench = replicated(2, true);
    let session = open(&mut bench, &[(0, 0)]);
    let lead = |bench: &Bench, broker_id| {
        let polls = bench.service.shared.partitions().follower_polls();
        polls.lead(*bench.fixtures[1].partition.key(), &[broker_id], bench.start);
    };
    assert!(matches!(bench.handle(&ask((session, 1), &[]).frame()), Outcome::Pending));
    lead(&bench, FOLLOWER + 1);
    assert!(bench.turn().is_empty());
    lead(&bench, FOLLOWER);
    let ended = fetched(bench.turn().pop().unwrap().outcome);
    assert_eq!((ended.error_code, ended.session_id, ended.partitions), (0, session, vec![]));
    // The follower has not heard of its new leader yet.
    assert!(matches!(bench.handle(&ask((session, 2), &[]).frame()), Outcome::Pending));
    let wait = bench.service.next_deadline().unwrap() - bench.start;
    assert_eq!(wait, std::time::Duration::from_millis(5));
    let mut answered = Vec::new();
    bench.service.on_time(bench.start + wait, &mut answered);
    assert_eq!(answered.len(), 1);
    assert!(matches!(bench.handle(&ask((session, 3), &[(1, 0)]).frame()), Outcome::Pending));
    let mut answered = Vec::new();
    bench.service.on_time(bench.start + std::time::Duration::from_millis(499), &mut answered);
    assert!(answered.is_empty(), "it names the partition, and waits as long as it wants");
}

#[test]
fn a_fetch_that_ends_early_leaves_to_the_next_one_what_moved() {
    let mut bench = replicated(2, true);
    let session = open(&mut bench, &[(0, 0)]);
    assert!(matches!(bench.handle(&ask((session, 1), &[]).frame()), Outcome::Pending));
    let polls = bench.service.shared.partitions().follower_polls();
    polls.lead(*bench.fixtures[1].partition.key(), &[FOLLOWER], bench.start);
    append(&bench, 0);
    let ended = fetched(bench.turn().pop().unwrap().outcome);
    assert_eq!(ended.partitions, []);
    let next = fetched(bench.handle(&ask((session, 2), &[]).frame()));
    assert_eq!(next.partitions.iter().map(|part| (part.0, part.1)).collect::<Vec<_>>(), [(0, 0)]);
    assert!(next.partitions[0].3 > 0);
}

#[test]
fn a_fetch_without_news_commits_once_fewer_replicas_have_to_be_in_sync() {
    const LOST: i32 = 3;
    let mut bench = Bench::new(1, false);
    let partition = Arc::clone(&bench.fixtures[0].partition);
    let settings = |min_insync_replicas| PartitionSettings {
        min_insync_replicas,
        flush_messages: i64::MAX,
        flushes_in_time: false,
        answers_followers: true,
    };
    partition.update(settings(3));
    partition.assign(assignment(NODE, 2, 1, &[NODE, FOLLOWER, LOST], &[NODE, FOLLOWER]), 900);
    partition.hold(false);
    let session = open(&mut bench, &[(0, 0)]);
    append(&bench, 0);
    let fetch = |bench: &mut Bench, epoch, partitions: &[(i32, i64)]| {
        fetched(bench.handle(&Ask { max_wait_ms: 0, ..ask((session, epoch), partitions) }.frame()))
    };
    fetch(&mut bench, 1, &[]);
    fetch(&mut bench, 2, &[(0, 1)]);
    fetch(&mut bench, 3, &[]);
    assert_eq!(partition.high_watermark(), 0, "too few are in sync");
    partition.update(settings(2));
    assert_eq!(partition.high_watermark(), 0, "with the next fetch, as in Kafka");
    fetch(&mut bench, 4, &[]);
    assert_eq!(partition.high_watermark(), 1);
}

#[test]
fn fetches_that_looked_at_nothing_count_when_the_in_sync_set_changes() {
    let mut bench = replicated(1, false);
    let session = open(&mut bench, &[(0, 0)]);
    let proposed = bench.fixtures[0].events().into_iter().find_map(|event| match event {
        PythonEvent::InSyncProposed { proposal, .. } => Some(proposal.number),
        _ => None,
    });
    let opened_ms = bench.service.shared.now_ms();
    for epoch in 1..10 {
        fetched(bench.handle(&Ask { max_wait_ms: 0, ..ask((session, epoch), &[]) }.frame()));
    }
    let isr = vec![NODE, FOLLOWER];
    assert!(bench.fixtures[0].partition.isr_committed(proposed.unwrap(), 2, 2, isr));
    assert!(caught_up_ms(&bench, 0) > opened_ms);
}

#[test]
fn a_partition_that_goes_ends_the_session_also_of_a_fetch_that_waits() {
    let mut bench = replicated(2, true);
    let session = open(&mut bench, &[(0, 0), (1, 0)]);
    assert!(matches!(bench.handle(&ask((session, 1), &[]).frame()), Outcome::Pending));
    let gone = Arc::clone(&bench.fixtures[0].partition);
    gone.withdraw();
    let ended = fetched(bench.turn().pop().unwrap().outcome);
    assert_eq!((ended.error_code, ended.partitions), (error_code::FETCH_SESSION_ID_NOT_FOUND, vec![]));
    assert!(bench.service.shared.sessions().is_empty());
    // Python answers for it, and nothing is recorded of the other one meanwhile.
    bench.service.shared.partitions().remove(&gone);
    append(&bench, 1);
    assert!(matches!(bench.handle(&ask((0, 0), &[(0, 0), (1, 1)]).frame()), Outcome::HandOver));
    assert_eq!(bench.fixtures[1].partition.high_watermark(), 0);
    open(&mut bench, &[(1, 1)]);
    assert_eq!(bench.fixtures[1].partition.high_watermark(), 1);
}

#[test]
fn a_follower_that_is_behind_everywhere_gets_records_of_so_many_partitions_at_a_time() {
    const FIRST: i32 = fetch::FOLLOWED_PER_TURN as i32;
    const COUNT: i32 = FIRST + 10;
    let mut bench = replicated(COUNT, true);
    (0..bench.fixtures.len()).for_each(|index| append(&bench, index));
    let offsets: Vec<_> = (0..COUNT).map(|index| (index, 0)).collect();
    let opened = fetched(bench.handle(&Ask { min_bytes: 1 << 19, ..ask((0, 0), &offsets) }.frame()));
    let served: Vec<_> = opened.partitions.iter().map(|part| part.3 > 0).collect();
    let expected: Vec<_> = (0..COUNT).map(|index| index < FIRST).collect();
    assert_eq!(served, expected, "and it does not wait for more");
    let next = fetched(bench.handle(&ask((opened.session_id, 1), &[]).frame()));
    let first: Vec<_> = next.partitions.iter().take(10).map(|part| (part.0, part.3 > 0)).collect();
    assert_eq!(first, (FIRST..COUNT).map(|index| (index, true)).collect::<Vec<_>>());
}
