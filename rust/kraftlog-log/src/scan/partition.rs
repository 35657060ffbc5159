//! The records of one partition as Arrow batches.
use super::aborted::AbortedRanges;
use super::checked::unfinished;
use super::chunks::{Chunks, FoundBatch, HeaderAhead};
use super::listing::{list_segments, log_end_offset, Directory};
use super::options::{IsolationLevel, OnCorrupt, Pass, ScanOptions, ScanSource};
use super::pieces::{open_at, pieces_of, Piece};
use super::position::indexed_position_after;
use super::report::Report;
use super::resync::{resume, DamageEnd};
use super::segments::SegmentFile;
use super::transactions::Transactions;
use crate::batch::BatchHeader;
use crate::columns::{BatchCursor, ColumnOptions, ColumnsDecoder, Progress};
use crate::offset_order::OffsetOrder;
use crate::{Error, Result};
use arrow_array::RecordBatch;
use std::collections::VecDeque;
use std::sync::Arc;

/// Most times that a directory is listed again for one missing segment.
const RELISTS_MAX: usize = 5;

/// A batch that did not fit into the last Arrow batch.
#[derive(Debug)]
enum Unfinished {
    Batch(FoundBatch, BatchCursor),
    Header(HeaderAhead, BatchCursor),
}

/// The segment that is being read.
#[derive(Debug)]
struct Open {
    chunks: Chunks,
    piece: Piece,
    /// Batches up to this offset were read from another segment.
    resume_offset: i64,
    /// The offsets that the next batch may have.
    order: OffsetOrder,
}

/// Gives Arrow batches of the records of a partition, by rising offset.
///
/// After an error the scan is over; rows read before it are given first. What the directory held when the scan
/// began is read. A segment that is gone when its turn comes is looked for again: what compaction has put in its
/// place is read instead, and where retention has deleted it the scan ends with [`Error::OffsetOutOfRange`].
#[derive(Debug)]
pub struct PartitionScan {
    directory: Directory,
    pass: Pass,
    decoder: ColumnsDecoder,
    aborted: Option<Arc<AbortedRanges>>,
    pieces: VecDeque<Piece>,
    open: Option<Open>,
    unfinished: Option<Unfinished>,
    failure: Option<Error>,
    /// How many rows of the decoder are good, when the last are not.
    good_rows: Option<usize>,
    /// The offset after the last batch that was looked at; none before the first.
    next_offset: Option<i64>,
}

impl PartitionScan {
    /// A scan of the segments that the directory has now.
    ///
    /// # Errors
    /// [`Error::Io`] when the directory cannot be read; as [`Transactions::read`] with read_committed.
    pub fn open(source: &ScanSource, options: Arc<ScanOptions>, report: Arc<Report>) -> Result<Self> {
        let pass = Pass { options, report };
        let segments = source.directory.segments()?;
        let (columns, aborted) = prepare(source, &segments, &pass)?;
        let pieces = pieces_of(segments, columns.start_offset, columns.end_offset);
        Ok(Self::of_pieces(source.directory.clone(), pieces, Arc::new(columns), aborted, pass))
    }

    /// A scan of these pieces, in this order.
    pub(super) fn of_pieces(
        directory: Directory,
        pieces: VecDeque<Piece>,
        columns: Arc<ColumnOptions>,
        aborted: Option<Arc<AbortedRanges>>,
        pass: Pass,
    ) -> Self {
        Self {
            directory,
            pass,
            decoder: ColumnsDecoder::new(columns),
            aborted,
            pieces,
            open: None,
            unfinished: None,
            failure: None,
            good_rows: None,
            next_offset: None,
        }
    }

