//! Appends of several requests with one write.
//!
//! A small write to the page cache costs more than all else of a small append. What requests append is the same as one
//! by one, byte for byte, segments and indexes included: wherever that is not plain, they are appended one by one.
use std::sync::Arc;

use super::append::{Appended, Prepared};
use super::producer_changes::ProducerChanges;
use super::{AppendInfo, Inner, Log, LogConfig, PreparedAppend};
use crate::batch::{BatchHeader, TimestampType};
use crate::producer_state::Origin;
use crate::segment::RollParameters;
use crate::Result;

/// What goes into one write.
struct Joined {
    appended: Vec<Appended>,
    infos: Vec<AppendInfo>,
    changes: ProducerChanges,
}

impl Log {
    /// Append what [`Log::prepare_append`] checked for several requests, in their order, in the epoch that the caller
    /// leads now; a result for each, as [`Log::commit_append`] gives it. A refused request does not end those after it.
    pub fn commit_appends(
        &self,
        mut requests: Vec<PreparedAppend<'_>>,
        leader_epoch: i32,
    ) -> Vec<Result<AppendInfo>> {
        let mut results = Vec::with_capacity(requests.len());
        match self.write_together(&mut requests, leader_epoch) {
            Ok(Some(infos)) => {
                results.extend(infos.into_iter().map(Ok));
                return results;
            }
            Ok(None) => {}
            Err(error) => {
                // The others learn from the log itself what has become of it.
                requests.remove(0);
                results.push(Err(error));
            }
        }
        results.extend(requests.into_iter().map(|request| self.commit_append(request, leader_epoch)));
        results
    }

    /// `None`, and nothing done, if these have to be appended one by one.
    fn write_together(
        &self,
        requests: &mut [PreparedAppend<'_>],
        leader_epoch: i32,
    ) -> Result<Option<Vec<AppendInfo>>> {
        let [first, second, ..] = &*requests else { return Ok(None) };
        let config = Arc::clone(&first.config);
        let now_ms = second.options.now_ms.max(first.options.now_ms);
        let Ok(mut inner) = self.lock_inner() else { return Ok(None) };
        let Some(joined) = join(&inner, &config, requests, leader_epoch) else { return Ok(None) };
        let Joined { appended, mut infos, changes } = joined;
        let Some(end_offset) = infos.last().map(|info| info.last_offset + 1) else { return Ok(None) };
        let roll = RollParameters {
            segment_bytes: config.segment_bytes,
            segment_ms: config.segment_ms,
            append_bytes: infos.iter().map(|info| info.size_bytes).sum(),
            max_timestamp: appended.iter().map(|batch| batch.facts.max_timestamp).max().unwrap_or(-1),
            last_offset: end_offset - 1,
            now_ms,
        };
        if !inner.active()?.takes_all(&roll, appended.len())? {
            return Ok(None);
        }
        let batches = requests.iter().flat_map(|request| &request.batches);
        let parts: Vec<&[u8]> = batches.flat_map(|batch| [&batch.header[..], batch.body.bytes()]).collect();
        self.write(&mut inner, &config, &parts, &appended, now_ms)?;
        self.finish_append(&mut inner, end_offset, &changes)?;
        for info in &mut infos {
            info.log_start_offset = inner.log_start_offset;
        }
        Ok(Some(infos))
    }
}

/// Give offsets to the batches of all requests, if each of them will certainly be appended.
fn join(
    inner: &Inner,
    config: &Arc<LogConfig>,
    requests: &mut [PreparedAppend<'_>],
    leader_epoch: i32,
) -> Option<Joined> {
    let (mut appended, mut infos) = (Vec::with_capacity(requests.len()), Vec::with_capacity(requests.len()));
    let mut changes = ProducerChanges::default();
    let mut next_offset = inner.log_end_offset;
    for request in requests {
        let options = request.options;
        let [batch] = request.batches.as_mut_slice() else { return None };
        if options.origin != Origin::Client || !Arc::ptr_eq(&request.config, config) {
            return None;
        }
        let first_offset = next_offset;
        let Prepared { header, body, check, .. } = batch;
        check.assign(header, body.bytes(), config.timestamp_type, first_offset, leader_epoch);
        next_offset += i64::from(check.record_count);
        let size_bytes = (header.len() + body.bytes().len()) as u64;
        let header = BatchHeader::new(header);
        if header.is_transactional() || header.is_control() {
            return None;
        }
        if header.has_producer_id() {
            if !follows(&changes, &header) {
                return None;
            }
            changes.add(inner, &header, None, &options).ok()?;
        }
        appended.push(Appended::of(&header));
        let is_dated = config.timestamp_type == TimestampType::LogAppendTime;
        infos.push(AppendInfo {
            first_offset,
            last_offset: next_offset - 1,
            log_append_time_ms: if is_dated { options.now_ms } else { -1 },
            log_start_offset: inner.log_start_offset,
            is_duplicate: false,
            record_count: next_offset - first_offset,
            size_bytes,
            is_rolled: false,
        });
    }
    Some(Joined { appended, infos, changes })
}

/// Whether a batch of a producer follows on its last one among these. One that was appended before follows on none: it
/// is refused here, and recognized when it comes alone.
fn follows(changes: &ProducerChanges, header: &BatchHeader<'_>) -> bool {
    let id = header.producer_id();
    let mut updates = changes.updates.iter();
    updates.find(|update| update.producer_id() == id).is_none_or(|update| update.is_continued_by(header))
}

#[cfg(test)]
mod tests;
