//! Copies what is sound of damaged logs into a new directory, and says what was lost.
//!
//! Nothing below the source is written to. Every whole batch with a right checksum and rising offsets is kept byte for
//! byte, also behind damage; indexes, leader epochs and producer snapshots are made anew from what was kept. The
//! leader epoch of a batch, which no checksum covers, is corrected where those of its neighbours contradict it. The
//! result opens in Kafka and here as after a clean stop.
use crate::batch::{set_partition_leader_epoch, BatchView, Source, HEADER_SIZE, MAGIC};
use crate::builder::{BatchBuilder, BatchOptions};
use crate::compression::Codec;
use crate::epoch_checkpoint::EpochCheckpoint;
use crate::fs::{self, FileSystem, RealFileSystem};
use crate::index::relative_offset;
use crate::json::Object;
use crate::producer_state::{ProducerEntry, ProducerState};
use crate::scan::{list_segments, partition_of, SegmentFile};
use crate::segment::{end_marker, note_producer, AppendedBatch, Segment, SegmentConfig};
use crate::verify::walk::{reason_of, Item, Walk};
use crate::verify::{in_parallel, VerifyProgress};
use crate::{partition_metadata, Error, Result};
use corrections::KeptBatch;
use epochs::EpochOrder;
use std::path::{Path, PathBuf};
use std::sync::atomic::Ordering;
use std::sync::Arc;

mod corrections;
mod epochs;

/// Losses of one partition that are listed; the others are counted in the bytes alone.
const LOSSES_MAX: usize = 10_000;
/// Kafka's default of `log.index.interval.bytes`.
const INDEX_INTERVAL_BYTES: u64 = 4096;

/// How to salvage.
#[derive(Clone, Copy, Debug, Default)]
pub struct SalvageOptions {
    /// Keep the records before the damage of uncompressed batches with a wrong checksum too, in batches of their own
    /// without producer. Any byte of them may be wrong.
    pub partial_batches: bool,
    /// Threads; 0 means one per processor.
    pub threads: usize,
}

/// Something that could not be kept.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loss {
    /// The source file.
    pub path: PathBuf,
    /// Where the lost bytes begin.
    pub position: u64,
    /// How many there are.
    pub bytes: u64,
    /// First offset that is missing afterwards; None when none is, such as for zeros at the end.
    pub first_offset: Option<i64>,
    /// Last offset that is missing, inclusive; None when what followed is not known.
    pub last_offset: Option<i64>,
    /// Records of it that were kept one by one.
    pub kept_records: u64,
    /// Why.
    pub reason: String,
}

/// What became of one partition.
#[derive(Clone, Debug)]
pub struct SalvagedPartition {
    /// The source directory or file.
    pub source: PathBuf,
    /// The new directory.
    pub output: PathBuf,
    /// Segments written.
    pub segments: u64,
    /// Batches kept.
    pub batches: u64,
    /// Bytes of them.
    pub bytes: u64,
    /// First offset kept, -1 without one.
    pub first_offset: i64,
    /// Offset after the last one kept.
    pub next_offset: i64,
    /// In the order of the files.
    pub losses: Vec<Loss>,
    /// Producers whose transaction has no end in what was kept: read_committed consumers stop at its first offset.
    pub open_transactions: Vec<(i64, i64)>,
    /// What else is to be known.
    pub remarks: Vec<String>,
}

/// What became of everything.
#[derive(Clone, Debug, Default)]
pub struct SalvageReport {
    /// By source path.
    pub partitions: Vec<SalvagedPartition>,
    /// Files of the log directory that were copied.
    pub copied: Vec<PathBuf>,
    /// It ended before all was read; the output is then not to be used.
    pub is_cancelled: bool,
}

impl SalvageReport {
    /// True when every byte was kept.
    pub fn is_complete(&self) -> bool {
        self.partitions.iter().all(|partition| partition.losses.is_empty())
    }

    /// The report as one JSON object.
    pub fn to_json(&self) -> String {
        let mut object = Object::new();
        object.text("status", if self.is_complete() { "complete" } else { "losses" });
        object.flag("cancelled", self.is_cancelled);
        object.list("partitions", self.partitions.iter().map(partition_json));
        object.end()
    }
}

