//! What a partition directory tells of its producers and transactions, without opening it for writing.
//!
//! The newest producer snapshot is the start; the headers and control records behind it are the rest. Aborted
//! transactions come from the `.txnindex` files, and from the markers met on the way, since a broker writes a marker
//! before its index entry.
use super::checked::{next_checked, Next};
use super::chunks::Chunks;
use super::listing::Directory;
use super::options::OnCorrupt;
use super::position::position_before;
use super::remote::ObjectKind;
use super::report::Report;
use super::resync::resume;
use super::segments::SegmentFile;
use crate::batch::{BatchHeader, BatchView};
use crate::fs::RealFileSystem;
use crate::offset_order::OffsetOrder;
use crate::producer_state::{read_snapshot, BatchMetadata, ProducerEntry};
use crate::segment::{AbortedTransaction, TransactionIndex};
use crate::{Error, Result};
use arrow_buffer::Buffer;
use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Type of a control record that ends a transaction without making it visible.
const ABORT: i16 = 0;
/// Type of a control record that commits a transaction.
const COMMIT: i16 = 1;
/// Largest snapshot that is read.
const SNAPSHOT_SIZE_MAX: u64 = 256 << 20;

/// Producers and transactions of a partition up to an offset.
#[derive(Debug, Clone, Default)]
pub struct Transactions {
    /// Producers by id, as a broker would know them that forgets none.
    pub producers: BTreeMap<i64, ProducerEntry>,
    /// Aborted transactions that have records in the range asked for, by the offset of their markers.
    pub aborted: Vec<AbortedTransaction>,
    /// Offset after the last batch that was looked at.
    pub end_offset: i64,
    /// First offset that belongs to an open transaction, else `end_offset`: where read_committed ends.
    pub last_stable_offset: i64,
}

impl Transactions {
    /// Reads the state at `end_offset` (exclusive; `i64::MAX` for the end of the log), and the aborted transactions
    /// that end at or after `start_offset`.
    ///
    /// A `.txnindex` that Kafka's sanity check refuses is not believed: the markers of the log are read instead. With
    /// [`OnCorrupt::Skip`] damage is reported and left out; a transaction whose marker it took stays open.
    ///
    /// # Errors
    /// [`Error::Io`]; [`Error::Corrupt`] naming file and position.
    pub fn read(
        directory: &Directory,
        segments: &[SegmentFile],
        start_offset: i64,
        end_offset: i64,
        on_corrupt: OnCorrupt,
        report: &Arc<Report>,
    ) -> Result<Self> {
        let pass = WalkPass { on_corrupt, report };
        let mut found = Self::from_snapshot(directory, segments, end_offset)?;
        let from = found.end_offset;
        for (index, segment) in segments.iter().enumerate() {
            let next_base = segments.get(index + 1).map_or(i64::MAX, |next| next.base_offset);
            if next_base <= from || segment.base_offset >= end_offset {
                continue;
            }
            found.walk(segment, next_base, from, end_offset, pass)?;
        }
        let open = found.producers.values().filter_map(|entry| entry.current_txn_first_offset).min();
        found.last_stable_offset = open.unwrap_or(found.end_offset);
        found.read_indexes(segments, start_offset, end_offset, pass)?;
        Ok(found)
    }

    /// The newest readable snapshot at or before `end_offset`, whose offset becomes the end offset.
    fn from_snapshot(directory: &Directory, segments: &[SegmentFile], end_offset: i64) -> Result<Self> {
        let log_start = segments.first().map_or(0, |segment| segment.base_offset);
        let mut snapshots = match directory {
            Directory::Local(path) => list_snapshots(path)?,
            Directory::Remote(remote) => remote.snapshots(),
        };
        snapshots.retain(|(offset, _)| *offset <= end_offset && *offset >= log_start);
        snapshots.sort_by_key(|(offset, _)| std::cmp::Reverse(*offset));
        for (offset, path) in snapshots {
            // One that a crash tore, or that is just being written, is no loss: an older one and the log say the same.
            let bytes = match directory {
                Directory::Local(_) => read_small_file(&path).map(Buffer::from_vec),
                Directory::Remote(remote) => {
                    Ok(remote.sidecar(ObjectKind::Snapshot, offset)?.unwrap_or_default())
                }
            };
            let Ok(entries) = bytes.and_then(|bytes| read_snapshot(&bytes)) else { continue };
            let producers = entries.into_iter().map(|entry| (entry.producer_id, entry)).collect();
            return Ok(Self { producers, end_offset: offset, ..Self::default() });
        }
        Ok(Self { end_offset: log_start, ..Self::default() })
    }

