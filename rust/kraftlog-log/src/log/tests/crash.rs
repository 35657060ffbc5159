//! Crashes at every point of a history: nothing flushed is lost, order is kept, no tail is made up.
use proptest::prelude::*;

use super::*;

#[derive(Clone, Copy, Debug)]
enum Step {
    Append(u64),
    Flush,
    Roll,
    /// Drop so many records from the end.
    Truncate(u64),
    /// Write the recovery point where a restart will find it.
    Checkpoint,
}

/// What may be found after a crash.
#[derive(Clone, Debug, Default)]
struct Model {
    /// Records in the log, flushed or not.
    appended: Vec<u64>,
    /// Where batches end.
    ends: Vec<usize>,
    /// So many of them are flushed.
    flushed: usize,
    /// The log before a truncation that may not have happened.
    alternative: Option<Vec<u64>>,
    checkpoint: i64,
}

impl Model {
    fn check(&self, found: &[u64], context: &str) {
        let is_prefix = |whole: &Vec<u64>| whole.starts_with(found);
        assert!(
            is_prefix(&self.appended) || self.alternative.as_ref().is_some_and(is_prefix),
            "{context}: found {found:?}, expected a prefix of {:?} or {:?}",
            self.appended,
            self.alternative
        );
        assert!(
            found.len() >= self.flushed,
            "{context}: {} of {} flushed records",
            found.len(),
            self.flushed
        );
    }
}

/// Run the steps until one fails.
fn run(bench: &mut Bench, steps: &[Step]) -> Model {
    let mut model = Model::default();
    for step in steps {
        let result = match *step {
            Step::Append(count) => {
                let first = bench.next;
                // Bytes of a failed append may be in the file all the same.
                let result = bench.append(count).map(drop);
                model.appended.extend(first..first + count);
                model.ends.push(model.appended.len());
                result
            }
            Step::Flush => bench.log.flush().map(|offset| model.flushed = offset as usize),
            Step::Roll => bench.log.roll(0).map(drop),
            Step::Truncate(count) => {
                // A truncation keeps whole batches.
                let wanted = model.appended.len().saturating_sub(count as usize);
                let keep = model.ends.iter().copied().filter(|end| *end <= wanted).max().unwrap_or(0);
                model.ends.retain(|end| *end <= keep);
                model.alternative = Some(model.appended.clone());
                model.flushed = model.flushed.min(keep);
                model.appended.truncate(keep);
                bench.epoch += 1;
                let result = bench.log.truncate_to(wanted as i64, 0).map(drop);
                if result.is_ok() {
                    model.alternative = None;
                    model.checkpoint = model.checkpoint.min(keep as i64);
                }
                result
            }
            Step::Checkpoint => {
                model.checkpoint = bench.log.recovery_point();
                Ok(())
            }
        };
        if result.is_err() {
            break;
        }
    }
    model
}

fn check_crash(steps: &[Step], crash_at: u64, torn_bytes: usize, keeps_names: bool) -> bool {
    let mut bench = Bench::new();
    bench.log.flush().unwrap();
    let start = bench.fs.change_count();
    bench.fs.crash_after(start + crash_at);
    let model = run(&mut bench, steps);
    let is_over = bench.fs.change_count() < start + crash_at;
    let context = format!("{steps:?} crash at {crash_at}, torn {torn_bytes}, names {keeps_names}");
    let fs = bench.fs.crash(torn_bytes, keeps_names);
    let log = Log::open(Arc::new(fs.clone()), Path::new(PATH), config(), options(model.checkpoint, false))
        .unwrap_or_else(|error| panic!("{context}: {error}"));
    let found = values(&log);
    model.check(&found, &context);
    // And it goes on from there, through a flush and one more crash.
    let mut again = Bench { fs: fs.clone(), log, next: 5000, epoch: 99 };
    again.append(3).unwrap();
    again.log.flush().unwrap();
    let log = Log::open(
        Arc::new(fs.crash(0, false)),
        Path::new(PATH),
        config(),
        options(model.checkpoint.min(found.len() as i64), false),
    )
    .unwrap_or_else(|error| panic!("{context}, again: {error}"));
    let expected: Vec<u64> = found.iter().copied().chain(5000..5003).collect();
    assert_eq!(values(&log), expected, "{context}, again");
    is_over
}

#[test]
fn a_short_history_survives_a_crash_at_every_point() {
    use Step::{Append, Checkpoint, Flush, Roll, Truncate};
    let histories: [&[Step]; 4] = [
        &[Append(3), Append(2), Flush, Append(4), Append(9), Flush, Checkpoint, Append(1)],
        &[
            Append(3),
            Flush,
            Checkpoint,
            Roll,
            Append(2),
            Roll,
            Append(1),
            Flush,
            Checkpoint,
            Append(30),
            Append(30),
        ],
        &[
            Append(9),
            Append(9),
            Flush,
            Checkpoint,
            Append(9),
            Append(9),
            Truncate(20),
            Append(5),
            Flush,
            Append(5),
        ],
        &[
            Append(9),
            Roll,
            Append(9),
            Roll,
            Flush,
            Checkpoint,
            Truncate(12),
            Append(20),
            Append(20),
            Flush,
            Truncate(1),
        ],
    ];
    for steps in histories {
        for torn_bytes in [0, 1, 70, 1 << 20] {
            for keeps_names in [false, true] {
                let mut crash_at = 0;
                while !check_crash(steps, crash_at, torn_bytes, keeps_names) {
                    crash_at += 1;
                }
                assert!(crash_at > 5);
            }
        }
    }
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (1..12_u64).prop_map(Step::Append),
        3 => Just(Step::Flush),
        2 => Just(Step::Checkpoint),
        1 => Just(Step::Roll),
        1 => (0..25_u64).prop_map(Step::Truncate),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn any_history_survives_a_crash(
        steps in prop::collection::vec(step(), 1..25),
        crash_at in 0..120_u64,
        torn_bytes in prop_oneof![Just(0_usize), 1..200_usize, Just(1 << 20)],
        keeps_names: bool,
    ) {
        check_crash(&steps, crash_at, torn_bytes, keeps_names);
    }

    #[test]
    fn a_log_reopened_cleanly_is_the_same(steps in prop::collection::vec(step(), 1..25)) {
        let mut bench = Bench::new();
        let model = run(&mut bench, &steps);
        bench.log.close().unwrap();
        let log = bench.reopen(options(bench.log.recovery_point(), true));
        prop_assert_eq!(values(&log), model.appended.clone());
        drop(log);
        prop_assert_eq!(values(&bench.reopen(options(0, false))), model.appended);
    }
}
