//! A segment in chunks of whole batches, through one buffer of bounded size.
use std::sync::Arc;

use super::{Halt, Job};
use crate::batch::{BatchView, Batches, HEADER_SIZE_UP_TO_MAGIC, LOG_OVERHEAD};
use crate::fs::FileHandle;
use crate::segment::Segment;
use crate::{Error, Result};

/// Least size of the buffer: a header fits.
const BUFFER_MIN: usize = 4096;

/// The buffer that all segments of a clean are read through.
#[derive(Debug)]
pub(super) struct ChunkBuffer {
    bytes: Vec<u8>,
    size: usize,
}

impl ChunkBuffer {
    pub(super) fn new(size: usize) -> Self {
        Self { bytes: Vec::new(), size: size.max(BUFFER_MIN) }
    }
}

/// Walks one segment; the position moves by what the caller has consumed.
pub(super) struct ChunkReader<'a> {
    segment: &'a Segment,
    file: Arc<dyn FileHandle>,
    buffer: &'a mut ChunkBuffer,
    position: u64,
    end_position: u64,
}

impl<'a> ChunkReader<'a> {
    pub(super) fn new(segment: &'a Segment, position: u64, buffer: &'a mut ChunkBuffer) -> Result<Self> {
        let file = segment.file()?;
        Ok(Self { segment, file, buffer, position, end_position: segment.size_bytes() })
    }

    /// The next bytes, beginning with a whole batch; `None` at the end of the segment. Waits for the throttle, and
    /// ends when the clean is cancelled.
    pub(super) fn next_chunk(&mut self, job: &Job<'_>) -> Result<Option<Chunk<'_>>, Halt> {
        job.check()?;
        if self.position >= self.end_position {
            return Ok(None);
        }
        let left = self.end_position - self.position;
        let mut wanted = self.buffer.size;
        loop {
            let size = wanted.min(usize::try_from(left).unwrap_or(wanted));
            let bytes = &mut self.buffer.bytes;
            if bytes.len() < size {
                bytes.resize(size, 0);
            }
            let target = bytes.get_mut(..size).unwrap_or_default();
            self.file
                .read_exact_at(target, self.position)
                .map_err(|error| Error::io("read", self.segment.path(), error))?;
            let first = first_size(target).map_err(|error| self.located(error))?;
            if first <= size {
                job.pay(size as u64);
                let position = self.position;
                return Ok(Some(Chunk {
                    bytes: self.buffer.bytes.get(..size).unwrap_or_default(),
                    position,
                    segment: self.segment,
                }));
            }
            if first as u64 > left {
                let reason = format!("batch size {first}, but {left} bytes are left in the segment");
                return Err(self.located(Error::corrupt(0, -1, reason)).into());
            }
            // One batch is larger than the buffer: it grows for this chunk, as far as the file says it must.
            wanted = first;
        }
    }

    /// All up to here is done with.
    pub(super) fn consume(&mut self, size: u64) {
        self.position += size;
        if self.buffer.bytes.capacity() > self.buffer.size {
            self.buffer.bytes = Vec::new();
        }
    }

    fn located(&self, error: Error) -> Error {
        error.located(self.segment.path().display().to_string(), self.position)
    }
}

/// Size of the batch at the front, of which the length field at least must be there.
fn first_size(bytes: &[u8]) -> Result<usize> {
    let length =
        bytes.get(8..LOG_OVERHEAD).and_then(<[u8]>::first_chunk).map(|field| i32::from_be_bytes(*field));
    match length.and_then(|length| usize::try_from(length).ok()) {
        Some(length) if bytes.len() >= HEADER_SIZE_UP_TO_MAGIC => Ok(LOG_OVERHEAD + length),
        _ => Err(Error::corrupt(0, -1, format!("{} bytes that are not a whole batch", bytes.len()))),
    }
}

/// Bytes of a segment that begin with a whole batch and may end within one.
pub(super) struct Chunk<'a> {
    pub(super) bytes: &'a [u8],
    position: u64,
    segment: &'a Segment,
}

impl<'a> Chunk<'a> {
    /// Calls `visit` with each whole batch, its checksum checked. Returns the bytes they take.
    pub(super) fn for_each_batch(
        &self,
        mut visit: impl FnMut(&BatchView<'a>) -> Result<Flow>,
    ) -> Result<Visited> {
        let located = |error: Error| error.located(self.segment.path().display().to_string(), self.position);
        let mut batches = Batches::new(self.bytes);
        let mut size_bytes = 0;
        while let Some(batch) = batches.next() {
            let batch = batch.map_err(located)?;
            batch.validate_crc().map_err(located)?;
            let flow = visit(&batch).map_err(located)?;
            size_bytes = batches.position() as u64;
            if flow == Flow::Stop {
                return Ok(Visited { size_bytes, flow });
            }
        }
        if size_bytes == 0 {
            return Err(located(Error::corrupt(0, -1, "bytes that are not a whole batch")));
        }
        Ok(Visited { size_bytes, flow: Flow::Continue })
    }
}

/// Whether to go on with the next batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Flow {
    Continue,
    Stop,
}

/// What [`Chunk::for_each_batch`] went through.
pub(super) struct Visited {
    pub(super) size_bytes: u64,
    pub(super) flow: Flow,
}
