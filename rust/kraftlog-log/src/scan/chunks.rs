//! A segment file batch by batch, read in chunks of bounded size.
use crate::batch::{next_batch_from, BatchView, Source, HEADER_SIZE, LOG_OVERHEAD};
use crate::columns::memory::Column;
use crate::{Error, Result};
use arrow_buffer::Buffer;
use std::fs::File;
use std::path::{Path, PathBuf};

/// Bytes that are read at once: small enough to be in the second-level cache when they are decoded.
pub const CHUNK_SIZE: usize = 512 << 10;

/// Where a whole batch lies in the current chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FoundBatch {
    /// Index of its first byte in [`Chunks::buffer`].
    pub index: usize,
    /// Byte position in the file.
    pub position: u64,
}

/// Reads the batches of one file in order.
#[derive(Debug)]
pub struct Chunks {
    file: File,
    path: PathBuf,
    /// Bytes of the file that may be looked at; the file may since have grown.
    end: u64,
    buffer: Buffer,
    /// Position in the file of the first byte of `buffer`.
    start: u64,
    /// Index in `buffer` of the next batch.
    index: usize,
}

impl Chunks {
    /// Opens the file and stands at byte `position`, where a batch has to start.
    ///
    /// # Errors
    /// [`Error::Io`] when it cannot be opened.
    pub fn open(path: &Path, position: u64) -> Result<Self> {
        let file = File::open(path).map_err(|source| Error::io("open", path, source))?;
        let end = file.metadata().map_err(|source| Error::io("stat", path, source))?.len();
        Ok(Self {
            file,
            path: path.to_owned(),
            end,
            buffer: Buffer::from_vec(Vec::<u8>::new()),
            start: position,
            index: 0,
        })
    }

    /// The bytes of the current chunk.
    pub fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    /// The file.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Byte position in the file of the next batch: after an end, the place where whole batches end.
    pub fn position(&self) -> u64 {
        self.start + self.index as u64
    }

    /// Bytes of the file when it was opened.
    pub fn size_bytes(&self) -> u64 {
        self.end
    }

    /// The next whole batch, or None at the end or before a truncated one.
    ///
    /// # Errors
    /// [`Error::Corrupt`] naming file and position for a length or magic that no batch has; [`Error::Io`].
    pub fn next_batch(&mut self) -> Result<Option<FoundBatch>> {
        loop {
            match next_batch_from(Source::File, &self.buffer, self.index) {
                Ok(Some(batch)) => {
                    let found = FoundBatch { index: self.index, position: self.position() };
                    self.index += batch.bytes().len();
                    return Ok(Some(found));
                }
                Ok(None) => {
                    if !self.refill()? {
                        return Ok(None);
                    }
                }
                Err(error) => return Err(self.locate(error)),
            }
        }
    }

    /// The batch at a place that [`next_batch`](Self::next_batch) gave, while its chunk is current.
    ///
    /// # Errors
    /// [`Error::Corrupt`] when there is none.
    pub fn view(buffer: &Buffer, found: FoundBatch) -> Result<BatchView<'_>> {
        next_batch_from(Source::File, buffer, found.index)?
            .ok_or_else(|| Error::corrupt(found.index as u64, -1, "not a whole batch"))
    }

    /// The same error with file and position in it.
    pub fn locate(&self, error: Error) -> Error {
        error.located(self.path.display().to_string(), self.start)
    }

    /// True when what follows is a header of zeros: the unwritten part of a file that was given its size
    /// in advance.
    pub fn is_at_zeros(&self) -> bool {
        let rest = self.buffer.get(self.index..).unwrap_or_default();
        !rest.is_empty() && rest.iter().take(HEADER_SIZE).all(|&byte| byte == 0)
    }

    /// Reads the next chunk, which starts where the batch that is not whole yet starts. False when the
    /// file has no more bytes for it.
    fn refill(&mut self) -> Result<bool> {
        let have = self.buffer.len() - self.index;
        let position = self.position();
        let left = self.end.saturating_sub(position);
        if have as u64 >= left {
            return Ok(false);
        }
        let rest = self.buffer.get(self.index..).unwrap_or_default();
        let length =
            rest.get(8..).and_then(|rest| rest.first_chunk::<4>()).map(|bytes| i32::from_be_bytes(*bytes));
        let needed = length.map_or(0, |length| LOG_OVERHEAD + usize::try_from(length).unwrap_or(0));
        if needed as u64 > left {
            // Truncated: to read it into memory would change nothing.
            return Ok(false);
        }
        let size = (needed.max(CHUNK_SIZE) as u64).min(left) as usize;
        let bytes =
            read_at(&self.file, position, size).map_err(|source| Error::io("read", &self.path, source))?;
        let grew = bytes.len() > have;
        self.buffer = bytes;
        self.start = position;
        self.index = 0;
        if !grew {
            // The file shrank since it was opened.
            self.end = position + self.buffer.len() as u64;
        }
        Ok(grew)
    }
}

/// Up to `size` bytes of the file; fewer only where it ends.
pub(super) fn read_at(file: &File, position: u64, size: usize) -> std::io::Result<Buffer> {
    let mut bytes = Column::<u8>::default();
    bytes.reserve(size);
    while bytes.len() < size {
        let wanted = size - bytes.len();
        match bytes.fill_spare(wanted, |spare| {
            rustix::io::pread(file, spare, position + (size - wanted) as u64).map(|(read, _)| read.len())
        }) {
            Ok(0) => break,
            Ok(_) => {}
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(bytes.take())
}
