//! Where a reader goes on behind damage.
use super::chunks::Chunks;
use crate::batch::HEADER_SIZE;
use crate::continuation::{behind_claim, chain_end, leads_on, search, SegmentBytes};
use crate::offset_order::{Neighbour, OffsetOrder};
use crate::{Error, Result};

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

/// The first sound batch behind `position` from which sound batches follow each other to the end of the file, or to
/// one that is cut short: a sign that the length at `position` is wrong, and that nothing is being written there.
///
/// # Errors
/// [`Error::Io`], [`Error::Remote`].
pub(super) fn chain_to_end(chunks: &mut Chunks, position: u64, order: &OffsetOrder) -> Result<Option<u64>> {
    let mut from = position + 1;
    while let Some(found) = search(chunks, from, chunks.size_bytes(), order)? {
        let end = chain_end(chunks, found, u64::MAX)?;
        chunks.go_to(end);
        let is_end = end >= chunks.size_bytes();
        if is_end || Neighbour::of(chunks.fill(HEADER_SIZE)?).is_some() || chunks.is_at_zeros() {
            chunks.go_to(position);
            return Ok(Some(found));
        }
        from = found + 1;
    }
    chunks.go_to(position);
    Ok(None)
}

/// Each look moves the reader.
impl SegmentBytes for Chunks {
    fn size_bytes(&self) -> u64 {
        Chunks::size_bytes(self)
    }

    fn window(&mut self, position: u64, read_bytes: usize) -> Result<&[u8]> {
        self.go_to(position);
        if self.rest().len() < HEADER_SIZE {
            self.fill(read_bytes)?;
        }
        Ok(self.rest())
    }

    fn sound_batch(&mut self, position: u64) -> Result<Option<u64>> {
        self.go_to(position);
        let found = match self.next_batch() {
            Ok(Some(found)) => found,
            Ok(None) | Err(Error::Corrupt { .. }) => return Ok(None),
            Err(error) => return Err(error),
        };
        match self.current(found) {
            Ok(batch) => Ok(batch.validate_crc().is_ok().then(|| self.position() - position)),
            Err(Error::Corrupt { .. }) => self.check_mapped().map(|()| None),
            Err(error) => Err(error),
        }
    }
}
