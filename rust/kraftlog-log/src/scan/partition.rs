//! The records of one partition as Arrow batches.
use super::chunks::{Chunks, FoundBatch, HeaderAhead};
use super::listing::{list_segments, log_end_offset, Directory};
use super::options::{IsolationLevel, OnCorrupt, Pass, ScanOptions, ScanSource};
use super::position::{indexed_position_after, position_after, position_before, starts_before, time_hint};
use super::report::Report;
use super::segments::SegmentFile;
use super::transactions::{AbortedRanges, Transactions};
use crate::batch::BatchHeader;
use crate::columns::{BatchCursor, ColumnOptions, ColumnsDecoder, Progress};
use crate::{Error, Result};
use arrow_array::RecordBatch;
use std::collections::VecDeque;
use std::sync::Arc;

/// Most times that a directory is listed again for one missing segment.
const RELISTS_MAX: usize = 5;

/// A segment to read, and where in it to begin at the latest.
#[derive(Debug, Clone)]
pub(super) struct Piece {
    pub(super) segment: SegmentFile,
    /// Byte position of a batch, when the plan knows one at or before the first wanted.
    pub(super) position: u64,
    /// Byte position at which to end, where the plan says so.
    pub(super) end_position: u64,
    /// The file that the positions are of; another one may have got its name since.
    pub(super) file_id: Option<u64>,
    /// A part of a segment, or one too small to have any.
    pub(super) is_cut: bool,
    /// The last of the log: it may be written to, and may end within a batch.
    pub(super) is_last: bool,
    /// Exclusive end of the offsets that are read from this segment, where another has those behind.
    pub(super) end_offset: i64,
}

