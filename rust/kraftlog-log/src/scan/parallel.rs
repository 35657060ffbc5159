//! Several threads that decode pieces of a scan ahead of the one who takes the rows, in order.
//!
//! A piece is a few MiB of one segment. Each has a queue of its own for a few Arrow batches, and there are few more
//! pieces in flight than threads, so that memory is bounded whatever the consumer does.
use super::aborted::AbortedRanges;
use super::listing::Directory;
use super::options::{Pass, ScanSource};
use super::partition::{prepare, PartitionScan};
use super::pieces::{pieces_of, Piece};
use super::split::cuts_of;
use crate::columns::ColumnOptions;
use crate::{Error, Result};
use arrow_array::RecordBatch;
use std::collections::VecDeque;
use std::sync::mpsc::{sync_channel, Receiver, SyncSender};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread::JoinHandle;

/// Bytes of a segment that a thread decodes at once.
const PIECE_SIZE: u64 = 4 << 20;
/// The same of a segment that is fetched.
const REMOTE_PIECE_SIZE: u64 = 32 << 20;
/// Arrow batches that may wait for the consumer in each piece.
const WAITING_MAX: usize = 4;
/// Most threads of a scan.
const THREADS_MAX: usize = 256;

/// What a thread works on.
struct Unit {
    directory: Directory,
    piece: Piece,
    columns: Arc<ColumnOptions>,
    aborted: Option<Arc<AbortedRanges>>,
}

/// Rows of a piece; None says that there are no more.
type Rows = Receiver<Result<Option<RecordBatch>>>;

type Sender = SyncSender<Result<Option<RecordBatch>>>;

/// A scan by several threads.
#[derive(Debug)]
pub(super) struct ParallelScan {
    shared: Arc<Shared>,
    threads: Vec<JoinHandle<()>>,
    current: Option<Rows>,
}

#[derive(Debug)]
struct Shared {
    state: Mutex<State>,
    changed: Condvar,
    pass: Pass,
    in_flight_max: usize,
}

#[derive(Debug)]
struct State {
    sources: VecDeque<ScanSource>,
    units: VecDeque<Unit>,
    /// Pieces in work or done, in order; the consumer has taken the one before the first.
    in_flight: VecDeque<Rows>,
    /// Pieces that are not read to their end, with the one the consumer has.
    count: usize,
    is_over: bool,
}

impl std::fmt::Debug for Unit {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Unit").field("piece", &self.piece).finish_non_exhaustive()
    }
}

impl ParallelScan {
    pub(super) fn new(sources: Vec<ScanSource>, pass: Pass) -> Self {
        let count = pass.options.threads.clamp(1, THREADS_MAX);
        let state = State {
            sources: sources.into(),
            units: VecDeque::new(),
            in_flight: VecDeque::new(),
            count: 0,
            is_over: false,
        };
        let shared = Arc::new(Shared {
            state: Mutex::new(state),
            changed: Condvar::new(),
            pass,
            in_flight_max: count + 1,
        });
        let threads = (0..count)
            .filter_map(|_| {
                let shared = Arc::clone(&shared);
                std::thread::Builder::new().name("kraftlog-scan".to_owned()).spawn(move || shared.work()).ok()
            })
            .collect();
        Self { shared, threads, current: None }
    }

