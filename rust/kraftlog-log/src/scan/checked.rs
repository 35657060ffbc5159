//! Batches whose magic, checksum and offsets are checked before anything is taken from them.
use super::chunks::{Chunks, FoundBatch};
use super::resync::{chain_to_end, DamageEnd};
use crate::batch::{BatchHeader, HEADER_SIZE};
use crate::batch_view::CRC_START;
use crate::crc::crc32c;
use crate::offset_order::OffsetOrder;
use crate::{Error, Result};

/// Most bytes at the end of a log that are read to tell a wrong length from a batch that is being written.
const TAIL_SIZE_MAX: u64 = 128 << 20;

/// What comes next in a segment.
pub(super) enum Next {
    /// A sound batch and its header.
    Batch(FoundBatch, [u8; HEADER_SIZE]),
    /// Nothing; behind the last batch of a log may be one that is being written.
    End,
    /// An [`Error::Corrupt`], and where what is wrong ends.
    Damage(Error, DamageEnd),
}

/// The next batch, which `order` has passed then.
///
/// # Errors
/// [`Error::Io`], [`Error::Remote`].
pub(super) fn next_checked(chunks: &mut Chunks, order: &mut OffsetOrder, is_last: bool) -> Result<Next> {
    let found = match chunks.next_batch() {
        Ok(Some(found)) => found,
        Ok(None) => {
            let damage = unfinished(chunks, order, is_last)?;
            return Ok(damage.map_or(Next::End, |error| Next::Damage(error, DamageEnd::Unknown)));
        }
        Err(Error::Corrupt { .. }) if is_last && chunks.is_at_zeros() => return Ok(Next::End),
        Err(error @ Error::Corrupt { .. }) => return Ok(Next::Damage(error, DamageEnd::Unknown)),
        Err(error) => return Err(error),
    };
    let batch = chunks.current(found)?;
    let (bytes, end) = (*batch.header().as_bytes(), found.position + batch.bytes().len() as u64);
    if let Err(error) = batch.check() {
        return Ok(Next::Damage(chunks.locate(error), DamageEnd::Claimed(end)));
    }
    let header = BatchHeader::new(&bytes);
    if let Err(reason) = order.check(&header, chunks.behind().known()) {
        let origin = chunks.path().display().to_string();
        let error = Error::corrupt(found.position, header.base_offset(), reason).located(origin, 0);
        return Ok(Next::Damage(error, DamageEnd::Known(end)));
    }
    order.pass(header.next_offset());
    Ok(Next::Batch(found, bytes))
}

/// What is wrong with the end of a segment, where no whole batch follows.
///
/// # Errors
/// [`Error::Io`], [`Error::Remote`].
pub(super) fn unfinished(chunks: &mut Chunks, order: &OffsetOrder, is_last: bool) -> Result<Option<Error>> {
    let (position, size) = (chunks.position(), chunks.size_bytes());
    if position >= size {
        return Ok(None);
    }
    let left = size - position;
    let reason = if is_last {
        // A batch that is being written has none behind it, and not its checksum yet.
        match chain_to_end(chunks, position, order)? {
            Some(found) => format!("{left} bytes are less than a batch, yet a sound one begins at {found}"),
            None if has_checksum(chunks, left)? => format!("a batch of {left} bytes with another length"),
            None => return Ok(None),
        }
    } else {
        format!("the segment ends within a batch, {left} bytes after this position")
    };
    Ok(Some(Error::corrupt(position, -1, reason).located(chunks.path().display().to_string(), 0)))
}

/// True when the bytes that are left have the checksum that they name: they are a whole batch but for its length.
fn has_checksum(chunks: &mut Chunks, left: u64) -> Result<bool> {
    if !(HEADER_SIZE as u64..=TAIL_SIZE_MAX).contains(&left) {
        return Ok(false);
    }
    let rest = chunks.fill(left as usize)?;
    let stored = rest.first_chunk().map(|bytes| BatchHeader::new(bytes).crc());
    Ok(stored == rest.get(CRC_START..).map(crc32c))
}
