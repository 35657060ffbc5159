//! What holds of a log that was opened after a crash, whatever was lost.
use std::collections::BTreeMap;
use std::sync::Arc;

use kraftlog_log::batch::Batches;
use kraftlog_log::fs::MemoryFileSystem;
use kraftlog_log::log::{Log, LogConfig};
use kraftlog_log::producer_state::Origin;
use kraftlog_log::segment::Segment;

use crate::machine::{open, Checkpoints};
use crate::model::{Batch, Expected, Model, Replayed};

pub type Check<T = ()> = Result<T, String>;

/// Fail with a formatted sentence unless a condition holds.
#[macro_export]
macro_rules! ensure {
    ($condition:expr, $($message:tt)+) => {
        if !$condition {
            return Err(format!($($message)+));
        }
    };
}

fn engine<T>(what: &str, result: kraftlog_log::Result<T>) -> Check<T> {
    result.map_err(|error| format!("{what}: {error}"))
}

/// Open the log on this disk and hold it to what may be there. The model that is true from here on comes back.
pub fn recover(fs: &MemoryFileSystem, expected: &Expected, config: LogConfig) -> Check<(Log, Model)> {
    let now_ms = expected.after.now_ms;
    let (log, checkpoints) = open(fs, config, now_ms).map_err(|error| format!("open failed: {error}"))?;
    let model = find_lineage(&log, &checkpoints, expected)?;
    log.update_high_watermark(model.end);
    check_log(&log, &model)?;
    Ok((log, model))
}

/// Bytes of all batches from the log start on, with their base and last offsets.
fn read_all(log: &Log) -> Check<Vec<(i64, i64, Vec<u8>)>> {
    let (start, end) = (log.log_start_offset(), log.log_end_offset());
    let mut found = Vec::new();
    let mut offset = start;
    while offset < end {
        let slice = engine("read", log.read(offset, 400, end, true))?;
        let bytes = engine("read", slice.read())?;
        ensure!(!bytes.is_empty(), "nothing to read at offset {offset} of [{start}, {end})");
        for batch in Batches::new(&bytes) {
            let batch = engine("batch", batch)?;
            engine("batch", batch.validate_crc())?;
            ensure!(
                batch.last_offset() >= offset,
                "read at {offset} gave batch [{}, {}]",
                batch.base_offset(),
                batch.last_offset()
            );
            found.push((batch.base_offset(), batch.last_offset(), batch.bytes().to_vec()));
            offset = batch.last_offset() + 1;
        }
    }
    ensure!(offset == end.max(start), "batches end at {offset}, the log end offset is {end}");
    Ok(found)
}

fn find_lineage(log: &Log, checkpoints: &Checkpoints, expected: &Expected) -> Check<Model> {
    let (start, end) = (log.log_start_offset(), log.log_end_offset());
    let (before, after) = (&expected.before, &expected.after);
    ensure!(
        start >= checkpoints.log_start,
        "log start offset {start} is before the checkpoint {}",
        checkpoints.log_start
    );
    let latest_start = before.start.max(after.start);
    ensure!(start <= latest_start, "log start offset {start} is after {latest_start}: records are lost");
    let found = read_all(log)?;
    let mut reasons = Vec::new();
    for (name, model) in [("after", after), ("before", before)] {
        if expected.restarts_at.is_some() && name == "after" {
            continue;
        }
        match match_lineage(&found, start, end, model, expected.required_end) {
            Ok(kept) => {
                let mut now = after.clone();
                now.batches = Arc::new(kept);
                now.epochs_from = before.epochs_from.max(after.epochs_from).max(latest_start);
                (now.start, now.end, now.flushed) = (start, end, end);
                now.epochs_from = now.epochs_from.min(end);
                return Ok(now);
            }
            Err(reason) => reasons.push(format!("{name} the operation: {reason}")),
        }
    }
    if let Some(restart) = expected.restarts_at {
        let is_empty = start == end && log.size_bytes() == 0;
        if is_empty && (start == restart || start == checkpoints.log_start) {
            let mut now = after.clone();
            now.restart(start);
            return Ok(now);
        }
    }
    Err(reasons.join("; "))
}

