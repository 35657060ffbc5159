//! Partitions whose files are objects elsewhere: listed once, and read by ranges that somebody else fetches.
//!
//! Segments are read in windows: a small one after each jump, so that a look at one batch costs little, then larger
//! ones up to [`RemoteDirectory::window_size`], with as many asked for ahead as [`WINDOWS_AHEAD`] says. A window is
//! decoded where it lies; only a batch that lies across the end of one is copied together. Sidecar files are
//! fetched whole, when they are needed first.
use super::segments::SegmentFile;
use crate::batch::HEADER_SIZE;
use crate::raw::memory::Column;
use crate::{Error, Result};
use arrow_buffer::Buffer;
use std::collections::{BTreeMap, VecDeque};
use std::fmt::Debug;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// Windows that are asked for before the one in work is used up.
pub const WINDOWS_AHEAD: usize = 2;
/// Least bytes of a window after a jump.
const WINDOW_SIZE_MIN: u64 = 256 << 10;
/// The same where it is known that the bytes behind are wanted too.
const WINDOW_SIZE_SEQUENTIAL: u64 = 1 << 20;
/// How much larger each window is than the one before.
const WINDOW_GROWTH: u64 = 4;
/// Bytes of the header of one batch with room for the batch: what a look at a single place fetches.
const PROBE_SIZE: u64 = 16 << 10;
/// Batches of at least as many bytes that are stepped over are not fetched: to wait for one more request takes about
/// as long as to read on for so many bytes.
const STEP_SIZE_MIN: u64 = 1 << 20;
/// Bytes of sidecar files and of looks at single places that are kept, of all directories of the process.
const KEPT_SIZE_MAX: usize = 16 << 20;
/// Bytes of log for each entry of an index, at the least: Kafka writes one every `index.interval.bytes` (4096). Behind
/// them an index has zeros: space that was allocated in advance.
const INDEX_INTERVAL_MIN: u64 = 1024;
/// Largest entry of an index, in bytes.
const INDEX_ENTRY_SIZE_MAX: u64 = 12;
/// Largest sidecar file that is read.
const SIDECAR_SIZE_MAX: u64 = 256 << 20;

/// What an object is to its partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ObjectKind {
    /// Record batches.
    Log,
    /// Positions by offset.
    Index,
    /// Offsets by timestamp.
    TimeIndex,
    /// Aborted transactions.
    TxnIndex,
    /// Producers at an offset.
    Snapshot,
}

impl ObjectKind {
    /// The extension of the files.
    pub fn extension(self) -> &'static str {
        match self {
            Self::Log => "log",
            Self::Index => "index",
            Self::TimeIndex => "timeindex",
            Self::TxnIndex => "txnindex",
            Self::Snapshot => "snapshot",
        }
    }

    /// The kind by the extension of the file.
    pub fn parse(extension: &str) -> Option<Self> {
        Some(match extension {
            "log" => Self::Log,
            "index" => Self::Index,
            "timeindex" => Self::TimeIndex,
            "txnindex" => Self::TxnIndex,
            "snapshot" => Self::Snapshot,
            _ => return None,
        })
    }
}

/// An object of a partition, as it was listed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RemoteObject {
    /// What it is.
    pub kind: ObjectKind,
    /// Base offset of the segment; of a snapshot the offset that it is of.
    pub offset: i64,
    /// Offsets from here on are read from elsewhere; `i64::MAX` for all that the segment has.
    pub end_offset: i64,
    /// Where it is, for people.
    pub url: PathBuf,
    /// Bytes when it was listed.
    pub size_bytes: u64,
}

/// Where to begin and to end in a segment, from a plan that has seen its index.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PositionHint {
    /// Base offset of the segment.
    pub base_offset: i64,
    /// Byte position of a batch that is at or before the first wanted one.
    pub position: u64,
    /// Byte position behind the last wanted batch.
    pub end_position: u64,
}

/// A read that was asked for.
pub trait PendingRead: Send + Debug {
    /// The bytes, once they are there.
    ///
    /// # Errors
    /// Why there are none, in one sentence that names the object.
    fn wait(self: Box<Self>) -> std::result::Result<Buffer, ReadFailure>;
}

