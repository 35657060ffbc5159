//! Finding batches and records of a segment by offset and by timestamp.
use super::{FoundBatch, HeaderScan, Segment};
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

/// Whether `batch` begins after the end of `previous`. Of a compressed set of the formats before v2 the header names
/// only the last offset.
fn ascend(previous: &FoundBatch, batch: &FoundBatch) -> bool {
    batch.header().base_offset() > previous.header().last_offset()
}

impl Segment {
    /// The first batch that ends at or after `offset` (`LogSegment.translateOffset`).
    pub fn find_batch(&self, offset: i64) -> Result<Option<FoundBatch>> {
        let (mut next, mut scan) = self.scan_from(offset)?;
        while let Some(batch) = next {
            if batch.header().last_offset() >= offset {
                return Ok(Some(batch));
            }
            next = scan.next_batch()?;
        }
        Ok(None)
    }

    /// Fail if damage, and not a hole that compaction left, is why no batch of this segment holds `offset`: a reader
    /// that asks for it is sent on to what follows, and nobody else would look at the bytes in between.
    pub fn check_hole(&self, offset: i64) -> Result<()> {
        let (mut next, mut scan) = self.scan_from(offset)?;
        let mut previous: Option<FoundBatch> = None;
        while let Some(batch) = next.filter(|batch| batch.header().last_offset() < offset) {
            if let Some(previous) = previous.filter(|previous| !ascend(previous, &batch)) {
                let last = previous.header().last_offset();
                let reason = format!("a batch of an earlier offset follows one that ends at offset {last}");
                return Err(self.misplaced(&batch, reason));
            }
            previous = Some(batch);
            next = scan.next_batch()?;
        }
        let position = scan.position();
        match next {
            None if position < self.size_bytes() => {
                return Err(Error::corrupt(position, -1, "bytes that are not a whole batch")
                    .located(self.path().display().to_string(), 0));
            }
            // A batch of later offsets lies there by mistake if the one after it is not later still. If that one cannot
            // be read, the read that reaches it fails.
            Some(batch) => {
                if let Some(after) = scan.next_batch().ok().flatten().filter(|after| !ascend(&batch, after)) {
                    let begin = after.header().base_offset();
                    let reason = format!("the batch follows a gap, and one of offset {begin} follows it");
                    return Err(self.misplaced(&batch, reason));
                }
            }
            None => {}
        }
        let Some(previous) = previous.filter(|batch| batch.header().magic() >= MAGIC) else { return Ok(()) };
        let bytes = self.read_batch(&previous)?;
        let checked = BatchView::parse(&bytes).and_then(|batch| batch.validate_crc());
        checked.map_err(|error| self.locate(error, &previous))
    }

    /// Fail if `batch` reaches into the next segment, which begins at `next_base_offset`: a reader would go on behind it,
    /// and pass over all that is in between.
    pub fn check_end(&self, batch: &FoundBatch, next_base_offset: i64) -> Result<()> {
        if batch.header().last_offset() < next_base_offset {
            return Ok(());
        }
        let reason =
            format!("the batch reaches into the next segment, which begins at offset {next_base_offset}");
        Err(self.misplaced(batch, reason))
    }

    /// A write that went to the wrong place leaves whole batches of other offsets there.
    fn misplaced(&self, batch: &FoundBatch, reason: String) -> Error {
        self.locate(Error::corrupt(0, batch.header().base_offset(), reason), batch)
    }

    /// The batch that the index gives for `offset`, and a scan that goes on behind it. An index entry has no checksum:
    /// where no batch begins, or one that begins after `offset`, the entry is damaged and the scan begins at the
    /// beginning of the segment. Otherwise records would be skipped silently.
    fn scan_from(&self, offset: i64) -> Result<(Option<FoundBatch>, HeaderScan)> {
        let position = self.lookup(offset)?.position;
        let mut scan = self.scan(position)?;
        let first = scan.next_batch();
        let is_sound =
            |batch: &FoundBatch| (self.base_offset()..=offset).contains(&batch.header().base_offset());
        match first {
            Err(error @ Error::Io { .. }) => Err(error),
            Ok(Some(batch)) if position == 0 || is_sound(&batch) => Ok((Some(batch), scan)),
            other if position == 0 => Ok((other?, scan)),
            _ => {
                let mut scan = self.scan(0)?;
                Ok((scan.next_batch()?, scan))
            }
        }
    }

    /// The largest batch boundary at or before `limit`, walking from a boundary at or before it.
    pub fn align_down(&self, known_boundary: u64, limit: u64) -> Result<u64> {
        if limit >= self.size_bytes() {
            return Ok(self.size_bytes());
        }
        let entry = self.state().offset_index.lookup_position(limit)?;
        let mut boundary = known_boundary;
        if entry.position > known_boundary {
            // As in `scan_from`: only a batch that fits its entry is a boundary.
            let first = self.scan(entry.position)?.next_batch();
            let expected = self.base_offset()..=entry.offset;
            if matches!(first, Ok(Some(batch)) if expected.contains(&batch.header().base_offset())) {
                boundary = entry.position;
            }
        }
        let mut scan = self.scan(boundary)?;
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
        let from = self.state().time_index.lookup(timestamp)?.offset.max(start_offset);
        let (mut next, mut scan) = self.scan_from(from)?;
        let mut scratch = Vec::new();
        while let Some(batch) = next {
            next = scan.next_batch()?;
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