/// The part of the model's batches that was found, if it is one.
fn match_lineage(
    found: &[(i64, i64, Vec<u8>)],
    start: i64,
    end: i64,
    model: &Model,
    required_end: i64,
) -> Check<Vec<Batch>> {
    ensure!(end >= required_end, "log end offset {end}, flushed were all before {required_end}");
    let expected = model.from(start);
    for (index, (base, last, bytes)) in found.iter().enumerate() {
        let Some(batch) = expected.get(index) else {
            return Err(format!("invented batch [{base}, {last}]"));
        };
        ensure!(
            (*base, *last) == (batch.base, batch.last),
            "found batch [{base}, {last}] where [{}, {}] belongs",
            batch.base,
            batch.last
        );
        ensure!(bytes[..] == batch.bytes[..], "batch [{base}, {last}] has other bytes");
    }
    if found.is_empty() {
        ensure!(start == end, "no batch in [{start}, {end})");
    }
    let kept: Vec<Batch> =
        model.batches.iter().filter(|batch| batch.last < end.max(start)).cloned().collect();
    let kept_end = kept.last().map_or(start, |batch| batch.last + 1);
    if kept_end < start {
        // What is kept of the history lies before the log start: nothing of it can be known for sure.
        return Ok(Vec::new());
    }
    ensure!(kept_end == end || found.is_empty(), "log end offset {end} is inside a batch");
    Ok(kept)
}

/// Hold a log to the model: records, epochs, indexes, times, producers and transactions.
pub fn check_log(log: &Log, model: &Model) -> Check {
    let (start, end) = (log.log_start_offset(), log.log_end_offset());
    ensure!(
        (start, end) == (model.start, model.end),
        "offsets are [{start}, {end}), expected [{}, {})",
        model.start,
        model.end
    );
    ensure!(log.recovery_point() <= end, "recovery point {} is beyond {end}", log.recovery_point());
    check_epochs(log, model)?;
    check_segments(log, model)?;
    check_reads(log, model)?;
    check_times(log, model)?;
    let replayed = model.replay();
    check_producers(log, model, &replayed)?;
    check_transactions(log, model, &replayed)
}

fn check_epochs(log: &Log, model: &Model) -> Check {
    let entries = log.epoch_entries();
    for pair in entries.windows(2) {
        ensure!(
            pair[0].epoch < pair[1].epoch && pair[0].start_offset < pair[1].start_offset,
            "epoch entries do not rise: {entries:?}"
        );
    }
    let mut ends: BTreeMap<i32, i64> = BTreeMap::new();
    for batch in model.from(model.epochs_from.max(model.start)) {
        let offset = batch.base.max(model.epochs_from).max(model.start);
        let found = log.epoch_for_offset(offset);
        ensure!(
            found == Some(batch.epoch),
            "epoch of offset {offset} is {found:?}, the batch has {}: {entries:?}",
            batch.epoch
        );
        if let Some((_, end)) = ends.last_key_value().filter(|(epoch, _)| **epoch != batch.epoch) {
            ensure!(*end == batch.base, "model: epochs {ends:?}");
        }
        ends.insert(batch.epoch, batch.last + 1);
    }
    for (epoch, end) in &ends {
        let found = log.end_offset_for_epoch(*epoch);
        ensure!(
            found == (*epoch, *end),
            "epoch {epoch} ends at {found:?}, its last batch at {end}: {entries:?}, log end {}",
            model.end
        );
    }
    Ok(())
}

fn first_base(segments: &[Arc<Segment>]) -> i64 {
    segments.first().map_or(0, |segment| segment.base_offset())
}