/// Why an object could not be read.
#[derive(Debug)]
pub struct ReadFailure {
    /// There is no such object any more.
    pub is_missing: bool,
    /// What happened.
    pub reason: String,
}

/// Fetches ranges of the objects of one partition, which are known by their index in its list.
pub trait RangeReader: Send + Sync + Debug {
    /// Asks for the bytes from `start` up to, without, `end`. With `check` the object is compared with what was
    /// listed after they were read.
    fn begin(&self, object: usize, start: u64, end: u64, check: bool) -> Box<dyn PendingRead>;
}

/// The objects of one partition.
#[derive(Debug)]
pub struct RemoteDirectory {
    reader: Arc<dyn RangeReader>,
    url: PathBuf,
    objects: Vec<RemoteObject>,
    by_kind: BTreeMap<(ObjectKind, i64), usize>,
    hint: Option<PositionHint>,
    /// Most bytes of a window.
    window_size: u64,
    /// Names the directory in [`KEPT`].
    id: u64,
}

static KEPT: Mutex<Kept> = Mutex::new(Kept { ranges: VecDeque::new(), size: 0 });
static IDS: AtomicU64 = AtomicU64::new(0);

/// Bytes that were fetched last, oldest first.
#[derive(Debug)]
struct Kept {
    ranges: VecDeque<KeptRange>,
    size: usize,
}

#[derive(Debug)]
struct KeptRange {
    directory: u64,
    object: usize,
    start: u64,
    bytes: Buffer,
}

impl Kept {
    /// The bytes of `[start, end)` and those behind that are kept with them.
    fn find(&self, directory: u64, object: usize, start: u64, end: u64) -> Option<Buffer> {
        let has = |one: &&KeptRange| {
            let is_same = one.directory == directory && one.object == object;
            is_same && one.start <= start && end <= one.start + one.bytes.len() as u64
        };
        let found = self.ranges.iter().find(has)?;
        Some(found.bytes.slice((start - found.start) as usize))
    }

    fn keep(&mut self, directory: u64, object: usize, start: u64, bytes: &[u8]) {
        if bytes.len() > KEPT_SIZE_MAX {
            return;
        }
        while self.size + bytes.len() > KEPT_SIZE_MAX {
            let Some(oldest) = self.ranges.pop_front() else { break };
            self.size -= oldest.bytes.len();
        }
        self.size += bytes.len();
        // A copy, so that nothing of the one who fetched it is held.
        self.ranges.push_back(KeptRange { directory, object, start, bytes: Buffer::from(bytes) });
    }
}

