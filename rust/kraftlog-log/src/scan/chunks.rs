//! A segment file batch by batch, read in chunks of bounded size.
use super::read_once::{prepare, read_once};
use super::remote::RemoteFile;
use super::report::Report;
use super::segments::SegmentFile;
use crate::batch::{
    next_batch_from, next_batch_shallow, BatchHeader, BatchView, Source, HEADER_SIZE, LENGTH_MIN,
    LOG_OVERHEAD, MAGIC,
};
use crate::offset_order::Neighbour;
use crate::raw::mapped::{page_size, MappedRange};
use crate::raw::memory::Column;
use crate::{Error, Result};
use arrow_buffer::Buffer;
use std::fs::File;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Bytes that are read at once: small enough to be in the second-level cache when they are decoded.
pub const CHUNK_SIZE: usize = 512 << 10;
/// Bytes that are read at once where only headers are wanted and batches are small.
const HEADERS_SIZE: usize = 64 << 10;
/// Batches of at least as many bytes are stepped over by reading no more than their headers. For smaller ones that is
/// no faster than to read all, and three times as slow where the file is not in the page cache (batches of 16 KiB).
const STEP_SIZE_MIN: u64 = 64 << 10;
/// Bytes that are mapped at once.
const MAPPED_SIZE: usize = 4 << 20;

/// The headers behind a batch, as far as they are known.
#[derive(Debug, Clone, Copy)]
pub(super) struct Behind {
    headers: [Neighbour; 2],
    count: usize,
}

impl Behind {
    pub(super) fn known(&self) -> &[Neighbour] {
        self.headers.get(..self.count).unwrap_or_default()
    }
}

/// Where a whole batch lies in the current chunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FoundBatch {
    /// Index of its first byte in [`Chunks::buffer`].
    pub index: usize,
    /// Byte position in the file.
    pub position: u64,
}

/// The header of a batch whose records may not have been read.
#[derive(Debug, Clone, Copy)]
pub struct HeaderAhead {
    /// Byte position in the file.
    pub position: u64,
    bytes: [u8; HEADER_SIZE],
}

impl HeaderAhead {
    /// The header.
    pub fn header(&self) -> BatchHeader<'_> {
        BatchHeader::new(&self.bytes)
    }
}

/// What is read.
#[derive(Debug)]
enum Input {
    Local { file: File, id: u64 },
    Remote(RemoteFile),
}

/// Reads the batches of one file in order.
#[derive(Debug)]
pub struct Chunks {
    input: Input,
    path: PathBuf,
    /// Where batches are looked for no further; the file may since have grown.
    end: u64,
    /// Bytes of the file when it was opened: the header behind the last batch may lie behind `end`.
    file_end: u64,
    buffer: Buffer,
    /// Position in the file of the first byte of `buffer`.
    start: u64,
    /// Index in `buffer` of the next batch.
    index: usize,
    /// Bytes to read at least when whole batches are wanted; less after batches were stepped over.
    read_ahead: usize,
    /// Bytes to read at least when a header is wanted.
    peek_ahead: usize,
    /// Map the file instead of reading it.
    is_mapped: bool,
    mapped: Option<Arc<MappedRange>>,
    /// Leave in the page cache only what was there before.
    drops_behind: bool,
    report: Arc<Report>,
}

impl Chunks {
    /// Opens the file and stands at byte `position`, where a batch has to start.
    ///
    /// # Errors
    /// [`Error::Io`] when it cannot be opened.
    pub fn open(path: &Path, position: u64) -> Result<Self> {
        Self::reporting(path, position, Arc::default())
    }

    /// As [`open`](Self::open), and counts in `report` the bytes that are read.
    ///
    /// # Errors
    /// [`Error::Io`] when it cannot be opened.
    pub fn reporting(path: &Path, position: u64, report: Arc<Report>) -> Result<Self> {
        let file = File::open(path).map_err(|source| Error::io("open", path, source))?;
        let metadata = file.metadata().map_err(|source| Error::io("stat", path, source))?;
        let input = Input::Local { file, id: metadata.ino() };
        Ok(Self::new(input, path, metadata.len(), position, report))
    }

    /// As [`reporting`](Self::reporting), of a segment wherever it is. One that is not of this machine is asked for
    /// when it is read.
    ///
    /// # Errors
    /// [`Error::Io`] when it cannot be opened.
    pub(super) fn of(segment: &SegmentFile, position: u64, report: Arc<Report>) -> Result<Self> {
        let Some(remote) = &segment.remote else { return Self::reporting(&segment.path, position, report) };
        let file = RemoteFile::open(remote, segment)?;
        let end = file.size_bytes();
        Ok(Self::new(Input::Remote(file), &segment.path, end, position, report))
    }

