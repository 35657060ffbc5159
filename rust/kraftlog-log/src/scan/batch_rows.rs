//! Record batches as rows: what the headers say, for counts, skew and audits without decoding a record.
use super::chunks::Chunks;
use super::options::ScanSource;
use super::partition::{pieces_of, Piece};
use super::position::position_before;
use super::report::Report;
use super::segments::list_segments;
use crate::batch::BatchHeader;
use crate::{Error, Result};
use arrow_array::{
    ArrayRef, BooleanArray, Int16Array, Int32Array, Int64Array, Int8Array, RecordBatch, StringArray,
    TimestampMillisecondArray,
};
use arrow_schema::{DataType, Field, Schema, SchemaRef, TimeUnit};
use std::collections::VecDeque;
use std::sync::Arc;

/// The schema of every Arrow batch.
pub fn batch_rows_schema() -> SchemaRef {
    let time = || DataType::Timestamp(TimeUnit::Millisecond, Some("UTC".into()));
    let fields = [
        ("topic", DataType::Utf8),
        ("partition", DataType::Int32),
        ("base_offset", DataType::Int64),
        ("last_offset", DataType::Int64),
        ("record_count", DataType::Int32),
        ("size_bytes", DataType::Int32),
        ("magic", DataType::Int8),
        ("compression", DataType::Utf8),
        ("timestamp_type", DataType::Int32),
        ("base_timestamp", time()),
        ("max_timestamp", time()),
        ("leader_epoch", DataType::Int32),
        ("producer_id", DataType::Int64),
        ("producer_epoch", DataType::Int16),
        ("base_sequence", DataType::Int32),
        ("is_transactional", DataType::Boolean),
        ("is_control", DataType::Boolean),
        ("crc", DataType::Int64),
        ("crc_ok", DataType::Boolean),
        ("segment_base_offset", DataType::Int64),
        ("position", DataType::Int64),
    ];
    Arc::new(Schema::new(fields.map(|(name, kind)| Field::new(name, kind, true)).to_vec()))
}

/// One batch.
#[derive(Debug)]
struct Row {
    header: [u8; crate::batch::HEADER_SIZE],
    is_crc_valid: Option<bool>,
    position: u64,
}

/// Gives a row for each record batch that has an offset in the range of its source.
#[derive(Debug)]
pub struct BatchRows {
    sources: VecDeque<ScanSource>,
    current: Option<(ScanSource, VecDeque<Piece>)>,
    open: Option<(Chunks, Piece)>,
    check_crc: bool,
    rows_max: usize,
    /// Base offset of the segment that was opened last.
    last_base: i64,
    failure: Option<Error>,
    report: Arc<Report>,
}

impl BatchRows {
    /// A pass over `sources`. With `check_crc` every byte is read, else headers are.
    pub fn new(sources: Vec<ScanSource>, check_crc: bool, rows_max: usize) -> Self {
        Self {
            sources: sources.into(),
            current: None,
            open: None,
            check_crc,
            rows_max: rows_max.max(1),
            last_base: 0,
            failure: None,
            report: Arc::default(),
        }
    }

    /// What was read so far.
    pub fn report(&self) -> &Arc<Report> {
        &self.report
    }

    /// The next Arrow batch, of one segment; it has at least one row.
    ///
    /// # Errors
    /// [`Error::Corrupt`] where bytes are no batch, after the rows before; [`Error::Io`].
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        loop {
            if let Some(error) = self.failure.take() {
                self.sources.clear();
                self.current = None;
                return Err(error);
            }
            if self.open.is_none() && !self.open_next()? {
                return Ok(None);
            }
            let Some((source, _)) = &self.current else { continue };
            let Some((chunks, piece)) = &mut self.open else { continue };
            let mut rows = Vec::new();
            while rows.len() < self.rows_max {
                let row = match next_row(chunks, piece, self.check_crc) {
                    Ok(Some(row)) => row,
                    end => {
                        // The rows before come first.
                        self.failure = end.err();
                        self.open = None;
                        break;
                    }
                };
                let header = BatchHeader::new(&row.header);
                if header.base_offset() >= source.end_offset {
                    self.open = None;
                    break;
                }
                if header.last_offset() >= source.start_offset {
                    rows.push(row);
                }
            }
            if rows.is_empty() {
                continue;
            }
            self.report.add_batches(rows.len() as u64, 0);
            self.report.add_rows(rows.len());
            return record_batch(&rows, source, self.last_base).map(Some);
        }
    }

    fn open_next(&mut self) -> Result<bool> {
        loop {
            if let Some((source, pieces)) = &mut self.current {
                if let Some(piece) = pieces.pop_front() {
                    let position = position_before(&piece.segment, source.start_offset);
                    let mut chunks =
                        Chunks::reporting(&piece.segment.path, position, Arc::clone(&self.report))?;
                    if !self.check_crc {
                        chunks.expect_headers();
                    }
                    self.report.add_segment();
                    self.last_base = piece.segment.base_offset;
                    self.open = Some((chunks, piece));
                    return Ok(true);
                }
            }
            let Some(source) = self.sources.pop_front() else { return Ok(false) };
            let segments = list_segments(&source.directory)?;
            let pieces = pieces_of(segments, source.start_offset, source.end_offset);
            self.current = Some((source, pieces));
        }
    }
}

