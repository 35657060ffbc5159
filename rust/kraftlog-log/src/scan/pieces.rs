//! The parts of a partition that are read one after the other.
use super::chunks::Chunks;
use super::options::Pass;
use super::position::{position_after, position_before, starts_before, time_hint};
use super::report::Report;
use super::segments::SegmentFile;
use crate::columns::ColumnOptions;
use crate::offset_order::OffsetOrder;
use crate::Result;
use std::collections::VecDeque;
use std::sync::Arc;

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
    /// No batch that begins at `position` or later is before it.
    pub(super) floor: i64,
    /// Exclusive end of the offsets that its batches may have: what follows begins there.
    pub(super) ceiling: i64,
}

/// The pieces of a partition that have an offset from `start` up to, without, `end`.
pub(super) fn pieces_of(segments: Vec<SegmentFile>, start: i64, end: i64) -> VecDeque<Piece> {
    let count = segments.len();
    let mut pieces = VecDeque::with_capacity(count);
    let mut ceilings: Vec<i64> = segments.iter().skip(1).map(|next| next.base_offset).collect();
    ceilings.push(i64::MAX);
    for (index, (segment, ceiling)) in segments.into_iter().zip(ceilings).enumerate() {
        let end_offset = segment.end_offset();
        pieces.push_back(Piece {
            end_offset,
            floor: segment.base_offset,
            // A copy of a segment may go on behind where another one takes over.
            ceiling: if end_offset == i64::MAX { ceiling } else { i64::MAX },
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

/// Opens the segment of a piece where the plan or the indexes say that wanted rows begin.
pub(super) fn open_at(
    piece: &Piece,
    is_final: bool,
    options: &ColumnOptions,
    pass: &Pass,
) -> Result<(Chunks, OffsetOrder)> {
    let mut chunks = seek(piece, options, &pass.report)?;
    // Floor and ceiling of a part are those of the file that was cut.
    let is_same = piece.file_id.is_none_or(|id| id == chunks.file_id());
    let ceiling = if is_same { piece.ceiling } else { i64::MAX };
    let mut order = match chunks.position() {
        0 => OffsetOrder::new(piece.segment.base_offset, ceiling),
        _ => OffsetOrder::inside(piece.segment.base_offset, ceiling),
    };
    let segment = &piece.segment;
    if segment.remote.is_some() && pass.options.read_ahead {
        let end_offset = options.end_offset.min(piece.end_offset);
        let is_bounded = is_final && end_offset != i64::MAX && piece.end_position == u64::MAX;
        let end = if is_bounded { position_after(segment, end_offset) } else { piece.end_position };
        chunks.expect_sequential(end);
    }
    if is_same && chunks.position() >= piece.position {
        order.raise(piece.floor);
    }
    Ok((chunks, order))
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
