//! Produce frames that came together are answered as if each had come alone.
use kraftlog_log::compression::Codec;

use super::tests::{produce, produce_in, Bench};
use super::*;
use crate::testing::{batch, idempotent_batch, until};

const CONNECTION: ConnectionId = ConnectionId { thread: 0, slot: 3, generation: 1 };

fn request(number: usize) -> RequestId {
    RequestId { connection: CONNECTION, number: number as u64 }
}

/// What an I/O thread does with frames of one receive: outcomes in order.
fn handle_received(bench: &mut Bench, frames: &[Vec<u8>], is_together: bool) -> Vec<String> {
    let peer = Peer::anonymous(0, "localhost");
    let mut said = Vec::new();
    while said.len() < frames.len() && said.last().is_none_or(|last: &String| !last.starts_with("Close")) {
        let number = said.len();
        let mut outcomes = Vec::new();
        if is_together {
            let rest: Vec<&[u8]> = frames.iter().skip(number).map(Vec::as_slice).collect();
            bench.service.handle_together(request(number), &peer, &rest, bench.start, &mut outcomes);
        }
        if outcomes.is_empty() {
            outcomes.push(bench.service.handle(request(number), &peer, &frames[number], bench.start));
        }
        said.extend(outcomes.iter().map(|outcome| format!("{outcome:?}")));
    }
    said
}

/// Answers that come later, by the number of their request.
fn answered(bench: &mut Bench) -> Vec<(u64, String)> {
    let mut all = Vec::new();
    until("answered", || {
        all.extend(
            bench
                .turn()
                .into_iter()
                .map(|Answered { request, outcome }| (request.number, format!("{outcome:?}"))),
        );
        bench.service.pending_count() == 0
    });
    all.sort_unstable();
    all
}

fn compressed(value: &str) -> Vec<u8> {
    let options = kraftlog_log::builder::BatchOptions { codec: Codec::Lz4, ..Default::default() };
    let mut builder = kraftlog_log::builder::BatchBuilder::new(options).unwrap();
    builder.append(1, None, Some(value.as_bytes()), &[]).unwrap();
    builder.finish().unwrap()
}

/// Frames of every kind that a client may send, in an order that `seed` decides.
fn frames(seed: u32) -> Vec<Vec<u8>> {
    let mut state = seed;
    let mut below = move |end: u32| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) % end
    };
    let mut sequence = 0;
    let mut one = |at: usize| {
        let (index, acks) = (i32::from(below(4) == 0), if below(6) == 0 { 1 } else { -1 });
        let value = format!("value {at}");
        match below(12) {
            0 => produce(acks, 1000, &[(0, &batch(&value)), (1, &batch(&value))]),
            1 => produce(acks, 1000, &[(index, &compressed(&value))]),
            2 => produce(0, 1000, &[(index, &batch(&value))]),
            // A checksum that is wrong; below, a sequence that does not follow.
            3 => {
                let mut bad = batch(&value);
                bad[17] ^= 1;
                produce(acks, 1000, &[(index, &bad)])
            }
            4 => produce(acks, 1000, &[(0, &idempotent_batch(&value, 7, sequence + 3))]),
            5 if sequence > 0 => produce(acks, 1000, &[(0, &idempotent_batch("again", 7, sequence - 1))]),
            6 => produce(acks, 1000, &[(9, &batch("no such partition"))]),
            7 => produce_in(&[3, b't', b'x'], acks, 1000, &[(index, &batch(&value))]),
            8 | 9 => {
                sequence += 1;
                produce(acks, 1000, &[(0, &idempotent_batch(&value, 7, sequence - 1))])
            }
            _ => produce(acks, 1000, &[(index, &batch(&value))]),
        }
    };
    (0..12).map(&mut one).collect()
}

#[test]
fn frames_together_are_answered_as_one_by_one() {
    for flush_on_ack in [false, true] {
        for seed in 0..150 {
            let frames = frames(seed);
            let (mut one, mut other) = (Bench::new(2, flush_on_ack), Bench::new(2, flush_on_ack));
            let said = handle_received(&mut one, &frames, true);
            assert_eq!(said, handle_received(&mut other, &frames, false), "seed {seed}");
            assert_eq!(answered(&mut one), answered(&mut other), "seed {seed}");
            for index in 0..2 {
                let read = |bench: &Bench| {
                    let log = bench.fixtures[index].partition.log();
                    let end = log.log_end_offset();
                    (end, log.read(0, 1 << 20, end, true).unwrap().read().unwrap())
                };
                assert!(read(&one) == read(&other), "seed {seed}, partition {index}");
            }
        }
    }
}

#[test]
fn frames_for_one_partition_are_flushed_once() {
    let mut bench = Bench::new(1, true);
    let frames: Vec<_> = (0..5).map(|at| produce(-1, 1000, &[(0, &batch(&at.to_string()))])).collect();
    let said = handle_received(&mut bench, &frames, true);
    assert!(said.iter().all(|outcome| outcome == "Pending"), "{said:?}");
    assert_eq!((bench.end_offset(0), bench.service.unflushed.len()), (5, 1));
    let answers = answered(&mut bench);
    assert_eq!(answers.iter().map(|(number, _)| *number).collect::<Vec<_>>(), [0, 1, 2, 3, 4]);
}

#[test]
fn frames_for_a_partition_with_another_leader_are_left_to_python() {
    let mut bench = Bench::new(1, false);
    let frames: Vec<_> = (0..3).map(|_| produce(-1, 1000, &[(0, &batch("a"))])).collect();
    let (peer, mut outcomes) = (Peer::anonymous(0, "localhost"), Vec::new());
    let frames: Vec<&[u8]> = frames.iter().map(Vec::as_slice).collect();
    bench.service.handle_together(request(0), &peer, &frames, bench.start, &mut outcomes);
    assert_eq!(outcomes.len(), 3);
    let moved = crate::testing::assignment(2, 2, 1, &[1, 2], &[1, 2]);
    bench.fixtures[0].partition.assign(moved, 0);
    outcomes.clear();
    bench.service.handle_together(request(3), &peer, &frames, bench.start, &mut outcomes);
    assert!(outcomes.is_empty(), "Python answers these: {outcomes:?}");
    assert_eq!(bench.end_offset(0), 3);
}
