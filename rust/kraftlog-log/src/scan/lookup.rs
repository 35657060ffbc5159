//! Single records found by what they hold.
use super::listing::Directory;
use super::options::{ScanOptions, ScanSource};
use super::partition::PartitionScan;
use crate::columns::{Column, ColumnOptions};
use crate::{Error, Result};
use arrow_array::cast::AsArray;
use arrow_array::types::{Int64Type, TimestampMillisecondType};
use std::sync::Arc;

/// The first record from `start_offset` on, by offset, whose timestamp is `timestamp` or later: its offset and its
/// timestamp. The time index and the headers of batches say where to look. Transaction markers count as records, as
/// in Kafka's `FileRecords.searchForTimestamp`, so that consumers and this function agree.
///
/// # Errors
/// As [`PartitionScan::next_batch`].
pub fn offset_for_timestamp(
    directory: Directory,
    start_offset: i64,
    timestamp: i64,
) -> Result<Option<(i64, i64)>> {
    let columns = ColumnOptions {
        columns: [Column::Offset, Column::Timestamp].map(|column| (column, column.name().to_owned())).into(),
        batch_rows: 1,
        start_offset,
        from_timestamp: timestamp,
        include_control: true,
        ..ColumnOptions::default()
    };
    let options = ScanOptions { columns: Arc::new(columns), read_ahead: false, ..ScanOptions::default() };
    let source = ScanSource::of_directory(directory);
    let mut scan = PartitionScan::open(&source, Arc::new(options), Arc::default())?;
    let Some(row) = scan.next_batch()? else { return Ok(None) };
    let offset = row.column(0).as_primitive::<Int64Type>().values().first().copied();
    let found = row.column(1).as_primitive::<TimestampMillisecondType>().values().first().copied();
    match (offset, found) {
        (Some(offset), Some(found)) => Ok(Some((offset, found))),
        _ => Err(Error::Invalid("an Arrow batch without rows".to_owned())),
    }
}
