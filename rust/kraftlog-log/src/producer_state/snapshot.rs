//! The `.snapshot` file: version 1, CRC-32C, then 46 bytes per producer.
use super::{BatchMetadata, ProducerEntry, RecentBatches};
use crate::crc::crc32c;
use crate::{Error, Result};

const VERSION: i16 = 1;
const ENTRIES_START: usize = 6;
const ENTRY_BYTES: usize = 46;

/// The producers in a snapshot file.
///
/// # Errors
/// [`Error::Invalid`] for another version, a wrong CRC or a wrong length.
pub fn read_snapshot(bytes: &[u8]) -> Result<Vec<ProducerEntry>> {
    let bad = |reason: String| Error::Invalid(format!("producer snapshot: {reason}"));
    let short = || bad(format!("{} bytes are too few", bytes.len()));
    let (version, rest) = bytes.split_first_chunk::<2>().ok_or_else(short)?;
    let (crc, rest) = rest.split_first_chunk::<4>().ok_or_else(short)?;
    let (count, entries) = rest.split_first_chunk::<4>().ok_or_else(short)?;
    if i16::from_be_bytes(*version) != VERSION {
        return Err(bad(format!("version {} is unknown", i16::from_be_bytes(*version))));
    }
    let computed = crc32c(bytes.get(ENTRIES_START..).unwrap_or_default());
    if u32::from_be_bytes(*crc) != computed {
        return Err(bad(format!("CRC {:#010x} stored, {computed:#010x} computed", u32::from_be_bytes(*crc))));
    }
    let count = i32::from_be_bytes(*count);
    if usize::try_from(count).ok().and_then(|count| count.checked_mul(ENTRY_BYTES)) != Some(entries.len()) {
        return Err(bad(format!("{count} entries in {} bytes", entries.len())));
    }
    Ok(entries.chunks_exact(ENTRY_BYTES).map(read_entry).collect())
}

fn read_entry(mut bytes: &[u8]) -> ProducerEntry {
    fn take<const N: usize>(bytes: &mut &[u8]) -> [u8; N] {
        bytes.split_first_chunk().map_or([0; N], |(head, tail)| {
            *bytes = tail;
            *head
        })
    }
    let producer_id = i64::from_be_bytes(take(&mut bytes));
    let producer_epoch = i16::from_be_bytes(take(&mut bytes));
    let last_sequence = i32::from_be_bytes(take(&mut bytes));
    let last_offset = i64::from_be_bytes(take(&mut bytes));
    let offset_delta = i32::from_be_bytes(take(&mut bytes));
    let timestamp = i64::from_be_bytes(take(&mut bytes));
    let coordinator_epoch = i32::from_be_bytes(take(&mut bytes));
    let first_offset = i64::from_be_bytes(take(&mut bytes));
    let mut batches = RecentBatches::default();
    if last_offset >= 0 {
        batches.push(BatchMetadata { last_sequence, last_offset, offset_delta, timestamp });
    }
    ProducerEntry {
        producer_id,
        producer_epoch,
        coordinator_epoch,
        last_timestamp: timestamp,
        current_txn_first_offset: (first_offset >= 0).then_some(first_offset),
        batches,
    }
}

/// The bytes of a snapshot file.
pub fn write_snapshot<'a>(entries: impl Iterator<Item = &'a ProducerEntry>) -> Vec<u8> {
    let mut entries: Vec<&ProducerEntry> = entries.collect();
    let buckets = bucket_count(entries.len());
    entries.sort_by_key(|entry| (bucket(entry.producer_id, buckets), entry.producer_id));
    let mut bytes = Vec::with_capacity(ENTRIES_START + 4 + entries.len() * ENTRY_BYTES);
    bytes.extend_from_slice(&VERSION.to_be_bytes());
    bytes.extend_from_slice(&[0; 4]);
    bytes.extend_from_slice(&i32::try_from(entries.len()).unwrap_or(i32::MAX).to_be_bytes());
    for entry in entries {
        bytes.extend_from_slice(&entry.producer_id.to_be_bytes());
        bytes.extend_from_slice(&entry.producer_epoch.to_be_bytes());
        bytes.extend_from_slice(&entry.last_sequence().to_be_bytes());
        bytes.extend_from_slice(&entry.last_offset().to_be_bytes());
        let offset_delta = entry.batches.last().map_or(0, |batch| batch.offset_delta);
        bytes.extend_from_slice(&offset_delta.to_be_bytes());
        bytes.extend_from_slice(&entry.last_timestamp.to_be_bytes());
        bytes.extend_from_slice(&entry.coordinator_epoch.to_be_bytes());
        bytes.extend_from_slice(&entry.current_txn_first_offset.unwrap_or(-1).to_be_bytes());
    }
    let crc = crc32c(bytes.get(ENTRIES_START..).unwrap_or_default());
    if let Some(field) = bytes.get_mut(2..ENTRIES_START) {
        field.copy_from_slice(&crc.to_be_bytes());
    }
    bytes
}

/// Kafka writes the entries in the order of a Java `HashMap<Long, _>`; with the same order the files are equal.
fn bucket_count(entries: usize) -> usize {
    let mut buckets = 16;
    while entries * 4 > buckets * 3 {
        buckets *= 2;
    }
    buckets
}

fn bucket(producer_id: i64, buckets: usize) -> usize {
    let hash = (producer_id ^ (producer_id as u64 >> 32) as i64) as u32;
    (hash ^ hash >> 16) as usize & (buckets - 1)
}
