//! Records of one partition in a Fetch response, as a consumer reads them.
//!
//! Kafka's `CompletedFetch` in columns: batches before the fetch offset are left out, markers and aborted transactions
//! too, and the position moves over all of them. A batch that does not follow the one before is an error, where Kafka's
//! consumer leaves its records out. No field of a header decides before the checksum of its batch is right.
use crate::batch::{next_batch, BatchView};
use crate::columns::{BatchCursor, Column, ColumnOptions, ColumnsDecoder, Progress};
use crate::{Error, Result};
use arrow_array::cast::AsArray;
use arrow_array::types::Int64Type;
use arrow_array::RecordBatch;
use arrow_buffer::Buffer;
use std::collections::HashSet;
use std::sync::Arc;

/// Value of the type field in the key of a marker that ends a transaction without its records.
const ABORT: i16 = 0;

/// A transaction that was aborted, as a Fetch response names it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Aborted {
    /// The producer.
    pub producer_id: i64,
    /// Offset of the first record of the transaction.
    pub first_offset: i64,
}

/// The answer for one partition: gives Arrow batches until its bytes are used up.
#[derive(Debug)]
pub struct FetchedRecords {
    data: Buffer,
    /// Byte position of the batch that is read next, or of the one that `cursor` is in.
    position: usize,
    cursor: Option<BatchCursor>,
    decoder: ColumnsDecoder,
    check_crc: bool,
    /// Index of the offset column; the last column when the caller did not ask for it.
    offset_column: usize,
    wanted_columns: usize,
    fetch_offset: i64,
    next_offset: i64,
    /// Behind the last batch that was left.
    batch_end: i64,
    last_epoch: i32,
    /// By falling first offset, so that the next one is at the end.
    aborted: Option<Vec<Aborted>>,
    aborted_producers: HashSet<i64>,
    failure: Option<Error>,
    scratch: Vec<u8>,
    density: Density,
}

/// Records and bytes of a batch.
#[derive(Debug, Default, Clone, Copy)]
struct Density {
    records: usize,
    bytes: usize,
}

impl Density {
    fn of(batch: &BatchView<'_>) -> Self {
        Self { records: usize::try_from(batch.record_count()).unwrap_or(0), bytes: batch.bytes().len() }
    }

    /// About how many records are in so many bytes of such batches.
    fn records_in(self, bytes: usize) -> usize {
        self.records.saturating_mul(bytes) / self.bytes.max(1)
    }
}

impl FetchedRecords {
    /// The records in `data` from `fetch_offset` on. `aborted` is None for read_uncommitted.
    ///
    /// `start_offset` and `include_control` of `options` are set here.
    pub fn new(
        data: Buffer,
        fetch_offset: i64,
        aborted: Option<Vec<Aborted>>,
        mut options: ColumnOptions,
    ) -> Self {
        let wanted_columns = options.columns.len();
        let found = options.columns.iter().position(|(column, _)| *column == Column::Offset);
        let offset_column = found.unwrap_or_else(|| {
            options.columns.push((Column::Offset, Column::Offset.name().to_owned()));
            wanted_columns
        });
        options.start_offset = fetch_offset;
        options.include_control = false;
        let check_crc = options.check_crc;
        let mut records = Self {
            data: Buffer::from_vec(Vec::<u8>::new()),
            position: 0,
            cursor: None,
            decoder: ColumnsDecoder::new(Arc::new(options)),
            check_crc,
            offset_column,
            wanted_columns,
            fetch_offset,
            next_offset: fetch_offset,
            batch_end: i64::MIN,
            last_epoch: -1,
            aborted: None,
            aborted_producers: HashSet::new(),
            failure: None,
            scratch: Vec::new(),
            density: Density::default(),
        };
        records.restart(data, fetch_offset, aborted);
        records
    }

