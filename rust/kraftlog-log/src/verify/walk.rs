//! A log file batch by batch that goes on behind damage.
use crate::batch::{next_batch_from, next_batch_shallow, BatchView, Source, HEADER_SIZE, LOG_OVERHEAD};
use crate::continuation::{behind_claim, leads_on, search, SegmentBytes};
use crate::offset_order::{Neighbour, OffsetOrder};
use crate::{Error, Result};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const READ_BYTES: usize = 512 << 10;

/// What is at a place of the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Item {
    /// A whole batch with a right checksum: [`Walk::batch`] shows it.
    Batch,
    /// One whose base offset cannot be right beside its neighbours: [`Walk::batch`] shows it too.
    Misplaced { reason: String },
    /// Bytes `[position, position + size)` that hold no sound batch; one follows, or the end.
    Damage { position: u64, size: u64, kind: &'static str, base_offset: i64, reason: String },
    /// The file ends inside a batch, after this position.
    Torn { position: u64, size: u64 },
    /// Nothing but zeros follows, as after a crash or in a file given its size in advance.
    Zeros { position: u64, size: u64 },
    /// The end, right behind a batch or damage.
    End,
}

/// Reads one file.
#[derive(Debug)]
pub(crate) struct Walk {
    file: File,
    path: PathBuf,
    end: u64,
    buffer: Vec<u8>,
    /// Position in the file of the first byte of `buffer`.
    start: u64,
    position: u64,
    /// The batch found last, in `buffer`.
    found: (usize, usize),
    order: OffsetOrder,
}

impl Walk {
    /// Opens the file of the segment with `base_offset`, in front of one that begins at `ceiling`.
    pub(crate) fn open(path: &Path, base_offset: i64, ceiling: i64) -> Result<Self> {
        let file = File::open(path).map_err(|source| Error::io("open", path, source))?;
        let metadata = file.metadata().map_err(|source| Error::io("stat", path, source))?;
        if !metadata.is_file() {
            return Err(Error::Invalid(format!("{}: not a file", path.display())));
        }
        Ok(Self {
            file,
            path: path.to_owned(),
            end: metadata.len(),
            buffer: Vec::new(),
            start: 0,
            position: 0,
            found: (0, 0),
            order: OffsetOrder::new(base_offset, ceiling),
        })
    }

    /// Where the next item begins.
    pub(crate) fn position(&self) -> u64 {
        self.position
    }

    /// The batch that [`next_item`](Self::next_item) found last, with its position in the file.
    pub(crate) fn batch(&self) -> Result<(u64, BatchView<'_>)> {
        let (start, end) = self.found;
        let bytes = self.buffer.get(start..end).unwrap_or_default();
        let batch = next_batch_from(Source::File, bytes, 0)?
            .ok_or_else(|| Error::corrupt(self.position, -1, "not a whole batch"))?;
        Ok((self.position - (end - start) as u64, batch))
    }

