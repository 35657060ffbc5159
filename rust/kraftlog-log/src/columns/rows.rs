//! Rows under construction.
//!
//! A record whose bytes, and some behind them, are readable goes through the [fast loop](super::fast); the
//! last of a buffer, those with headers and those that are not sound go through `record::read_record`.
use super::bytes::ByteColumn;
use super::decode::{BatchCursor, Progress};
use super::headers::HeadersColumn;
use super::lengths::LengthColumn;
use super::options::{Column, ColumnOptions, TimestampUnit};
use crate::batch::{increment_sequence, BatchHeader, TimestampType};
use crate::compression::Codec;
use crate::raw::memory;
use crate::raw::{self, Plain};
use crate::record::{read_record, RawRecord};
use crate::{Error, Result};
use arrow_array::{
    ArrayRef, BooleanArray, Int16Array, Int32Array, Int64Array, RecordBatch, RecordBatchOptions, StringArray,
    TimestampMicrosecondArray, TimestampMillisecondArray,
};
use arrow_buffer::{ArrowNativeType, Buffer, ScalarBuffer};
use arrow_schema::SchemaRef;
use std::sync::Arc;

/// What the rows of a batch have in common.
#[derive(Debug)]
pub(super) struct BatchFacts {
    pub(super) count: usize,
    pub(super) base_offset: i64,
    pub(super) base_timestamp: i64,
    pub(super) log_append_time: Option<i64>,
    timestamp_type: i32,
    leader_epoch: i32,
    producer_id: i64,
    producer_epoch: i16,
    is_transactional: bool,
    is_control: bool,
    base_sequence: i32,
    codec: Option<Codec>,
    position: u64,
    crc_ok: bool,
}

impl BatchFacts {
    /// `position`: byte position in the file; `crc_ok`: the checksum is right, as far as it was wanted.
    pub(super) fn new(batch: &BatchHeader<'_>, position: u64, crc_ok: bool) -> Self {
        Self {
            count: usize::try_from(batch.record_count()).unwrap_or(0),
            base_offset: batch.base_offset(),
            base_timestamp: batch.base_timestamp(),
            log_append_time: (batch.timestamp_type() == TimestampType::LogAppendTime)
                .then(|| batch.max_timestamp()),
            timestamp_type: batch.timestamp_type().id(),
            leader_epoch: batch.partition_leader_epoch(),
            producer_id: batch.producer_id(),
            producer_epoch: batch.producer_epoch(),
            is_transactional: batch.is_transactional(),
            is_control: batch.is_control(),
            base_sequence: batch.base_sequence(),
            codec: batch.codec().ok(),
            position,
            crc_ok,
        }
    }
}

impl BatchFacts {
    /// What to add to a timestamp delta, and which of its bits to take: none when the batch's own time counts.
    #[inline(always)]
    pub(super) fn timestamps(&self) -> (i64, i64) {
        match self.log_append_time {
            None => (self.base_timestamp, -1),
            Some(time) => (time, 0),
        }
    }
}

/// The uncompressed records of a batch.
#[derive(Debug)]
pub(super) struct Body<'a> {
    /// From the first record on, as far as bytes can be read.
    pub(super) readable: &'a [u8],
    /// Where the records end in `readable`.
    pub(super) size: usize,
    /// The buffer for views, and where `readable` starts in it.
    views: Option<(&'a Buffer, usize)>,
}

impl<'a> Body<'a> {
    pub(super) fn new(buffer: &'a Buffer, start: usize, size: usize) -> Self {
        let readable = buffer.get(start..).unwrap_or_default();
        Self { readable, size: size.min(readable.len()), views: Some((buffer, start)) }
    }

    pub(super) fn without_views(bytes: &'a [u8], size: usize) -> Self {
        Self { readable: bytes, size: size.min(bytes.len()), views: None }
    }
}

/// Why the fast loop returned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Stop {
    /// The next record is not for this loop, or there is none.
    Other,
    /// No more rows fit.
    Full,
}

