//! Batch headers of a file one after the other, without the records.
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::batch::{BatchHeader, HEADER_SIZE, LOG_OVERHEAD};
use crate::fs::FileHandle;
use crate::legacy::{self, is_legacy};
use crate::{Error, Result};

/// Bytes read at once: many small batches, little waste before a large one.
const CHUNK_BYTES: usize = 4096;
/// Kafka's `FileLogInputStream` stops when no more than this remains.
const TAIL_BYTES: u64 = 17;
const LENGTH_MIN: i32 = (HEADER_SIZE - LOG_OVERHEAD) as i32;
const LENGTH_MIN_LEGACY: i32 = (legacy::ENTRY_SIZE_MIN - LOG_OVERHEAD) as i32;

/// A batch by its place in the file.
#[derive(Clone, Copy, Debug)]
pub struct FoundBatch {
    /// Byte position of the header.
    pub position: u64,
    /// Bytes with the header.
    pub size_bytes: u64,
    bytes: [u8; HEADER_SIZE],
}

impl FoundBatch {
    /// Its header. That of a compressed set of the formats before v2 has the last offset as its base offset.
    pub fn header(&self) -> BatchHeader<'_> {
        BatchHeader::new(&self.bytes)
    }

    /// Where the next batch begins.
    pub fn end_position(&self) -> u64 {
        self.position + self.size_bytes
    }
}

/// Walks headers from a position to an end position.
#[derive(Debug)]
pub struct HeaderScan {
    file: Arc<dyn FileHandle>,
    path: PathBuf,
    position: u64,
    end_position: u64,
    chunk: Vec<u8>,
    chunk_position: u64,
}

impl HeaderScan {
    /// Headers of `file` in `[position, end_position)`; `path` is for messages.
    pub fn new(file: Arc<dyn FileHandle>, path: &Path, position: u64, end_position: u64) -> Self {
        Self { file, path: path.to_owned(), position, end_position, chunk: Vec::new(), chunk_position: 0 }
    }

    /// Where the next batch begins: the end of the last one found.
    pub fn position(&self) -> u64 {
        self.position
    }

    /// The next batch; `None` when what remains is not a whole one.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a length no batch has, or a negative magic.
    pub fn next_batch(&mut self) -> Result<Option<FoundBatch>> {
        let remaining = self.end_position.saturating_sub(self.position);
        if remaining <= TAIL_BYTES {
            return Ok(None);
        }
        let mut bytes = [0; HEADER_SIZE];
        let wanted = HEADER_SIZE.min(usize::try_from(remaining).unwrap_or(HEADER_SIZE));
        self.fill(bytes.get_mut(..wanted).unwrap_or_default())?;
        let header = BatchHeader::new(&bytes);
        let (length, magic) = (header.batch_length(), header.magic());
        let length_min = if is_legacy(magic) { LENGTH_MIN_LEGACY } else { LENGTH_MIN };
        if length < length_min || magic < 0 {
            let reason = if length < length_min {
                format!("batch length {length}, the least is {length_min}")
            } else {
                format!("magic {magic} is unknown")
            };
            return Err(Error::corrupt(self.position, header.base_offset(), reason)
                .located(self.path.display().to_string(), 0));
        }
        let size_bytes = header.size_bytes() as u64;
        if size_bytes > remaining {
            return Ok(None);
        }
        if let (true, Some(start)) = (is_legacy(magic), bytes.first_chunk()) {
            bytes = legacy::translate_header(start);
        }
        let found = FoundBatch { position: self.position, size_bytes, bytes };
        self.position += size_bytes;
        Ok(Some(found))
    }

    fn fill(&mut self, target: &mut [u8]) -> Result<()> {
        let start =
            self.position.checked_sub(self.chunk_position).and_then(|start| usize::try_from(start).ok());
        let held = start.and_then(|start| self.chunk.get(start..start.checked_add(target.len())?));
        if let Some(held) = held {
            target.copy_from_slice(held);
            return Ok(());
        }
        let remaining = self.end_position - self.position;
        let size = CHUNK_BYTES.min(usize::try_from(remaining).unwrap_or(CHUNK_BYTES));
        self.chunk.resize(size, 0);
        self.chunk_position = self.position;
        self.file
            .read_exact_at(&mut self.chunk, self.position)
            .map_err(|error| Error::io("read", self.path.as_path(), error))?;
        if let Some(held) = self.chunk.get(..target.len()) {
            target.copy_from_slice(held);
        }
        Ok(())
    }
}