    /// Begins with another answer of the same partition. What the decoder learned of its rows stays, such as how
    /// much memory they take, so that columns do not grow step by step again.
    pub fn restart(&mut self, data: Buffer, fetch_offset: i64, aborted: Option<Vec<Aborted>>) {
        self.decoder.set_start_offset(fetch_offset);
        self.data = data;
        (self.position, self.cursor) = (0, None);
        (self.fetch_offset, self.next_offset, self.last_epoch) = (fetch_offset, fetch_offset, -1);
        self.aborted = aborted.map(|mut aborted| {
            aborted.sort_by_key(|transaction| std::cmp::Reverse(transaction.first_offset));
            aborted
        });
        self.aborted_producers.clear();
        self.batch_end = i64::MIN;
        self.failure = None;
    }

    /// Offset of the record that a consumer reads next: after the rows given so far, and the batches left out.
    pub fn next_offset(&self) -> i64 {
        self.next_offset
    }

    /// Partition leader epoch of the last batch read, -1 when it has none or no batch was read.
    pub fn last_epoch(&self) -> i32 {
        self.last_epoch
    }

    /// Whether all rows were given, so that no call will find more or fail.
    pub fn is_finished(&self) -> bool {
        let has_rest = || !matches!(next_batch(&self.data, self.position), Ok(None));
        self.failure.is_none() && self.cursor.is_none() && self.next_offset > self.fetch_offset && !has_rest()
    }

    /// The next rows, at most as many as the options allow; None when all are given.
    ///
    /// # Errors
    /// [`Error::Corrupt`] for a batch that cannot be read. The rows before it were given by earlier calls,
    /// [`next_offset`](Self::next_offset) stays at its first record, and each later call fails in the same way.
    pub fn next_rows(&mut self) -> Result<Option<RecordBatch>> {
        if let Some(failure) = &self.failure {
            return Err(copy_of(failure));
        }
        let outcome = self.fill();
        let rows = self.decoder.rows();
        if let Err(error) = outcome {
            self.failure = Some(copy_of(&error));
            if rows == 0 {
                return Err(error);
            }
        }
        if rows == 0 {
            return Ok(None);
        }
        let batch = self.decoder.finish()?;
        if self.cursor.is_some() {
            let offsets = batch.column(self.offset_column).as_primitive::<Int64Type>().values();
            let after = offsets.last().map_or(i64::MIN, |last| last.saturating_add(1));
            self.next_offset = self.next_offset.max(after);
        }
        if batch.num_columns() == self.wanted_columns {
            return Ok(Some(batch));
        }
        let wanted: Vec<usize> = (0..self.wanted_columns).collect();
        batch.project(&wanted).map(Some).map_err(|error| Error::Invalid(error.to_string()))
    }

    /// Decodes until the Arrow batch is full or the bytes are used up.
    fn fill(&mut self) -> Result<()> {
        let data = self.data.clone();
        loop {
            let Some(batch) = next_batch(&data, self.position)? else { return self.check_end() };
            let mut cursor = match self.cursor.take() {
                Some(cursor) => {
                    self.expect(&data);
                    cursor
                }
                None => {
                    if self.check_crc {
                        batch.check()?;
                    }
                    self.check_order(&batch)?;
                    self.last_epoch = batch.partition_leader_epoch();
                    if self.is_left_out(&batch)? {
                        self.leave(&batch);
                        continue;
                    }
                    self.density = Density::of(&batch);
                    self.expect(&data);
                    if self.check_crc {
                        BatchCursor::checked()
                    } else {
                        BatchCursor::default()
                    }
                }
            };
            let mark = self.decoder.mark();
            let progress = self.decoder.decode(&batch, &data, &mut cursor)?;
            // A batch after the fetch offset is not filtered, but a record may claim an offset before its batch.
            if self.decoder.has_row_before(self.fetch_offset.max(0), mark) {
                self.decoder.back_to(mark);
                return Err(
                    batch.corrupt(format!("a record lies before the fetch offset {}", self.fetch_offset))
                );
            }
            match progress {
                Progress::Done => self.leave(&batch),
                Progress::Full => {
                    self.cursor = Some(cursor);
                    return Ok(());
                }
            }
        }
    }