    pub(super) fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        if self.threads.is_empty() {
            return Err(Error::Invalid("the system gave no thread for the scan".to_owned()));
        }
        loop {
            if let Some(rows) = &self.current {
                let lost = || Err(Error::Invalid("a thread of the scan died".to_owned()));
                match rows.recv().unwrap_or_else(|_| lost()) {
                    Ok(Some(batch)) => return Ok(Some(batch)),
                    Ok(None) => {
                        self.current = None;
                        self.shared.lock().count -= 1;
                        self.shared.changed.notify_all();
                    }
                    Err(error) => {
                        self.end();
                        return Err(error);
                    }
                }
            }
            let mut state = self.shared.lock();
            loop {
                if let Some(rows) = state.in_flight.pop_front() {
                    self.current = Some(rows);
                    break;
                }
                if state.is_over {
                    return Ok(None);
                }
                state = self.shared.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
    }

    /// Ends all threads, soon, whatever they do.
    fn end(&mut self) {
        self.current = None;
        let mut state = self.shared.lock();
        state.is_over = true;
        state.units.clear();
        state.sources.clear();
        // Without a receiver their sends fail.
        state.in_flight.clear();
        drop(state);
        self.shared.changed.notify_all();
    }
}

impl Drop for ParallelScan {
    fn drop(&mut self) {
        self.end();
        for thread in self.threads.drain(..) {
            // One that panicked has said so on standard error, and its rows ended in an error.
            let _ = thread.join();
        }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What each thread does: the next piece, until there is none.
    fn work(&self) {
        while let Some((unit, sender)) = self.next_unit() {
            let unit = match unit {
                Ok(unit) => unit,
                Err(error) => {
                    let _ = sender.send(Err(error));
                    continue;
                }
            };
            let pieces = VecDeque::from([unit.piece]);
            let pass = self.pass.clone();
            let mut scan = PartitionScan::of_pieces(unit.directory, pieces, unit.columns, unit.aborted, pass);
            loop {
                let rows = scan.next_batch();
                let is_end = !matches!(rows, Ok(Some(_)));
                // Without a receiver nobody takes rows any more.
                if sender.send(rows).is_err() || is_end {
                    break;
                }
            }
        }
    }

    /// The next piece and where its rows go, once there is room for one in flight.
    fn next_unit(&self) -> Option<(Result<Unit>, Sender)> {
        let mut state = self.lock();
        loop {
            if state.is_over {
                return None;
            }
            if state.count < self.in_flight_max {
                break;
            }
            state = self.changed.wait(state).unwrap_or_else(PoisonError::into_inner);
        }
        let unit = self.plan(&mut state);
        if !matches!(unit, Ok(Some(_))) {
            state.is_over = true;
        }
        let unit = unit.transpose();
        if let Some(unit) = unit {
            let (sender, receiver) = sync_channel(WAITING_MAX);
            state.in_flight.push_back(receiver);
            state.count += 1;
            self.changed.notify_all();
            return Some((unit, sender));
        }
        self.changed.notify_all();
        None
    }

    /// The next piece in order; looks at the next segment, or the next directory, when the last is used up.
    fn plan(&self, state: &mut State) -> Result<Option<Unit>> {
        loop {
            if let Some(mut unit) = state.units.pop_front() {
                if unit.piece.is_cut {
                    return Ok(Some(unit));
                }
                let is_remote = unit.piece.segment.remote.is_some();
                let cuts = cuts_of(&unit.piece, if is_remote { REMOTE_PIECE_SIZE } else { PIECE_SIZE })?;
                if cuts.len() < 2 {
                    unit.piece.is_cut = true;
                    return Ok(Some(unit));
                }
                for cut in cuts.into_iter().rev() {
                    let mut columns = unit.columns.as_ref().clone();
                    columns.start_offset = columns.start_offset.max(cut.start_offset);
                    columns.end_offset = columns.end_offset.min(cut.end_offset);
                    if columns.start_offset < columns.end_offset {
                        state.units.push_front(Unit {
                            directory: unit.directory.clone(),
                            piece: cut.piece,
                            columns: Arc::new(columns),
                            aborted: unit.aborted.clone(),
                        });
                    }
                }
                continue;
            }
            let Some(source) = state.sources.pop_front() else { return Ok(None) };
            let segments = source.directory.segments()?;
            let (columns, aborted) = prepare(&source, &segments, &self.pass)?;
            let pieces = pieces_of(segments, columns.start_offset, columns.end_offset);
            let ends: Vec<i64> = pieces.iter().skip(1).map(|piece| piece.segment.base_offset).collect();
            let ends = ends.into_iter().chain(std::iter::once(i64::MAX));
            let unit = |(piece, end): (Piece, i64)| {
                // Compaction may merge the segment with the next before it is opened: that one has its own unit.
                let mut columns = columns.clone();
                columns.end_offset = columns.end_offset.min(end);
                Unit {
                    directory: source.directory.clone(),
                    piece,
                    columns: Arc::new(columns),
                    aborted: aborted.clone(),
                }
            };
            state.units.extend(pieces.into_iter().zip(ends).map(unit));
        }
    }
}
