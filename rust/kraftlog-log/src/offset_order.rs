//! Where a batch belongs by its offsets.
//!
//! Base offset, length, leader epoch and magic are the first 17 bytes of a batch, and its checksum does not cover
//! them. What bounds a base offset is the batch before, the batch behind, and the names of the segment files. A hole
//! that compaction left is room in which a wrong base offset cannot be told from a right one.
use crate::batch_view::{BatchHeader, HEADER_SIZE, LOG_OVERHEAD, MAGIC};
use crate::legacy::{is_legacy, ENTRY_SIZE_MIN};

/// Offsets of a segment lie less than this above its base offset: its indexes hold 31 bits.
const SEGMENT_OFFSETS_MAX: i64 = 1 << 31;

/// What the unchecked header behind a batch says of its offsets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Neighbour {
    /// Its base offset; the last offset of a compressed set of the formats before v2.
    pub(crate) base_offset: i64,
    last_offset_delta: i64,
    /// Bytes of the whole batch.
    pub(crate) size_bytes: usize,
}

impl Neighbour {
    /// Behind everything.
    pub(crate) const NONE: Self = Self { base_offset: i64::MAX, last_offset_delta: 0, size_bytes: 0 };

    /// The header that `bytes` begin with, when it has a length and a magic that batches have.
    pub(crate) fn of(bytes: &[u8]) -> Option<Self> {
        let header = BatchHeader::new(bytes.first_chunk::<HEADER_SIZE>()?);
        let length = usize::try_from(header.batch_length()).ok()?;
        let size_bytes = length.checked_add(LOG_OVERHEAD)?;
        let (least, last_offset_delta) = match header.magic() {
            MAGIC => (HEADER_SIZE, i64::from(header.last_offset_delta())),
            // The offset of a compressed set is that of its last message.
            magic if is_legacy(magic) => (ENTRY_SIZE_MIN, 0),
            _ => return None,
        };
        let is_plausible = size_bytes >= least && last_offset_delta >= 0;
        is_plausible.then_some(Self { base_offset: header.base_offset(), last_offset_delta, size_bytes })
    }
}

/// The offsets that the next batch of a segment may have.
#[derive(Debug, Clone, Copy)]
pub(crate) struct OffsetOrder {
    /// Offset after the batch before; the base offset of the segment at its start.
    floor: i64,
    /// Exclusive end: another segment begins there.
    ceiling: i64,
    /// Exclusive end of what the indexes of the segment can hold.
    reach: i64,
    /// Base offset of a batch that overlapped one before it, where either could be the wrong one.
    suspect: Option<i64>,
    /// No hole lies between the batches so far.
    is_dense: bool,
    /// The floor is the end of the batch before, not only a bound of it.
    is_floor_exact: bool,
}

/// Which of two batches that overlap has the wrong base offset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fault {
    First,
    Second,
    /// Nothing tells: neither is to be believed.
    Either,
}

impl OffsetOrder {
    /// At the start of the segment with `base_offset`, in front of one that begins at `ceiling`.
    pub(crate) fn new(base_offset: i64, ceiling: i64) -> Self {
        Self {
            floor: base_offset,
            ceiling,
            reach: base_offset.saturating_add(SEGMENT_OFFSETS_MAX),
            suspect: None,
            is_dense: true,
            is_floor_exact: true,
        }
    }

    /// In the middle of that segment: batches that were not read lie before.
    pub(crate) fn inside(base_offset: i64, ceiling: i64) -> Self {
        Self { is_floor_exact: false, ..Self::new(base_offset, ceiling) }
    }

    /// No batch begins before it.
    pub(crate) fn floor(&self) -> i64 {
        self.floor
    }

    /// The batches that were not read end at `floor` or before.
    pub(crate) fn raise(&mut self, floor: i64) {
        self.floor = self.floor.max(floor);
    }

    /// The batch before ends at `next_offset`, exclusive.
    pub(crate) fn pass(&mut self, next_offset: i64) {
        self.floor = self.floor.max(next_offset);
        self.is_floor_exact = true;
    }

    fn end(&self) -> i64 {
        self.ceiling.min(self.reach)
    }

    /// Whether the base offset is the one that follows: no other batch can have it.
    pub(crate) fn is_next(&self, base_offset: i64) -> bool {
        base_offset == self.floor
    }