fn kept() -> MutexGuard<'static, Kept> {
    KEPT.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RemoteDirectory {
    /// Of two objects of a kind with the same offset the last counts.
    pub fn new(
        reader: Arc<dyn RangeReader>,
        url: PathBuf,
        objects: Vec<RemoteObject>,
        hint: Option<PositionHint>,
        window_size: u64,
    ) -> Self {
        let by_kind =
            objects.iter().enumerate().map(|(index, one)| ((one.kind, one.offset), index)).collect();
        let window_size = window_size.max(WINDOW_SIZE_MIN);
        let id = IDS.fetch_add(1, Ordering::Relaxed);
        Self { reader, url, objects, by_kind, hint, window_size, id }
    }

    /// Where the partition is, for people.
    pub fn url(&self) -> &Path {
        &self.url
    }

    /// The segments by rising base offset.
    pub fn segments(self: &Arc<Self>) -> Vec<SegmentFile> {
        let first = (ObjectKind::Log, i64::MIN);
        self.by_kind
            .range(first..=(ObjectKind::Log, i64::MAX))
            .filter_map(|(_, &index)| self.objects.get(index))
            .map(|object| SegmentFile {
                base_offset: object.offset,
                path: object.url.clone(),
                size_bytes: object.size_bytes,
                remote: Some(Arc::clone(self)),
            })
            .collect()
    }

    /// The offsets that there are producer snapshots of.
    pub(super) fn snapshots(&self) -> Vec<(i64, PathBuf)> {
        let first = (ObjectKind::Snapshot, i64::MIN);
        let found = self.by_kind.range(first..).filter_map(|(_, &index)| self.objects.get(index));
        found.map(|object| (object.offset, object.url.clone())).collect()
    }

    /// Exclusive end of the offsets that are read from the segment with this base offset.
    pub(super) fn end_offset(&self, base_offset: i64) -> i64 {
        self.find(ObjectKind::Log, base_offset).map_or(i64::MAX, |(_, object)| object.end_offset)
    }

    pub(super) fn hint(&self, base_offset: i64) -> Option<PositionHint> {
        self.hint.filter(|hint| hint.base_offset == base_offset)
    }

    fn find(&self, kind: ObjectKind, offset: i64) -> Option<(usize, &RemoteObject)> {
        let index = *self.by_kind.get(&(kind, offset))?;
        Some((index, self.objects.get(index)?))
    }

    pub(super) fn has(&self, kind: ObjectKind, offset: i64) -> bool {
        self.by_kind.contains_key(&(kind, offset))
    }

    /// The bytes of a sidecar file; of an index as many as it can have entries. None when there is no such file.
    ///
    /// # Errors
    /// [`Error::Remote`]; [`Error::Invalid`] for one of more than 256 MiB.
    pub(super) fn sidecar(&self, kind: ObjectKind, offset: i64) -> Result<Option<Buffer>> {
        let Some((index, object)) = self.find(kind, offset) else { return Ok(None) };
        let mut size = object.size_bytes;
        if matches!(kind, ObjectKind::Index | ObjectKind::TimeIndex) {
            let log = self.find(ObjectKind::Log, offset).map_or(0, |(_, log)| log.size_bytes);
            let entries = log / INDEX_INTERVAL_MIN + 1;
            size = size.min(entries.saturating_mul(INDEX_ENTRY_SIZE_MAX));
        }
        if size > SIDECAR_SIZE_MAX {
            return Err(Error::Invalid(format!("{} has {size} bytes", object.url.display())));
        }
        if size == 0 {
            return Ok(Some(Buffer::from_vec(Vec::<u8>::new())));
        }
        let found = kept().find(self.id, index, 0, size);
        if found.is_some() {
            return Ok(found);
        }
        let bytes = self.fetch(index, 0, size, true)?;
        kept().keep(self.id, index, 0, &bytes);
        Ok(Some(bytes))
    }

    fn fetch(&self, index: usize, start: u64, end: u64, check: bool) -> Result<Buffer> {
        let pending = self.reader.begin(index, start, end, check);
        self.wait(pending, index, start, end)
    }

    fn wait(&self, pending: Box<dyn PendingRead>, index: usize, start: u64, end: u64) -> Result<Buffer> {
        let url = self.objects.get(index).map(|object| object.url.clone()).unwrap_or_default();
        let failed = |reason: String, is_missing: bool| Error::Remote {
            url: url.clone(),
            position: start,
            offset: -1,
            reason,
            is_missing,
        };
        let bytes = pending.wait().map_err(|failure| failed(failure.reason, failure.is_missing))?;
        if bytes.len() as u64 == end.saturating_sub(start) {
            return Ok(bytes);
        }
        let reason = format!("{} bytes came of the range up to {end}", bytes.len());
        Err(failed(reason, false))
    }

    /// Up to `size` bytes at one place of a segment, with a few of those behind for the next read there.
    pub(super) fn probe(&self, segment: &SegmentFile, position: u64, size: usize) -> Result<Buffer> {
        let Some((index, object)) = self.find(ObjectKind::Log, segment.base_offset) else {
            return Err(Error::Invalid(format!("no segment {}", segment.base_offset)));
        };
        let end = position.saturating_add(size as u64).min(object.size_bytes);
        if let Some(bytes) = self.probed(index, position, end) {
            return Ok(bytes.slice_with_length(0, (end - position) as usize));
        }
        if position >= end {
            return Ok(Buffer::from_vec(Vec::<u8>::new()));
        }
        let fetched_end = position.saturating_add(PROBE_SIZE).max(end).min(object.size_bytes);
        let bytes = self.fetch(index, position, fetched_end, false)?;
        kept().keep(self.id, index, position, &bytes);
        Ok(bytes.slice_with_length(0, (end - position) as usize))
    }

    /// What a probe has fetched from `position` on, when it has the bytes up to `end`.
    fn probed(&self, index: usize, position: u64, end: u64) -> Option<Buffer> {
        kept().find(self.id, index, position, end).filter(|_| position < end)
    }
}