    fn new(input: Input, path: &Path, end: u64, position: u64, report: Arc<Report>) -> Self {
        Self {
            input,
            path: path.to_owned(),
            end,
            file_end: end,
            buffer: Buffer::from_vec(Vec::<u8>::new()),
            start: position,
            index: 0,
            read_ahead: CHUNK_SIZE,
            peek_ahead: CHUNK_SIZE,
            is_mapped: false,
            mapped: None,
            drops_behind: false,
            report,
        }
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

    /// Where the bytes to look at end: the size of the file when it was opened, or what the plan says.
    pub fn size_bytes(&self) -> u64 {
        self.end
    }

    /// Which file of its file system it is, whatever its name is by now.
    pub(super) fn file_id(&self) -> u64 {
        match self.input {
            Input::Local { id, .. } => id,
            Input::Remote(_) => 0,
        }
    }

    /// What follows is read in order up to about byte `wanted_end`.
    pub(super) fn expect_sequential(&mut self, wanted_end: u64) {
        if let Input::Remote(file) = &mut self.input {
            file.expect_sequential(wanted_end);
        }
    }

    /// From here on the file is mapped, where it is still that one, instead of read. Nobody may write to it, but it may
    /// become shorter.
    pub(super) fn map(&mut self) {
        self.is_mapped = matches!(self.input, Input::Local { .. });
    }

    /// From here on no page stays in the page cache for having been read here.
    pub(super) fn drop_behind(&mut self) {
        if let Input::Local { file, .. } = &self.input {
            prepare(file);
            self.drops_behind = true;
        }
    }

    /// Only headers are wanted, so that little is read where batches are large.
    pub(super) fn expect_headers(&mut self) {
        self.peek_ahead = HEADERS_SIZE;
        self.read_ahead = 0;
        if let Input::Remote(file) = &mut self.input {
            file.expect_headers();
        }
    }

    /// # Errors
    /// [`Error::Corrupt`] when bytes of the chunk were looked at that the file does not have any more.
    pub(super) fn check_mapped(&self) -> Result<()> {
        if !self.mapped.as_ref().is_some_and(|mapped| mapped.has_faulted()) {
            return Ok(());
        }
        let reason = "the file became shorter while it was mapped";
        Err(Error::corrupt(self.position(), -1, reason).located(self.path.display().to_string(), 0))
    }

    /// Looks at no byte from `position` on.
    pub(super) fn end_at(&mut self, position: u64) {
        self.end = self.end.min(position);
    }

    /// The next whole batch, or None at the end or before a truncated one. The header behind it is in the chunk too,
    /// where the file has one: see [`behind`](Self::behind).
    ///
    /// # Errors
    /// [`Error::Corrupt`] naming file and position for a length or magic that no batch has; [`Error::Io`].
    pub fn next_batch(&mut self) -> Result<Option<FoundBatch>> {
        loop {
            if self.position() >= self.end {
                return Ok(None);
            }
            match next_batch_shallow(Source::File, &self.buffer, self.index) {
                Ok(Some(batch)) => {
                    let wanted = batch.bytes().len() + HEADER_SIZE;
                    if self.buffer.len() - self.index < wanted && self.refill()? {
                        continue;
                    }
                    let Some(batch) = next_batch_shallow(Source::File, &self.buffer, self.index)? else {
                        continue;
                    };
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

    /// The header of the next batch, without reading its records where they are not in the chunk already. None
    /// when [`next_batch`](Self::next_batch) has to say what is there: an end, a defect, or another format.
    ///
    /// # Errors
    /// [`Error::Io`].
    pub fn peek(&mut self) -> Result<Option<HeaderAhead>> {
        if self.buffer.len() - self.index < HEADER_SIZE {
            let position = self.position();
            let left = self.end.saturating_sub(position);
            if left < HEADER_SIZE as u64 {
                return Ok(None);
            }
            let ahead = if self.is_remote() { HEADER_SIZE } else { self.peek_ahead };
            self.read(position, (ahead as u64).min(left) as usize)?;
        }
        let position = self.position();
        let Some(bytes) = self.buffer.get(self.index..).and_then(<[u8]>::first_chunk) else {
            return Ok(None);
        };
        let header = BatchHeader::new(bytes);
        let plausible = header.magic() == MAGIC && header.batch_length() >= LENGTH_MIN;
        let whole = plausible && position + header.size_bytes() as u64 <= self.end;
        Ok(whole.then_some(HeaderAhead { position, bytes: *bytes }))
    }

    /// Steps over the batch that [`peek`](Self::peek) found.
    pub fn skip(&mut self, ahead: &HeaderAhead) {
        let size = ahead.header().size_bytes() as u64;
        // The next one may be alike: where it is not in the chunk already, its header will do.
        self.peek_ahead = if size >= STEP_SIZE_MIN { HEADER_SIZE } else { HEADERS_SIZE };
        if let Input::Remote(file) = &mut self.input {
            file.expect_step(size);
        }
        self.go_to(ahead.position + size);
    }

    /// Stands at byte `position`, where a batch has to start.
    pub fn go_to(&mut self, position: u64) {
        match position.checked_sub(self.start).and_then(|index| usize::try_from(index).ok()) {
            Some(index) if index <= self.buffer.len() => self.index = index,
            _ => {
                self.read_ahead = 0;
                self.start = position;
                self.index = 0;
                self.buffer = Buffer::from_vec(Vec::<u8>::new());
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

    /// The bytes from where the reader stands on: `size` of them at the least, fewer only at the end of the file.
    pub(super) fn fill(&mut self, size: usize) -> Result<&[u8]> {
        let position = self.position();
        let left = self.file_end.saturating_sub(position);
        let size = (size as u64).min(left) as usize;
        if self.buffer.len() - self.index < size {
            self.read(position, size)?;
        }
        Ok(self.rest())
    }

    /// The headers behind the batch that was found last, as far as they are in the chunk.
    pub(super) fn behind(&self) -> Behind {
        let mut behind = Behind { headers: [Neighbour::NONE; 2], count: 0 };
        let mut rest = self.rest();
        for header in &mut behind.headers {
            let Some(found) = Neighbour::of(rest) else { break };
            (*header, behind.count) = (found, behind.count + 1);
            rest = rest.get(found.size_bytes..).unwrap_or_default();
        }
        behind
    }

    /// [`view`](Self::view) of the current chunk, with the file and position in the error.
    pub(super) fn current(&self, found: FoundBatch) -> Result<BatchView<'_>> {
        Self::view(&self.buffer, found).map_err(|error| match self.check_mapped() {
            Ok(()) => self.locate(error),
            Err(shrunk) => shrunk,
        })
    }

    /// The same error with file and position in it.
    pub fn locate(&self, error: Error) -> Error {
        error.located(self.path.display().to_string(), self.start)
    }

    /// The bytes of the current chunk from the next batch on.
    pub fn rest(&self) -> &[u8] {
        self.buffer.get(self.index..).unwrap_or_default()
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
        let left = self.file_end.saturating_sub(position);
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
        let ahead = if self.is_remote() { 0 } else { self.read_ahead };
        // The header behind the batch bounds its offsets.
        let size = ((needed + HEADER_SIZE).max(ahead) as u64).min(left) as usize;
        self.read_ahead = (self.read_ahead * 2).clamp(HEADERS_SIZE, CHUNK_SIZE);
        self.peek_ahead = self.read_ahead;
        self.read(position, size)?;
        let grew = self.buffer.len() - self.index > have;
        if !grew {
            // The file shrank since it was opened.
            self.file_end = self.start + self.buffer.len() as u64;
            self.end = self.end.min(self.file_end);
        }
        Ok(grew)
    }

    /// Makes up to `size` bytes from `position` on the chunk.
    fn read(&mut self, position: u64, size: usize) -> Result<()> {
        if self.is_mapped {
            return self.read_mapped(position, size);
        }
        let (buffer, fetched) = match &mut self.input {
            Input::Local { file, .. } => {
                let read = if self.drops_behind { read_once } else { read_at };
                let buffer = read(file, position, size);
                let buffer = buffer.map_err(|source| Error::io("read", &self.path, source))?;
                let fetched = buffer.len() as u64;
                (buffer, fetched)
            }
            Input::Remote(file) => file.read(position, size)?,
        };
        self.buffer = buffer;
        self.report.add_bytes_read(fetched);
        self.start = position;
        self.index = 0;
        Ok(())
    }

    fn is_remote(&self) -> bool {
        matches!(self.input, Input::Remote(_))
    }

    fn read_mapped(&mut self, position: u64, size: usize) -> Result<()> {
        let Input::Local { file, .. } = &self.input else { return Ok(()) };
        let before = position % page_size();
        let start = position - before;
        let left = self.file_end.saturating_sub(start);
        let size = ((size + before as usize).max(MAPPED_SIZE) as u64).min(left) as usize;
        let mapped =
            MappedRange::open(file, start, size).map_err(|source| Error::io("map", &self.path, source))?;
        let mapped = Arc::new(mapped);
        self.buffer = mapped.buffer();
        self.mapped = Some(mapped);
        self.report.add_bytes_read(size as u64);
        self.start = start;
        self.index = before as usize;
        Ok(())
    }
}

/// Up to `size` bytes of the file; fewer only where it ends.
pub(super) fn read_at(file: &File, position: u64, size: usize) -> std::io::Result<Buffer> {
    let mut bytes = Column::<u8>::default();
    bytes.reserve(size);
    while bytes.len() < size {
        let wanted = size - bytes.len();
        let spare = bytes.spare_mut(wanted);
        match rustix::io::pread(file, spare, position + (size - wanted) as u64) {
            Ok(0) => break,
            Ok(read) => bytes.advance(read),
            Err(rustix::io::Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Ok(bytes.take())
}