    /// The next item, whose offsets are at or after `floor`.
    pub(crate) fn next_item(&mut self, floor: i64) -> Result<Item> {
        self.order.pass(floor);
        let begin = self.position;
        let (kind, base_offset, reason) = match self.frame(begin)? {
            Frame::End => return Ok(Item::End),
            Frame::Batch(size) => {
                let bytes = self.held(begin, size);
                let Some(batch) = next_batch_shallow(Source::File, bytes, 0)? else { return Ok(Item::End) };
                let base_offset = batch.base_offset();
                match batch.validate_crc() {
                    Ok(()) => return self.place(begin, size),
                    Err(error) => {
                        let reason = reason_of(error);
                        let end = begin + size as u64;
                        let order = self.order;
                        if leads_on(self, end, &order)? {
                            self.position = behind_claim(self, begin, end, &order)?;
                            let size = self.position - begin;
                            let kind = "batch-crc";
                            return Ok(Item::Damage { position: begin, size, kind, base_offset, reason });
                        }
                        ("batch-crc", base_offset, reason)
                    }
                }
            }
            Frame::Short { announced } => {
                let size = self.end - begin;
                if self.only_zeros(begin)? {
                    self.position = self.end;
                    return Ok(Item::Zeros { position: begin, size });
                }
                // A length that is too long and a file that was cut look the same until something sound follows.
                match self.next_sound(begin + 1)? {
                    Some(found) => {
                        self.position = found;
                        let reason = format!("batch of {announced} bytes where {size} remain");
                        let kind = "batch-structure";
                        return Ok(Item::Damage {
                            position: begin,
                            size: found - begin,
                            kind,
                            base_offset: -1,
                            reason,
                        });
                    }
                    None => {
                        self.position = self.end;
                        return Ok(Item::Torn { position: begin, size });
                    }
                }
            }
            Frame::Bad { base_offset, reason } => {
                if self.only_zeros(begin)? {
                    let size = self.end - begin;
                    self.position = self.end;
                    return Ok(Item::Zeros { position: begin, size });
                }
                ("batch-structure", base_offset, reason)
            }
        };
        let found = self.next_sound(begin + 1)?.unwrap_or(self.end);
        self.position = found;
        Ok(Item::Damage { position: begin, size: found - begin, kind, base_offset, reason })
    }

    /// A batch with a right checksum: whether its offsets fit those around it.
    fn place(&mut self, begin: u64, size: usize) -> Result<Item> {
        let mut behind = [Neighbour::NONE; 2];
        let mut count = 0;
        let mut next = begin + size as u64;
        self.fill(begin, size + HEADER_SIZE)?;
        for header in &mut behind {
            let head = self.held(next, HEADER_SIZE);
            let found = match head.is_empty() && next < self.end {
                true => Neighbour::of(&self.bytes_at(next, HEADER_SIZE)?),
                false => Neighbour::of(head),
            };
            let Some(found) = found else { break };
            (*header, count) = (found, count + 1);
            next = next.saturating_add(found.size_bytes as u64);
        }
        self.take(begin, size);
        let mut order = self.order;
        let (_, batch) = self.batch()?;
        let outcome = order.check(&batch.header(), behind.get(..count).unwrap_or_default());
        self.order = order;
        Ok(outcome.map_or_else(|reason| Item::Misplaced { reason }, |()| Item::Batch))
    }

    /// The bytes `[position, position + size)`, for a look at damage; fewer at the end of the file.
    pub(crate) fn bytes_at(&self, position: u64, size: usize) -> Result<Vec<u8>> {
        let left = usize::try_from(self.end.saturating_sub(position)).unwrap_or(usize::MAX);
        let mut bytes = vec![0; size.min(left)];
        self.file
            .read_exact_at(&mut bytes, position)
            .map_err(|source| Error::io("read", self.path.as_path(), source))?;
        Ok(bytes)
    }

    fn take(&mut self, begin: u64, size: usize) {
        let index = usize::try_from(begin - self.start).unwrap_or(usize::MAX);
        self.found = (index, index.saturating_add(size));
        self.position = begin + size as u64;
    }

    fn held(&self, position: u64, size: usize) -> &[u8] {
        let index = position.checked_sub(self.start).and_then(|index| usize::try_from(index).ok());
        index.and_then(|index| self.buffer.get(index..index.checked_add(size)?)).unwrap_or_default()
    }

    /// Makes `[position, position + size)` readable in the buffer, as far as the file goes.
    fn fill(&mut self, position: u64, size: usize) -> Result<&[u8]> {
        let left = self.end.saturating_sub(position);
        let size = size.min(usize::try_from(left).unwrap_or(usize::MAX));
        if self.held(position, size).len() < size {
            let wanted = size.max(READ_BYTES).min(usize::try_from(left).unwrap_or(usize::MAX));
            self.buffer.resize(wanted, 0);
            if self.buffer.capacity() > 2 * wanted.max(READ_BYTES) {
                self.buffer.shrink_to(wanted);
            }
            self.start = position;
            let mut have = 0;
            while let Some(rest) = self.buffer.get_mut(have..).filter(|rest| !rest.is_empty()) {
                match self.file.read_at(rest, position + have as u64) {
                    Ok(0) => {
                        // The file was truncated by its node since it was opened.
                        self.buffer.truncate(have);
                        self.end = position + have as u64;
                    }
                    Ok(count) => have += count,
                    Err(error) if error.kind() == std::io::ErrorKind::Interrupted => {}
                    Err(error) => return Err(Error::io("read", self.path.as_path(), error)),
                }
            }
        }
        let index = usize::try_from(position - self.start).unwrap_or(usize::MAX);
        let rest = self.buffer.get(index..).unwrap_or_default();
        Ok(rest.get(..size).unwrap_or(rest))
    }