fn partition_json(partition: &SalvagedPartition) -> String {
    let mut object = Object::new();
    object.text("source", &partition.source.to_string_lossy());
    object.text("output", &partition.output.to_string_lossy());
    object.number("segments", partition.segments);
    object.number("batches", partition.batches);
    object.number("bytes", partition.bytes);
    object.number("firstOffset", partition.first_offset);
    object.number("nextOffset", partition.next_offset);
    object.list("losses", partition.losses.iter().map(loss_json));
    let transactions = partition.open_transactions.iter().map(|(producer_id, first_offset)| {
        let mut object = Object::new();
        object.number("producerId", producer_id);
        object.number("firstOffset", first_offset);
        object.end()
    });
    object.list("openTransactions", transactions);
    object.list("remarks", partition.remarks.iter().map(|remark| crate::json::quoted(remark)));
    object.end()
}

fn loss_json(loss: &Loss) -> String {
    let mut object = Object::new();
    object.text("file", &loss.path.to_string_lossy());
    object.number("position", loss.position);
    object.number("bytes", loss.bytes);
    object.optional("firstOffset", loss.first_offset);
    object.optional("lastOffset", loss.last_offset);
    object.number("keptRecords", loss.kept_records);
    object.text("reason", &loss.reason);
    object.end()
}

/// Copies the partition directory, log directory or segment file at `source` into `output`, which must be new or empty
/// and not lie inside the source. A partition `topic-0` becomes `<output>/topic-0`.
///
/// # Errors
/// [`Error::Invalid`] for an output that is refused, and a source that is no log; [`Error::Io`] when writing fails.
/// Damage in the source is no error.
pub fn salvage(
    source: &Path,
    output: &Path,
    options: SalvageOptions,
    progress: &VerifyProgress,
) -> Result<SalvageReport> {
    let source = source.canonicalize().map_err(|error| Error::io("open", source, error))?;
    let partitions = sources(&source)?;
    prepare_output(&source, output)?;
    let total: u64 =
        partitions.iter().flat_map(|(_, segments)| segments).map(|segment| segment.size_bytes).sum();
    progress.total_bytes.store(total, Ordering::Relaxed);
    let outcomes = in_parallel(options.threads, partitions, |(path, segments)| {
        let name = directory_name(&path);
        Copying::new(&path, &output.join(name))?.run(&segments, options, progress)
    });
    let mut report = SalvageReport { is_cancelled: progress.is_cancelled(), ..SalvageReport::default() };
    for outcome in outcomes {
        report.partitions.push(outcome?);
    }
    report.partitions.sort_by(|a, b| a.source.cmp(&b.source));
    if source.is_dir() && partition_of(&directory_name(&source)).is_none() {
        for name in ["meta.properties", "bootstrap.checkpoint"] {
            let from = source.join(name);
            if let Ok(Some(bytes)) = fs::read_file(&RealFileSystem, &from) {
                fs::write_file_atomically(&RealFileSystem, &output.join(name), &bytes)?;
                report.copied.push(from);
            }
        }
    }
    RealFileSystem.sync_dir(output).map_err(|error| Error::io("fsync directory", output, error))?;
    Ok(report)
}

/// The name of a partition's directory, also for a file of it.
fn directory_name(path: &Path) -> String {
    let named = if path.is_dir() { Some(path) } else { path.parent() };
    let name = named.and_then(Path::file_name).map(|name| name.to_string_lossy().into_owned());
    name.unwrap_or_else(|| "salvaged-0".to_owned())
}

/// Partitions of the source with their segments.
fn sources(source: &Path) -> Result<Vec<(PathBuf, Vec<SegmentFile>)>> {
    if source.is_file() {
        return Ok(vec![(source.to_owned(), vec![SegmentFile::open(source)?])]);
    }
    let segments = list_segments(source)?;
    if !segments.is_empty() {
        return Ok(vec![(source.to_owned(), segments)]);
    }
    let mut partitions = Vec::new();
    for entry in std::fs::read_dir(source).map_err(|error| Error::io("list", source, error))? {
        let path = entry.map_err(|error| Error::io("list", source, error))?.path();
        let name = path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        if path.is_dir() && partition_of(&name).is_some() {
            let segments = list_segments(&path)?;
            partitions.push((path, segments));
        }
    }
    let is_without_logs = partitions.iter().all(|(path, segments)| {
        segments.is_empty()
            && crate::verify::list(path).is_ok_and(|names| !crate::verify::has_log_files(&names))
    });
    if is_without_logs {
        let named: Vec<_> = partitions.iter().map(|(path, _)| directory_name(path)).collect();
        let detail = match named.as_slice() {
            [] => String::new(),
            names => format!("; named like one, but without files of a log: {}", names.join(", ")),
        };
        return Err(Error::Invalid(format!(
            "{}: no segments and no partition directories{detail}",
            source.display()
        )));
    }
    partitions.sort_by(|a, b| a.0.cmp(&b.0));
    Ok(partitions)
}