    /// Takes over the batches of a segment in `[from, end_offset)`; the next one begins at `next_base`.
    fn walk(
        &mut self,
        segment: &SegmentFile,
        next_base: i64,
        from: i64,
        end_offset: i64,
        pass: WalkPass<'_>,
    ) -> Result<()> {
        let position = position_before(segment, from);
        let mut chunks = Chunks::of(segment, position, Arc::clone(pass.report))?;
        chunks.expect_sequential(segment.size_bytes);
        // A copy of a segment may go on behind where another one takes over.
        let ceiling = if segment.end_offset() == i64::MAX { next_base } else { i64::MAX };
        let mut order = match position {
            0 => OffsetOrder::new(segment.base_offset, ceiling),
            _ => OffsetOrder::inside(segment.base_offset, ceiling),
        };
        let mut scratch = Vec::new();
        loop {
            let (found, bytes) = match next_checked(&mut chunks, &mut order, next_base == i64::MAX)? {
                Next::Batch(found, bytes) => (found, bytes),
                Next::End => return Ok(()),
                Next::Damage(error, end) => {
                    let Error::Corrupt { position, .. } = error else { return Err(error) };
                    if pass.on_corrupt == OnCorrupt::Raise {
                        return Err(error);
                    }
                    let next = resume(&mut chunks, position, end, &order)?;
                    pass.report.add_skipped(error, next.unwrap_or_else(|| chunks.size_bytes()));
                    match next {
                        Some(_) => continue,
                        None => return Ok(()),
                    }
                }
            };
            let header = BatchHeader::new(&bytes);
            if header.base_offset() >= end_offset {
                return Ok(());
            }
            if header.base_offset() < from {
                continue;
            }
            if header.is_control() {
                self.add_control(&chunks.current(found)?, &mut scratch);
            } else {
                self.add_data(&header);
            }
        }
    }

    fn add_data(&mut self, batch: &BatchHeader<'_>) {
        self.end_offset = self.end_offset.max(batch.next_offset());
        if !batch.has_producer_id() {
            return;
        }
        let entry = self.entry(batch.producer_id(), batch.producer_epoch());
        entry.batches.push(BatchMetadata {
            last_sequence: batch.last_sequence(),
            last_offset: batch.last_offset(),
            offset_delta: batch.last_offset_delta(),
            timestamp: batch.max_timestamp(),
        });
        entry.last_timestamp = batch.max_timestamp();
        if batch.is_transactional() && entry.current_txn_first_offset.is_none() {
            entry.current_txn_first_offset = Some(batch.base_offset());
        }
    }

    /// A control batch: its marker, if it is one that ends a transaction.
    fn add_control(&mut self, batch: &BatchView<'_>, scratch: &mut Vec<u8>) {
        self.end_offset = self.end_offset.max(batch.next_offset());
        if !batch.is_control() || !batch.has_producer_id() {
            return;
        }
        let Some((kind, coordinator_epoch)) = marker_of(batch, scratch) else { return };
        let (producer_id, last_offset) = (batch.producer_id(), batch.last_offset());
        let entry = self.entry(producer_id, batch.producer_epoch());
        entry.coordinator_epoch = coordinator_epoch;
        entry.last_timestamp = batch.max_timestamp();
        let first_offset = entry.current_txn_first_offset.take();
        if let (ABORT, Some(first_offset)) = (kind, first_offset) {
            let open = self.producers.values().filter_map(|entry| entry.current_txn_first_offset).min();
            self.aborted.push(AbortedTransaction {
                producer_id,
                first_offset,
                last_offset,
                last_stable_offset: open.unwrap_or(last_offset.saturating_add(1)),
            });
        }
    }

    fn entry(&mut self, producer_id: i64, epoch: i16) -> &mut ProducerEntry {
        let entry = self.producers.entry(producer_id).or_insert_with(|| ProducerEntry::unknown(producer_id));
        if entry.producer_epoch != epoch {
            entry.batches.clear();
            entry.producer_epoch = epoch;
        }
        entry
    }