    /// Checks the offsets of a batch whose checksum is right against the headers `behind` it, as many as are known.
    ///
    /// # Errors
    /// What is wrong, when the base offset of this batch is at fault. One that is the fault of the batch behind is
    /// found when that batch is checked.
    pub(crate) fn check(&mut self, batch: &BatchHeader<'_>, behind: &[Neighbour]) -> Result<(), String> {
        let (first, last) = (batch.base_offset(), batch.last_offset());
        if last < first || last == i64::MAX {
            return Err(format!("last offset {last} of a batch that begins at {first}"));
        }
        if first < self.floor {
            return Err(format!("base offset {first} where {} or more has to follow", self.floor));
        }
        if self.suspect.take() == Some(first) {
            return Err(format!("base offset {first} that the batch before may have had"));
        }
        // Old releases wrote segments that reach further than their indexes (KAFKA-6264), but no such jump.
        let is_far = last >= self.reach && first != self.floor && batch.magic() == MAGIC;
        if last >= self.ceiling || is_far {
            return Err(format!("last offset {last} where offsets end before {}", self.end()));
        }
        let leaves_no_hole = self.is_next(first) || !self.is_floor_exact;
        let Some(next) = behind.first().filter(|next| last >= next.base_offset) else {
            self.is_dense &= leaves_no_hole;
            return Ok(());
        };
        let fault = self.fault_of(first, last, *next, behind.get(1));
        if fault == Fault::Second {
            self.is_dense &= leaves_no_hole;
            return Ok(());
        }
        self.suspect = (fault == Fault::Either).then_some(next.base_offset);
        Err(format!("last offset {last} where the next batch begins at {}", next.base_offset))
    }

    fn fault_of(&self, first: i64, last: i64, next: Neighbour, after: Option<&Neighbour>) -> Fault {
        let span = last - first;
        // Where the first one belongs when the other one is right.
        let room_end = next.base_offset.saturating_sub(span).saturating_sub(1);
        if first == self.floor || room_end < self.floor {
            return Fault::Second;
        }
        if after.is_some_and(|after| after.base_offset <= last) {
            return Fault::First;
        }
        let behind = after.map_or(self.end(), |after| after.base_offset);
        let next_room_end = behind.saturating_sub(next.last_offset_delta).saturating_sub(1);
        let is_first = has_flip_within(first, self.floor, room_end);
        let is_next = has_flip_within(next.base_offset, last + 1, next_room_end);
        if is_first != is_next {
            return if is_next { Fault::Second } else { Fault::First };
        }
        // At the end of a log each upward flip of the last batch but one looks like a hole followed by a flip of the
        // last one. In a segment without holes that would be its first, and both flips the same bit.
        let fits_exactly = room_end == self.floor && (first ^ self.floor).count_ones() == 1;
        if self.is_dense && fits_exactly {
            return Fault::First;
        }
        // Most batches follow each other without a gap.
        let is_first = [self.floor, room_end].iter().any(|place| (first ^ place).count_ones() == 1);
        let is_next =
            [last + 1, next_room_end].iter().any(|place| (next.base_offset ^ place).count_ones() == 1);
        match (is_first, is_next) {
            (true, false) => Fault::First,
            (false, true) => Fault::Second,
            _ => Fault::Either,
        }
    }
}

/// Whether one wrong bit makes the difference between `value` and a number from `low` to `high`, inclusive.
fn has_flip_within(value: i64, low: i64, high: i64) -> bool {
    (0..63).any(|bit| (low..=high).contains(&(value ^ (1 << bit))))
}

/// True when 61 bytes could be the header of a v2 batch that lies before byte `end` of the file and in the order.
pub(crate) fn is_plausible(head: &[u8], position: u64, end: u64, order: &OffsetOrder) -> bool {
    let Some(head) = head.first_chunk::<HEADER_SIZE>() else { return false };
    let header = BatchHeader::new(head);
    let length = i64::from(header.batch_length());
    header.magic() == MAGIC
        && length >= (HEADER_SIZE - LOG_OVERHEAD) as i64
        && position.saturating_add(header.size_bytes() as u64) <= end
        && (order.floor..order.end()).contains(&header.base_offset())
        && header.last_offset_delta() >= 0
        && header.record_count() >= 0
        && i64::from(header.record_count()) <= i64::from(header.last_offset_delta()) + 1
        && header.attributes() >> 7 == 0
}

