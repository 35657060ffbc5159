//! The decoder: which batches matter, where a batch is continued, and the rows as an Arrow batch.
use super::bytes::{CopyColumn, ViewColumn};
use super::options::{BinaryType, Column, ColumnOptions};
use super::rows::{BatchFacts, Body, Rows, RowsMark};
use crate::batch::{BatchHeader, BatchView, TimestampType, MAGIC};
use crate::byte_pool::{self, PooledBytes};
use crate::compression::{Bound, Codec};
use crate::Result;
use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use arrow_schema::SchemaRef;
use std::sync::Arc;

/// What became of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Progress {
    /// All rows of the batch that are wanted have been added.
    Done,
    /// The Arrow batch is full: take it with [`ColumnsDecoder::finish`] and call again with the same cursor.
    Full,
}

/// How far into a batch the decoder is. A new one stands before the first record.
#[derive(Debug, Default)]
pub struct BatchCursor {
    /// Byte position in the uncompressed records.
    pub(super) position: usize,
    /// Records read, rows or not.
    pub(super) read: usize,
    /// Some records may have to be left out.
    pub(super) filter: bool,
    /// The checksum of the batch is right, as far as it was looked at.
    pub(super) crc_ok: bool,
    place: Option<Place>,
}

impl BatchCursor {
    /// Before the first record of a batch whose magic and checksum are right.
    pub fn checked() -> Self {
        Self { crc_ok: true, ..Self::default() }
    }
}

/// Where the uncompressed records of a batch are.
#[derive(Debug)]
pub(super) enum Place {
    /// In the source buffer, from this byte on.
    Source(usize),
    /// In the decoder's scratch memory, until the next batch.
    Scratch,
    /// In a buffer of their own, this many bytes of it.
    Owned(Buffer, usize),
    /// Nowhere: the header says all that is wanted.
    Header,
}

/// Records that a batch of this size is believed to have without a look at them: rows take memory, and their number
/// must not come from a header alone.
fn records_max(batch: &BatchHeader<'_>) -> usize {
    const RECORD_SIZE_MIN: usize = 7;
    const RATIO_MAX: usize = 1024;
    match batch.codec() {
        Ok(Codec::None) => batch.size_bytes() / RECORD_SIZE_MIN,
        _ => batch.size_bytes().saturating_mul(RATIO_MAX),
    }
}

/// Bytes kept readable behind decompressed records, so that the fast loop takes the last of them too.
const PADDING: [u8; 64] = [0; 64];

#[derive(Debug)]
enum Kind {
    Copy(Rows<CopyColumn>),
    View(Rows<ViewColumn>),
}

/// Runs the same expression on the rows of either kind.
macro_rules! either {
    ($kind:expr, $rows:ident => $result:expr) => {
        match $kind {
            Kind::Copy($rows) => $result,
            Kind::View($rows) => $result,
        }
    };
}

/// Turns record batches into Arrow batches; see the [module](super).
#[derive(Debug)]
pub struct ColumnsDecoder {
    pub(super) options: Arc<ColumnOptions>,
    schema: SchemaRef,
    needs_records: bool,
    /// As `needs_records`, for a batch whose records all have the time that is in its header.
    needs_records_beside_time: bool,
    /// A wrong checksum is a value of a column.
    pub(super) tells_crc: bool,
    /// Byte position in the file of the buffers that batches come from.
    origin: u64,
    kind: Kind,
    pub(super) scratch: Vec<u8>,
}

impl ColumnsDecoder {
    /// A decoder without rows. `batch_rows` is taken as 1 at least, `batch_bytes` as
    /// [`ColumnOptions::BATCH_BYTES_MAX`] at most.
    pub fn new(options: Arc<ColumnOptions>) -> Self {
        let kind = match options.binary_type {
            BinaryType::BinaryView => Kind::View(Rows::new(options.clone())),
            BinaryType::Binary | BinaryType::LargeBinary => Kind::Copy(Rows::new(options.clone())),
        };
        Self {
            schema: options.schema(),
            needs_records: options.columns.iter().any(|(column, _)| column.needs_records()),
            needs_records_beside_time: (options.columns.iter())
                .any(|(column, _)| column.needs_records() && *column != Column::Timestamp),
            tells_crc: options.has(Column::CrcOk),
            origin: 0,
            kind,
            options,
            scratch: Vec::new(),
        }
    }

    /// The schema of every Arrow batch.
    pub fn schema(&self) -> SchemaRef {
        self.schema.clone()
    }

