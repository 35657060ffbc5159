//! Finding batches and records of a segment by offset and by timestamp.
use super::{FoundBatch, Segment};
use crate::batch::{BatchView, MAGIC};
use crate::{Error, Result};

/// A record found by its timestamp.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FoundTimestamp {
    /// Offset of the record.
    pub offset: i64,
    /// Its timestamp, or the append time of its batch.
    pub timestamp: i64,
    /// Epoch of the leader that appended it, -1 for none.
    pub leader_epoch: i32,
}

impl Segment {
    /// The first batch that ends at or after `offset` (`LogSegment.translateOffset`).
    pub fn find_batch(&self, offset: i64) -> Result<Option<FoundBatch>> {
        let start = self.lookup(offset)?.position;
        let mut scan = self.scan(start)?;
        while let Some(batch) = scan.next_batch()? {
            if batch.header().last_offset() >= offset {
                return Ok(Some(batch));
            }
        }
        Ok(None)
    }

    /// The largest batch boundary at or before `limit`, walking from a boundary at or before it.
    pub fn align_down(&self, known_boundary: u64, limit: u64) -> Result<u64> {
        if limit >= self.size_bytes() {
            return Ok(self.size_bytes());
        }
        let start = self.state().offset_index.lookup_position(limit)?.position.max(known_boundary);
        let mut boundary = start;
        let mut scan = self.scan(start)?;
        while let Some(batch) = scan.next_batch()? {
            if batch.end_position() > limit {
                break;
            }
            boundary = batch.end_position();
        }
        Ok(boundary)
    }

    /// The first record at or after `start_offset` whose timestamp is at least `timestamp`.
    pub fn find_timestamp(&self, timestamp: i64, start_offset: i64) -> Result<Option<FoundTimestamp>> {
        let position = {
            let mut state = self.state();
            let from = state.time_index.lookup(timestamp)?.offset.max(start_offset);
            state.offset_index.lookup(from)?.position
        };
        let mut scan = self.scan(position)?;
        let mut scratch = Vec::new();
        while let Some(batch) = scan.next_batch()? {
            if batch.header().max_timestamp() < timestamp || batch.header().last_offset() < start_offset {
                continue;
            }
            let found = self.first_record(&batch, &mut scratch, |record_timestamp, offset| {
                record_timestamp >= timestamp && offset >= start_offset
            })?;
            if found.is_some() {
                return Ok(found);
            }
        }
        Ok(None)
    }

    /// The first record that has the largest timestamp of the segment (KIP-734).
    pub fn find_max_timestamp(&self) -> Result<Option<FoundTimestamp>> {
        let largest = self.max_timestamp()?;
        let mut scan = self.scan(self.lookup(largest.offset)?.position)?;
        while let Some(batch) = scan.next_batch()? {
            if batch.header().max_timestamp() == largest.timestamp {
                return self
                    .first_record(&batch, &mut Vec::new(), |timestamp, _| timestamp == largest.timestamp);
            }
        }
        Ok(None)
    }

    fn first_record(
        &self,
        batch: &FoundBatch,
        scratch: &mut Vec<u8>,
        accept: impl Fn(i64, i64) -> bool,
    ) -> Result<Option<FoundTimestamp>> {
        let bytes = self.read_batch(batch)?;
        let view = BatchView::parse(&bytes).map_err(|error| self.locate(error, batch))?;
        for record in view.records(scratch).map_err(|error| self.locate(error, batch))? {
            let record = record.map_err(|error| self.locate(error, batch))?;
            if accept(record.timestamp, record.offset) {
                return Ok(Some(FoundTimestamp {
                    offset: record.offset,
                    timestamp: record.timestamp,
                    leader_epoch: view.partition_leader_epoch(),
                }));
            }
        }
        Ok(None)
    }

    /// The first offset of a batch. Of a compressed set of the formats before v2 only its messages tell.
    pub(crate) fn first_offset(&self, batch: &FoundBatch) -> Result<i64> {
        let header = batch.header();
        if header.record_count() >= 0 || header.magic() >= MAGIC {
            return Ok(header.base_offset());
        }
        let bytes = self.read_batch(batch)?;
        Ok(BatchView::parse(&bytes).map_err(|error| self.locate(error, batch))?.base_offset())
    }

    /// All bytes of a batch.
    pub fn read_batch(&self, batch: &FoundBatch) -> Result<Vec<u8>> {
        let mut bytes = vec![0; usize::try_from(batch.size_bytes).unwrap_or(usize::MAX)];
        self.log.read_exact_at(&mut bytes, batch.position)?;
        Ok(bytes)
    }

    pub(super) fn locate(&self, error: Error, batch: &FoundBatch) -> Error {
        error.located(self.path().display().to_string(), batch.position)
    }
}
