//! One bit of one file is wrong when the log is opened: it is told, or cut where nothing was promised, and no record
//! comes out changed.
use kraftlog_log::batch::Batches;
use kraftlog_log::fs::{Crash, DataLoss, FileSystem, NameLoss, Random};
use kraftlog_log::log::Log;

use crate::check::{check_producers, Check};
use crate::ensure;
use crate::history::{config, History, Op};
use crate::machine::{new_disk, open, Machine, LOG};
use crate::model::Model;
use crate::points::{Counts, Found};

/// Bytes of a batch header that its checksum does not cover and that decide offsets: base offset, leader epoch, magic.
const UNCOVERED: [std::ops::Range<u64>; 2] = [0..8, 12..17];

/// What the flipped bit hit.
#[derive(Debug, PartialEq, Eq)]
enum Hit {
    /// A byte of a batch that the checksum covers, or the length or the checksum itself.
    Covered,
    /// A byte that Kafka's format leaves unprotected, or a file without any checksum.
    Unprotected,
    /// An offset index: records are found all the same.
    Index,
    Snapshot,
}

pub fn run(history: &History, random: &mut Random, counts: &mut Counts) -> Result<(), Found> {
    let disk = new_disk();
    let fail = |reason: String| Found { context: "before the flip".to_owned(), reason };
    let mut machine = Machine::new(disk.clone(), history.config).map_err(|error| fail(error.to_string()))?;
    let ending = match random.below(3) {
        0 => vec![Op::Flush],
        1 => vec![Op::Flush, Op::CheckpointRecovery],
        _ => vec![Op::Reopen],
    };
    for op in history.ops.iter().copied().chain(ending) {
        machine.step(op).map_err(|failure| fail(failure.to_string()))?;
    }
    let whole = Crash { data: DataLoss::Nothing, names: NameLoss::Nothing, seed: 0 };
    for _ in 0..40 {
        counts.faults += 1;
        let damaged = disk.crash_with(&whole);
        let paths: Vec<_> = damaged.paths().into_iter().filter(|path| path.starts_with(LOG)).collect();
        let path = &paths[random.index(paths.len())];
        let size = damaged.metadata(path).map_or(0, |metadata| metadata.size_bytes);
        if size == 0 {
            continue;
        }
        let bit = random.below(size * 8);
        let hit = classify(&machine, path, bit / 8);
        let bases: Vec<i64> = paths.iter().filter_map(|path| segment_base(path)).collect();
        damaged.flip_bit(path, bit);
        let context = format!("bit {bit} of {} inverted ({hit:?})", path.display());
        let checkpoint = machine.log.recovery_point();
        if let Ok((log, checkpoints)) = open(&damaged, config(machine.config), machine.model.now_ms) {
            let promised =
                if checkpoints.is_clean { checkpoint } else { checkpoints.recovery_point.min(checkpoint) };
            let cut_floor = cut_floor(&bases, promised);
            check(&log, &machine.model, &hit, promised, cut_floor)
                .map_err(|reason| Found { context, reason })?;
        }
    }
    Ok(())
}

fn classify(machine: &Machine, path: &std::path::Path, position: u64) -> Hit {
    let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
    match name.rsplit('.').next() {
        Some("index") => Hit::Index,
        Some("snapshot") => Hit::Snapshot,
        Some("log") => {
            let base: i64 = name.trim_end_matches(".log").parse().unwrap_or(0);
            let mut start = 0;
            for batch in machine.model.from(base).iter().filter(|batch| batch.base >= base) {
                let end = start + batch.bytes.len() as u64;
                if position < end {
                    let is_uncovered = UNCOVERED.iter().any(|range| range.contains(&(position - start)));
                    return if is_uncovered { Hit::Unprotected } else { Hit::Covered };
                }
                start = end;
            }
            Hit::Unprotected
        }
        _ => Hit::Unprotected,
    }
}

fn check(log: &Log, model: &Model, hit: &Hit, promised: i64, cut_floor: i64) -> Check {
    let (start, end) = (log.log_start_offset(), log.log_end_offset());
    let mut damaged = 0;
    for batch in model.visible() {
        let offset = batch.last.max(start);
        let Ok(bytes) = log.read(offset, 1, end, true).and_then(|slice| slice.read()) else {
            damaged += 1;
            continue;
        };
        if *hit == Hit::Unprotected {
            continue;
        }
        let found = Batches::new(&bytes).next();
        match found {
            Some(Ok(found)) if found.validate_crc().is_ok() => ensure!(
                found.bytes() == &batch.bytes[..],
                "read at {offset} gives batch [{}, {}] instead of [{}, {}]",
                found.base_offset(),
                found.last_offset(),
                batch.base,
                batch.last
            ),
            None if bytes.is_empty() && end <= batch.last => {
                ensure!(
                    *hit == Hit::Covered && batch.base >= cut_floor,
                    "batch [{}, {}] below the recovery point {promised} is gone without a word",
                    batch.base,
                    batch.last
                );
            }
            _ => damaged += 1,
        }
    }
    if *hit == Hit::Index || *hit == Hit::Snapshot {
        ensure!(damaged == 0 && end == model.end, "{damaged} batches cannot be read, the log ends at {end}");
    }
    if *hit == Hit::Snapshot {
        log.update_high_watermark(model.end);
        check_producers(log, model, &model.replay())?;
    }
    Ok(())
}

/// First offset of a segment, by the name of its `.log`.
fn segment_base(path: &std::path::Path) -> Option<i64> {
    path.file_name()?.to_str()?.strip_suffix(".log")?.parse().ok()
}

/// Recovery checks the segment of the recovery point from its beginning on, and may cut there: nothing says that the
/// batches before the recovery point were once whole. This is the offset from which on it may.
fn cut_floor(segment_bases: &[i64], promised: i64) -> i64 {
    segment_bases.iter().copied().filter(|base| *base <= promised).max().unwrap_or(0)
}
