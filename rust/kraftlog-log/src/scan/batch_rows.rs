//! Record batches as rows: what the headers say, for counts, skew and audits without decoding a record.
use super::batch_columns::{BatchColumns, Place, Row};
use super::chunks::Chunks;
use super::options::{OnCorrupt, ScanSource};
use super::pieces::{pieces_of, Piece};
use super::position::{indexed_position_after, position_after, position_before};
use super::report::Report;
use crate::batch::BatchHeader;
use crate::{Error, Result};
use arrow_array::RecordBatch;
use std::collections::VecDeque;
use std::sync::Arc;

/// How often a directory is listed again because a segment in it is gone.
const RELISTS_MAX: usize = 8;

/// How record batches become rows.
#[derive(Debug, Clone)]
pub struct BatchRowsOptions {
    /// Columns and types.
    pub columns: BatchColumns,
    /// Compare checksums, for which every byte is read; else headers are.
    pub check_crc: bool,
    /// Most rows of an Arrow batch, at least 1.
    pub rows_max: usize,
    /// Give only batches that begin in the range of their source, so that of ranges side by side one has each batch;
    /// else those that have an offset in it.
    pub begin_in_range: bool,
    /// What becomes of bytes that are no batch. A wrong checksum is a row like any other.
    pub on_corrupt: OnCorrupt,
}

/// A source that is being read.
#[derive(Debug)]
struct Current {
    source: ScanSource,
    pieces: VecDeque<Piece>,
    /// Offset after the last batch seen: what took the place of a segment may begin before it.
    next_offset: i64,
    relists: usize,
    /// Position of the batch before, when it seems to begin at the end of the source or later.
    beyond: Option<u64>,
}

/// Gives a row for each record batch in the range of its source.
#[derive(Debug)]
pub struct BatchRows {
    options: BatchRowsOptions,
    sources: VecDeque<ScanSource>,
    current: Option<Current>,
    open: Option<(Chunks, Piece)>,
    /// The segment that was opened last: its base offset and path.
    last_segment: (i64, String),
    failure: Option<Error>,
    report: Arc<Report>,
}

impl BatchRows {
    /// A pass over `sources`.
    pub fn new(sources: Vec<ScanSource>, options: BatchRowsOptions) -> Self {
        Self {
            options,
            sources: sources.into(),
            current: None,
            open: None,
            last_segment: (0, String::new()),
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
    /// [`Error::Corrupt`] where bytes are no batch, after the rows before; [`Error::OffsetOutOfRange`] when retention
    /// took a segment away; [`Error::Io`].
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
            let rows = self.read_rows();
            let Some(Current { source, .. }) = &self.current else { continue };
            if rows.is_empty() {
                continue;
            }
            self.report.add_batches(rows.len() as u64, 0);
            self.report.add_rows(rows.len());
            let (segment_base_offset, file) = &self.last_segment;
            let place = Place {
                topic: source.topic.as_deref(),
                partition: source.partition,
                segment_base_offset: *segment_base_offset,
                file,
            };
            return self.options.columns.record_batch(&rows, &place).map(Some);
        }
    }

    /// Rows of the open segment, as many as fit; fewer at its end or before damage.
    fn read_rows(&mut self) -> Vec<Row> {
        let mut rows = Vec::new();
        let (Some(current), Some((chunks, piece))) = (&mut self.current, &mut self.open) else {
            return rows;
        };
        while rows.len() < self.options.rows_max.max(1) {
            let row = match next_row(chunks, piece, self.options.check_crc) {
                Ok(Some(row)) => row,
                Ok(None) => {
                    self.open = None;
                    break;
                }
                Err(error) => {
                    match skip_damage(chunks, piece, error, self.options.on_corrupt, &self.report) {
                        Ok(true) => continue,
                        Ok(false) => {}
                        // The rows before come first.
                        Err(error) => self.failure = Some(error),
                    }
                    self.open = None;
                    break;
                }
            };
            let header = BatchHeader::new(&row.header);
            if header.base_offset() >= current.source.end_offset {
                // Two in a row: one alone may have a wrong base offset, which no checksum covers.
                if current.beyond.replace(row.position).is_some() {
                    self.open = None;
                    current.pieces.clear();
                    break;
                }
                continue;
            }
            if let Some(position) = current.beyond.take() {
                let reason =
                    format!("a base offset from {} on, and less behind it", current.source.end_offset);
                let origin = chunks.path().display().to_string();
                let error = Error::corrupt(position, -1, reason).located(origin, 0);
                if self.options.on_corrupt == OnCorrupt::Raise {
                    self.failure = Some(error);
                    self.open = None;
                    break;
                }
                self.report.add_skipped(error, row.position);
            }
            let begins = header.base_offset() >= current.source.start_offset;
            if (begins || !self.options.begin_in_range)
                && header.last_offset() >= current.source.start_offset
                && (current.relists == 0 || header.last_offset() >= current.next_offset)
            {
                current.next_offset = current.next_offset.max(header.next_offset());
                rows.push(row);
            }
        }
        rows
    }

