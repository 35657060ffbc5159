//! Where a segment goes on behind damage. The length of a batch is outside its checksum: where the checksum is wrong,
//! the length is only believed if it leads to the next batch.
use super::chunks::{Chunks, CHUNK_SIZE};
use crate::batch::{HEADER_SIZE, MAGIC};
use crate::offset_order::{is_plausible, is_plausible_legacy, Neighbour, OffsetOrder};
use crate::{Error, Result};

/// Batches may be checked byte by byte for this many times the bytes searched: hostile files end the search.
const SEARCH_RATIO: u64 = 32;
const SEARCH_FLOOR: u64 = 64 << 20;

/// What is known of the end of damage.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum DamageEnd {
    /// The batch is whole: its checksum is right.
    Known(u64),
    /// What the unchecked length says.
    Claimed(u64),
    Unknown,
}

/// The position at which to go on behind damage that begins at `position`; the reader stands there afterwards. None
/// when no sound batch follows.
///
/// # Errors
/// [`Error::Io`], [`Error::Remote`].
pub(super) fn resume(
    chunks: &mut Chunks,
    position: u64,
    end: DamageEnd,
    order: &OffsetOrder,
) -> Result<Option<u64>> {
    let found = match end {
        DamageEnd::Known(end) => Some(end),
        DamageEnd::Claimed(end) if leads_on(chunks, end, order)? => {
            Some(behind_claim(chunks, position, end, order)?)
        }
        DamageEnd::Claimed(_) | DamageEnd::Unknown => {
            search(chunks, position + 1, chunks.size_bytes(), order)?
        }
    };
    if let Some(found) = found {
        chunks.go_to(found);
    }
    Ok(found)
}

/// Where to go on when the length of the damaged batch at `position` leads to `end`, where a header could be.
fn behind_claim(chunks: &mut Chunks, position: u64, end: u64, order: &OffsetOrder) -> Result<u64> {
    if !begins_soundly(chunks, end)? {
        // Another damaged batch, whose length leads on, or bytes of a record that look like a header.
        if let Some(sound) = search(chunks, position + 1, chunks.size_bytes(), order)? {
            if !lengths_lead_to(chunks, end, sound)? {
                return Ok(sound);
            }
        }
    }
    // A length with a wrong bit may lead to the start of a later batch.
    Ok(chain_up_to(chunks, position + 1, end, order)?.unwrap_or(end))
}

/// True at the end of the file and in front of a batch whose checksum is right.
fn begins_soundly(chunks: &mut Chunks, position: u64) -> Result<bool> {
    if position >= chunks.size_bytes() {
        return Ok(true);
    }
    chunks.go_to(position);
    next_is_sound(chunks)
}

/// Whether the lengths of headers lead from `position` to exactly `target`.
fn lengths_lead_to(chunks: &mut Chunks, position: u64, target: u64) -> Result<bool> {
    let mut position = position;
    while position < target {
        chunks.go_to(position);
        let Some(header) = Neighbour::of(chunks.fill(HEADER_SIZE)?) else { return Ok(false) };
        position = position.saturating_add(header.size_bytes as u64);
    }
    Ok(position == target)
}

/// The first sound batch behind `position` from which sound batches follow each other to the end of the file, or to
/// one that is cut short: a sign that the length at `position` is wrong, and that nothing is being written there.
///
/// # Errors
/// [`Error::Io`], [`Error::Remote`].
pub(super) fn chain_to_end(chunks: &mut Chunks, position: u64, order: &OffsetOrder) -> Result<Option<u64>> {
    let mut from = position + 1;
    while let Some(found) = search(chunks, from, chunks.size_bytes(), order)? {
        chunks.go_to(found);
        while next_is_sound(chunks)? {}
        let is_end = chunks.position() >= chunks.size_bytes();
        if is_end || Neighbour::of(chunks.fill(HEADER_SIZE)?).is_some() || chunks.is_at_zeros() {
            chunks.go_to(position);
            return Ok(Some(found));
        }
        from = found + 1;
    }
    chunks.go_to(position);
    Ok(None)
}

/// True when the bytes at `end` are the end of the file or could be a header.
fn leads_on(chunks: &mut Chunks, end: u64, order: &OffsetOrder) -> Result<bool> {
    let file_end = chunks.size_bytes();
    if end >= file_end {
        return Ok(end == file_end);
    }
    chunks.go_to(end);
    let head = chunks.fill(HEADER_SIZE)?;
    Ok(is_plausible(head, end, file_end, order) || is_plausible_legacy(head, end, file_end, order))
}

/// The first sound batch in `[from, end)` from which sound batches follow each other up to exactly `end`.
fn chain_up_to(chunks: &mut Chunks, from: u64, end: u64, order: &OffsetOrder) -> Result<Option<u64>> {
    let mut from = from;
    while let Some(found) = search(chunks, from, end, order)? {
        chunks.go_to(found);
        while chunks.position() < end && next_is_sound(chunks)? {}
        if chunks.position() == end {
            return Ok(Some(found));
        }
        from = found + 1;
    }
    Ok(None)
}

/// The position of the first sound batch that begins in `[from, end)`.
fn search(chunks: &mut Chunks, from: u64, end: u64, order: &OffsetOrder) -> Result<Option<u64>> {
    let file_end = chunks.size_bytes();
    let budget = file_end.saturating_sub(from).saturating_mul(SEARCH_RATIO).max(SEARCH_FLOOR);
    let (mut position, mut checked) = (from, 0);
    while position < end && checked <= budget {
        chunks.go_to(position);
        if chunks.rest().len() < HEADER_SIZE {
            chunks.fill(CHUNK_SIZE)?;
        }
        let window = chunks.rest();
        let places = (window.len() + 1).saturating_sub(HEADER_SIZE);
        let could_begin = |index: &usize| {
            window.get(index + 16) == Some(&(MAGIC as u8)) && {
                let head = window.get(*index..).unwrap_or_default();
                is_plausible(head, position + *index as u64, file_end, order)
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
        if found >= end {
            return Ok(None);
        }
        chunks.go_to(found);
        if next_is_sound(chunks)? {
            return Ok(Some(found));
        }
        checked += size as u64;
        position = found + 1;
    }
    Ok(None)
}

/// Takes the next batch when its checksum is right; else the reader may stand behind it or not.
fn next_is_sound(chunks: &mut Chunks) -> Result<bool> {
    let found = match chunks.next_batch() {
        Ok(Some(found)) => found,
        Ok(None) | Err(Error::Corrupt { .. }) => return Ok(false),
        Err(error) => return Err(error),
    };
    let is_sound = chunks.current(found)?.validate_crc().is_ok();
    if !is_sound {
        chunks.go_to(found.position);
    }
    Ok(is_sound)
}