/// Indexes point at batches of the log and nowhere else.
fn check_segments(log: &Log, model: &Model) -> Check {
    let segments = engine("segments", log.segment_handles())?;
    ensure!(first_base(&segments) <= model.start, "first segment {} is missing", first_base(&segments));
    let mut next_base = i64::MIN;
    for (number, segment) in segments.iter().enumerate() {
        let base = segment.base_offset();
        ensure!(base >= next_base, "segment {base} begins before offset {next_base}");
        let mut batches: BTreeMap<i64, (u64, i64)> = BTreeMap::new();
        let mut largest = -1;
        let mut position = 0;
        let mut scan = engine("scan", segment.scan(0))?;
        while let Some(batch) = engine("scan", scan.next_batch())? {
            let header = batch.header();
            ensure!(header.base_offset() >= base.max(next_base), "batch {} in {base}", header.base_offset());
            largest = largest.max(header.max_timestamp());
            batches.insert(header.last_offset(), (batch.position, largest));
            position = batch.end_position();
            next_base = header.next_offset();
        }
        ensure!(
            position == segment.size_bytes(),
            "segment {base} has {} bytes, its batches {position}",
            segment.size_bytes()
        );
        let mut previous = (-1, -1);
        for entry in engine("index", segment.offset_entries())? {
            let found = batches.get(&entry.offset).map(|(position, _)| *position);
            ensure!(
                found == Some(entry.position),
                "index of {base}: entry {entry:?}, the batch is at {found:?}"
            );
            ensure!((entry.offset, entry.position as i64) > previous, "index of {base} does not rise");
            previous = (entry.offset, entry.position as i64);
        }
        let mut previous = (-1, -1);
        let entries = engine("time index", segment.time_entries())?;
        for entry in &entries {
            let found = batches.get(&entry.offset).map(|(_, timestamp)| *timestamp);
            ensure!(
                found == Some(entry.timestamp),
                "time index of {base}: entry {entry:?}, largest timestamp up to there {found:?}"
            );
            ensure!((entry.timestamp, entry.offset) > previous, "time index of {base} does not rise");
            previous = (entry.timestamp, entry.offset);
        }
        let is_closed = number + 1 < segments.len();
        ensure!(
            !is_closed || batches.is_empty() || entries.last().map(|entry| entry.timestamp) == Some(largest),
            "time index of the closed segment {base} ends with {:?}, largest timestamp {largest}",
            entries.last()
        );
    }
    Ok(())
}

fn check_reads(log: &Log, model: &Model) -> Check {
    for batch in model.visible() {
        let offset = batch.last.max(model.start);
        let slice = engine("read", log.read(offset, 1, model.end, true))?;
        let bytes = engine("read", slice.read())?;
        ensure!(bytes[..] == batch.bytes[..], "read at {offset} gave another batch");
    }
    Ok(())
}

fn check_times(log: &Log, model: &Model) -> Check {
    let visible = model.visible();
    let records = || visible.iter().flat_map(|batch| batch.records.iter().copied());
    let records = || records().filter(|(offset, _)| *offset >= model.start);
    let mut targets: Vec<i64> = records().map(|(_, timestamp)| timestamp).collect();
    targets.sort_unstable();
    targets.dedup();
    let step = 1 + targets.len() / 8;
    let last = targets.last().copied().unwrap_or(0);
    for target in targets.into_iter().step_by(step).chain([0, last, last + 1]) {
        let expected = records().find(|(_, timestamp)| *timestamp >= target);
        let found = engine("time lookup", log.offset_for_timestamp(target))?;
        let found = found.map(|found| (found.offset, found.timestamp));
        ensure!(found == expected, "first record at or after time {target} is {expected:?}, found {found:?}");
    }
    let segments = engine("segments", log.segment_handles())?;
    let present = model.from(first_base(&segments));
    let largest = present.iter().flat_map(|batch| batch.records.iter().copied());
    let largest = largest.fold(None, |best: Option<(i64, i64)>, record| match best {
        Some(best) if best.1 >= record.1 => Some(best),
        _ => Some(record),
    });
    let found = engine("max timestamp", log.max_timestamp())?;
    let found = found.map(|found| (found.offset, found.timestamp));
    ensure!(found == largest, "record with the largest timestamp is {largest:?}, found {found:?}");
    Ok(())
}