    fn open_next(&mut self) -> Result<bool> {
        loop {
            if let Some(current) = &mut self.current {
                if let Some(piece) = current.pieces.pop_front() {
                    let start = match current.relists {
                        0 => current.source.start_offset,
                        _ => current.source.start_offset.max(current.next_offset),
                    };
                    let position = position_before(&piece.segment, start);
                    let mut chunks = match Chunks::of(&piece.segment, position, Arc::clone(&self.report)) {
                        Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                            list_again(current, &piece)?;
                            continue;
                        }
                        opened => opened?,
                    };
                    if piece.segment.remote.is_some() {
                        let end_offset = current.source.end_offset;
                        chunks.expect_sequential(match current.pieces.is_empty() && end_offset != i64::MAX {
                            true => position_after(&piece.segment, end_offset),
                            false => u64::MAX,
                        });
                    }
                    if !self.options.check_crc {
                        chunks.expect_headers();
                    }
                    current.beyond = None;
                    self.report.add_segment();
                    self.last_segment = (piece.segment.base_offset, piece.segment.path.display().to_string());
                    self.open = Some((chunks, piece));
                    return Ok(true);
                }
            }
            let Some(source) = self.sources.pop_front() else { return Ok(false) };
            let segments = source.directory.segments()?;
            let pieces = pieces_of(segments, source.start_offset, source.end_offset);
            self.current = Some(Current { source, pieces, next_offset: i64::MIN, relists: 0, beyond: None });
        }
    }
}

/// Finds what has taken the place of a segment that is gone.
fn list_again(current: &mut Current, missing: &Piece) -> Result<()> {
    let wanted = current.next_offset.max(current.source.start_offset).max(missing.segment.base_offset);
    current.relists += 1;
    if current.relists > RELISTS_MAX {
        let error = std::io::Error::from(std::io::ErrorKind::NotFound);
        return Err(Error::io("open", &missing.segment.path, error));
    }
    let segments = current.source.directory.segments()?;
    let start = segments.first().map_or(i64::MAX, |segment| segment.base_offset);
    if start > wanted {
        return Err(Error::OffsetOutOfRange {
            origin: current.source.directory.path().display().to_string(),
            offset: wanted,
            log_start_offset: start,
            log_end_offset: current.source.end_offset,
        });
    }
    current.next_offset = wanted;
    current.pieces = pieces_of(segments, wanted, current.source.end_offset);
    Ok(())
}

/// Steps over bytes that are no batch where that is wanted: true when the segment goes on at a batch that `.index`
/// names. Gives the error back otherwise.
fn skip_damage(
    chunks: &mut Chunks,
    piece: &Piece,
    error: Error,
    on_corrupt: OnCorrupt,
    report: &Report,
) -> Result<bool> {
    if on_corrupt == OnCorrupt::Raise || !matches!(error, Error::Corrupt { .. }) {
        return Err(error);
    }
    let next = indexed_position_after(&piece.segment, chunks.position());
    report.add_skipped(error, next.unwrap_or_else(|| chunks.size_bytes()));
    if let Some(next) = next {
        chunks.go_to(next);
    }
    Ok(next.is_some())
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
            let batch = chunks.current(found)?;
            Ok(Some(Row {
                header: *batch.header().as_bytes(),
                is_crc_valid: check_crc.then(|| batch.validate_crc().is_ok()),
                position: found.position,
            }))
        }
        Ok(None) if !piece.is_last && chunks.position() < chunks.size_bytes() => {
            let left = chunks.size_bytes() - chunks.position();
            let reason = format!("the segment ends within a batch, {left} bytes after this position");
            Err(Error::corrupt(chunks.position(), -1, reason).located(chunks.path().display().to_string(), 0))
        }
        Ok(None) => Ok(None),
        Err(_) if piece.is_last && chunks.is_at_zeros() => Ok(None),
        Err(error) => Err(error),
    }
}