/// The same for an entry of the formats before record batches.
pub(crate) fn is_plausible_legacy(head: &[u8], position: u64, end: u64, order: &OffsetOrder) -> bool {
    let (Some(offset), Some(length), Some([magic, attributes])) = (
        head.first_chunk().map(|bytes| i64::from_be_bytes(*bytes)),
        head.get(8..).and_then(<[u8]>::first_chunk).map(|bytes| i32::from_be_bytes(*bytes)),
        head.get(16..).and_then(<[u8]>::first_chunk::<2>),
    ) else {
        return false;
    };
    let size = i64::from(length) + LOG_OVERHEAD as i64;
    *magic < 2
        && *attributes < 16
        && size >= ENTRY_SIZE_MIN as i64
        && u64::try_from(size).is_ok_and(|size| position.saturating_add(size) <= end)
        && (order.floor..order.end()).contains(&offset)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::{set_base_offset, update_crc};

    fn header(base_offset: i64, count: i32) -> [u8; HEADER_SIZE] {
        let mut bytes = [0; HEADER_SIZE];
        set_base_offset(&mut bytes, base_offset);
        bytes[8..12].copy_from_slice(&49i32.to_be_bytes());
        bytes[16] = 2;
        bytes[23..27].copy_from_slice(&(count - 1).to_be_bytes());
        bytes[57..].copy_from_slice(&count.to_be_bytes());
        update_crc(&mut bytes, &[]);
        bytes
    }

    /// The batches that are refused when those before were accepted.
    fn refused(headers: &[[u8; HEADER_SIZE]], base_offset: i64, ceiling: i64) -> Vec<usize> {
        let mut order = OffsetOrder::new(base_offset, ceiling);
        let mut refused = Vec::new();
        for (index, bytes) in headers.iter().enumerate() {
            let behind: Vec<Neighbour> =
                headers.iter().skip(index + 1).take(2).filter_map(|head| Neighbour::of(head)).collect();
            match order.check(&BatchHeader::new(bytes), &behind) {
                Ok(()) => order.pass(BatchHeader::new(bytes).next_offset()),
                Err(_) => refused.push(index),
            }
        }
        refused
    }

    #[test]
    fn each_flip_of_a_base_offset_is_found_at_its_batch() {
        let sound: Vec<_> = (0..20i64).map(|index| header(1000 + index * 7, 7)).collect();
        assert!(refused(&sound, 1000, 1140).is_empty());
        for index in 0..sound.len() {
            for bit in 0..64 {
                let mut flipped = sound.clone();
                flipped[index][bit / 8] ^= 1 << (bit % 8);
                assert_eq!(refused(&flipped, 1000, 1140), [index], "batch {index} bit {bit}");
            }
        }
    }

    #[test]
    fn a_flip_of_the_last_batch_but_one_is_found_there_in_a_log_without_holes() {
        for (base_offset, count) in [(335, 7), (0, 1), (1000, 16)] {
            let sound: Vec<_> =
                (0..6i64).map(|index| header(base_offset + index * i64::from(count), count)).collect();
            for index in 0..sound.len() - 1 {
                for bit in 0..64 {
                    let mut flipped = sound.clone();
                    flipped[index][bit / 8] ^= 1 << (bit % 8);
                    let found = refused(&flipped, base_offset, i64::MAX);
                    assert_eq!(found, [index], "base offset {base_offset} batch {index} bit {bit}");
                }
            }
        }
    }

    #[test]
    fn a_flip_in_a_log_with_holes_is_found_where_it_leaves_its_hole() {
        let bases = [1000i64, 1003, 1020, 1021, 1050, 1100, 1101, 1103, 1130];
        let sound: Vec<_> = bases.iter().map(|base| header(*base, 1)).collect();
        for index in 0..sound.len() {
            for bit in 0..64 {
                let mut flipped = sound.clone();
                flipped[index][bit / 8] ^= 1 << (bit % 8);
                let base = BatchHeader::new(&flipped[index]).base_offset();
                let low = index.checked_sub(1).map_or(1000, |before| bases[before] + 1);
                let high = bases.get(index + 1).copied().unwrap_or(1140);
                let found = refused(&flipped, 1000, 1140);
                match (low..high).contains(&base) {
                    true => assert!(found.is_empty(), "batch {index} bit {bit}: a hole has room for it"),
                    // Two batches with one offset: where nothing tells which one is wrong, both are refused.
                    false => assert!(
                        found.contains(&index) && found.len() <= 2,
                        "batch {index} bit {bit}: {found:?}"
                    ),
                }
            }
        }
    }
}