/// Where rows ended at some moment.
#[derive(Debug, Clone, Copy)]
pub struct RowsMark {
    rows: usize,
    used_bytes: usize,
}

/// Rows of one Arrow batch so far.
#[derive(Debug)]
pub(super) struct Rows<B> {
    pub(super) options: Arc<ColumnOptions>,
    pub(super) rows: usize,
    /// Bytes of keys, values and headers in them.
    pub(super) used_bytes: usize,
    pub(super) keys: Option<B>,
    pub(super) values: Option<B>,
    pub(super) headers: Option<HeadersColumn>,
    pub(super) offsets: Option<memory::Column<i64>>,
    pub(super) timestamps: Option<memory::Column<i64>>,
    timestamp_types: Option<memory::Column<i32>>,
    leader_epochs: Option<Vec<i32>>,
    producer_ids: Option<Vec<i64>>,
    producer_epochs: Option<Vec<i16>>,
    transactional: Option<Vec<bool>>,
    control: Option<Vec<bool>>,
    pub(super) key_lengths: Option<LengthColumn>,
    pub(super) value_lengths: Option<LengthColumn>,
    sequences: Option<Vec<i32>>,
    codecs: Option<Vec<Option<Codec>>>,
    base_offsets: Option<Vec<i64>>,
    positions: Option<Vec<i64>>,
    crc_ok: Option<Vec<bool>>,
    /// Columns that have one value, as long as they were wanted so far: Arrow batches share them.
    topics: Option<ArrayRef>,
    partitions: Option<ArrayRef>,
    /// Rows of the last Arrow batch, and the bytes of their keys and values.
    last_sizes: Option<(usize, usize, usize)>,
}

impl<B: ByteColumn> Rows<B> {
    pub(super) fn new(options: Arc<ColumnOptions>) -> Self {
        fn wanted<T: Default>(options: &ColumnOptions, column: Column) -> Option<T> {
            options.has(column).then(T::default)
        }
        Self {
            rows: 0,
            used_bytes: 0,
            keys: wanted(&options, Column::Key),
            values: wanted(&options, Column::Value),
            headers: options.has(Column::Headers).then(|| HeadersColumn::new(options.empty_headers_null)),
            // Sequences are told from offsets.
            offsets: (options.has(Column::Offset) || options.has(Column::Sequence))
                .then(memory::Column::default),
            timestamps: wanted(&options, Column::Timestamp),
            timestamp_types: wanted(&options, Column::TimestampType),
            leader_epochs: wanted(&options, Column::LeaderEpoch),
            producer_ids: wanted(&options, Column::ProducerId),
            producer_epochs: wanted(&options, Column::ProducerEpoch),
            transactional: wanted(&options, Column::IsTransactional),
            control: wanted(&options, Column::IsControl),
            key_lengths: wanted(&options, Column::KeyLength),
            value_lengths: wanted(&options, Column::ValueLength),
            sequences: wanted(&options, Column::Sequence),
            codecs: wanted(&options, Column::Compression),
            base_offsets: wanted(&options, Column::BatchBaseOffset),
            positions: wanted(&options, Column::BatchPosition),
            crc_ok: wanted(&options, Column::CrcOk),
            topics: None,
            partitions: None,
            last_sizes: None,
            options,
        }
    }

    pub(super) fn len(&self) -> usize {
        self.rows
    }

    /// Says about how many rows, and bytes of values, will come.
    pub(super) fn expect(&mut self, rows: usize, bytes: usize) {
        let rows = rows.min(self.options.batch_rows);
        for (column, bytes) in [(&mut self.keys, 0), (&mut self.values, bytes)] {
            if let Some(column) = column {
                column.expect(rows, bytes.min(self.options.batch_bytes));
            }
        }
        for column in [&mut self.offsets, &mut self.timestamps].into_iter().flatten() {
            column.expect(rows);
        }
    }