#[derive(Debug)]
enum Bytes {
    Here(Buffer),
    Pending(Box<dyn PendingRead>),
}

/// A run of bytes of the object.
#[derive(Debug)]
struct Window {
    start: u64,
    end: u64,
    bytes: Bytes,
}

/// A segment that is read in windows.
#[derive(Debug)]
pub(super) struct RemoteFile {
    directory: Arc<RemoteDirectory>,
    index: usize,
    size_bytes: u64,
    /// Where the wanted bytes seem to end: nothing is asked for ahead behind it.
    wanted_end: u64,
    /// Back to back, in order.
    windows: VecDeque<Window>,
    next_size: u64,
    /// Ask for windows ahead.
    is_sequential: bool,
    /// The last batch was large and stepped over.
    is_stepping: bool,
    /// Nothing was read yet.
    is_fresh: bool,
}

impl RemoteFile {
    /// # Errors
    /// [`Error::Invalid`] when the directory does not have the segment.
    pub(super) fn open(directory: &Arc<RemoteDirectory>, segment: &SegmentFile) -> Result<Self> {
        let found = directory.find(ObjectKind::Log, segment.base_offset);
        let (index, object) = found.ok_or_else(|| {
            Error::Invalid(format!("{} is not of {}", segment.path.display(), directory.url.display()))
        })?;
        Ok(Self {
            directory: Arc::clone(directory),
            index,
            size_bytes: object.size_bytes,
            wanted_end: object.size_bytes,
            windows: VecDeque::new(),
            next_size: WINDOW_SIZE_MIN,
            is_sequential: false,
            is_stepping: false,
            is_fresh: true,
        })
    }

    pub(super) fn size_bytes(&self) -> u64 {
        self.size_bytes
    }

    /// From here on the bytes are read in order, up to about `wanted_end`.
    pub(super) fn expect_sequential(&mut self, wanted_end: u64) {
        self.is_sequential = true;
        // The header behind the last batch says that it was the last.
        self.wanted_end = wanted_end.saturating_add(HEADER_SIZE as u64).min(self.size_bytes);
    }

    /// Only headers are wanted: the first says whether it is worth while to step over batches.
    pub(super) fn expect_headers(&mut self) {
        self.is_stepping = true;
    }

    /// The next batch is `size` bytes behind this one. Where batches are large only their surroundings are fetched.
    pub(super) fn expect_step(&mut self, size: u64) {
        self.is_stepping = size >= STEP_SIZE_MIN;
    }

    /// At least `least` bytes from `position` on and as many more as are there anyway; fewer only at the end. The
    /// count says how many bytes were newly fetched for it.
    ///
    /// # Errors
    /// [`Error::Remote`].
    pub(super) fn read(&mut self, position: u64, least: usize) -> Result<(Buffer, u64)> {
        let end = position.saturating_add(least as u64).min(self.size_bytes);
        if position >= end {
            return Ok((Buffer::from_vec(Vec::<u8>::new()), 0));
        }
        while self.windows.front().is_some_and(|window| window.end <= position) {
            self.windows.pop_front();
        }
        let is_inside = self.windows.front().is_some_and(|window| window.start <= position);
        if !is_inside {
            self.windows.clear();
            self.next_size = if self.is_stepping { PROBE_SIZE } else { WINDOW_SIZE_MIN };
            if let Some(bytes) = self.directory.probed(self.index, position, end) {
                let window_end = position + bytes.len() as u64;
                self.windows.push_back(Window {
                    start: position,
                    end: window_end,
                    bytes: Bytes::Here(bytes),
                });
            }
        }
        while self.windows.back().is_none_or(|window| window.end < end) {
            let start = self.windows.back().map_or(position, |window| window.end);
            self.ask(start, end.saturating_sub(start));
        }
        self.ask_ahead(end);
        let fetched = self.take_until(end)?;
        Ok((self.join(position, end)?, fetched))
    }

