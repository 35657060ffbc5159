//! Where in a segment to begin: answers from `.index` and `.timeindex`, which are hints and are checked.
//!
//! Of an index only the entries that a binary search meets are read. An index that is missing, in an odd
//! shape or that points to something else than a batch costs time, never records: the scan begins earlier.
use super::chunks::read_at;
use super::segments::SegmentFile;
use crate::batch::{BatchHeader, HEADER_SIZE, HEADER_SIZE_UP_TO_MAGIC, LOG_OVERHEAD, MAGIC};
use crate::legacy::{is_legacy, translate_header};
use std::fs::File;
use std::path::Path;

/// Bytes of an entry of `.index`: relative offset and position.
const OFFSET_ENTRY_SIZE: u64 = 8;
/// Bytes of an entry of `.timeindex`: timestamp and relative offset.
const TIME_ENTRY_SIZE: u64 = 12;

/// Fixed-size sorted entries of a file. Behind the last may be zeros: space that Kafka allocated in advance.
#[derive(Debug)]
struct Entries<const SIZE: usize> {
    file: File,
    count: u64,
}

impl<const SIZE: usize> Entries<SIZE> {
    fn open(path: &Path) -> Option<Self> {
        let file = File::open(path).ok()?;
        let count = file.metadata().ok()?.len() / SIZE as u64;
        Some(Self { file, count })
    }

    /// Entry `index`, None behind the last.
    fn get(&self, index: u64) -> Option<[u8; SIZE]> {
        if index >= self.count {
            return None;
        }
        let bytes = read_at(&self.file, index * SIZE as u64, SIZE).ok()?;
        let entry = *bytes.first_chunk::<SIZE>()?;
        (entry != [0; SIZE]).then_some(entry)
    }

    /// The last entry that is `before` the wanted one; entries are sorted.
    fn last_where(&self, before: impl Fn(&[u8; SIZE]) -> bool) -> Option<[u8; SIZE]> {
        self.get(self.count_where(before).checked_sub(1)?)
    }

    /// How many entries are `before` the wanted one.
    fn count_where(&self, before: impl Fn(&[u8; SIZE]) -> bool) -> u64 {
        let (mut low, mut high) = (0, self.count);
        while low < high {
            let middle = low + (high - low) / 2;
            match self.get(middle) {
                Some(entry) if before(&entry) => low = middle + 1,
                _ => high = middle,
            }
        }
        low
    }
}

fn relative_offset_and_position(entry: &[u8; OFFSET_ENTRY_SIZE as usize]) -> (i64, u64) {
    let [a, b, c, d, e, f, g, h] = *entry;
    (i64::from(u32::from_be_bytes([a, b, c, d])), u64::from(u32::from_be_bytes([e, f, g, h])))
}

fn timestamp_and_relative_offset(entry: &[u8; TIME_ENTRY_SIZE as usize]) -> (i64, i64) {
    let [a, b, c, d, e, f, g, h, i, j, k, l] = *entry;
    (i64::from_be_bytes([a, b, c, d, e, f, g, h]), i64::from(u32::from_be_bytes([i, j, k, l])))
}

/// Byte position of a batch at or before the one that holds `offset`; 0 when the index is of no help.
pub(super) fn position_before(segment: &SegmentFile, offset: i64) -> u64 {
    if offset <= segment.base_offset {
        return 0;
    }
    hinted_position(segment, offset).unwrap_or(0)
}

fn hinted_position(segment: &SegmentFile, offset: i64) -> Option<u64> {
    let entries = Entries::<{ OFFSET_ENTRY_SIZE as usize }>::open(&segment.sidecar("index"))?;
    let relative = offset.checked_sub(segment.base_offset)?;
    let (_, position) = relative_offset_and_position(
        &entries.last_where(|entry| relative_offset_and_position(entry).0 <= relative)?,
    );
    let header = header_at(segment, position)?;
    (header.base_offset() <= offset).then_some(position)
}

