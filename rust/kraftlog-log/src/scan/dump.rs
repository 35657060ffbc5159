//! Batches or records of a file as lines of text or JSON: what the two forms have in common.
use super::aborted::AbortedRanges;
use super::chunks::Chunks;
use super::json::write_batch_json;
use super::position::position_before;
use super::segments::SegmentFile;
use super::text::{write_batch_text, write_refused_batch};
use super::{json, text};
use crate::batch::{BatchView, MAGIC};
use crate::compression::{Bound, Codec};
use crate::legacy::message_checksums;
use crate::record::{RecordIter, RecordRef};
use crate::Result;
use std::path::Path;

/// Bytes of lines that are gathered before they are handed out.
const OUTPUT_SIZE: usize = 256 << 10;

/// The form of the lines.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DumpFormat {
    /// The lines of Kafka's `DumpLogSegments`: each batch, followed by its records if they are asked for.
    Text,
    /// One JSON object per line for each batch, or for each record where those are asked for.
    Json {
        /// Members that every object starts with, such as `"topic":"orders","partition":0,`; may be empty.
        first_members: String,
    },
}

/// What of a file is dumped. Offsets and timestamps leave out records; in text also the lines of batches in
/// which no record can be meant.
#[derive(Debug, Clone)]
pub struct DumpOptions {
    /// Text or JSON.
    pub format: DumpFormat,
    /// Each record, not only batches.
    pub records: bool,
    /// Keys, values and (in JSON) header values too.
    pub data: bool,
    /// Offset, timestamp, sizes and header keys of each record: text only.
    pub record_metadata: bool,
    /// How many bytes of the file to look at.
    pub max_bytes: u64,
    /// First offset, inclusive.
    pub start_offset: i64,
    /// Exclusive end.
    pub end_offset: i64,
    /// Least record timestamp in ms, inclusive.
    pub from_timestamp: i64,
    /// Exclusive end of record timestamps in ms; None for no end.
    pub to_timestamp: Option<i64>,
    /// Transactions whose records are left out, as for a consumer with read_committed.
    pub aborted: AbortedRanges,
}

impl Default for DumpOptions {
    fn default() -> Self {
        Self {
            format: DumpFormat::Text,
            records: false,
            data: false,
            record_metadata: true,
            max_bytes: u64::MAX,
            start_offset: i64::MIN,
            end_offset: i64::MAX,
            from_timestamp: i64::MIN,
            to_timestamp: None,
            aborted: AbortedRanges::default(),
        }
    }
}

impl DumpOptions {
    fn wants_batch(&self, batch: &BatchView<'_>) -> bool {
        batch.last_offset() >= self.start_offset
            && batch.base_offset() < self.end_offset
            && !self.aborted.contain(&batch.header())
            // The largest timestamp of a batch without records says nothing.
            && (batch.max_timestamp() >= self.from_timestamp || batch.max_timestamp() < 0)
    }

    fn wants_record(&self, record: &RecordRef<'_>) -> bool {
        record.offset >= self.start_offset
            && (record.offset < self.end_offset || self.end_offset == i64::MAX)
            && record.timestamp >= self.from_timestamp
            && self.to_timestamp.is_none_or(|end| record.timestamp < end)
    }
}

