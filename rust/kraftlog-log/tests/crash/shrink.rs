//! Making a failing history short: operations are removed while some crash of what remains still fails.
use std::time::{Duration, Instant};

use crate::history::{History, Op};
use crate::points::Found;

const PATIENCE: Duration = Duration::from_secs(20);

/// The shortest failing history found within some seconds, and how it fails.
pub fn shrink(history: History, first: Found, fails: impl Fn(&History) -> Option<Found>) -> (History, Found) {
    let deadline = Instant::now() + PATIENCE;
    let kind = kind(&first.reason);
    let fails = |history: &History| fails(history).filter(|found| self::kind(&found.reason) == kind);
    let (mut best, mut reason) = (history, first);
    let mut size = best.ops.len().div_ceil(2);
    while size > 0 && Instant::now() < deadline {
        let mut start = 0;
        let mut has_shrunk = false;
        while start < best.ops.len() && Instant::now() < deadline {
            let mut candidate = best.clone();
            candidate.ops.drain(start..(start + size).min(best.ops.len()));
            match fails(&candidate) {
                Some(found) => (best, reason, has_shrunk) = (candidate, found, true),
                None => start += size,
            }
        }
        if !has_shrunk || size > best.ops.len() {
            size /= 2;
        }
    }
    for index in 0..best.ops.len() {
        for simpler in simpler(best.ops[index]) {
            if Instant::now() >= deadline {
                break;
            }
            let mut candidate = best.clone();
            candidate.ops[index] = simpler;
            if let Some(found) = fails(&candidate) {
                (best, reason) = (candidate, found);
                break;
            }
        }
    }
    (best, reason)
}

/// What went wrong, without the numbers: shrinking must not lead to another bug.
fn kind(reason: &str) -> String {
    reason.chars().filter(|letter| !letter.is_ascii_digit()).take(30).collect()
}

/// Easier operations to read in its place.
fn simpler(op: Op) -> Vec<Op> {
    match op {
        Op::Append { records: 0, codec: 0 } => vec![],
        Op::Append { records, codec } => {
            vec![Op::Append { records: 0, codec: 0 }, Op::Append { records: records % 6, codec: codec % 5 }]
        }
        Op::Produce { producer, records, .. } if records > 0 => vec![
            Op::Append { records: 0, codec: 0 },
            Op::Produce { producer, records: 0, in_transaction: false },
        ],
        Op::Follow { batches, .. } if batches > 0 => {
            vec![Op::Append { records: 0, codec: 0 }, Op::Follow { batches: 0, raises_epoch: false }]
        }
        Op::Truncate { records } => vec![Op::Truncate { records: records % 14 }],
        Op::Restart { offset } => vec![Op::Restart { offset: offset % 24 }],
        _ => vec![],
    }
}
