//! A partition cut into parts of about equal bytes that can be scanned apart.
use super::chunks::Chunks;
use super::pieces::Piece;
use super::position::{header_in, indexed_cuts, indexed_positions, Places};
use super::segments::SegmentFile;
use crate::{Error, Result};
use std::os::unix::fs::MetadataExt;
use std::sync::Arc;

/// A range of offsets and how many bytes of one segment it takes.
///
/// Compaction may swap the file between planning and reading, so that a part is read by its offsets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Split {
    /// Base offset of the segment.
    pub segment_base_offset: i64,
    /// First offset, inclusive.
    pub start_offset: i64,
    /// Exclusive end; `i64::MAX` for the end of the log.
    pub end_offset: i64,
    /// Byte position of the part in the segment when it was planned.
    pub position: u64,
    /// Bytes of the part when it was planned, up to the end of its last batch at the least.
    pub size_bytes: u64,
}

/// Cuts segments into parts of about `split_bytes`, at the positions that `.index` names, or at batches
/// found by walking over their headers where there is no index. Together the parts hold every offset
/// from `start_offset` up to `end_offset` once.
///
/// # Errors
/// [`Error::Io`]; [`Error::Corrupt`] when a segment without an index has no batches to walk over.
pub fn plan_splits(
    segments: &[SegmentFile],
    split_bytes: u64,
    start_offset: i64,
    end_offset: i64,
) -> Result<Vec<Split>> {
    let split_bytes = split_bytes.max(1);
    let mut splits = Vec::new();
    for (index, segment) in segments.iter().enumerate() {
        let segment_end = segments.get(index + 1).map_or(i64::MAX, |next| next.base_offset);
        let segment_end = segment_end.min(segment.end_offset());
        if segment.size_bytes == 0 || segment_end <= start_offset || segment.base_offset >= end_offset {
            continue;
        }
        let mut cuts = vec![Start { position: 0, end_before: 0, offset: segment.base_offset }];
        if segment.size_bytes > split_bytes {
            cuts.extend(inner_cuts(segment, split_bytes)?);
        }
        let end_before = segment.size_bytes;
        cuts.push(Start { position: end_before, end_before, offset: segment_end });
        for pair in cuts.windows(2) {
            let [start, next_start] = pair else { continue };
            let (position, first, next) = (start.position, start.offset, next_start.offset);
            // A copy of a segment may go on behind where another takes over.
            let (first, next) = (first.max(start_offset), next.min(end_offset).min(segment_end));
            if first < next {
                splits.push(Split {
                    segment_base_offset: segment.base_offset,
                    start_offset: first,
                    end_offset: next,
                    position,
                    size_bytes: next_start.end_before.saturating_sub(position),
                });
            }
        }
    }
    Ok(splits)
}

/// A part of a segment for one thread.
#[derive(Debug)]
pub(super) struct Cut {
    pub(super) piece: Piece,
    pub(super) start_offset: i64,
    pub(super) end_offset: i64,
}

/// Cuts a segment into parts of about `size`. The first begins at the lowest offset, the last ends at the largest.
pub(super) fn cuts_of(piece: &Piece, size: u64) -> Result<Vec<Cut>> {
    let segment = &piece.segment;
    let inner = if segment.size_bytes > size { inner_cuts(segment, size)? } else { Vec::new() };
    let file_id = match &segment.remote {
        Some(_) => None,
        None => match std::fs::metadata(&segment.path) {
            Ok(metadata) => Some(metadata.ino()),
            // Gone: who opens it finds out what to read instead.
            Err(_) => return Ok(Vec::new()),
        },
    };
    let mut starts = vec![Start { position: 0, end_before: 0, offset: i64::MIN }];
    starts.extend(inner);
    // Elsewhere a part is read up to its last offset, and begins with a batch before its first.
    let is_local = file_id.is_some();
    let cut = |index: usize, start: &Start| {
        let next = starts.get(index + 1);
        Cut {
            piece: Piece {
                segment: segment.clone(),
                position: start.position,
                end_position: next.map_or(u64::MAX, |next| next.end_before),
                file_id,
                is_last: piece.is_last && next.is_none(),
                is_cut: true,
                end_offset: piece.end_offset,
                floor: if is_local { start.offset.max(piece.floor) } else { piece.floor },
                ceiling: next.filter(|_| is_local).map_or(piece.ceiling, |next| next.offset),
            },
            start_offset: start.offset,
            end_offset: next.map_or(i64::MAX, |next| next.offset),
        }
    };
    Ok(starts.iter().enumerate().map(|(index, start)| cut(index, start)).collect())
}

/// Where a part of a segment begins.
#[derive(Debug, Clone, Copy)]
struct Start {
    /// Byte position of a batch at or before the first of the part.
    position: u64,
    /// Byte position at which the part before ends, or a later one.
    end_before: u64,
    /// First offset.
    offset: i64,
}

/// Starts inside the segment, about `split_bytes` apart, by rising position and offset.
fn inner_cuts(segment: &SegmentFile, split_bytes: u64) -> Result<Vec<Start>> {
    if segment.remote.is_some() {
        // To look at each of the batches would take a request for each.
        if let Some(cuts) = indexed_cuts(segment, split_bytes) {
            let start = |(position, end_before, offset)| Start { position, end_before, offset };
            return Ok(cuts.into_iter().map(start).collect());
        }
    }
    let places = match Places::open(segment) {
        Ok(places) => places,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
        Err(source) => return Err(Error::io("open", &segment.path, source)),
    };
    let mut cuts: Vec<Start> = Vec::new();
    let indexed = indexed_positions(segment, split_bytes);
    for position in &indexed {
        let Some(found) = start_behind(&places, segment, *position) else { continue };
        let last = cuts.last().map_or(segment.base_offset, |cut| cut.offset);
        if found.offset > last {
            cuts.push(found);
        }
    }
    if !indexed.is_empty() {
        return Ok(cuts);
    }
    let mut chunks = Chunks::of(segment, 0, Arc::default())?;
    chunks.expect_sequential(segment.size_bytes);
    let mut wanted = split_bytes;
    loop {
        let position = match chunks.peek()? {
            Some(ahead) => {
                chunks.skip(&ahead);
                ahead.position
            }
            None => match chunks.next_batch() {
                Ok(Some(found)) => found.position,
                Ok(None) | Err(_) => return Ok(cuts),
            },
        };
        if position < wanted {
            continue;
        }
        let last = cuts.last().map_or(segment.base_offset, |cut| cut.offset);
        if let Some(found) = start_behind(&places, segment, position).filter(|found| found.offset > last) {
            wanted = found.position.saturating_add(split_bytes);
            cuts.push(found);
        }
    }
}

/// The start of the batch behind the one at `position`, when the headers around it agree about its offset: no part
/// may begin at an offset that one wrong bit made.
fn start_behind(places: &Places, segment: &SegmentFile, position: u64) -> Option<Start> {
    let before = header_in(places, segment, position)?;
    let position = position.checked_add(before.size_bytes())?;
    let header = header_in(places, segment, position)?;
    let offset = header.first_offset()?;
    let is_next = offset == before.last_offset().checked_add(1)?;
    let is_between = || {
        let after = header_in(places, segment, position.checked_add(header.size_bytes())?)?;
        Some(before.last_offset() < offset && header.last_offset() < after.first_offset()?)
    };
    (is_next || is_between()?).then_some(Start { position, end_before: position, offset })
}