    /// Adds what the `.txnindex` files know; where a segment has lost all of its indexes, or its own is not to be
    /// believed, its markers are read.
    fn read_indexes(
        &mut self,
        segments: &[SegmentFile],
        start_offset: i64,
        end_offset: i64,
        pass: WalkPass<'_>,
    ) -> Result<()> {
        let mut aborted: BTreeMap<(i64, i64), AbortedTransaction> = BTreeMap::new();
        for (index, segment) in segments.iter().enumerate() {
            let next_base = segments.get(index + 1).map_or(i64::MAX, |next| next.base_offset);
            if next_base <= start_offset {
                continue;
            }
            let has_lost_all = || !segment.has(ObjectKind::Index) && !segment.has(ObjectKind::TimeIndex);
            let entries = match index_of(segment)? {
                Stored::Entries(entries) if is_sane(&entries, segment.base_offset) => entries,
                Stored::None if next_base == i64::MAX || !has_lost_all() => continue,
                _ => self.markers_without_index(segments, index, pass)?,
            };
            aborted.extend(entries.into_iter().map(|one| ((one.last_offset, one.producer_id), one)));
        }
        // What the walk saw is true whatever an index says.
        aborted.extend(self.aborted.iter().map(|one| ((one.last_offset, one.producer_id), *one)));
        aborted.retain(|_, one| one.last_offset >= start_offset && one.first_offset < end_offset);
        self.aborted = aborted.into_values().collect();
        Ok(())
    }

    /// The transactions that end in segment `index`, by walking over the log up to its end.
    fn markers_without_index(
        &self,
        segments: &[SegmentFile],
        index: usize,
        pass: WalkPass<'_>,
    ) -> Result<Vec<AbortedTransaction>> {
        let mut walked = Self::default();
        for (number, segment) in segments.iter().enumerate().take(index + 1) {
            let next_base = segments.get(number + 1).map_or(i64::MAX, |next| next.base_offset);
            walked.walk(segment, next_base, i64::MIN, i64::MAX, pass)?;
        }
        let base_offset = segments.get(index).map_or(0, |segment| segment.base_offset);
        walked.aborted.retain(|one| one.last_offset >= base_offset);
        Ok(walked.aborted)
    }
}

/// What all walks of one look for transactions have in common.
#[derive(Debug, Clone, Copy)]
struct WalkPass<'a> {
    on_corrupt: OnCorrupt,
    report: &'a Arc<Report>,
}

/// The `.txnindex` of a segment.
enum Stored {
    None,
    /// Not made of whole entries of a known version.
    Unreadable,
    Entries(Vec<AbortedTransaction>),
}

fn index_of(segment: &SegmentFile) -> Result<Stored> {
    let path = segment.sidecar("txnindex");
    let read = match &segment.remote {
        Some(remote) => match remote.sidecar(ObjectKind::TxnIndex, segment.base_offset)? {
            Some(bytes) => TransactionIndex::parse(&bytes, &path),
            None => return Ok(Stored::None),
        },
        None if segment.has(ObjectKind::TxnIndex) => {
            TransactionIndex::new(Arc::new(RealFileSystem), path).entries().map(|entries| entries.clone())
        }
        None => return Ok(Stored::None),
    };
    match read {
        Ok(entries) => Ok(Stored::Entries(entries)),
        Err(Error::Invalid(_)) => Ok(Stored::Unreadable),
        Err(error) => Err(error),
    }
}

/// Kafka's `TransactionIndex.sanityCheck`, and that each transaction begins before it ends.
fn is_sane(entries: &[AbortedTransaction], base_offset: i64) -> bool {
    let is_sane =
        |one: &AbortedTransaction| one.last_offset >= base_offset && one.first_offset <= one.last_offset;
    entries.iter().all(is_sane)
}

/// Kind and coordinator epoch of the transaction marker in a control batch.
fn marker_of(batch: &BatchView<'_>, scratch: &mut Vec<u8>) -> Option<(i16, i32)> {
    let record = batch.records(scratch).ok()?.next()?.ok()?;
    let [_, _, a, b] = *record.key?.first_chunk::<4>()?;
    let kind = i16::from_be_bytes([a, b]);
    let [_, _, c, d, e, f] = *record.value?.first_chunk::<6>()?;
    matches!(kind, ABORT | COMMIT).then_some((kind, i32::from_be_bytes([c, d, e, f])))
}

fn list_snapshots(directory: &Path) -> Result<Vec<(i64, PathBuf)>> {
    let entries = fs::read_dir(directory).map_err(|source| Error::io("open", directory, source))?;
    let mut snapshots = Vec::new();
    for entry in entries {
        let path = entry.map_err(|source| Error::io("list", directory, source))?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        let offset = name.and_then(|name| name.strip_suffix(".snapshot")).and_then(|name| name.parse().ok());
        if let Some(offset) = offset {
            snapshots.push((offset, path));
        }
    }
    Ok(snapshots)
}

fn read_small_file(path: &Path) -> Result<Vec<u8>> {
    let size = fs::metadata(path).map_err(|source| Error::io("stat", path, source))?.len();
    if size > SNAPSHOT_SIZE_MAX {
        return Err(Error::Invalid(format!("{} has {size} bytes", path.display())));
    }
    fs::read(path).map_err(|source| Error::io("read", path, source))
}