/// Words for what the engine does not know: records of control batches and of Kafka's own topics.
pub trait Describe {
    /// What stands after the metadata of a control record other than the marker that ends a transaction.
    /// False, with `out` as it was, leaves it to the plain form.
    ///
    /// # Errors
    /// Whatever ends the dump.
    fn control(&mut self, out: &mut Vec<u8>, record: &RecordRef<'_>) -> Result<bool>;

    /// Key and value of any other record, when data are asked for; text is given what goes `before` each part.
    /// False, with `out` as it was, leaves it to the plain form.
    ///
    /// # Errors
    /// Whatever ends the dump.
    fn contents(&mut self, out: &mut Vec<u8>, record: &RecordRef<'_>, before: &str) -> Result<bool>;
}

/// Knows nothing: bytes are printed as they are.
#[derive(Debug, Clone, Copy, Default)]
pub struct Plain;

impl Describe for Plain {
    fn control(&mut self, _: &mut Vec<u8>, _: &RecordRef<'_>) -> Result<bool> {
        Ok(false)
    }

    fn contents(&mut self, _: &mut Vec<u8>, _: &RecordRef<'_>, _: &str) -> Result<bool> {
        Ok(false)
    }
}

/// Dumps a log or checkpoint file.
#[derive(Debug)]
pub struct FileDump {
    chunks: Chunks,
    options: DumpOptions,
    scratch: Vec<u8>,
    /// Offset of the record before, -1 at the start as in Kafka's tool.
    last_offset: i64,
    gaps: Vec<(i64, i64)>,
    at_end: bool,
}

impl FileDump {
    /// A dump of one file. Where it is named as a segment, its offset index says where to begin reading.
    ///
    /// # Errors
    /// [`Error::Io`](crate::Error::Io) when the file cannot be opened.
    pub fn open(path: &Path, options: DumpOptions) -> Result<Self> {
        let position = match SegmentFile::open(path) {
            Ok(segment) if options.start_offset > segment.base_offset => {
                position_before(&segment, options.start_offset)
            }
            _ => 0,
        };
        Ok(Self {
            chunks: Chunks::open(path, position)?,
            options,
            scratch: Vec::new(),
            last_offset: -1,
            gaps: Vec::new(),
            at_end: false,
        })
    }

    /// Byte position behind the last batch that was dumped.
    pub fn position(&self) -> u64 {
        self.chunks.position()
    }

    /// Bytes of the file when it was opened, or the bound of bytes to look at where that is less.
    pub fn size_bytes(&self) -> u64 {
        self.chunks.size_bytes().min(self.options.max_bytes)
    }

    /// Pairs of offsets of records that follow each other and are not consecutive, in order. As in Kafka's
    /// tool the first record is compared with offset -1.
    pub fn gaps(&self) -> &[(i64, i64)] {
        &self.gaps
    }

    /// Some more lines, appended to `out`; false when there are none.
    ///
    /// # Errors
    /// [`Error::Corrupt`](crate::Error::Corrupt) naming file and position, or what `describe` gives; the lines
    /// before are in `out`.
    pub fn next_lines(&mut self, out: &mut Vec<u8>, describe: &mut dyn Describe) -> Result<bool> {
        let start = out.len();
        while !self.at_end && out.len() - start < OUTPUT_SIZE {
            self.at_end = !self.next_batch(out, describe)?;
        }
        Ok(out.len() > start)
    }

    /// Dumps one batch; false when there is none.
    fn next_batch(&mut self, out: &mut Vec<u8>, describe: &mut dyn Describe) -> Result<bool> {
        if self.chunks.position() >= self.options.max_bytes {
            return Ok(false);
        }
        let found = match self.chunks.next_batch() {
            Ok(Some(found)) => found,
            Ok(None) => return Ok(false),
            // Space that was allocated in advance: Kafka's tool finds fault with it, so the text has to.
            Err(_) if self.options.format != DumpFormat::Text && self.chunks.is_at_zeros() => {
                return Ok(false)
            }
            Err(error) => {
                if self.options.format == DumpFormat::Text {
                    write_refused_batch(out, self.chunks.rest(), self.chunks.position());
                }
                return Err(error);
            }
        };
        let batch = Chunks::view(self.chunks.buffer(), found)?;
        // A base offset at the end or behind it is believed when the next one is not less: no checksum covers it.
        let next = self.chunks.behind().known().first().copied();
        let is_beyond = batch.base_offset() >= self.options.end_offset
            && next.is_none_or(|next| next.base_offset > batch.base_offset());
        if found.position + batch.bytes().len() as u64 > self.options.max_bytes || is_beyond {
            self.chunks.go_to(found.position);
            return Ok(false);
        }
        // What a header says of a damaged batch is no reason to leave it out.
        if batch.check().is_ok() && !self.options.wants_batch(&batch) {
            return Ok(true);
        }
        let chunks = &self.chunks;
        match &self.options.format {
            DumpFormat::Text => {
                write_batch_text(out, &batch, found.position).map_err(|error| chunks.locate(error))?
            }
            DumpFormat::Json { first_members } if !self.options.records => {
                write_batch_json(out, first_members, &batch, found.position);
            }
            DumpFormat::Json { .. } => {}
        }
        if !self.options.records {
            return Ok(true);
        }
        let before = (out.len(), self.gaps.len(), self.last_offset);
        // Kafka's tool reads all records of a compressed batch before it prints one.
        let is_whole = batch.codec() != Ok(Codec::None);
        // Messages of the formats before v2 have checksums of their own, which only the text shows.
        let mut checksums = match self.options.format {
            DumpFormat::Text if batch.magic() < MAGIC && self.options.record_metadata => {
                message_checksums(&batch).map_err(|error| chunks.locate(error))?
            }
            _ => Vec::new(),
        }
        .into_iter();
        let records = read_records(&batch, &mut self.scratch).map_err(|error| chunks.locate(error))?;
        for record in records {
            let record = match record {
                Ok(record) => record,
                Err(error) => {
                    if is_whole {
                        out.truncate(before.0);
                        self.gaps.truncate(before.1);
                        self.last_offset = before.2;
                    }
                    return Err(chunks.locate(error));
                }
            };
            let checksum = checksums.next();
            if record.offset != self.last_offset.wrapping_add(1) {
                self.gaps.push((self.last_offset, record.offset));
            }
            self.last_offset = record.offset;
            if !self.options.wants_record(&record) {
                continue;
            }
            match &self.options.format {
                DumpFormat::Text => {
                    text::write_record(out, &self.options, &batch, &record, checksum, describe)
                }
                DumpFormat::Json { first_members } => {
                    json::write_record(out, first_members, self.options.data, &batch, &record, describe)
                }
            }
            .map_err(|error| chunks.locate(error))?;
        }
        Ok(true)
    }
}

/// The records of a batch; as in Kafka's tool also of one whose magic byte, which no checksum covers, is above 2.
fn read_records<'a>(batch: &BatchView<'a>, scratch: &'a mut Vec<u8>) -> Result<RecordIter<'a>> {
    if batch.magic() > MAGIC && batch.record_count() > 0 {
        return RecordIter::new(batch, batch.uncompressed_body(Bound::default(), scratch)?);
    }
    batch.records(scratch)
}