/// The next batch of a segment; None at its end.
fn next_row(chunks: &mut Chunks, piece: &Piece, check_crc: bool) -> Result<Option<Row>> {
    if !check_crc {
        if let Some(ahead) = chunks.peek()? {
            chunks.skip(&ahead);
            let header = *ahead.header().as_bytes();
            return Ok(Some(Row { header, is_crc_valid: None, position: ahead.position }));
        }
    }
    match chunks.next_batch() {
        Ok(Some(found)) => {
            let batch = Chunks::view(chunks.buffer(), found)?;
            Ok(Some(Row {
                header: *batch.header().as_bytes(),
                is_crc_valid: check_crc.then(|| batch.validate_crc().is_ok()),
                position: found.position,
            }))
        }
        Ok(None) => Ok(None),
        Err(_) if piece.is_last && chunks.is_at_zeros() => Ok(None),
        Err(error) => Err(error),
    }
}

fn record_batch(rows: &[Row], source: &ScanSource, segment_base_offset: i64) -> Result<RecordBatch> {
    fn each<'a, T: 'a>(
        rows: &'a [Row],
        value: impl Fn(&BatchHeader<'_>) -> T + 'a,
    ) -> impl Iterator<Item = T> + 'a {
        rows.iter().map(move |row| value(&BatchHeader::new(&row.header)))
    }
    let times = |value: fn(&BatchHeader<'_>) -> i64| -> ArrayRef {
        Arc::new(TimestampMillisecondArray::from_iter_values(each(rows, value)).with_timezone("UTC"))
    };
    let numbers = |value: fn(&BatchHeader<'_>) -> i64| -> ArrayRef {
        Arc::new(Int64Array::from_iter_values(each(rows, value)))
    };
    let small = |value: fn(&BatchHeader<'_>) -> i32| -> ArrayRef {
        Arc::new(Int32Array::from_iter_values(each(rows, value)))
    };
    let flags = |value: fn(&BatchHeader<'_>) -> bool| -> ArrayRef {
        Arc::new(each(rows, value).map(Some).collect::<BooleanArray>())
    };
    let topic = source.topic.as_deref();
    let columns: Vec<ArrayRef> = vec![
        match topic {
            Some(topic) => Arc::new(StringArray::new_repeated(topic, rows.len())),
            None => Arc::new(StringArray::new_null(rows.len())),
        },
        Arc::new(rows.iter().map(|_| source.partition).collect::<Int32Array>()),
        numbers(|header| header.base_offset()),
        numbers(|header| header.last_offset()),
        small(|header| header.record_count()),
        small(|header| i32::try_from(header.size_bytes()).unwrap_or(i32::MAX)),
        Arc::new(Int8Array::from_iter_values(each(rows, |header| header.magic()))),
        Arc::new(
            each(rows, |header| header.codec().ok().map(crate::compression::Codec::name))
                .collect::<StringArray>(),
        ),
        small(|header| header.timestamp_type().id()),
        times(|header| header.base_timestamp()),
        times(|header| header.max_timestamp()),
        small(|header| header.partition_leader_epoch()),
        numbers(|header| header.producer_id()),
        Arc::new(Int16Array::from_iter_values(each(rows, |header| header.producer_epoch()))),
        small(|header| header.base_sequence()),
        flags(|header| header.is_transactional()),
        flags(|header| header.is_control()),
        numbers(|header| i64::from(header.crc())),
        Arc::new(rows.iter().map(|row| row.is_crc_valid).collect::<BooleanArray>()),
        Arc::new(Int64Array::from_value(segment_base_offset, rows.len())),
        Arc::new(Int64Array::from_iter_values(rows.iter().map(|row| row.position as i64))),
    ];
    RecordBatch::try_new(batch_rows_schema(), columns).map_err(|error| Error::Invalid(error.to_string()))
}