fn prepare_output(source: &Path, output: &Path) -> Result<()> {
    let io = |error| Error::io("create directory", output, error);
    let refuse = |why: &str| Err(Error::Invalid(format!("{}: {why}", output.display())));
    // The nearest parent that exists says where a path that does not exist yet would lie.
    let absolute = std::path::absolute(output).map_err(io)?;
    let existing = absolute.ancestors().find_map(|ancestor| ancestor.canonicalize().ok());
    let held = if source.is_file() { source.parent().unwrap_or(source) } else { source };
    if existing.is_some_and(|existing| existing.starts_with(held)) {
        return refuse("the output must not lie inside the source");
    }
    match std::fs::read_dir(output) {
        Ok(mut entries) => match entries.next() {
            Some(_) => refuse("the output directory is not empty"),
            None => Ok(()),
        },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
            std::fs::create_dir_all(output).map_err(io)
        }
        Err(error) => Err(io(error)),
    }
}

/// One partition on its way.
struct Copying {
    fs: Arc<dyn FileSystem>,
    output: PathBuf,
    producers: ProducerState,
    epochs: EpochCheckpoint,
    order: EpochOrder,
    corrections: u64,
    /// The batch that was kept last.
    last_kept: Option<KeptBatch>,
    segment: Option<Segment>,
    /// Damage since the last batch that was kept.
    pending: Vec<Loss>,
    result: SalvagedPartition,
}

impl Copying {
    fn new(source: &Path, output: &Path) -> Result<Self> {
        let fs: Arc<dyn FileSystem> = Arc::new(RealFileSystem);
        fs.create_dir(output).map_err(|error| Error::io("create directory", output, error))?;
        Ok(Self {
            producers: ProducerState::open(Arc::clone(&fs), output, i64::MAX)?,
            epochs: EpochCheckpoint::detached(Arc::clone(&fs), output),
            // Without a checkpoint that can be read the batches are the only witnesses.
            order: EpochOrder::new(EpochCheckpoint::open(Arc::clone(&fs), directory_of(source)).ok()),
            corrections: 0,
            last_kept: None,
            fs,
            output: output.to_owned(),
            segment: None,
            pending: Vec::new(),
            result: SalvagedPartition {
                source: source.to_owned(),
                output: output.to_owned(),
                segments: 0,
                batches: 0,
                bytes: 0,
                first_offset: -1,
                next_offset: 0,
                losses: Vec::new(),
                open_transactions: Vec::new(),
                remarks: Vec::new(),
            },
        })
    }

    fn run(
        mut self,
        segments: &[SegmentFile],
        options: SalvageOptions,
        progress: &VerifyProgress,
    ) -> Result<SalvagedPartition> {
        self.result.next_offset = segments.first().map_or(0, |segment| segment.base_offset);
        let ceilings = segments.iter().skip(1).map(|next| next.base_offset).chain([i64::MAX]);
        for (file, ceiling) in segments.iter().zip(ceilings) {
            self.start_segment(file.base_offset)?;
            if let Err(error) = self.copy(file, ceiling, options, progress) {
                // Only the source may fail to be read; an output that cannot be written is the caller's to know.
                if !is_about(&error, &file.path) {
                    return Err(error);
                }
                let (position, bytes) = (0, file.size_bytes);
                self.lose(&file.path, position, bytes, reason_of(error), 0);
            }
            if progress.is_cancelled() {
                break;
            }
        }
        self.settle(None);
        self.finish()
    }

    /// A new segment, named as the source's unless what was kept reaches beyond.
    fn start_segment(&mut self, base_offset: i64) -> Result<()> {
        // Each begins where the one before ends: a hole is then inside, as compaction leaves holes. With one between
        // two files a node that recovers takes what follows for the remains of another log.
        let source_base = base_offset;
        let base_offset = match self.result.segments {
            0 => base_offset.max(self.result.next_offset),
            _ => self.result.next_offset,
        };
        if self
            .segment
            .as_ref()
            .is_some_and(|segment| segment.size_bytes() == 0 && segment.base_offset() == base_offset)
        {
            return Ok(());
        }
        if source_base > self.result.next_offset && self.result.segments > 0 && self.pending.is_empty() {
            let last = source_base - 1;
            self.result
                .remarks
                .push(format!("no file holds the offsets {} to {last}", self.result.next_offset));
        }
        self.roll(base_offset)
    }

