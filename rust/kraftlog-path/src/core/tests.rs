use super::*;

fn leader(flush_on_ack: bool) -> PartitionCore<&'static str> {
    let mut core = PartitionCore::new(ReplicaStart {
        node_id: 1,
        flush_on_ack,
        min_insync_replicas: 1,
        log_end_offset: 0,
        flushed_offset: 0,
        high_watermark: 0,
    });
    core.handle_assignment(
        Assignment { leader_id: 1, leader_epoch: 5, partition_epoch: 0, replicas: vec![1], isr: vec![1] },
        0,
    );
    core.take_effects(&mut Vec::new());
    core
}

fn fetch(replica_id: i32, fetch_offset: i64, now_ms: i64) -> FollowerFetch {
    FollowerFetch { replica_id, broker_epoch: -1, fetch_offset, log_start_offset: 0, now_ms }
}

fn taken(core: &mut PartitionCore<&'static str>) -> Vec<Effect<&'static str>> {
    let mut effects = Vec::new();
    core.take_effects(&mut effects);
    effects
}

#[test]
fn a_repeated_batch_waits_for_its_old_end_although_it_comes_later() {
    let mut core = leader(true);
    core.on_appended(4);
    core.wait_for_ack(4, "new");
    core.wait_for_ack(2, "repeated");
    core.wait_for_ack(2, "repeated again");
    taken(&mut core);
    core.on_flushed(2);
    assert_eq!(
        taken(&mut core),
        [
            Effect::HighWatermarkAdvanced { high_watermark: 2 },
            Effect::AckCompleted { token: "repeated", error_code: 0 },
            Effect::AckCompleted { token: "repeated again", error_code: 0 },
        ]
    );
    core.on_flushed(4);
    assert!(taken(&mut core).contains(&Effect::AckCompleted { token: "new", error_code: 0 }));
}

#[test]
fn a_replica_that_is_not_known_changes_nothing() {
    let mut core = leader(false);
    core.on_appended(3);
    taken(&mut core);
    assert!(core.on_follower_fetch(&fetch(9, 100, 1)).is_none());
    assert_eq!(core.last_caught_up_ms(9), None);
    assert!(taken(&mut core).is_empty());
}

#[test]
fn an_in_sync_replica_that_never_fetched_holds_the_high_watermark() {
    let mut core = leader(false);
    let assignment = |isr: Vec<i32>, partition_epoch| Assignment {
        leader_id: 1,
        leader_epoch: 5,
        partition_epoch,
        replicas: vec![1, 2],
        isr,
    };
    core.handle_assignment(assignment(vec![1, 2], 1), 7);
    core.on_appended(3);
    assert_eq!((core.high_watermark(), core.last_caught_up_ms(2)), (0, Some(7)));
    core.on_follower_fetch(&fetch(2, 3, 8));
    assert_eq!((core.high_watermark(), core.last_caught_up_ms(2)), (3, Some(8)));
}

/// Replicas 1 to 3, of which 1 leads; 3 was caught up at 10 ms and is no member any more, although its broker is live.
fn leader_that_waits_for_a_lost_replica(members: &[i32], flush_on_ack: bool) -> PartitionCore<&'static str> {
    let mut core = leader(flush_on_ack);
    let assignment = |isr: &[i32], partition_epoch| Assignment {
        leader_id: 1,
        leader_epoch: 5,
        partition_epoch,
        replicas: vec![1, 2, 3],
        isr: isr.to_vec(),
    };
    core.update_lag_max_ms(100);
    core.handle_assignment(assignment(&[1, 2, 3], 1), 0);
    let live = |broker_id| LiveBroker { broker_id, epoch: 7, is_shutting_down: false };
    core.update_live_brokers(vec![live(2), live(3)]);
    core.on_follower_fetch(&fetch(2, 0, 10));
    core.on_follower_fetch(&fetch(3, 0, 10));
    core.handle_assignment(assignment(members, 2), 20);
    core.on_appended(4);
    core.wait_for_ack(4, "waits");
    core
}

#[test]
fn the_check_of_the_in_sync_set_ends_the_wait_for_a_lost_replica() {
    let mut core = leader_that_waits_for_a_lost_replica(&[1], false);
    assert!(taken(&mut core).contains(&Effect::HighWatermarkHeld));
    assert!(core.propose_shrink(110).is_none());
    assert_eq!(taken(&mut core), [Effect::HighWatermarkHeld]);
    assert!(core.propose_shrink(111).is_none());
    let committed = Effect::HighWatermarkAdvanced { high_watermark: 4 };
    assert_eq!(taken(&mut core), [committed, Effect::AckCompleted { token: "waits", error_code: 0 }]);
}

#[test]
fn a_flush_behind_the_last_fetch_says_that_a_lost_replica_is_waited_for() {
    let mut core = leader_that_waits_for_a_lost_replica(&[1, 2], true);
    core.on_follower_fetch(&fetch(2, 4, 30));
    assert!(!taken(&mut core).contains(&Effect::HighWatermarkHeld), "the leader's own disk is waited for");
    core.on_flushed(4);
    assert_eq!(taken(&mut core), [Effect::HighWatermarkHeld]);
    core.on_follower_fetch(&fetch(2, 4, 111));
    assert_eq!(core.high_watermark(), 4);
}
