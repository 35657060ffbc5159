//! Record batch v2: checksums, records, iteration over a buffer, in-place edits. Entries of the
//! formats before it are batches too: see `legacy`. The layout is in `batch_view`.
use crate::batch_view::CRC_START;
use crate::compression::{self, Bound, Codec};
use crate::crc::{crc32c, crc32c_append};
use crate::legacy::{self, is_legacy};
use crate::record::RecordIter;
use crate::{Error, Result};

pub use crate::batch_view::{
    attributes, increment_sequence, BatchHeader, BatchView, TimestampType, HEADER_SIZE,
    HEADER_SIZE_UP_TO_MAGIC, LOG_OVERHEAD, MAGIC, NO_PRODUCER_ID, NO_SEQUENCE, NO_TIMESTAMP,
};

mod find;
mod validate;
pub(crate) use find::LENGTH_MIN;
pub use find::{next_batch, next_batch_from, next_batch_shallow, Batches, Source};
pub use validate::{single_batch, validate_produce_batch, ProduceCheck, ProduceRules, RecordOrigin};

impl<'a> BatchView<'a> {
    /// The one batch that `bytes` is, from the first byte to the last.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when it is not whole, has another magic, or bytes follow it.
    pub fn parse(bytes: &'a [u8]) -> Result<Self> {
        match next_batch(bytes, 0)? {
            Some(batch) if batch.bytes().len() == bytes.len() => Ok(batch),
            Some(batch) => Err(batch.corrupt(format!(
                "batch size {} in a buffer of {}",
                batch.bytes().len(),
                bytes.len()
            ))),
            None => Err(Error::corrupt(0, -1, format!("{} bytes do not hold a whole batch", bytes.len()))),
        }
    }

    /// The records as stored, compressed or not. Before v2, the compressed message set, or the whole entry.
    #[inline]
    pub fn body(&self) -> &'a [u8] {
        if is_legacy(self.magic()) {
            return legacy::body(self.bytes());
        }
        self.bytes().get(HEADER_SIZE..).unwrap_or_default()
    }

    /// The checksum that the bytes have, which should equal [`crc`](BatchHeader::crc).
    #[inline]
    pub fn computed_crc(&self) -> u32 {
        if is_legacy(self.magic()) {
            return legacy::computed_crc(self.bytes());
        }
        crc32c(self.bytes().get(CRC_START..).unwrap_or_default())
    }

    /// # Errors
    /// [`Error::Corrupt`] naming both checksums when they differ.
    #[inline]
    pub fn validate_crc(&self) -> Result<()> {
        let computed = self.computed_crc();
        if computed == self.crc() {
            return Ok(());
        }
        Err(self.corrupt(format!("CRC {:#010x} stored, {computed:#010x} computed", self.crc())))
    }

    /// The batch can be believed: a known magic, which no checksum covers, and a right checksum.
    ///
    /// # Errors
    /// [`Error::Corrupt`] naming the magic or both checksums.
    #[inline]
    pub fn check(&self) -> Result<()> {
        if self.magic() != MAGIC && !is_legacy(self.magic()) {
            return Err(self.corrupt(format!("magic {} is unknown", self.magic())));
        }
        self.validate_crc()
    }

    /// The records uncompressed: the body itself, or `scratch` after decompressing into it.
    /// `scratch` is overwritten and may be used again for the next batch. Messages of the formats before v2 come
    /// as v2 records.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for an unknown codec, bytes that do not decompress, or more than `bound`.
    #[inline]
    pub fn uncompressed_body<'s>(&self, bound: Bound, scratch: &'s mut Vec<u8>) -> Result<&'s [u8]>
    where
        'a: 's,
    {
        if is_legacy(self.magic()) {
            legacy::transcode(self, bound, false, scratch)?;
            return Ok(scratch);
        }
        match self.codec() {
            Ok(Codec::None) => Ok(self.body()),
            // As in Kafka, a batch that compaction emptied is not looked into.
            Ok(_) if self.record_count() == 0 => Ok(&[]),
            Ok(codec) => match compression::decompress(codec, self.body(), bound, scratch) {
                Ok(()) => Ok(scratch),
                Err(error) => Err(self.corrupt(error.to_string())),
            },
            Err(id) => Err(self.corrupt(format!("unknown compression codec {id}"))),
        }
    }

    /// The records, borrowed from the batch or from `scratch`.
    ///
    /// # Errors
    /// As [`uncompressed_body`](Self::uncompressed_body); [`Error::Corrupt`] for another magic or a
    /// negative record count. Each item may be an error too, and is then the last one.
    #[inline]
    pub fn records<'s>(&self, scratch: &'s mut Vec<u8>) -> Result<RecordIter<'s>>
    where
        'a: 's,
    {
        if self.magic() != MAGIC {
            return self.records_of_other_format(scratch);
        }
        RecordIter::new(
            self,
            if self.record_count() > 0 { self.uncompressed_body(Bound::default(), scratch)? } else { &[] },
        )
    }

    #[cold]
    fn records_of_other_format<'s>(&self, scratch: &'s mut Vec<u8>) -> Result<RecordIter<'s>> {
        if is_legacy(self.magic()) {
            return legacy::records(self, scratch);
        }
        Err(self.corrupt(format!("magic {} is unknown", self.magic())))
    }

    /// The batch with the base offset, base timestamp and record count that only the messages of an older format tell;
    /// a v2 batch as it is. Needed after [`next_batch_shallow`] only.
    #[must_use]
    pub fn resolved(&self) -> Self {
        let resolved = if is_legacy(self.magic()) { legacy::resolve_header(self.bytes()) } else { None };
        resolved.map_or(*self, |bytes| self.with_header(&bytes))
    }

    /// Each message of formats v0 and v1 has a checksum of its own: those of the messages inside, and whether they are
    /// right. None for v2, whose records have none.
    ///
    /// # Errors
    /// [`Error::Corrupt`] as [`records`](Self::records).
    pub fn message_checksums(&self) -> Result<Option<Vec<(u32, bool)>>> {
        if is_legacy(self.magic()) {
            return legacy::message_checksums(self).map(Some);
        }
        Ok(None)
    }
}