    /// The next Arrow batch, which has at least one row.
    ///
    /// # Errors
    /// [`Error::Corrupt`] naming file and position, [`Error::OffsetOutOfRange`], [`Error::Io`].
    pub fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        if let Some(error) = self.failure.take() {
            self.stop();
            return Err(error);
        }
        match self.fill() {
            Ok(()) if self.decoder.rows() == 0 => Ok(None),
            Ok(()) => {
                let rows = self.decoder.finish()?;
                self.pass.report.add_rows(rows.num_rows());
                Ok(Some(rows))
            }
            Err(error) => {
                let error = error.at_offset(self.next_offset.unwrap_or(self.decoder.options().start_offset));
                self.stop();
                let good_rows = self.good_rows.take().unwrap_or_else(|| self.decoder.rows());
                if good_rows == 0 {
                    return Err(error);
                }
                self.failure = Some(error);
                let rows = self.decoder.finish()?.slice(0, good_rows);
                self.pass.report.add_rows(rows.num_rows());
                Ok(Some(rows))
            }
        }
    }

    fn stop(&mut self) {
        self.pieces.clear();
        self.open = None;
        self.unfinished = None;
    }

    /// Adds rows until the Arrow batch is full or the scan is at its end.
    fn fill(&mut self) -> Result<()> {
        loop {
            if self.open.is_none() {
                let Some(piece) = self.pieces.pop_front() else { return Ok(()) };
                self.open = self.open_piece(piece)?;
            } else if self.step()? == Progress::Full {
                return Ok(());
            }
        }
    }

    /// Takes one more batch of the open segment, or ends it.
    fn step(&mut self) -> Result<Progress> {
        match self.unfinished.take() {
            Some(Unfinished::Batch(found, cursor)) => return self.decode(found, cursor),
            Some(Unfinished::Header(ahead, cursor)) => {
                return Ok(self.tell(ahead, cursor).unwrap_or(Progress::Done))
            }
            None => {}
        }
        if !self.checks() {
            if let Some(progress) = self.step_by_header()? {
                return Ok(progress);
            }
        }
        let Some(open) = &mut self.open else { return Ok(Progress::Done) };
        if let Some(ahead) = open.chunks.peek()? {
            // What follows the batch before without a gap is right: nothing of it needs to be read to stop here.
            let base_offset = ahead.header().base_offset();
            if base_offset >= self.decoder.options().end_offset && open.order.is_next(base_offset) {
                self.stop();
                return Ok(Progress::Done);
            }
        }
        match open.chunks.next_batch() {
            Ok(Some(found)) => self.take(found),
            Ok(None) => self.end_segment().map(|()| Progress::Done),
            Err(error) => {
                open.chunks.check_mapped()?;
                if open.piece.is_last && open.chunks.is_at_zeros() {
                    self.stop();
                    return Ok(Progress::Done);
                }
                self.skip_damage(error, DamageEnd::Unknown).map(|()| Progress::Done)
            }
        }
    }

    /// Checksums are compared: no field of a header is believed before.
    fn checks(&self) -> bool {
        self.decoder.options().check_crc
    }

    /// Takes one more batch by what its header says, unchecked; None when its records are needed.
    fn step_by_header(&mut self) -> Result<Option<Progress>> {
        let Some(open) = &mut self.open else { return Ok(None) };
        let Some(ahead) = open.chunks.peek()? else { return Ok(None) };
        let header = ahead.header();
        if header.base_offset() >= self.decoder.options().end_offset {
            self.stop();
            return Ok(Some(Progress::Done));
        }
        if header.last_offset() >= open.piece.end_offset {
            return self.end_copy(&header).map(|()| Some(Progress::Done));
        }
        // Whether the records of a batch with a wrong checksum are wanted, its header does not say.
        if !self.decoder.tells_crc() && !self.is_wanted(&header) {
            let Some(open) = &mut self.open else { return Ok(None) };
            open.chunks.skip(&ahead);
            self.pass.report.add_batches(0, 1);
            self.passed(header.next_offset());
            return Ok(Some(Progress::Done));
        }
        Ok(self.tell(ahead, BatchCursor::default()))
    }

    /// False for a batch that was read from another segment, is of an aborted transaction or has no row.
    fn is_wanted(&self, header: &BatchHeader<'_>) -> bool {
        let is_repeated = self.open.as_ref().is_some_and(|open| header.last_offset() < open.resume_offset);
        let is_aborted = self.aborted.as_ref().is_some_and(|aborted| aborted.contain(header));
        !is_repeated && !is_aborted && self.decoder.is_wanted(header)
    }

    /// Takes a whole batch: checks it, then what its header says decides.
    fn take(&mut self, found: FoundBatch) -> Result<Progress> {
        let is_checked = self.checks();
        let Some(open) = &mut self.open else { return Ok(Progress::Done) };
        let batch = open.chunks.current(found)?;
        let (bytes, end) = (*batch.header().as_bytes(), found.position + batch.bytes().len() as u64);
        let header = BatchHeader::new(&bytes);
        if is_checked {
            // The base offset is outside the checksum; where the one behind is larger, it is in its place.
            let base_offset = header.base_offset();
            let behind = open.chunks.behind();
            let is_placed = behind.known().first().is_some_and(|next| next.base_offset > base_offset);
            if base_offset >= self.decoder.options().end_offset && is_placed {
                self.stop();
                return Ok(Progress::Done);
            }
            if let Err(error) = batch.check() {
                open.chunks.check_mapped()?;
                let error = open.chunks.locate(error);
                return self.skip_damage(error, DamageEnd::Claimed(end)).map(|()| Progress::Done);
            }
            open.chunks.check_mapped()?;
            if let Err(reason) = self.check_order(&header)? {
                return self.refuse(found, &header, reason, end).map(|()| Progress::Done);
            }
        }
        let Some(open) = &mut self.open else { return Ok(Progress::Done) };
        if header.base_offset() >= self.decoder.options().end_offset {
            self.stop();
            return Ok(Progress::Done);
        }
        if is_checked {
            open.order.pass(header.next_offset());
            if header.last_offset() >= open.piece.end_offset {
                return self.end_copy(&header).map(|()| Progress::Done);
            }
            if !self.is_wanted(&header) {
                self.pass.report.add_batches(0, 1);
                self.passed(header.next_offset());
                return Ok(Progress::Done);
            }
        }
        let cursor = if is_checked { BatchCursor::checked() } else { BatchCursor::default() };
        self.decode(found, cursor)
    }

    /// Whether the offsets of a checked batch fit those around it.
    fn check_order(&mut self, header: &BatchHeader<'_>) -> Result<std::result::Result<(), String>> {
        let Some(open) = &mut self.open else { return Ok(Ok(())) };
        let behind = open.chunks.behind();
        let outcome = open.order.check(header, behind.known());
        if outcome.is_ok() || header.last_offset() < open.piece.ceiling {
            return Ok(outcome);
        }
        // Compaction may have put this segment and the next into one file since they were listed.
        let base_offset = open.piece.segment.base_offset;
        let Directory::Local(directory) = &self.directory else { return Ok(outcome) };
        let segments = list_segments(directory)?;
        let next = segments.iter().map(|segment| segment.base_offset).find(|base| *base > base_offset);
        let ceiling = next.unwrap_or(i64::MAX);
        if ceiling <= open.piece.ceiling {
            return Ok(outcome);
        }
        open.piece.ceiling = ceiling;
        let floor = open.order.floor();
        open.order = OffsetOrder::new(base_offset, ceiling);
        open.order.pass(floor);
        Ok(open.order.check(header, behind.known()))
    }

    /// Leaves out a whole batch with a right checksum whose offsets cannot be right.
    fn refuse(
        &mut self,
        found: FoundBatch,
        header: &BatchHeader<'_>,
        reason: String,
        end: u64,
    ) -> Result<()> {
        let Some(open) = &self.open else { return Ok(()) };
        let origin = open.chunks.path().display().to_string();
        let error = Error::corrupt(found.position, header.base_offset(), reason).located(origin, 0);
        self.skip_damage(error, DamageEnd::Known(end))
    }

    /// Rows by the header alone; None when that is not enough.
    fn tell(&mut self, ahead: HeaderAhead, mut cursor: BatchCursor) -> Option<Progress> {
        let open = self.open.as_mut()?;
        let header = ahead.header();
        let progress = self.decoder.decode_header(&header, ahead.position, &mut cursor)?;
        match progress {
            Progress::Done => {
                open.chunks.skip(&ahead);
                self.pass.report.add_batches(1, 0);
                self.passed(header.next_offset());
            }
            Progress::Full => self.unfinished = Some(Unfinished::Header(ahead, cursor)),
        }
        Some(progress)
    }

    fn decode(&mut self, found: FoundBatch, mut cursor: BatchCursor) -> Result<Progress> {
        let Some(open) = &mut self.open else { return Ok(Progress::Done) };
        let chunks = &open.chunks;
        let batch = chunks.current(found)?;
        let (next_offset, size) = (batch.next_offset(), batch.bytes().len() as u64);
        self.decoder.set_origin(found.position.saturating_sub(found.index as u64));
        let good_rows = self.decoder.rows();
        let outcome = self.decoder.decode(&batch, chunks.buffer(), &mut cursor);
        chunks.check_mapped().inspect_err(|_| self.good_rows = Some(good_rows))?;
        match outcome {
            Ok(Progress::Done) => {
                self.pass.report.add_batches(1, 0);
                self.passed(next_offset);
                Ok(Progress::Done)
            }
            Ok(Progress::Full) => {
                self.unfinished = Some(Unfinished::Batch(found, cursor));
                Ok(Progress::Full)
            }
            Err(error) => {
                let error = chunks.locate(error);
                let end = found.position + size;
                let end = if self.checks() { DamageEnd::Known(end) } else { DamageEnd::Claimed(end) };
                self.skip_damage(error, end).map(|()| Progress::Done)
            }
        }
    }

    fn passed(&mut self, next_offset: i64) {
        self.next_offset = Some(self.next_offset.map_or(next_offset, |offset| offset.max(next_offset)));
    }

    /// Leaves damaged bytes out, up to where the next sound batch begins, or gives the error back.
    fn skip_damage(&mut self, error: Error, end: DamageEnd) -> Result<()> {
        let Some(open) = &mut self.open else { return Err(error) };
        let Error::Corrupt { position, .. } = error else { return Err(error) };
        if self.pass.options.on_corrupt == OnCorrupt::Raise {
            return Err(error);
        }
        let next = match resume(&mut open.chunks, position, end, &open.order)? {
            Some(next) => Some(next),
            // Formats before v2 are not searched for.
            None => indexed_position_after(&open.piece.segment, position),
        };
        self.pass.report.add_skipped(error, next.unwrap_or_else(|| open.chunks.size_bytes()));
        match next {
            Some(next) => open.chunks.go_to(next),
            None => self.open = None,
        }
        Ok(())
    }

    /// Leaves a copy of a segment where another one has what follows.
    fn end_copy(&mut self, header: &BatchHeader<'_>) -> Result<()> {
        let Some(open) = self.open.take() else { return Ok(()) };
        let end_offset = open.piece.end_offset;
        if header.base_offset() >= end_offset {
            return Ok(());
        }
        let reason =
            format!("the batch goes on behind offset {end_offset}, from which on another copy is read");
        let origin = open.chunks.path().display().to_string();
        Err(Error::corrupt(open.chunks.position(), header.base_offset(), reason).located(origin, 0))
    }

    /// Opens a segment; none when something else has to be opened in its place.
    fn open_piece(&mut self, piece: Piece) -> Result<Option<Open>> {
        let options = self.decoder.options();
        let report = &self.pass.report;
        let opened = open_at(&piece, self.pieces.is_empty(), options, &self.pass);
        let (mut chunks, order) = match opened {
            Ok(opened) => opened,
            Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                self.list_again(&piece)?;
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        report.add_segment();
        if !self.checks() && !self.decoder.needs_records() {
            chunks.expect_headers();
        }
        if self.pass.options.memory_map && !piece.is_last {
            chunks.map();
        } else if self.pass.options.drop_behind {
            chunks.drop_behind();
        }
        let resume_offset = match self.next_offset {
            Some(next_offset) if piece.segment.base_offset < next_offset => next_offset,
            _ => i64::MIN,
        };
        Ok(Some(Open { chunks, piece, resume_offset, order }))
    }

    /// Finds what has taken the place of a segment that is gone, and makes it the next piece.
    fn list_again(&mut self, missing: &Piece) -> Result<()> {
        let Directory::Local(directory) = &self.directory else {
            let error = std::io::Error::from(std::io::ErrorKind::NotFound);
            return Err(Error::io("open", &missing.segment.path, error));
        };
        let options = self.decoder.options();
        let wanted = self.next_offset.unwrap_or(options.start_offset).max(missing.segment.base_offset);
        let next_piece = self.pieces.front().map_or(i64::MAX, |piece| piece.segment.base_offset);
        for _ in 0..RELISTS_MAX {
            let segments = list_segments(directory)?;
            let start = segments.first().map_or(i64::MAX, |segment| segment.base_offset);
            if start > wanted {
                return Err(Error::OffsetOutOfRange {
                    origin: directory.display().to_string(),
                    offset: wanted,
                    log_start_offset: start,
                    log_end_offset: next_piece.min(options.end_offset),
                });
            }
            let pieces = pieces_of(segments, wanted, options.end_offset.min(next_piece));
            let still_missing = pieces.iter().any(|piece| piece.segment.path == missing.segment.path);
            if !still_missing || missing.segment.path.exists() {
                // What takes its place may begin earlier, with rows that are not of this piece.
                self.next_offset = Some(wanted);
                for mut piece in pieces.into_iter().rev() {
                    // It may have been written to when the scan began, and now holds more than belongs to it.
                    piece.is_last |= missing.is_last;
                    self.pieces.push_front(piece);
                }
                return Ok(());
            }
        }
        let error = std::io::Error::from(std::io::ErrorKind::NotFound);
        Err(Error::io("open", &missing.segment.path, error))
    }

    /// Leaves a segment at its last whole batch. Only the last one, which may be written to, may end within
    /// a batch.
    fn end_segment(&mut self) -> Result<()> {
        let checks = self.checks();
        let Some(open) = &mut self.open else { return Ok(()) };
        let (chunks, is_last) = (&mut open.chunks, open.piece.is_last);
        let error = match checks || !is_last {
            true => unfinished(chunks, &open.order, is_last)?,
            false => None,
        };
        let Some(error) = error else {
            self.open = None;
            return Ok(());
        };
        self.skip_damage(error, DamageEnd::Unknown)
    }
}