    /// What is decoded.
    pub fn options(&self) -> &Arc<ColumnOptions> {
        &self.options
    }

    /// Leaves out records before another offset from now on; rows that were added stay.
    pub fn set_start_offset(&mut self, start_offset: i64) {
        if start_offset != self.options.start_offset {
            let options = Arc::new(ColumnOptions { start_offset, ..(*self.options).clone() });
            either!(&mut self.kind, rows => rows.options = Arc::clone(&options));
            self.options = options;
        }
    }

    /// Rows since the last [`finish`](Self::finish).
    pub fn rows(&self) -> usize {
        either!(&self.kind, rows => rows.len())
    }

    /// Where the rows end now, to come [`back_to`](Self::back_to).
    pub fn mark(&self) -> RowsMark {
        either!(&self.kind, builder => builder.mark())
    }

    /// Whether a row that was added since `mark` has an offset before `start`, which is not negative. False without a
    /// column of offsets.
    pub fn has_row_before(&self, start: i64, mark: RowsMark) -> bool {
        either!(&self.kind, builder => builder.has_row_before(start, mark))
    }

    /// Drops all rows that were added since `mark` was taken; there was no [`finish`](Self::finish) in between.
    pub fn back_to(&mut self, mark: RowsMark) {
        either!(&mut self.kind, builder => builder.back_to(mark));
    }

    /// Says about how many rows, and bytes of values, will come, so that room for them is made at once.
    pub fn expect(&mut self, rows: usize, bytes: usize) {
        either!(&mut self.kind, builder => builder.expect(rows, bytes));
    }

    /// Says about how many rows will come, each as large as those of the last Arrow batch; `bytes_max` bounds their
    /// values where there was none. It only saves growing step by step.
    pub fn expect_rows(&mut self, rows: usize, bytes_max: usize) {
        either!(&mut self.kind, builder => builder.expect_rows(rows, bytes_max));
    }

    /// Adds the wanted records of `batch` from `cursor` on. `source` is the buffer that the batch was
    /// found in; views keep it alive.
    ///
    /// # Errors
    /// [`Error::Corrupt`](crate::Error::Corrupt) for a wrong checksum, codec, compression or record; the
    /// rows that this call added are gone then, those of batches before are kept.
    pub fn decode(
        &mut self,
        batch: &BatchView<'_>,
        source: &Buffer,
        cursor: &mut BatchCursor,
    ) -> Result<Progress> {
        if cursor.place.is_none() {
            // The header decides nothing before the checksum says that it may.
            if self.options.check_crc && !cursor.crc_ok {
                batch.check()?;
                cursor.crc_ok = true;
            }
            cursor.crc_ok |= !self.tells_crc || batch.check().is_ok();
            if cursor.crc_ok && !self.is_wanted(batch) {
                return Ok(Progress::Done);
            }
            cursor.place = Some(self.start(batch, source, cursor)?);
        }
        let facts = BatchFacts::new(batch, self.origin + batch.position(), cursor.crc_ok);
        let place = cursor.place.take();
        let body = match &place {
            Some(Place::Source(start)) => Body::new(source, *start, batch.body().len()),
            Some(Place::Owned(buffer, size)) => Body::new(buffer, 0, *size),
            Some(Place::Scratch) => Body::without_views(&self.scratch, self.scratch.len() - PADDING.len()),
            Some(Place::Header) | None => {
                let progress = either!(&mut self.kind, rows => rows.add_by_header(&facts, cursor));
                cursor.place = place;
                return Ok(progress);
            }
        };
        let outcome = either!(&mut self.kind, rows => rows.add(&facts, &body, cursor));
        cursor.place = place;
        outcome.map_err(|reason| batch.corrupt(reason))
    }

    /// True when a wrong checksum is a value of a column.
    pub fn tells_crc(&self) -> bool {
        self.tells_crc
    }

    /// True when a column is asked for that headers of batches do not tell.
    pub fn needs_records(&self) -> bool {
        self.needs_records || self.tells_crc
    }

    /// Says where in its file the buffer starts that coming batches are in, for the column of positions.
    pub fn set_origin(&mut self, position: u64) {
        self.origin = position;
    }