    /// Says about how many rows will come, and at most how many bytes of values where nothing is known of them yet. Later
    /// rows are believed to be as large as those of the last Arrow batch.
    pub(super) fn expect_rows(&mut self, rows: usize, bytes_max: usize) {
        let rows = rows.min(self.options.batch_rows);
        let (last_rows, key_bytes, value_bytes) = self.last_sizes.unwrap_or((1, 0, bytes_max / rows.max(1)));
        // A little more, as a column that has to grow copies what it holds.
        let of_rows = |bytes: usize| bytes.saturating_mul(rows + rows / 32) / last_rows.max(1);
        self.expect(rows + 1, of_rows(value_bytes));
        if let Some(keys) = &mut self.keys {
            keys.expect(rows, of_rows(key_bytes).min(self.options.batch_bytes));
        }
        if let Some(types) = &mut self.timestamp_types {
            types.expect(rows);
        }
    }

    pub(super) fn rows_max(&self) -> usize {
        self.options.batch_rows.max(1)
    }

    pub(super) fn bytes_left(&self) -> usize {
        self.options.batch_bytes.min(ColumnOptions::BATCH_BYTES_MAX).saturating_sub(self.used_bytes)
    }

    pub(super) fn timestamp_factor(&self) -> i64 {
        match self.options.timestamp_unit {
            TimestampUnit::Millisecond => 1,
            TimestampUnit::Microsecond => 1000,
        }
    }

    /// Adds rows for a batch whose header says it all: offsets without gaps, nothing from the records.
    pub(super) fn add_by_header(&mut self, facts: &BatchFacts, cursor: &mut BatchCursor) -> Progress {
        let factor = self.timestamp_factor();
        let added = facts.count.saturating_sub(cursor.read).min(self.rows_max().saturating_sub(self.rows));
        if let Some(offsets) = &mut self.offsets {
            let first = facts.base_offset.wrapping_add(cursor.read as i64);
            offsets.reserve(added);
            for delta in 0..added as i64 {
                offsets.push(first.wrapping_add(delta));
            }
        }
        if let (Some(timestamps), Some(time)) = (&mut self.timestamps, facts.log_append_time) {
            timestamps.fill_to(self.rows + added, time.saturating_mul(factor));
        }
        cursor.read += added;
        self.rows += added;
        self.fill(facts);
        if cursor.read < facts.count {
            Progress::Full
        } else {
            Progress::Done
        }
    }

    /// Adds the rows of `body` from `cursor` on; on a defect, rows added here are dropped again.
    pub(super) fn add(
        &mut self,
        facts: &BatchFacts,
        body: &Body<'_>,
        cursor: &mut BatchCursor,
    ) -> Result<Progress, String> {
        let (mark, used_bytes) = (self.rows, self.used_bytes);
        if let Some((buffer, _)) = body.views {
            for column in [&mut self.keys, &mut self.values].into_iter().flatten() {
                column.set_source(buffer);
            }
        }
        let outcome = self.add_records(facts, body, cursor);
        match outcome {
            Ok(_) => self.fill(facts),
            Err(_) => {
                self.truncate(mark);
                self.used_bytes = used_bytes;
            }
        }
        outcome
    }

    fn add_records(
        &mut self,
        facts: &BatchFacts,
        body: &Body<'_>,
        cursor: &mut BatchCursor,
    ) -> Result<Progress, String> {
        while cursor.read < facts.count {
            let stop = self.run(facts, body, cursor);
            if let Some(headers) = &mut self.headers {
                headers.fill_to(self.rows);
            }
            if cursor.read >= facts.count {
                break;
            }
            if stop == Stop::Full || !self.add_one(facts, body, cursor)? {
                return Ok(Progress::Full);
            }
        }
        let rest = body.size.saturating_sub(cursor.position);
        if rest > 0 {
            return Err(format!("{rest} bytes follow the last of {} records", facts.count));
        }
        Ok(Progress::Done)
    }