/// The column options of a source with what its isolation level narrows, and the aborted transactions.
///
/// # Errors
/// [`Error::OffsetOutOfRange`] when the source starts before the first segment.
pub(super) fn prepare(
    source: &ScanSource,
    segments: &[SegmentFile],
    pass: &Pass,
) -> Result<(ColumnOptions, Option<Arc<AbortedRanges>>)> {
    let mut columns = source.columns(&pass.options);
    let log_start_offset = segments.first().map_or(i64::MIN, |segment| segment.base_offset);
    if source.start_offset != i64::MIN && source.start_offset < log_start_offset {
        // Deleted by retention since somebody planned to read it: rows must not be missing silently.
        return Err(Error::OffsetOutOfRange {
            origin: source.directory.path().display().to_string(),
            offset: source.start_offset,
            log_start_offset,
            log_end_offset: log_end_offset(segments)?,
        });
    }
    if pass.options.isolation == IsolationLevel::ReadUncommitted {
        return Ok((columns, None));
    }
    if let Some(aborted) = &source.aborted {
        return Ok((columns, Some(Arc::clone(aborted))));
    }
    let (start, end) = (columns.start_offset, columns.end_offset);
    let found =
        Transactions::read(&source.directory, segments, start, end, pass.options.on_corrupt, &pass.report)?;
    columns.end_offset = columns.end_offset.min(found.last_stable_offset);
    Ok((columns, Some(Arc::new(AbortedRanges::new(&found.aborted)))))
}
