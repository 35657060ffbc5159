//! Where in a segment to begin: answers from `.index` and `.timeindex`, which are hints and are checked.
//!
//! Of an index only the entries that a binary search meets are read. An index that is missing, in an odd
//! shape or that points to something else than a batch costs time, never records: the scan begins earlier.
use super::chunks::read_at;
use super::remote::{ObjectKind, RemoteDirectory};
use super::segments::SegmentFile;
use crate::batch::{BatchHeader, HEADER_SIZE, HEADER_SIZE_UP_TO_MAGIC, LOG_OVERHEAD, MAGIC};
use crate::legacy::{is_legacy, translate_header};
use arrow_buffer::Buffer;
use std::fs::File;
use std::sync::Arc;

/// Bytes of an entry of `.index`: relative offset and position.
const OFFSET_ENTRY_SIZE: u64 = 8;
/// Bytes of an entry of `.timeindex`: timestamp and relative offset.
const TIME_ENTRY_SIZE: u64 = 12;

/// Fixed-size sorted entries of a file. Behind the last may be zeros: space that Kafka allocated in advance.
#[derive(Debug)]
struct Entries<const SIZE: usize> {
    bytes: IndexBytes,
    count: u64,
}

/// The bytes of an index: read entry by entry from a file, or fetched.
#[derive(Debug)]
enum IndexBytes {
    File(File),
    Here(Buffer),
}

impl<const SIZE: usize> Entries<SIZE> {
    fn open(segment: &SegmentFile, kind: ObjectKind) -> Option<Self> {
        let (bytes, size) = match &segment.remote {
            Some(remote) => {
                let bytes = remote.sidecar(kind, segment.base_offset).ok()??;
                let size = bytes.len() as u64;
                (IndexBytes::Here(bytes), size)
            }
            None => {
                let file = File::open(segment.sidecar(kind.extension())).ok()?;
                let size = file.metadata().ok()?.len();
                (IndexBytes::File(file), size)
            }
        };
        Some(Self { bytes, count: size / SIZE as u64 })
    }