    pub(super) fn is_row(&self, offset: i64, timestamp: i64) -> bool {
        let options = &self.options;
        offset >= options.start_offset
            && offset < options.end_offset
            && timestamp >= options.from_timestamp
            && options.to_timestamp.is_none_or(|end| timestamp < end)
    }

    /// One record of any kind; false when the Arrow batch has no room for it.
    #[inline(never)]
    fn add_one(
        &mut self,
        facts: &BatchFacts,
        body: &Body<'_>,
        cursor: &mut BatchCursor,
    ) -> Result<bool, String> {
        let whole = body.readable.get(..body.size).unwrap_or_default();
        let bytes = whole.get(cursor.position..).unwrap_or_default();
        let (record, rest) =
            read_record(bytes).map_err(|defect| format!("record {}: {defect}", cursor.read))?;
        let size = bytes.len() - rest.len();
        let offset = facts.base_offset.wrapping_add(i64::from(record.offset_delta));
        let timestamp = match facts.log_append_time {
            None => facts.base_timestamp.wrapping_add(record.timestamp_delta),
            Some(time) => time,
        };
        if !cursor.filter || self.is_row(offset, timestamp) {
            if self.rows > 0 && (self.rows >= self.rows_max() || size > self.bytes_left()) {
                return Ok(false);
            }
            if !self.push_record(&record, offset, timestamp) {
                return Err(format!("record {}: {size} bytes do not fit into an Arrow column", cursor.read));
            }
        }
        cursor.position += size;
        cursor.read += 1;
        Ok(true)
    }

    fn push_record(&mut self, record: &RawRecord<'_>, offset: i64, timestamp: i64) -> bool {
        let factor = self.timestamp_factor();
        let mut fits = true;
        for (column, bytes) in [(&mut self.keys, record.key), (&mut self.values, record.value)] {
            match (column, bytes) {
                (Some(column), Some(bytes)) => {
                    self.used_bytes += bytes.len();
                    fits &= column.push(bytes);
                }
                (Some(column), None) => column.push_null(),
                (None, _) => {}
            }
        }
        for (column, bytes) in [(&mut self.key_lengths, record.key), (&mut self.value_lengths, record.value)]
        {
            if let Some(column) = column {
                column.push(bytes.map(<[u8]>::len));
            }
        }
        if let Some(headers) = &mut self.headers {
            self.used_bytes += record.headers.as_bytes().len();
            fits &= headers.push(record.headers);
        }
        if let Some(offsets) = &mut self.offsets {
            offsets.push(offset);
        }
        if let Some(timestamps) = &mut self.timestamps {
            timestamps.push(timestamp.saturating_mul(factor));
        }
        self.rows += 1;
        fits
    }

    /// Gives the rows since the last call what their batch has in common.
    fn fill(&mut self, facts: &BatchFacts) {
        fn to<T: Clone>(column: &mut Option<Vec<T>>, rows: usize, value: T) {
            if let Some(column) = column {
                column.resize(rows, value);
            }
        }
        if let Some(types) = &mut self.timestamp_types {
            types.fill_to(self.rows, facts.timestamp_type);
        }
        to(&mut self.leader_epochs, self.rows, facts.leader_epoch);
        to(&mut self.producer_ids, self.rows, facts.producer_id);
        to(&mut self.producer_epochs, self.rows, facts.producer_epoch);
        to(&mut self.transactional, self.rows, facts.is_transactional);
        to(&mut self.control, self.rows, facts.is_control);
        to(&mut self.codecs, self.rows, facts.codec);
        to(&mut self.base_offsets, self.rows, facts.base_offset);
        to(&mut self.crc_ok, self.rows, facts.crc_ok);
        to(&mut self.positions, self.rows, i64::try_from(facts.position).unwrap_or(i64::MAX));
        if let (Some(sequences), Some(offsets)) = (&mut self.sequences, &self.offsets) {
            let new = offsets.as_slice().get(sequences.len()..).unwrap_or_default();
            sequences.extend(new.iter().map(|offset| {
                increment_sequence(facts.base_sequence, offset.wrapping_sub(facts.base_offset) as i32)
            }));
        }
    }