/// The header at `position` when a whole batch of this segment seems to be there.
fn header_at(segment: &SegmentFile, position: u64) -> Option<OwnedHeader> {
    let file = File::open(&segment.path).ok()?;
    header_in(&file, segment, position)
}

/// A header read from a file.
#[derive(Debug)]
pub(super) struct OwnedHeader([u8; HEADER_SIZE]);

impl OwnedHeader {
    pub(super) fn base_offset(&self) -> i64 {
        BatchHeader::new(&self.0).base_offset()
    }

    /// The first offset of the batch, where it can be told: a compressed set of magic 0 or 1 has its last in front.
    pub(super) fn first_offset(&self) -> Option<i64> {
        let header = BatchHeader::new(&self.0);
        (header.record_count() >= 0).then(|| header.base_offset())
    }
}

pub(super) fn header_in(file: &File, segment: &SegmentFile, position: u64) -> Option<OwnedHeader> {
    let bytes = read_at(file, position, HEADER_SIZE).ok()?;
    let magic = *bytes.get(HEADER_SIZE_UP_TO_MAGIC - 1)? as i8;
    let header = OwnedHeader(match is_legacy(magic) {
        true => translate_header(bytes.first_chunk()?),
        false => *bytes.first_chunk()?,
    });
    let view = BatchHeader::new(&header.0);
    let size = u64::try_from(view.batch_length()).ok()? + LOG_OVERHEAD as u64;
    let whole = position + size <= segment.size_bytes;
    ((0..=MAGIC).contains(&magic) && whole && view.base_offset() >= segment.base_offset).then_some(header)
}

/// What the time index says of the records before a time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct TimeHint {
    /// Largest timestamp of all records up to `offset`: that of the batch that has `offset`.
    pub(super) timestamp: i64,
    /// The record with that timestamp, or the last of its batch.
    pub(super) offset: i64,
}

/// The last entry of the time index before `timestamp`: no record up to its offset is as late as `timestamp`.
pub(super) fn time_hint(segment: &SegmentFile, timestamp: i64) -> Option<TimeHint> {
    let entries = Entries::<{ TIME_ENTRY_SIZE as usize }>::open(&segment.sidecar("timeindex"))?;
    let entry = entries.last_where(|entry| timestamp_and_relative_offset(entry).0 < timestamp)?;
    let (timestamp, relative) = timestamp_and_relative_offset(&entry);
    Some(TimeHint { timestamp, offset: segment.base_offset.checked_add(relative)? })
}

/// A position in `.index` behind `position` at which a batch seems to be: where to go on after damage.
pub(super) fn indexed_position_after(segment: &SegmentFile, position: u64) -> Option<u64> {
    let entries = Entries::<{ OFFSET_ENTRY_SIZE as usize }>::open(&segment.sidecar("index"))?;
    let file = File::open(&segment.path).ok()?;
    let mut index = entries.count_where(|entry| relative_offset_and_position(entry).1 <= position);
    while let Some(entry) = entries.get(index) {
        let (_, position) = relative_offset_and_position(&entry);
        if header_in(&file, segment, position).is_some() {
            return Some(position);
        }
        index += 1;
    }
    None
}

/// Positions from `.index` in order, for cutting a segment into parts; empty when there is no index.
pub(super) fn indexed_positions(segment: &SegmentFile, gap: u64) -> Vec<u64> {
    let Some(entries) = Entries::<{ OFFSET_ENTRY_SIZE as usize }>::open(&segment.sidecar("index")) else {
        return Vec::new();
    };
    let mut positions = Vec::new();
    let mut wanted = gap;
    // One search a part: the first entry at or behind the next multiple of `gap`.
    while wanted < segment.size_bytes {
        let before = entries.last_where(|entry| relative_offset_and_position(entry).1 <= wanted);
        let Some((_, position)) = before.map(|entry| relative_offset_and_position(&entry)) else {
            wanted += gap;
            continue;
        };
        if positions.last().is_none_or(|&last| position > last) && position > 0 {
            positions.push(position);
        }
        wanted = position.max(wanted).saturating_add(gap);
    }
    positions
}