    /// Adds the rows of a batch that is at byte `position` of its file when its header, unchecked, says all that is
    /// wanted of it; None when its records are needed. A batch that has no wanted record is done at once.
    pub fn decode_header(
        &mut self,
        header: &BatchHeader<'_>,
        position: u64,
        cursor: &mut BatchCursor,
    ) -> Option<Progress> {
        if cursor.place.is_none() {
            if !self.is_wanted(header) {
                return Some(Progress::Done);
            }
            let count = usize::try_from(header.record_count()).ok()?;
            let filter = self.needs_filter(header);
            if self.tells_crc || header.magic() != MAGIC || !self.is_told_by_header(header, count, filter) {
                return None;
            }
            cursor.place = Some(Place::Header);
        }
        let facts = BatchFacts::new(header, position, cursor.crc_ok);
        Some(either!(&mut self.kind, rows => rows.add_by_header(&facts, cursor)))
    }

    /// The rows so far, in arrays of their own; the decoder has none afterwards.
    pub fn finish(&mut self) -> Result<RecordBatch> {
        let schema = self.schema();
        either!(&mut self.kind, rows => rows.take(schema))
    }

    /// False when no record of the batch can be a row; its bytes are not looked at then.
    pub fn is_wanted(&self, batch: &BatchHeader<'_>) -> bool {
        let options = &self.options;
        let is_append_time = batch.timestamp_type() == TimestampType::LogAppendTime;
        (options.include_control || !batch.is_control())
            && batch.last_offset() >= options.start_offset
            && batch.base_offset() < options.end_offset
            && batch.max_timestamp() >= options.from_timestamp
            && !(is_append_time && options.to_timestamp.is_some_and(|end| batch.max_timestamp() >= end))
    }

    /// True when some records of the batch may have to be left out.
    pub(super) fn needs_filter(&self, batch: &BatchHeader<'_>) -> bool {
        let options = &self.options;
        let by_offset =
            batch.base_offset() < options.start_offset || batch.last_offset() >= options.end_offset;
        let by_time = options.from_timestamp != i64::MIN || options.to_timestamp.is_some();
        by_offset || (by_time && batch.timestamp_type() != TimestampType::LogAppendTime)
    }

    /// True when rows can be made without the records: offsets have no gaps and nothing else is asked for.
    fn is_told_by_header(&self, batch: &BatchHeader<'_>, count: usize, filter: bool) -> bool {
        let contiguous = i64::from(batch.last_offset_delta()) + 1 == count as i64;
        let needs_records = match batch.timestamp_type() {
            TimestampType::LogAppendTime => self.needs_records_beside_time,
            TimestampType::CreateTime | TimestampType::NoTimestamp => self.needs_records,
        };
        count == 0 || (contiguous && !filter && !needs_records && count <= records_max(batch))
    }

    fn start(&mut self, batch: &BatchView<'_>, source: &Buffer, cursor: &mut BatchCursor) -> Result<Place> {
        if batch.magic() != MAGIC {
            return self.start_other_format(batch, cursor);
        }
        let Ok(count) = usize::try_from(batch.record_count()) else {
            return Err(batch.corrupt(format!("record count {}", batch.record_count())));
        };
        cursor.filter = self.needs_filter(batch);
        if self.is_told_by_header(batch, count, cursor.filter) {
            return Ok(Place::Header);
        }
        let body = batch.body();
        let views = matches!(self.kind, Kind::View(_));
        if batch.codec() == Ok(Codec::None) {
            let start = (body.as_ptr() as usize).wrapping_sub(source.as_ptr() as usize);
            let found = source.get(start..).and_then(|rest| rest.get(..body.len()));
            return Ok(match found {
                Some(_) if views && source.len() > i32::MAX as usize => {
                    Place::Owned(source.slice_with_length(start, body.len()), body.len())
                }
                Some(_) => Place::Source(start),
                None => Place::Owned(Buffer::from(body), body.len()),
            });
        }
        batch.uncompressed_body(Bound::default(), &mut self.scratch)?;
        Ok(self.place_of_scratch())
    }

    /// Where the records are that `scratch` holds.
    pub(super) fn place_of_scratch(&mut self) -> Place {
        let size = self.scratch.len();
        self.scratch.extend_from_slice(&PADDING);
        match self.kind {
            Kind::View(_) => {
                // The next batch is likely as large, or a little larger.
                let next = byte_pool::take(self.scratch.len() + self.scratch.len() / 16);
                let bytes = PooledBytes::new(std::mem::replace(&mut self.scratch, next));
                Place::Owned(bytes.into_buffer(), size)
            }
            Kind::Copy(_) => Place::Scratch,
        }
    }
}