    /// Drops all rows after the first `rows`, whose common parts are filled already.
    pub(super) fn truncate(&mut self, rows: usize) {
        for column in [&mut self.keys, &mut self.values].into_iter().flatten() {
            column.truncate(rows);
        }
        for column in [&mut self.offsets, &mut self.timestamps].into_iter().flatten() {
            column.truncate(rows);
        }
        for column in [&mut self.key_lengths, &mut self.value_lengths].into_iter().flatten() {
            column.truncate(rows);
        }
        if let Some(headers) = &mut self.headers {
            headers.truncate(rows);
        }
        self.rows = rows;
    }

    /// Where the rows end now.
    pub(super) fn mark(&self) -> RowsMark {
        RowsMark { rows: self.rows, used_bytes: self.used_bytes }
    }

    /// Whether a row that was added since has an offset before `start`, which is not negative.
    pub(super) fn has_row_before(&self, start: i64, mark: RowsMark) -> bool {
        let offsets = self.offsets.as_ref().map(memory::Column::as_slice).unwrap_or_default();
        let new = offsets.get(mark.rows..).unwrap_or_default();
        // The sign says it, without a branch per row: of the offset itself, or of how far it is behind the start.
        new.iter().fold(0, |signs, offset| signs | *offset | offset.wrapping_sub(start)) < 0
    }

    /// Drops whole batches of rows that were added since.
    pub(super) fn back_to(&mut self, mark: RowsMark) {
        fn cut<T>(column: &mut Option<Vec<T>>, rows: usize) {
            if let Some(column) = column {
                column.truncate(rows);
            }
        }
        let rows = mark.rows.min(self.rows);
        self.truncate(rows);
        self.used_bytes = mark.used_bytes;
        if let Some(types) = &mut self.timestamp_types {
            types.truncate(rows);
        }
        cut(&mut self.leader_epochs, rows);
        cut(&mut self.producer_ids, rows);
        cut(&mut self.producer_epochs, rows);
        cut(&mut self.transactional, rows);
        cut(&mut self.control, rows);
        cut(&mut self.codecs, rows);
        cut(&mut self.base_offsets, rows);
        cut(&mut self.positions, rows);
        cut(&mut self.sequences, rows);
    }

    /// The rows as an Arrow batch; there are none afterwards.
    pub(super) fn take(&mut self, schema: SchemaRef) -> Result<RecordBatch> {
        let count = std::mem::take(&mut self.rows);
        self.used_bytes = 0;
        let bytes_of = |column: &Option<B>| column.as_ref().map_or(0, ByteColumn::byte_count);
        self.last_sizes = (count > 0).then(|| (count, bytes_of(&self.keys), bytes_of(&self.values)));
        let options = self.options.clone();
        let columns = options.columns.iter().map(|(column, _)| self.take_column(*column, count)).collect();
        if !options.has(Column::Offset) {
            self.offsets = self.offsets.is_some().then(memory::Column::default);
        }
        let row_count = RecordBatchOptions::new().with_row_count(Some(count));
        RecordBatch::try_new_with_options(schema, columns, &row_count)
            .map_err(|error| Error::Invalid(error.to_string()))
    }