    /// Ends the segment and begins one at `base_offset`.
    fn roll(&mut self, base_offset: i64) -> Result<()> {
        self.end_segment()?;
        self.producers.set_end_offset(base_offset);
        if self.result.segments > 0 {
            self.producers.take_snapshot()?;
        }
        let config = SegmentConfig {
            index_interval_bytes: INDEX_INTERVAL_BYTES,
            segment_index_bytes: 10 << 20,
            roll_jitter_ms: 0,
            preallocate_bytes: 0,
        };
        self.segment = Some(Segment::create(&self.fs, &self.output, base_offset, config, 0)?);
        self.result.segments += 1;
        Ok(())
    }

    fn end_segment(&mut self) -> Result<()> {
        if let Some(segment) = self.segment.take() {
            segment.finish()?;
            segment.sync_log()?;
            segment.sync_indexes()?;
            segment.release()?;
        }
        Ok(())
    }

    fn copy(
        &mut self,
        file: &SegmentFile,
        ceiling: i64,
        options: SalvageOptions,
        progress: &VerifyProgress,
    ) -> Result<()> {
        let mut walk = Walk::open(&file.path, file.base_offset, ceiling)?;
        let mut reported = 0;
        while !progress.is_cancelled() {
            let item = walk.next_item(self.result.next_offset)?;
            progress.advance(walk.position() - reported);
            reported = walk.position();
            match item {
                Item::End => break,
                Item::Batch => {
                    let (position, batch) = walk.batch()?;
                    let refusal = match self.refusal(&batch) {
                        None => self.keep(&batch)?,
                        refusal => refusal,
                    };
                    if let Some(reason) = refusal {
                        self.lose(&file.path, position, batch.bytes().len() as u64, reason, 0);
                    }
                }
                Item::Misplaced { reason } => {
                    let (position, batch) = walk.batch()?;
                    self.lose(&file.path, position, batch.bytes().len() as u64, reason, 0);
                }
                Item::Damage { position, size, kind, reason, .. } => {
                    let mut kept = 0;
                    if options.partial_batches && kind == "batch-crc" {
                        let bytes = walk.bytes_at(position, usize::try_from(size).unwrap_or(usize::MAX))?;
                        kept = self.keep_records(&bytes)?;
                    }
                    self.lose(&file.path, position, size, reason, kept);
                }
                Item::Torn { position, size } => {
                    self.lose(&file.path, position, size, "the file ends inside a batch".to_owned(), 0);
                }
                Item::Zeros { position, size } => {
                    self.lose(&file.path, position, size, "only zeros follow".to_owned(), 0);
                }
            }
        }
        Ok(())
    }

    /// Why a batch with a right checksum cannot be kept.
    fn refusal(&self, batch: &BatchView<'_>) -> Option<String> {
        let (first, last, expected) = (batch.base_offset(), batch.last_offset(), self.result.next_offset);
        if first < expected {
            return Some(format!("its offsets from {first} on come after {}", expected - 1));
        }
        if last < first || last == i64::MAX {
            return Some(format!("its last offset {last} makes no sense"));
        }
        if batch.magic() > MAGIC {
            return Some(format!("magic {} is unknown", batch.magic()));
        }
        let mut scratch = Vec::new();
        let decoded = batch.records(&mut scratch).and_then(|records| records.try_for_each_record(|_| Ok(())));
        decoded.err().map(reason_of)
    }

    /// Appends a batch, or says why no node would open a log with it: its marker cannot be read, or it contradicts the
    /// transaction of its producer.
    fn keep(&mut self, batch: &BatchView<'_>) -> Result<Option<String>> {
        let base_offset = self.segment.as_ref().map_or(0, Segment::base_offset);
        if relative_offset(base_offset, batch.last_offset()).is_err() {
            self.roll(batch.base_offset())?;
        }
        let Some(segment) = &self.segment else { return Ok(None) };
        let aborted = match note_producer(&mut self.producers, batch, || end_marker(batch)) {
            Ok(aborted) => aborted,
            Err(error @ Error::Io { .. }) => return Err(error),
            Err(error) => return Ok(Some(reason_of(error))),
        };
        let position = segment.size_bytes();
        let path = segment.path().to_owned();
        let (header, body) = batch.bytes().split_at(HEADER_SIZE.min(batch.bytes().len()));
        let (mut epoch, mut header) = (batch.partition_leader_epoch(), header.to_vec());
        if let (MAGIC, Some(header)) = (batch.magic(), header.first_chunk_mut()) {
            epoch = self.corrected_epoch(batch)?;
            set_partition_leader_epoch(header, epoch);
        }
        let Some(segment) = &self.segment else { return Ok(None) };
        segment.append(&[&header, body], &[AppendedBatch::of(batch)])?;
        self.last_kept = Some(KeptBatch { segment: path, position, base_offset: batch.base_offset(), epoch });
        if let Some(aborted) = aborted {
            segment.append_aborted(aborted)?;
        }
        self.settle(Some(batch.base_offset()));
        if epoch >= 0 && self.epochs.latest().is_none_or(|latest| epoch > latest.epoch) {
            self.epochs.assign(epoch, batch.base_offset());
        }
        if self.result.first_offset < 0 {
            self.result.first_offset = batch.base_offset();
        }
        self.result.batches += 1;
        self.result.bytes += batch.bytes().len() as u64;
        self.result.next_offset = batch.next_offset();
        Ok(None)
    }