pub fn check_producers(log: &Log, model: &Model, replayed: &Replayed) -> Check {
    let found: BTreeMap<i64, _> =
        log.active_producers().into_iter().map(|entry| (entry.producer_id, entry)).collect();
    for (id, entry) in &found {
        let Some(producer) = replayed.producers.get(id) else {
            return Err(format!("producer {id} is known, yet nothing of it is in the log: {entry:?}"));
        };
        let is_visible = producer.last_base.is_some_and(|base| base >= model.start);
        ensure!(
            entry.producer_epoch == producer.epoch
                && (entry.last_sequence() == producer.last_sequence
                    || (!is_visible && entry.last_sequence() == -1)),
            "producer {id} is {entry:?}, the log says {producer:?}"
        );
        // Of a transaction whose data lies before the log start, by a truncation of its marker, nothing need be known.
        let is_deleted = producer.transaction.is_some_and(|first| first < model.start);
        ensure!(
            is_deleted || entry.current_txn_first_offset == producer.transaction,
            "transaction of producer {id} begins at {:?}, in the log at {:?}",
            entry.current_txn_first_offset,
            producer.transaction
        );
    }
    for (id, producer) in &replayed.producers {
        let is_visible = producer.last_base.is_some_and(|base| base >= model.start);
        ensure!(!is_visible || found.contains_key(id), "producer {id} is unknown, the log has {producer:?}");
        if is_visible {
            retry(log, model, replayed, *id, false)?;
        }
    }
    Ok(())
}

/// Send the last batch of a producer again: the answer names its offsets, and nothing is appended.
pub fn retry(log: &Log, model: &Model, replayed: &Replayed, id: i64, may_be_deleted: bool) -> Check {
    let Some(base) = replayed.producers.get(&id).and_then(|producer| producer.last_base) else {
        return Ok(());
    };
    if may_be_deleted && base < model.start {
        return Ok(());
    }
    let Some(batch) = model.batches.iter().find(|batch| batch.base == base) else { return Ok(()) };
    let result = log.append_as_leader(&batch.bytes, model.leader_epoch, model.now_ms, Origin::Client);
    let info = engine("retry of an appended batch", result)?;
    ensure!(
        info.is_duplicate && (info.first_offset, info.last_offset) == (batch.base, batch.last),
        "batch [{}, {}] of producer {id} sent again: {info:?}",
        batch.base,
        batch.last
    );
    Ok(())
}

fn check_transactions(log: &Log, model: &Model, replayed: &Replayed) -> Check {
    log.update_high_watermark(model.end);
    let open = replayed.producers.values().filter_map(|producer| producer.transaction);
    let expected = open.clone().filter(|first| *first >= model.start).min();
    let has_deleted = open.min().is_some_and(|first| first < model.start);
    let found = log.first_unstable_offset();
    ensure!(
        found == expected || (has_deleted && found.is_some_and(|first| first >= model.start)),
        "first unstable offset is {found:?}, expected {expected:?} in [{}, {}): the log says {:?}, known are {:?}",
        model.start,
        model.end,
        replayed.producers,
        log.active_producers()
    );
    let found = engine("aborted", log.aborted_transactions(model.start, model.end))?;
    for aborted in &found {
        ensure!(
            replayed.aborted.iter().any(|expected| {
                (expected.producer, expected.last) == (aborted.producer_id, aborted.last_offset)
                    && (expected.first == aborted.first_offset || expected.first < model.start)
            }),
            "{aborted:?} was not aborted, these were: {:?}",
            replayed.aborted
        );
    }
    for expected in &replayed.aborted {
        let data = model.visible().iter().find(|batch| {
            batch.base >= expected.first
                && batch.base < expected.last
                && batch.producer.is_some_and(|producer| producer.id == expected.producer)
        });
        let Some(data) = data.filter(|_| expected.last >= model.start) else { continue };
        ensure!(
            found.iter().any(|aborted| {
                (aborted.producer_id, aborted.last_offset) == (expected.producer, expected.last)
                    && aborted.first_offset <= data.base
            }),
            "{expected:?} is missing among {found:?}"
        );
    }
    Ok(())
}