    fn take_column(&mut self, column: Column, count: usize) -> ArrayRef {
        fn scalars<T>(column: &mut Option<Vec<T>>) -> Vec<T> {
            column.as_mut().map(std::mem::take).unwrap_or_default()
        }
        fn pooled<T: Plain + ArrowNativeType>(
            column: &mut Option<memory::Column<T>>,
            rows: usize,
        ) -> ScalarBuffer<T> {
            let buffer =
                column.as_mut().map_or_else(|| Buffer::from_vec(Vec::<T>::new()), memory::Column::take);
            ScalarBuffer::new(buffer, 0, rows)
        }
        fn bytes<B: ByteColumn>(column: &mut Option<B>, options: &ColumnOptions) -> ArrayRef {
            column.as_mut().unwrap_or(&mut B::default()).take(options.binary_type)
        }
        match column {
            Column::Key => bytes(&mut self.keys, &self.options),
            Column::Value => bytes(&mut self.values, &self.options),
            Column::Topic => {
                let (topic, is_dictionary) = (self.options.topic.as_deref(), self.options.topic_dictionary);
                shared(&mut self.topics, count, |count| topics(topic, is_dictionary, count))
            }
            Column::Partition => {
                let partition = self.options.partition;
                shared(&mut self.partitions, count, |count| match partition {
                    Some(partition) => Arc::new(Int32Array::from_value(partition, count)),
                    None => Arc::new(Int32Array::new_null(count)),
                })
            }
            Column::Offset => Arc::new(Int64Array::new(pooled(&mut self.offsets, count), None)),
            Column::Timestamp => {
                let values = pooled(&mut self.timestamps, count);
                match self.options.timestamp_unit {
                    TimestampUnit::Millisecond => {
                        Arc::new(TimestampMillisecondArray::new(values, None).with_timezone("UTC"))
                    }
                    TimestampUnit::Microsecond => {
                        Arc::new(TimestampMicrosecondArray::new(values, None).with_timezone("UTC"))
                    }
                }
            }
            Column::TimestampType => {
                Arc::new(Int32Array::new(pooled(&mut self.timestamp_types, count), None))
            }
            Column::Headers => {
                let mut none = HeadersColumn::new(self.options.empty_headers_null);
                self.headers.as_mut().unwrap_or(&mut none).take()
            }
            Column::LeaderEpoch => Arc::new(Int32Array::from(scalars(&mut self.leader_epochs))),
            Column::ProducerId => Arc::new(Int64Array::from(scalars(&mut self.producer_ids))),
            Column::ProducerEpoch => Arc::new(Int16Array::from(scalars(&mut self.producer_epochs))),
            Column::IsTransactional => Arc::new(BooleanArray::from(scalars(&mut self.transactional))),
            Column::IsControl => Arc::new(BooleanArray::from(scalars(&mut self.control))),
            Column::KeyLength => {
                self.key_lengths.as_mut().map_or_else(LengthColumn::none, LengthColumn::take)
            }
            Column::ValueLength => {
                self.value_lengths.as_mut().map_or_else(LengthColumn::none, LengthColumn::take)
            }
            Column::Sequence => Arc::new(Int32Array::from(scalars(&mut self.sequences))),
            Column::Compression => Arc::new(StringArray::from_iter(
                scalars(&mut self.codecs).into_iter().map(|codec| codec.map(Codec::name)),
            )),
            Column::BatchBaseOffset => Arc::new(Int64Array::from(scalars(&mut self.base_offsets))),
            Column::BatchPosition => Arc::new(Int64Array::from(scalars(&mut self.positions))),
            Column::CrcOk => Arc::new(BooleanArray::from(scalars(&mut self.crc_ok))),
        }
    }
}

/// The first `count` rows of a column of one value, which `make` makes when it is not long enough yet.
fn shared(made: &mut Option<ArrayRef>, count: usize, make: impl FnOnce(usize) -> ArrayRef) -> ArrayRef {
    match made {
        Some(column) if column.len() >= count => column.slice(0, count),
        _ => Arc::clone(made.insert(make(count))),
    }
}

fn topics(topic: Option<&str>, is_dictionary: bool, count: usize) -> ArrayRef {
    if is_dictionary {
        return raw::one_name(topic, count);
    }
    match topic {
        Some(topic) => Arc::new(StringArray::new_repeated(topic, count)),
        None => Arc::new(StringArray::new_null(count)),
    }
}