    /// Asks for the window at `start`, of at least `least` bytes.
    fn ask(&mut self, start: u64, least: u64) {
        if self.is_sequential && !self.is_stepping {
            self.next_size = self.next_size.max(WINDOW_SIZE_SEQUENTIAL).min(self.directory.window_size);
        }
        // Behind what seemed to be wanted it is tried in small steps.
        let is_behind = start >= self.wanted_end;
        let planned = start.saturating_add(if is_behind { PROBE_SIZE } else { self.next_size });
        let wanted = if is_behind { planned } else { planned.min(self.wanted_end) };
        let end = wanted.max(start.saturating_add(least)).min(self.size_bytes);
        let check = self.is_fresh || end >= self.wanted_end;
        self.is_fresh = false;
        self.next_size = self.next_size.saturating_mul(WINDOW_GROWTH).min(self.directory.window_size);
        let pending = self.directory.reader.begin(self.index, start, end, check);
        self.windows.push_back(Window { start, end, bytes: Bytes::Pending(pending) });
    }

    fn ask_ahead(&mut self, used_end: u64) {
        if !self.is_sequential || self.is_stepping {
            return;
        }
        while let Some(last) = self.windows.back().map(|window| window.end) {
            let ahead = self.windows.iter().filter(|window| window.start >= used_end).count();
            if last >= self.wanted_end || ahead >= WINDOWS_AHEAD {
                break;
            }
            self.ask(last, 1);
        }
    }

    /// Waits for the windows that begin before `end`.
    fn take_until(&mut self, end: u64) -> Result<u64> {
        let mut fetched = 0;
        for window in self.windows.iter_mut().take_while(|window| window.start < end) {
            let none = Bytes::Here(Buffer::from_vec(Vec::<u8>::new()));
            window.bytes = match std::mem::replace(&mut window.bytes, none) {
                Bytes::Here(bytes) => Bytes::Here(bytes),
                Bytes::Pending(pending) => {
                    fetched += window.end - window.start;
                    Bytes::Here(self.directory.wait(pending, self.index, window.start, window.end)?)
                }
            };
        }
        Ok(fetched)
    }

    /// The bytes from `position` on: to the end of its window where that reaches to `end`, else up to `end`.
    fn join(&self, position: u64, end: u64) -> Result<Buffer> {
        let lost = || Error::Invalid("a window of a remote segment is not there".to_owned());
        let here = |window: &Window| match &window.bytes {
            Bytes::Here(bytes) => Ok(bytes.clone()),
            Bytes::Pending(_) => Err(lost()),
        };
        let first = self.windows.front().ok_or_else(lost)?;
        let skipped = position.checked_sub(first.start).ok_or_else(lost)? as usize;
        let bytes = here(first)?;
        if first.end >= end {
            return Ok(bytes.slice(skipped.min(bytes.len())));
        }
        let mut joined = Column::<u8>::default();
        joined.reserve((end - position) as usize);
        for window in &self.windows {
            let bytes = here_until(window, position, end, here)?;
            if let Some(bytes) = bytes {
                joined.extend_from_slice(&bytes);
            }
        }
        Ok(joined.take())
    }
}

/// The bytes of a window in `[position, end)`; None when it has none.
fn here_until(
    window: &Window,
    position: u64,
    end: u64,
    here: impl Fn(&Window) -> Result<Buffer>,
) -> Result<Option<Buffer>> {
    let (start, stop) = (window.start.max(position), window.end.min(end));
    if start >= stop {
        return Ok(None);
    }
    let bytes = here(window)?;
    Ok(Some(bytes.slice_with_length((start - window.start) as usize, (stop - start) as usize)))
}