    /// Batches ascend. A write that went to the wrong place of a segment leaves whole ones of other offsets there: their
    /// rows would be given twice, and what they lie upon would be missing without an error.
    fn check_order(&self, batch: &BatchView<'_>) -> Result<()> {
        if batch.base_offset() < self.batch_end {
            let last = self.batch_end - 1;
            return Err(
                batch.corrupt(format!("a batch of an earlier offset follows one that ends at offset {last}"))
            );
        }
        // After a gap, which compaction leaves too, the next batch shows whether this one belongs here.
        if batch.base_offset() <= self.batch_end.max(self.fetch_offset) {
            return Ok(());
        }
        match next_batch(&self.data, self.position + batch.bytes().len()) {
            Ok(Some(next)) if next.base_offset() <= batch.last_offset() && next.check().is_ok() => {
                let begin = next.base_offset();
                Err(batch.corrupt(format!("the batch follows a gap, and one of offset {begin} follows it")))
            }
            _ => Ok(()),
        }
    }

    /// Makes room for the rows of all bytes from the position on, before the first of them, if they are like those of the
    /// batch there, whose checksum is right.
    fn expect(&mut self, data: &Buffer) {
        let bytes_left = data.len().saturating_sub(self.position);
        if self.decoder.rows() == 0 {
            self.decoder.expect_rows(self.density.records_in(bytes_left), bytes_left);
        }
    }

    fn leave(&mut self, batch: &BatchView<'_>) {
        self.position += batch.bytes().len();
        self.batch_end = batch.last_offset().saturating_add(1);
        self.next_offset = self.next_offset.max(self.batch_end);
    }

    /// Whole batches have to bring the position forward: an answer without any would be asked for again and again.
    fn check_end(&self) -> Result<()> {
        if self.data.is_empty() || self.next_offset > self.fetch_offset {
            return Ok(());
        }
        let reason = if self.position == 0 {
            format!("{} bytes do not hold one whole batch", self.data.len())
        } else {
            format!("no batch reaches the fetch offset {}", self.fetch_offset)
        };
        Err(Error::corrupt(self.position as u64, -1, reason))
    }

    /// True for a batch of an aborted transaction; a marker of one ends it.
    fn is_left_out(&mut self, batch: &BatchView<'_>) -> Result<bool> {
        let Some(aborted) = &mut self.aborted else { return Ok(false) };
        if !batch.has_producer_id() {
            return Ok(false);
        }
        while aborted.last().is_some_and(|transaction| transaction.first_offset <= batch.last_offset()) {
            if let Some(transaction) = aborted.pop() {
                self.aborted_producers.insert(transaction.producer_id);
            }
        }
        if batch.is_control() {
            if marker_type(batch, &mut self.scratch)? == Some(ABORT) {
                self.aborted_producers.remove(&batch.producer_id());
            }
            return Ok(false);
        }
        Ok(batch.is_transactional() && self.aborted_producers.contains(&batch.producer_id()))
    }
}

/// The type in the key of the first record of a control batch.
fn marker_type(batch: &BatchView<'_>, scratch: &mut Vec<u8>) -> Result<Option<i16>> {
    let Some(record) = batch.records(scratch)?.next() else { return Ok(None) };
    let key = record?.key.unwrap_or_default();
    let bytes = key.get(2..4).and_then(<[u8]>::first_chunk);
    Ok(bytes.map(|bytes| i16::from_be_bytes(*bytes)))
}

fn copy_of(error: &Error) -> Error {
    match error {
        Error::Corrupt { position, base_offset, reason, .. } => {
            Error::corrupt(*position, *base_offset, reason.clone())
        }
        other => Error::Invalid(other.to_string()),
    }
}

#[cfg(test)]
mod tests;