    /// Entry `index`, None behind the last.
    fn get(&self, index: u64) -> Option<[u8; SIZE]> {
        if index >= self.count {
            return None;
        }
        let entry = match &self.bytes {
            IndexBytes::File(file) => {
                *read_at(file, index * SIZE as u64, SIZE).ok()?.first_chunk::<SIZE>()?
            }
            IndexBytes::Here(bytes) => {
                *bytes.get((index as usize).checked_mul(SIZE)?..)?.first_chunk::<SIZE>()?
            }
        };
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

/// The offset index of a segment.
fn offset_index(segment: &SegmentFile) -> Option<Entries<{ OFFSET_ENTRY_SIZE as usize }>> {
    Entries::open(segment, ObjectKind::Index)
}

/// Looks at single places of a segment.
#[derive(Debug)]
pub(super) enum Places {
    Local(File),
    Remote(Arc<RemoteDirectory>),
}

impl Places {
    pub(super) fn open(segment: &SegmentFile) -> std::io::Result<Self> {
        Ok(match &segment.remote {
            Some(remote) => Self::Remote(Arc::clone(remote)),
            None => Self::Local(File::open(&segment.path)?),
        })
    }

    fn read(&self, segment: &SegmentFile, position: u64, size: usize) -> Option<Buffer> {
        match self {
            Self::Local(file) => read_at(file, position, size).ok(),
            Self::Remote(remote) => remote.probe(segment, position, size).ok(),
        }
    }
}

/// Byte position of a batch before the one that holds `offset`, so that its offsets are bounded by those of a batch
/// before; 0 when the index is of no help.
pub(super) fn position_before(segment: &SegmentFile, offset: i64) -> u64 {
    if offset <= segment.base_offset {
        return 0;
    }
    hinted_position(segment, offset).unwrap_or(0)
}

/// Byte position of a batch before the last one; 0 when the index is of no help.
pub(super) fn position_near_end(segment: &SegmentFile) -> u64 {
    let found = || {
        let entries = offset_index(segment)?;
        let count = entries.count_where(|_| true);
        let (_, position) = relative_offset_and_position(&entries.get(count.checked_sub(2)?)?);
        header_at(segment, position).map(|_| position)
    };
    found().unwrap_or(0)
}

/// Byte position at which the records before `end_offset` seem to end: that of the index entry after the first that
/// is not before it, since an entry names the last offset of the batch that it points to. `u64::MAX` when nothing
/// says where.
pub(super) fn position_after(segment: &SegmentFile, end_offset: i64) -> u64 {
    let remote = segment.remote.as_ref();
    if let Some(hint) = remote.and_then(|remote| remote.hint(segment.base_offset)) {
        return hint.end_position;
    }
    let found = || {
        let entries = offset_index(segment)?;
        let relative = end_offset.checked_sub(segment.base_offset)?.checked_sub(1)?;
        let before = entries.count_where(|entry| relative_offset_and_position(entry).0 < relative);
        Some(relative_offset_and_position(&entries.get(before.checked_add(1)?)?).1)
    };
    found().unwrap_or(u64::MAX)
}

fn hinted_position(segment: &SegmentFile, offset: i64) -> Option<u64> {
    let remote = segment.remote.as_ref();
    if let Some(hint) = remote.and_then(|remote| remote.hint(segment.base_offset)) {
        if starts_before(segment, hint.position, offset) {
            return Some(hint.position);
        }
    }
    let entries = offset_index(segment)?;
    let relative = offset.checked_sub(segment.base_offset)?;
    let (_, position) = relative_offset_and_position(
        &entries.last_where(|entry| relative_offset_and_position(entry).0 < relative)?,
    );
    let header = header_at(segment, position)?;
    (header.base_offset() <= offset).then_some(position)
}

/// Whether a batch seems to be at `position`, behind the first, that is at or before the one with `offset`.
pub(super) fn starts_before(segment: &SegmentFile, position: u64, offset: i64) -> bool {
    position > 0 && header_at(segment, position).is_some_and(|header| header.base_offset() <= offset)
}

/// The header at `position` when a whole batch of this segment seems to be there.
fn header_at(segment: &SegmentFile, position: u64) -> Option<OwnedHeader> {
    let places = Places::open(segment).ok()?;
    header_in(&places, segment, position)
}

/// A header read from a file.
#[derive(Debug)]
pub(super) struct OwnedHeader([u8; HEADER_SIZE]);

impl OwnedHeader {
    pub(super) fn base_offset(&self) -> i64 {
        BatchHeader::new(&self.0).base_offset()
    }

    /// Offset of the last record, inclusive.
    pub(super) fn last_offset(&self) -> i64 {
        BatchHeader::new(&self.0).last_offset()
    }

    /// Bytes of the batch.
    pub(super) fn size_bytes(&self) -> u64 {
        BatchHeader::new(&self.0).size_bytes() as u64
    }

    /// The first offset of the batch, where it can be told: a compressed set of magic 0 or 1 has its last in front.
    pub(super) fn first_offset(&self) -> Option<i64> {
        let header = BatchHeader::new(&self.0);
        (header.record_count() >= 0).then(|| header.base_offset())
    }
}

pub(super) fn header_in(places: &Places, segment: &SegmentFile, position: u64) -> Option<OwnedHeader> {
    let bytes = places.read(segment, position, HEADER_SIZE)?;
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
    let entries = Entries::<{ TIME_ENTRY_SIZE as usize }>::open(segment, ObjectKind::TimeIndex)?;
    let entry = entries.last_where(|entry| timestamp_and_relative_offset(entry).0 < timestamp)?;
    let (timestamp, relative) = timestamp_and_relative_offset(&entry);
    Some(TimeHint { timestamp, offset: segment.base_offset.checked_add(relative)? })
}

/// A position in `.index` behind `position` at which a batch seems to be: where to go on after damage.
pub(super) fn indexed_position_after(segment: &SegmentFile, position: u64) -> Option<u64> {
    let entries = offset_index(segment)?;
    let places = Places::open(segment).ok()?;
    let mut index = entries.count_where(|entry| relative_offset_and_position(entry).1 <= position);
    while let Some(entry) = entries.get(index) {
        let (_, found) = relative_offset_and_position(&entry);
        // Entries of a damaged index may lead back, and the scan would come here again for ever.
        if found > position && header_in(&places, segment, found).is_some() {
            return Some(found);
        }
        index += 1;
    }
    None
}

/// Positions from `.index` in order, for cutting a segment into parts; empty when there is no index.
pub(super) fn indexed_positions(segment: &SegmentFile, gap: u64) -> Vec<u64> {
    let Some(entries) = offset_index(segment) else { return Vec::new() };
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

/// Where `.index` alone lets a segment be cut, about `gap` bytes apart: byte position of the batch that ends before the
/// offset of the cut, byte position behind that batch at the least, and the offset. Nothing of the segment is read for
/// it. None when there is no index.
pub(super) fn indexed_cuts(segment: &SegmentFile, gap: u64) -> Option<Vec<(u64, u64, i64)>> {
    let entries = offset_index(segment)?;
    let mut cuts: Vec<(u64, u64, i64)> = Vec::new();
    let mut wanted = gap;
    while wanted < segment.size_bytes {
        let index = entries.count_where(|entry| relative_offset_and_position(entry).1 <= wanted);
        let Some(entry) = index.checked_sub(1).and_then(|index| entries.get(index)) else {
            wanted = wanted.saturating_add(gap);
            continue;
        };
        let (relative, position) = relative_offset_and_position(&entry);
        let next =
            entries.get(index).map_or(segment.size_bytes, |next| relative_offset_and_position(&next).1);
        let offset = segment.base_offset.saturating_add(relative).saturating_add(1);
        let (last_position, last_offset) =
            cuts.last().map_or((0, segment.base_offset), |&(position, _, offset)| (position, offset));
        if position > last_position && offset > last_offset && next > position {
            cuts.push((position, next, offset));
        }
        wanted = position.max(wanted).saturating_add(gap);
    }
    Some(cuts)
}