    /// What the bytes at `position` say they are.
    fn frame(&mut self, position: u64) -> Result<Frame> {
        if position >= self.end {
            return Ok(Frame::End);
        }
        let left = self.end - position;
        let head = self.fill(position, HEADER_SIZE)?;
        let length =
            head.get(8..LOG_OVERHEAD).and_then(|bytes| bytes.first_chunk()).map(|b| i32::from_be_bytes(*b));
        let announced =
            length.and_then(|length| usize::try_from(length).ok()).map(|length| length + LOG_OVERHEAD);
        match next_batch_shallow(Source::File, head, 0) {
            Err(error) => return Ok(Frame::bad(error)),
            Ok(Some(batch)) => return Ok(Frame::Batch(batch.bytes().len())),
            Ok(None) => {}
        }
        let Some(announced) = announced.filter(|announced| *announced as u64 <= left) else {
            return Ok(Frame::Short { announced: announced.unwrap_or_default() });
        };
        let bytes = self.fill(position, announced)?;
        match next_batch_shallow(Source::File, bytes, 0) {
            Ok(Some(batch)) => Ok(Frame::Batch(batch.bytes().len())),
            Ok(None) => Ok(Frame::Short { announced }),
            Err(error) => Ok(Frame::bad(error)),
        }
    }

    /// The position of the next sound batch that begins at `from` or behind.
    fn next_sound(&mut self, from: u64) -> Result<Option<u64>> {
        let (until, order) = (self.end, self.order);
        search(self, from, until, &order)
    }

    fn only_zeros(&mut self, from: u64) -> Result<bool> {
        let mut position = from;
        while position < self.end {
            let window = self.fill(position, READ_BYTES)?;
            if window.is_empty() {
                break;
            }
            if window.iter().any(|byte| *byte != 0) {
                return Ok(false);
            }
            position += window.len() as u64;
        }
        Ok(true)
    }
}

impl SegmentBytes for Walk {
    fn size_bytes(&self) -> u64 {
        self.end
    }

    fn window(&mut self, position: u64, _read_bytes: usize) -> Result<&[u8]> {
        self.fill(position, HEADER_SIZE)?;
        let index = usize::try_from(position.saturating_sub(self.start)).unwrap_or(usize::MAX);
        Ok(self.buffer.get(index..).unwrap_or_default())
    }

    fn sound_batch(&mut self, position: u64) -> Result<Option<u64>> {
        let Frame::Batch(size) = self.frame(position)? else { return Ok(None) };
        match next_batch_from(Source::File, self.held(position, size), 0) {
            Ok(batch) => Ok(batch.filter(|batch| batch.validate_crc().is_ok()).map(|_| size as u64)),
            Err(Error::Corrupt { .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// What the first bytes at a place say.
enum Frame {
    End,
    Batch(usize),
    Short { announced: usize },
    Bad { base_offset: i64, reason: String },
}

impl Frame {
    fn bad(error: Error) -> Self {
        let base_offset = match &error {
            Error::Corrupt { base_offset, .. } => *base_offset,
            _ => -1,
        };
        Self::Bad { base_offset, reason: reason_of(error) }
    }
}

/// The sentence of an error without the place that it names itself.
pub(crate) fn reason_of(error: Error) -> String {
    match error {
        Error::Corrupt { reason, .. } | Error::Rejected { reason, .. } | Error::Invalid(reason) => reason,
        other => other.to_string(),
    }
}
