//! Finding whole batches in bytes, where Kafka's two readers find them.
use super::{BatchHeader, BatchView, HEADER_SIZE, HEADER_SIZE_UP_TO_MAGIC, LOG_OVERHEAD, MAGIC};
use crate::legacy::{self, is_legacy};
use crate::{Error, Result};

/// Value of the length field of the smallest legacy batch; less is corrupt in every format.
const LENGTH_MIN_LEGACY: i32 = (legacy::ENTRY_SIZE_MIN - LOG_OVERHEAD) as i32;
/// Value of the length field of a batch without records.
pub(crate) const LENGTH_MIN: i32 = (HEADER_SIZE - LOG_OVERHEAD) as i32;

/// Whom a length of bytes is read for, since Kafka's two readers stop at different things.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Source {
    /// Bytes of a request, response or message: `MemoryRecords`. Magic above 2 is corrupt.
    Memory,
    /// Bytes of a segment file: `FileRecords`. Magic above 2 is left to the reader of the records.
    File,
}

/// The batch at `position` of `buffer`, or None when what remains is not a whole batch.
///
/// # Errors
/// [`Error::Corrupt`] for a length that no batch has, or an unknown magic. Kafka finds some of these later, when it
/// validates or reads the batch.
#[inline]
pub fn next_batch(buffer: &[u8], position: usize) -> Result<Option<BatchView<'_>>> {
    next_batch_from(Source::Memory, buffer, position)
}

/// [`next_batch`] with the rules of `source`.
///
/// # Errors
/// As [`next_batch`], but magic 3 to 127 passes in a file, as the magic byte is outside the checksum and
/// Kafka's recovery keeps such batches.
#[inline]
pub fn next_batch_from(source: Source, buffer: &[u8], position: usize) -> Result<Option<BatchView<'_>>> {
    find_batch(source, buffer, position, BatchView::resolved)
}

/// [`next_batch_from`] without a look into compressed sets of the formats before v2: their base offset is their last
/// offset and their record count -1 then. For walks that need sizes, last offsets and checksums only.
///
/// # Errors
/// As [`next_batch_from`].
#[inline]
pub fn next_batch_shallow(source: Source, buffer: &[u8], position: usize) -> Result<Option<BatchView<'_>>> {
    find_batch(source, buffer, position, |batch| *batch)
}

#[inline(always)]
fn find_batch<'a>(
    source: Source,
    buffer: &'a [u8],
    position: usize,
    resolve: fn(&BatchView<'a>) -> BatchView<'a>,
) -> Result<Option<BatchView<'a>>> {
    let rest = buffer.get(position..).unwrap_or_default();
    if let Some(header) = rest.first_chunk::<HEADER_SIZE>() {
        let header = BatchHeader::new(header);
        if header.batch_length() >= LENGTH_MIN && header.magic() == MAGIC {
            let whole = rest.get(..header.size_bytes());
            return Ok(whole.map(|bytes| BatchView::new(header, bytes, position as u64)));
        }
    }
    Ok(odd_batch(source, rest, position)?.map(|batch| resolve(&batch)))
}

/// A batch of another format than v2, or none: fewer bytes than a header, or a length or magic worth an error.
#[cold]
fn odd_batch(source: Source, rest: &[u8], position: usize) -> Result<Option<BatchView<'_>>> {
    let readable = match source {
        Source::Memory => LOG_OVERHEAD,
        // FileLogInputStream wants one byte more than the header up to magic before it looks.
        Source::File => HEADER_SIZE_UP_TO_MAGIC + 1,
    };
    let (Some(base_offset), Some(length)) =
        (rest.first_chunk(), rest.get(8..LOG_OVERHEAD).and_then(<[u8]>::first_chunk))
    else {
        return Ok(None);
    };
    if rest.len() < readable {
        return Ok(None);
    }
    let length = i32::from_be_bytes(*length);
    let size = usize::try_from(length).ok().map(|length| LOG_OVERHEAD.saturating_add(length));
    let whole = size.and_then(|size| rest.get(..size));
    let magic = rest.get(HEADER_SIZE_UP_TO_MAGIC - 1).map(|&byte| byte as i8);
    let base_offset = i64::from_be_bytes(*base_offset);
    let frame = Frame { position, base_offset, length, is_whole: whole.is_some() };
    frame.check(source, magic)?;
    let (Some(bytes), Some(magic)) = (whole, magic) else { return Ok(None) };
    let header = if is_legacy(magic) {
        bytes.first_chunk().map(legacy::translate_header)
    } else {
        bytes.first_chunk().copied()
    };
    let view = |header| BatchView::new(BatchHeader::new(&header).outlive(), bytes, position as u64);
    Ok(header.map(view))
}

/// A batch to refuse, if what its first bytes say is wrong enough.
struct Frame {
    position: usize,
    base_offset: i64,
    length: i32,
    is_whole: bool,
}

impl Frame {
    /// The order of the checks is that of Kafka's two readers; Kafka does not have those after `is_whole`.
    fn check(&self, source: Source, magic: Option<i8>) -> Result<()> {
        let length = self.length;
        let reason = match magic {
            _ if length < LENGTH_MIN_LEGACY => {
                format!("batch length {length}, the least is {LENGTH_MIN_LEGACY}")
            }
            Some(magic) if source == Source::Memory && !(0..=MAGIC).contains(&magic) => {
                format!("magic {magic} is unknown")
            }
            _ if !self.is_whole => return Ok(()),
            Some(magic) if magic < 0 => format!("magic {magic} is unknown"),
            Some(magic) if is_legacy(magic) => return Ok(()),
            _ if length < LENGTH_MIN => format!("batch length {length}, the least is {LENGTH_MIN}"),
            _ => return Ok(()),
        };
        Err(Error::corrupt(self.position as u64, self.base_offset, reason))
    }
}

/// The batches of a buffer one after the other; ends before a truncated one, or after an error.
#[derive(Debug, Clone)]
pub struct Batches<'a> {
    source: Source,
    buffer: &'a [u8],
    position: usize,
    failed: bool,
}

impl<'a> Batches<'a> {
    /// Batches of bytes in memory, from their start.
    pub fn new(buffer: &'a [u8]) -> Self {
        Self::with_source(Source::Memory, buffer)
    }

    /// Batches with the rules of `source`.
    pub fn with_source(source: Source, buffer: &'a [u8]) -> Self {
        Self { source, buffer, position: 0, failed: false }
    }

    /// Where the next batch starts: the end of the last one.
    pub fn position(&self) -> usize {
        self.position
    }
}

impl<'a> Iterator for Batches<'a> {
    type Item = Result<BatchView<'a>>;

    #[inline]
    fn next(&mut self) -> Option<Self::Item> {
        if self.failed {
            return None;
        }
        let found = next_batch_from(self.source, self.buffer, self.position);
        match &found {
            Ok(Some(batch)) => self.position += batch.bytes().len(),
            Ok(None) => {}
            Err(_) => self.failed = true,
        }
        found.transpose()
    }
}