/// Sets the base offset; the checksum does not cover it.
#[inline]
pub fn set_base_offset(header: &mut [u8; HEADER_SIZE], base_offset: i64) {
    put(header, 0, base_offset.to_be_bytes());
}

/// Sets the partition leader epoch; the checksum does not cover it.
#[inline]
pub fn set_partition_leader_epoch(header: &mut [u8; HEADER_SIZE], epoch: i32) {
    put(header, 12, epoch.to_be_bytes());
}

/// Makes the batch one with LogAppendTime and the time `now_ms`, and its checksum right again.
/// `body` is what follows the header.
pub fn set_log_append_time(header: &mut [u8; HEADER_SIZE], body: &[u8], now_ms: i64) {
    set_max_timestamp(header, body, TimestampType::LogAppendTime, now_ms);
}

/// Sets timestamp type and largest timestamp, and makes the checksum right again if that changes
/// anything. `body` is what follows the header.
pub fn set_max_timestamp(
    header: &mut [u8; HEADER_SIZE],
    body: &[u8],
    timestamp_type: TimestampType,
    max_timestamp: i64,
) {
    let view = BatchHeader::new(header);
    if view.timestamp_type() == timestamp_type && view.max_timestamp() == max_timestamp {
        return;
    }
    // Like Kafka, which computes the field anew: bits without a meaning go.
    let kept = view.attributes() & attributes::KNOWN & !attributes::TIMESTAMP_TYPE;
    let attributes = match timestamp_type {
        TimestampType::CreateTime | TimestampType::NoTimestamp => kept,
        TimestampType::LogAppendTime => kept | attributes::TIMESTAMP_TYPE,
    };
    put(header, 21, attributes.to_be_bytes());
    put(header, 35, max_timestamp.to_be_bytes());
    update_crc(header, body);
}

/// Computes the checksum of header and `body` and stores it.
pub fn update_crc(header: &mut [u8; HEADER_SIZE], body: &[u8]) {
    let crc = crc32c_append(crc32c(header.get(CRC_START..).unwrap_or_default()), body);
    put(header, 17, crc.to_be_bytes());
}

#[inline]
fn put<const N: usize>(header: &mut [u8; HEADER_SIZE], at: usize, bytes: [u8; N]) {
    if let Some(field) = header.get_mut(at..at + N) {
        field.copy_from_slice(&bytes);
    }
}

/// A batch that may be edited: its header and what follows.
///
/// # Errors
/// [`Error::Invalid`] when there are fewer bytes than a header.
pub fn split_header_mut(batch: &mut [u8]) -> Result<(&mut [u8; HEADER_SIZE], &mut [u8])> {
    batch.split_first_chunk_mut().ok_or_else(|| Error::Invalid("a batch has at least 61 bytes".to_owned()))
}

#[cfg(test)]
mod tests;