/// The pieces of a partition that have an offset from `start` up to, without, `end`.
pub(super) fn pieces_of(segments: Vec<SegmentFile>, start: i64, end: i64) -> VecDeque<Piece> {
    let count = segments.len();
    let mut pieces = VecDeque::with_capacity(count);
    for (index, segment) in segments.into_iter().enumerate() {
        pieces.push_back(Piece {
            end_offset: segment.end_offset(),
            segment,
            position: 0,
            end_position: u64::MAX,
            file_id: None,
            is_cut: false,
            is_last: index + 1 == count,
        });
    }
    while pieces.get(1).is_some_and(|next| next.segment.base_offset <= start) {
        pieces.pop_front();
    }
    while pieces.back().is_some_and(|piece| piece.segment.base_offset >= end) {
        pieces.pop_back();
    }
    pieces
}

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
        let Some(open) = &mut self.open else { return Ok(Progress::Done) };
        match self.unfinished.take() {
            Some(Unfinished::Batch(found, cursor)) => return self.decode(found, cursor),
            Some(Unfinished::Header(ahead, cursor)) => {
                return Ok(self.tell(ahead, cursor).unwrap_or(Progress::Done))
            }
            None => {}
        }
        if let Some(ahead) = open.chunks.peek()? {
            let header = ahead.header();
            if header.base_offset() >= self.decoder.options().end_offset {
                self.stop();
                return Ok(Progress::Done);
            }
            if header.last_offset() >= open.piece.end_offset {
                return self.end_copy(&header).map(|()| Progress::Done);
            }
            let is_repeated = header.last_offset() < open.resume_offset;
            let is_aborted = self.aborted.as_ref().is_some_and(|aborted| aborted.contain(&header));
            if is_repeated || is_aborted || !self.decoder.is_wanted(&header) {
                open.chunks.skip(&ahead);
                self.pass.report.add_batches(0, 1);
                self.passed(header.next_offset());
                return Ok(Progress::Done);
            }
            if self.pass.options.trust_headers {
                if let Some(progress) = self.tell(ahead, BatchCursor::default()) {
                    return Ok(progress);
                }
            }
        }
        let Some(open) = &mut self.open else { return Ok(Progress::Done) };
        match open.chunks.next_batch() {
            Ok(Some(found)) => {
                let base_offset = open.chunks.current(found)?.base_offset();
                if base_offset >= self.decoder.options().end_offset {
                    self.stop();
                    return Ok(Progress::Done);
                }
                self.decode(found, BatchCursor::default())
            }
            Ok(None) => self.end_segment().map(|()| Progress::Done),
            Err(_) if open.piece.is_last && open.chunks.is_at_zeros() => {
                self.stop();
                Ok(Progress::Done)
            }
            Err(error) => {
                open.chunks.check_mapped()?;
                self.skip_damage(error, None).map(|()| Progress::Done)
            }
        }
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
                self.skip_damage(error, Some(found.position + size)).map(|()| Progress::Done)
            }
        }
    }

    fn passed(&mut self, next_offset: i64) {
        self.next_offset = Some(self.next_offset.map_or(next_offset, |offset| offset.max(next_offset)));
    }

    /// Leaves damaged bytes out, up to `end_position` where the batch has a length that can be trusted; else gives
    /// the error back.
    fn skip_damage(&mut self, error: Error, end_position: Option<u64>) -> Result<()> {
        let Some(open) = &mut self.open else { return Err(error) };
        if self.pass.options.on_corrupt == OnCorrupt::Raise || !matches!(error, Error::Corrupt { .. }) {
            return Err(error);
        }
        let position = open.chunks.position();
        let next = end_position.or_else(|| indexed_position_after(&open.piece.segment, position));
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
        let chunks = match opened {
            Ok(chunks) => chunks,
            Err(Error::Io { source, .. }) if source.kind() == std::io::ErrorKind::NotFound => {
                self.list_again(&piece)?;
                return Ok(None);
            }
            Err(error) => return Err(error),
        };
        report.add_segment();
        let mut chunks = chunks;
        if self.pass.options.trust_headers && !self.decoder.needs_records() {
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
        Ok(Some(Open { chunks, piece, resume_offset }))
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
        let Some(open) = &self.open else { return Ok(()) };
        let (chunks, is_last) = (&open.chunks, open.piece.is_last);
        if is_last || chunks.position() >= chunks.size_bytes() {
            self.open = None;
            return Ok(());
        }
        let left = chunks.size_bytes() - chunks.position();
        let reason = format!("the segment ends within a batch, {left} bytes after this position");
        let error =
            Error::corrupt(chunks.position(), -1, reason).located(chunks.path().display().to_string(), 0);
        self.skip_damage(error, Some(chunks.size_bytes()))
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
    let found = Transactions::read(&source.directory, segments, start, end, &pass.report)?;
    columns.end_offset = columns.end_offset.min(found.last_stable_offset);
    Ok((columns, Some(Arc::new(AbortedRanges::new(&found.aborted)))))
}

/// Opens the segment of a piece where the plan or the indexes say that wanted rows begin.
fn open_at(piece: &Piece, is_final: bool, options: &ColumnOptions, pass: &Pass) -> Result<Chunks> {
    let mut chunks = seek(piece, options, &pass.report)?;
    let segment = &piece.segment;
    if segment.remote.is_some() && pass.options.read_ahead {
        let end_offset = options.end_offset.min(piece.end_offset);
        let is_bounded = is_final && end_offset != i64::MAX && piece.end_position == u64::MAX;
        let end = if is_bounded { position_after(segment, end_offset) } else { piece.end_position };
        chunks.expect_sequential(end);
    }
    Ok(chunks)
}

fn seek(piece: &Piece, options: &ColumnOptions, report: &Arc<Report>) -> Result<Chunks> {
    let segment = &piece.segment;
    let mut chunks = Chunks::of(segment, 0, Arc::clone(report))?;
    // What a file of this machine was cut at was looked at then; here nothing but the index was.
    if segment.remote.is_some() && starts_before(segment, piece.position, options.start_offset) {
        chunks.go_to(piece.position);
    }
    if piece.file_id.is_some_and(|id| id == chunks.file_id()) {
        chunks.end_at(piece.end_position);
        chunks.go_to(piece.position);
    }
    // The plan knows a batch that begins the piece; the index is asked where that is not near enough.
    let is_near = (piece.file_id.is_some() || segment.remote.is_some())
        && chunks.position() == piece.position
        && piece.position > 0;
    if !is_near {
        chunks.go_to(position_before(segment, options.start_offset).max(chunks.position()));
    }
    if options.from_timestamp == i64::MIN {
        return Ok(chunks);
    }
    let position = chunks.position();
    let Some(hint) = time_hint(segment, options.from_timestamp) else { return Ok(chunks) };
    let by_time = position_before(segment, hint.offset.min(options.end_offset));
    if by_time <= position || hint.offset <= options.start_offset {
        return Ok(chunks);
    }
    chunks.go_to(by_time);
    // What the index says of the batch that it names is true of that batch, or the index is not believed.
    while let Some(ahead) = chunks.peek()? {
        if ahead.header().last_offset() >= hint.offset {
            if ahead.header().max_timestamp() == hint.timestamp {
                return Ok(chunks);
            }
            break;
        }
        chunks.skip(&ahead);
    }
    chunks.go_to(position);
    Ok(chunks)
}
