//! The records of one partition as Arrow batches.
use super::chunks::{Chunks, FoundBatch};
use super::position::{offset_before_timestamp, position_before};
use super::segments::{list_segments, SegmentFile};
use crate::columns::{BatchCursor, ColumnOptions, ColumnsDecoder, Progress};
use crate::{Error, Result};
use arrow_array::RecordBatch;
use std::collections::VecDeque;
use std::path::Path;
use std::sync::Arc;

/// Gives Arrow batches of the records of a partition, by rising offset.
///
/// After an error the scan is over; rows read before it are given first.
#[derive(Debug)]
pub struct PartitionScan {
    decoder: ColumnsDecoder,
    segments: VecDeque<SegmentFile>,
    chunks: Option<Chunks>,
    /// A batch that did not fit into the last Arrow batch.
    unfinished: Option<(FoundBatch, BatchCursor)>,
    failure: Option<Error>,
}

impl PartitionScan {
    /// A scan of the segments that `directory` has now.
    ///
    /// # Errors
    /// [`Error::Io`] when the directory cannot be read.
    pub fn open(directory: &Path, options: Arc<ColumnOptions>) -> Result<Self> {
        Ok(Self::of_segments(list_segments(directory)?, options))
    }

    /// A scan of these segments, in this order.
    pub fn of_segments(segments: Vec<SegmentFile>, options: Arc<ColumnOptions>) -> Self {
        let mut segments = VecDeque::from(segments);
        while segments.get(1).is_some_and(|next| next.base_offset <= options.start_offset) {
            segments.pop_front();
        }
        Self {
            decoder: ColumnsDecoder::new(options),
            segments,
            chunks: None,
            unfinished: None,
            failure: None,
        }
    }

    /// The next Arrow batch, which has at least one row.
    ///
    /// # Errors
    /// [`Error::Corrupt`] naming file and position, [`Error::Io`].
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        if let Some(error) = self.failure.take() {
            self.stop();
            return Err(error);
        }
        match self.fill() {
            Ok(()) if self.decoder.rows() == 0 => Ok(None),
            Ok(()) => self.decoder.finish().map(Some),
            Err(error) => {
                self.stop();
                if self.decoder.rows() == 0 {
                    return Err(error);
                }
                self.failure = Some(error);
                self.decoder.finish().map(Some)
            }
        }
    }

    fn stop(&mut self) {
        self.segments.clear();
        self.chunks = None;
        self.unfinished = None;
    }

    /// Adds rows until the Arrow batch is full or the scan is at its end.
    fn fill(&mut self) -> Result<()> {
        loop {
            let Some(chunks) = &mut self.chunks else {
                let Some(segment) = self.segments.pop_front() else { return Ok(()) };
                self.chunks = self.open_segment(&segment)?;
                continue;
            };
            let (found, mut cursor) = match self.unfinished.take() {
                Some(unfinished) => unfinished,
                None => match chunks.next_batch() {
                    Ok(Some(found)) => (found, BatchCursor::default()),
                    Ok(None) => {
                        self.end_segment()?;
                        continue;
                    }
                    Err(_) if self.segments.is_empty() && chunks.is_at_zeros() => {
                        self.stop();
                        return Ok(());
                    }
                    Err(error) => return Err(error),
                },
            };
            let batch = Chunks::view(chunks.buffer(), found)?;
            if batch.base_offset() >= self.decoder.options().end_offset {
                self.stop();
                return Ok(());
            }
            let progress = self.decoder.decode(&batch, chunks.buffer(), &mut cursor);
            match progress.map_err(|error| chunks.locate(error))? {
                Progress::Done => {}
                Progress::Full => {
                    self.unfinished = Some((found, cursor));
                    return Ok(());
                }
            }
        }
    }

    fn open_segment(&self, segment: &SegmentFile) -> Result<Option<Chunks>> {
        let options = self.decoder.options();
        if segment.base_offset >= options.end_offset {
            return Ok(None);
        }
        let mut start_offset = options.start_offset;
        if options.from_timestamp != i64::MIN {
            start_offset = start_offset.max(offset_before_timestamp(segment, options.from_timestamp));
        }
        Chunks::open(&segment.path, position_before(segment, start_offset)).map(Some)
    }

    /// Leaves a segment at its last whole batch. Only the last one, which may be written to, may end within
    /// a batch.
    fn end_segment(&mut self) -> Result<()> {
        let Some(chunks) = self.chunks.take() else { return Ok(()) };
        if self.segments.is_empty() || chunks.position() >= chunks.size_bytes() {
            return Ok(());
        }
        let left = chunks.size_bytes() - chunks.position();
        let reason = format!("the segment ends within a batch, {left} bytes after this position");
        Err(Error::corrupt(chunks.position(), -1, reason).located(chunks.path().display().to_string(), 0))
    }
}

/// The offset after the last whole batch of a partition: 0 in a directory without segments.
///
/// # Errors
/// [`Error::Corrupt`] naming file and position, [`Error::Io`].
pub fn log_end_offset(segments: &[SegmentFile]) -> Result<i64> {
    let Some(last) = segments.last() else { return Ok(0) };
    let mut chunks = Chunks::open(&last.path, position_before(last, i64::MAX))?;
    let mut end_offset = last.base_offset;
    loop {
        match chunks.next_batch() {
            Ok(Some(found)) => end_offset = Chunks::view(chunks.buffer(), found)?.next_offset(),
            Err(error) if !chunks.is_at_zeros() => return Err(error),
            Ok(None) | Err(_) => return Ok(end_offset),
        }
    }
}
