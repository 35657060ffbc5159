//! A log file batch by batch that goes on behind damage: the frame of a bad batch is stepped over where the next one
//! begins behind it, else the next header with a right checksum is searched byte by byte.
use crate::batch::{
    next_batch_from, next_batch_shallow, BatchView, Source, HEADER_SIZE, LOG_OVERHEAD, MAGIC,
};
use crate::offset_order::{is_plausible, is_plausible_legacy, Neighbour, OffsetOrder};
use crate::{Error, Result};
use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const READ_BYTES: usize = 512 << 10;
/// Batches may be checked byte by byte for this many times the bytes searched: hostile files end the search.
const SEARCH_RATIO: u64 = 32;
const SEARCH_FLOOR: u64 = 64 << 20;

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
    searched: u64,
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
            searched: 0,
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
                        if self.is_frame_trusted(end)? {
                            self.position = self.behind_claim(begin, end)?;
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
                match self.search(begin + 1, self.end)? {
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
        let found = self.search(begin + 1, self.end)?.unwrap_or(self.end);
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

    /// Where to go on when the length of the damaged batch at `begin` leads to `end`, where a header could be.
    fn behind_claim(&mut self, begin: u64, end: u64) -> Result<u64> {
        if end < self.end && !self.begins_soundly(end)? {
            // Another damaged batch, whose length leads on, or bytes of a record that look like a header.
            if let Some(sound) = self.search(begin + 1, self.end)? {
                if !self.lengths_lead_to(end, sound)? {
                    return Ok(sound);
                }
            }
        }
        // A length with a wrong bit may lead to the start of a later batch.
        Ok(self.chain_up_to(begin + 1, end)?.unwrap_or(end))
    }

    /// Whether a batch whose checksum is right begins at `position`.
    fn begins_soundly(&mut self, position: u64) -> Result<bool> {
        let Frame::Batch(size) = self.frame(position)? else { return Ok(false) };
        let batch = next_batch_shallow(Source::File, self.held(position, size), 0)?;
        Ok(batch.is_some_and(|batch| batch.validate_crc().is_ok()))
    }

    /// Whether the lengths of headers lead from `position` to exactly `target`.
    fn lengths_lead_to(&mut self, position: u64, target: u64) -> Result<bool> {
        let mut position = position;
        while position < target {
            let Some(header) = Neighbour::of(self.fill(position, HEADER_SIZE)?) else { return Ok(false) };
            position = position.saturating_add(header.size_bytes as u64);
        }
        Ok(position == target)
    }

    /// The first sound batch in `[from, end)` from which sound batches follow each other up to exactly `end`.
    fn chain_up_to(&mut self, from: u64, end: u64) -> Result<Option<u64>> {
        let mut from = from;
        while let Some(found) = self.search(from, end)? {
            let mut position = found;
            while position < end {
                let Frame::Batch(size) = self.frame(position)? else { break };
                if !self.begins_soundly(position)? {
                    break;
                }
                position += size as u64;
            }
            if position == end {
                return Ok(Some(found));
            }
            from = found + 1;
        }
        Ok(None)
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

    /// True when the frame of a bad batch leads to the end of the file or to a header that could follow.
    fn is_frame_trusted(&mut self, next: u64) -> Result<bool> {
        if next >= self.end {
            return Ok(true);
        }
        let (end, order) = (self.end, self.order);
        let head = self.fill(next, HEADER_SIZE)?;
        Ok(is_plausible(head, next, end, &order) || is_plausible_legacy(head, next, end, &order))
    }

    /// The position of the next sound batch that begins in `[from, until)`.
    fn search(&mut self, from: u64, until: u64) -> Result<Option<u64>> {
        let budget = (self.end - from.min(self.end)).saturating_mul(SEARCH_RATIO).max(SEARCH_FLOOR);
        self.searched = 0;
        let mut position = from;
        while position < until && position + (HEADER_SIZE as u64) <= self.end {
            let (end, order) = (self.end, self.order);
            let window = self.fill(position, READ_BYTES)?;
            let candidate = (0..(window.len() + 1).saturating_sub(HEADER_SIZE)).find(|index| {
                window.get(index + 16) == Some(&(MAGIC as u8))
                    && is_plausible(
                        window.get(*index..).unwrap_or_default(),
                        position + *index as u64,
                        end,
                        &order,
                    )
            });
            let Some(index) = candidate else {
                position += (window.len() + 1).saturating_sub(HEADER_SIZE).max(1) as u64;
                continue;
            };
            let found = position + index as u64;
            if found >= until {
                return Ok(None);
            }
            if let Frame::Batch(size) = self.frame(found)? {
                self.searched += size as u64;
                let bytes = self.held(found, size);
                if next_batch_from(Source::File, bytes, 0)?.is_some_and(|batch| batch.validate_crc().is_ok())
                {
                    return Ok(Some(found));
                }
            }
            if self.searched > budget {
                return Ok(None);
            }
            position = found + 1;
        }
        Ok(None)
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
