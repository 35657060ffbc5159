//! Where a segment goes on behind damage. The length of a batch is outside its checksum: where the checksum is wrong,
//! the length is only believed if it leads to the next batch; else the next header with a right checksum is searched
//! byte by byte.
use crate::batch_view::{HEADER_SIZE, MAGIC};
use crate::offset_order::{is_plausible, is_plausible_legacy, Neighbour, OffsetOrder};
use crate::Result;

/// Bytes that a search reads at once.
const SEARCH_READ_BYTES: usize = 512 << 10;
/// Batches may be checked byte by byte for this many times the bytes searched: hostile files end the search.
const SEARCH_RATIO: u64 = 32;
const SEARCH_FLOOR: u64 = 64 << 20;

/// A segment that can be read at any place.
pub(crate) trait SegmentBytes {
    /// Where the segment ends.
    fn size_bytes(&self) -> u64;

    /// The bytes from `position` on: those of a header at the least, fewer only at the end of the segment. Where
    /// nothing is in memory, `read_bytes` are read.
    ///
    /// # Errors
    /// [`crate::Error::Io`], [`crate::Error::Remote`].
    fn window(&mut self, position: u64, read_bytes: usize) -> Result<&[u8]>;

    /// The bytes of the batch at `position` when it is whole and its checksum is right, else None.
    ///
    /// # Errors
    /// [`crate::Error::Io`], [`crate::Error::Remote`].
    fn sound_batch(&mut self, position: u64) -> Result<Option<u64>>;
}

/// True when the bytes at `end` are the end of the segment or could be a header: the length that leads there may be
/// right.
pub(crate) fn leads_on(segment: &mut impl SegmentBytes, end: u64, order: &OffsetOrder) -> Result<bool> {
    let segment_end = segment.size_bytes();
    if end >= segment_end {
        return Ok(end == segment_end);
    }
    let head = segment.window(end, HEADER_SIZE)?;
    Ok(is_plausible(head, end, segment_end, order) || is_plausible_legacy(head, end, segment_end, order))
}

/// Where to go on when the length of the damaged batch at `position` leads to `end`, and [`leads_on`] is true there.
pub(crate) fn behind_claim(
    segment: &mut impl SegmentBytes,
    position: u64,
    end: u64,
    order: &OffsetOrder,
) -> Result<u64> {
    if end < segment.size_bytes() && segment.sound_batch(end)?.is_none() {
        // Another damaged batch, whose length leads on, or bytes of a record that look like a header.
        if let Some(sound) = search(segment, position + 1, segment.size_bytes(), order)? {
            if !lengths_lead_to(segment, end, sound)? {
                return Ok(sound);
            }
        }
    }
    // A length with a wrong bit may lead to the start of a later batch.
    Ok(chain_up_to(segment, position + 1, end, order)?.unwrap_or(end))
}

/// The position of the first sound batch that begins in `[from, until)`.
pub(crate) fn search(
    segment: &mut impl SegmentBytes,
    from: u64,
    until: u64,
    order: &OffsetOrder,
) -> Result<Option<u64>> {
    let end = segment.size_bytes();
    let budget = end.saturating_sub(from).saturating_mul(SEARCH_RATIO).max(SEARCH_FLOOR);
    let (mut position, mut checked) = (from, 0_u64);
    while position < until && checked <= budget {
        let window = segment.window(position, SEARCH_READ_BYTES)?;
        let places = (window.len() + 1).saturating_sub(HEADER_SIZE);
        let could_begin = |index: &usize| {
            window.get(index + 16) == Some(&(MAGIC as u8)) && {
                let head = window.get(*index..).unwrap_or_default();
                is_plausible(head, position + *index as u64, end, order)
            }
        };
        let Some(index) = (0..places).find(could_begin) else {
            if places == 0 {
                return Ok(None);
            }
            position += places as u64;
            continue;
        };
        let size = window.get(index..).and_then(Neighbour::of).map_or(HEADER_SIZE, |one| one.size_bytes);
        let found = position + index as u64;
        if found >= until {
            return Ok(None);
        }
        if segment.sound_batch(found)?.is_some() {
            return Ok(Some(found));
        }
        checked = checked.saturating_add(size as u64);
        position = found + 1;
    }
    Ok(None)
}

/// Where the sound batches end that follow each other from `position` to `until` at the most.
pub(crate) fn chain_end(segment: &mut impl SegmentBytes, position: u64, until: u64) -> Result<u64> {
    let mut position = position;
    while position < until {
        let Some(size) = segment.sound_batch(position)? else { break };
        position += size;
    }
    Ok(position)
}

/// Whether the lengths of headers lead from `position` to exactly `target`.
fn lengths_lead_to(segment: &mut impl SegmentBytes, position: u64, target: u64) -> Result<bool> {
    let mut position = position;
    while position < target {
        let Some(header) = Neighbour::of(segment.window(position, HEADER_SIZE)?) else { return Ok(false) };
        position = position.saturating_add(header.size_bytes as u64);
    }
    Ok(position == target)
}

/// The first sound batch in `[from, end)` from which sound batches follow each other up to exactly `end`.
fn chain_up_to(
    segment: &mut impl SegmentBytes,
    from: u64,
    end: u64,
    order: &OffsetOrder,
) -> Result<Option<u64>> {
    let mut from = from;
    while let Some(found) = search(segment, from, end, order)? {
        if chain_end(segment, found, end)? == end {
            return Ok(Some(found));
        }
        from = found + 1;
    }
    Ok(None)
}