    /// The records in front of the damage of an uncompressed batch, in a batch without producer; returns how many.
    fn keep_records(&mut self, bytes: &[u8]) -> Result<u64> {
        let Ok(Some(batch)) = crate::batch::next_batch_from(Source::File, bytes, 0) else { return Ok(0) };
        let is_plain = batch.magic() == MAGIC && batch.codec() == Ok(Codec::None) && !batch.is_control();
        if !is_plain || batch.base_offset() < self.result.next_offset || batch.is_transactional() {
            return Ok(0);
        }
        let mut scratch = Vec::new();
        let Ok(records) = batch.records(&mut scratch) else { return Ok(0) };
        let mut builder = BatchBuilder::new(BatchOptions {
            base_offset: batch.base_offset(),
            partition_leader_epoch: batch.partition_leader_epoch(),
            ..BatchOptions::default()
        })?;
        for record in records {
            let Ok(record) = record else { break };
            let headers: Vec<_> = record.headers.into_iter().collect();
            let (delta, time) = (record.offset_delta, record.timestamp);
            if builder.append_at(delta, time, record.key, record.value, &headers).is_err() {
                break;
            }
        }
        let count = u64::try_from(builder.record_count()).unwrap_or(0);
        let rebuilt = builder.finish()?;
        match crate::batch::next_batch(&rebuilt, 0) {
            Ok(Some(batch)) if self.keep(&batch)?.is_none() => Ok(count),
            _ => Ok(0),
        }
    }

    fn lose(&mut self, path: &Path, position: u64, bytes: u64, reason: String, kept_records: u64) {
        let first_offset = Some(self.result.next_offset);
        let path = path.to_owned();
        let loss = Loss { path, position, bytes, first_offset, last_offset: None, kept_records, reason };
        self.pending.push(loss);
    }

    /// What follows says which offsets the damage before it took.
    fn settle(&mut self, next_kept: Option<i64>) {
        for mut loss in self.pending.drain(..) {
            match (next_kept, loss.first_offset) {
                (Some(next), Some(first)) if next > first => loss.last_offset = Some(next - 1),
                (Some(_), _) => loss.first_offset = None,
                (None, _) => {}
            }
            if self.result.losses.len() < LOSSES_MAX {
                self.result.losses.push(loss);
            }
        }
    }

    fn finish(mut self) -> Result<SalvagedPartition> {
        self.end_segment()?;
        self.producers.set_end_offset(self.result.next_offset);
        self.producers.take_snapshot()?;
        self.epochs.flush()?;
        self.remark_further_corrections();
        let source = directory_of(&self.result.source).to_owned();
        match partition_metadata::read(self.fs.as_ref(), &source) {
            Ok(Some(id)) => partition_metadata::write(self.fs.as_ref(), &self.output, id)?,
            Ok(None) => {}
            Err(error) => self.result.remarks.push(reason_of(error)),
        }
        if let Ok(Some(bytes)) = fs::read_file(self.fs.as_ref(), &source.join("quorum-state")) {
            fs::write_file_atomically(self.fs.as_ref(), &self.output.join("quorum-state"), &bytes)?;
        }
        let open = |entry: &ProducerEntry| Some((entry.producer_id, entry.current_txn_first_offset?));
        self.result.open_transactions = self.producers.entries().filter_map(open).collect();
        self.result.open_transactions.sort_unstable();
        self.fs.sync_dir(&self.output).map_err(|error| Error::io("fsync directory", &self.output, error))?;
        Ok(self.result)
    }
}

/// The directory of a partition, whether it or one of its segments was named.
fn directory_of(source: &Path) -> &Path {
    if source.is_dir() {
        source
    } else {
        source.parent().unwrap_or(source)
    }
}

fn is_about(error: &Error, file: &Path) -> bool {
    match error {
        Error::Io { path, .. } => path == file,
        Error::Invalid(text) => text.starts_with(&file.display().to_string()),
        _ => false,
    }
}

#[cfg(test)]
mod tests;
