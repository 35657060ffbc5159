//! A node's part around one log: does what a history says to the engine and to the model, keeps the checkpoints.
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kraftlog_log::batch::{set_base_offset, set_partition_leader_epoch, split_header_mut};
use kraftlog_log::builder::{BatchBuilder, BatchOptions};
use kraftlog_log::compression::Codec;
use kraftlog_log::fs::{read_file, write_file_atomically, FileSystem, MemoryFileSystem};
use kraftlog_log::log::{Log, LogConfig, OpenOptions};
use kraftlog_log::producer_state::Origin;
use kraftlog_log::{Error, Result};

use crate::check;
use crate::history::{config, Op};
use crate::model::{Batch, Expected, Marker, Model, Sequence};

pub const ROOT: &str = "/data";
pub const LOG: &str = "/data/t-0";
const RECOVERY_POINT: &str = "recovery-point-offset-checkpoint";
const LOG_START: &str = "log-start-offset-checkpoint";
const OUT_OF_ORDER_SEQUENCE_NUMBER: i16 = 45;
const CLEAN: &str = ".kafka_cleanshutdown";

/// Why a step did not do what the model says.
#[derive(Debug)]
pub enum Failure {
    Engine(Error),
    Mismatch(String),
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Engine(error)
    }
}

impl std::fmt::Display for Failure {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Engine(error) => write!(formatter, "the engine failed: {error}"),
            Self::Mismatch(text) => formatter.write_str(text),
        }
    }
}

/// What the checkpoints on a disk say.
#[derive(Clone, Copy, Debug)]
pub struct Checkpoints {
    pub recovery_point: i64,
    pub log_start: i64,
    pub is_clean: bool,
}

fn root(name: &str) -> PathBuf {
    Path::new(ROOT).join(name)
}

fn read_number(fs: &dyn FileSystem, name: &str) -> Result<i64> {
    let Some(bytes) = read_file(fs, &root(name))? else { return Ok(0) };
    let text = String::from_utf8_lossy(&bytes).into_owned();
    text.parse().map_err(|_| Error::Invalid(format!("{name}: torn checkpoint {text:?}")))
}

fn write_number(fs: &dyn FileSystem, name: &str, value: i64) -> Result<()> {
    write_file_atomically(fs, &root(name), value.to_string().as_bytes())
}

impl Checkpoints {
    pub fn read(fs: &dyn FileSystem) -> Result<Self> {
        Ok(Self {
            recovery_point: read_number(fs, RECOVERY_POINT)?,
            log_start: read_number(fs, LOG_START)?,
            is_clean: fs.exists(&root(CLEAN)).map_err(|error| Error::io("stat", root(CLEAN), error))?,
        })
    }
}

/// Open the log as a node does that starts on this disk.
pub fn open(fs: &MemoryFileSystem, config: LogConfig, now_ms: i64) -> Result<(Log, Checkpoints)> {
    let checkpoints = Checkpoints::read(fs)?;
    if checkpoints.is_clean {
        fs.remove(&root(CLEAN)).map_err(|error| Error::io("remove", root(CLEAN), error))?;
        fs.sync_dir(Path::new(ROOT)).map_err(|error| Error::io("fsync directory", ROOT, error))?;
    }
    let options = OpenOptions {
        recovery_point: checkpoints.recovery_point,
        log_start_offset: checkpoints.log_start,
        clean_shutdown: checkpoints.is_clean,
        now_ms,
    };
    let log = Log::open(Arc::new(fs.clone()), Path::new(LOG), config, options)?;
    lower_checkpoints(fs, &log)?;
    Ok((log, checkpoints))
}

/// The checkpoint must not promise what is about to be taken back.
fn lower_recovery_point(fs: &MemoryFileSystem, recovery_point: i64) -> Result<()> {
    if Checkpoints::read(fs)?.recovery_point > recovery_point {
        write_number(fs, RECOVERY_POINT, recovery_point)?;
    }
    Ok(())
}

/// Nor what a truncation, or a crash, took back.
fn lower_checkpoints(fs: &MemoryFileSystem, log: &Log) -> Result<()> {
    lower_recovery_point(fs, log.recovery_point())?;
    let checkpoints = Checkpoints::read(fs)?;
    if checkpoints.log_start > log.log_start_offset() {
        write_number(fs, LOG_START, log.log_start_offset())?;
    }
    Ok(())
}

/// A new disk with the directory of logs.
pub fn new_disk() -> MemoryFileSystem {
    MemoryFileSystem::with_directory(Path::new(ROOT))
}

pub struct Machine {
    pub fs: MemoryFileSystem,
    pub log: Log,
    pub model: Model,
    /// What the model becomes once the step under way is over.
    pub after: Model,
    pub config: u8,
}

/// A batch to append: its bytes, and what the model keeps.
struct Draft {
    options: BatchOptions,
    records: usize,
    marker: Option<Marker>,
}

impl Machine {
    /// A new log on an empty disk.
    pub fn new(fs: MemoryFileSystem, choice: u8) -> Result<Self> {
        let model = Model::new();
        let (log, _) = open(&fs, config(choice), model.now_ms)?;
        Ok(Self { fs, log, after: model.clone(), model, config: choice })
    }

    /// Do one thing. On failure the model is as before and `after` is what it would have become.
    pub fn step(&mut self, op: Op) -> std::result::Result<(), Failure> {
        self.fs.set_now_ms(self.model.now_ms);
        self.after = self.model.clone();
        let result = self.run(op);
        if result.is_err() {
            self.after.start = self.after.start.max(self.log.log_start_offset());
            return result;
        }
        self.model = self.after.clone();
        if std::env::var_os("KRAFTLOG_CRASH_TRACE").is_some() {
            let Model { start, end, flushed, now_ms, .. } = self.model;
            let bases: Vec<_> = self.log.segments()?.iter().map(|segment| segment.base_offset).collect();
            eprintln!("{op:?}: [{start}, {end}) flushed {flushed} at {now_ms}, segments {bases:?}");
        }
        self.agree("log end offset", self.log.log_end_offset(), self.model.end)?;
        self.agree("log start offset", self.log.log_start_offset(), self.model.start)
    }

    fn agree<T: PartialEq + std::fmt::Debug>(
        &self,
        what: &str,
        found: T,
        expected: T,
    ) -> std::result::Result<(), Failure> {
        if found == expected {
            return Ok(());
        }
        Err(Failure::Mismatch(format!("{what} is {found:?}, expected {expected:?}")))
    }

    fn run(&mut self, op: Op) -> std::result::Result<(), Failure> {
        let now_ms = self.model.now_ms;
        match op {
            Op::Append { records, codec } => {
                let codec = [Codec::None, Codec::Lz4, Codec::Zstd, Codec::Gzip, Codec::Snappy]
                    [usize::from(codec) % 5];
                let options = BatchOptions { codec, ..BatchOptions::default() };
                self.lead(Draft { options, records: 1 + usize::from(records) % 6, marker: None })
            }
            Op::Produce { producer, records, in_transaction } => {
                self.produce(producer, records, in_transaction, 0)
            }
            Op::BumpProducer { producer } => self.produce(producer, 1, false, 1),
            Op::Retry { producer } => {
                let replayed = self.model.replay();
                check::retry(&self.log, &self.model, &replayed, i64::from(producer), true)
                    .map_err(Failure::Mismatch)
            }
            Op::Marker { producer, is_abort } => self.end_transaction(i64::from(producer), is_abort),
            Op::Follow { batches, raises_epoch } => self.follow(1 + usize::from(batches) % 4, raises_epoch),
            Op::Elect { is_assigned } => {
                self.after.leader_epoch += 1;
                if is_assigned {
                    self.log.assign_epoch_start(self.after.leader_epoch, self.model.end)?;
                }
                Ok(())
            }
            Op::Flush => {
                let flushed = self.log.flush()?;
                self.after.flushed = self.model.end;
                self.agree("flushed offset", flushed, self.model.end)
            }
            Op::Roll => {
                let base = self.log.roll(now_ms)?;
                self.agree("base offset after a roll", base, self.model.end)
            }
            Op::Truncate { records } => {
                let offset = (self.model.end - i64::from(records) % 14).max(self.model.start);
                self.after.truncate(offset);
                let fs = self.fs.clone();
                self.log.truncate_to_with(offset, now_ms, &mut |point| lower_recovery_point(&fs, point))?;
                Ok(lower_checkpoints(&self.fs, &self.log)?)
            }
            Op::Restart { offset } => {
                let offset = (self.model.end + i64::from(offset) % 24 - 8).max(0);
                self.after.restart(offset);
                let fs = self.fs.clone();
                self.log.truncate_fully_and_start_at_with(offset, now_ms, &mut |point| {
                    lower_recovery_point(&fs, point)
                })?;
                Ok(lower_checkpoints(&self.fs, &self.log)?)
            }
            Op::DeleteRecords { part } => {
                let limit = self.model.replay().first_unstable().unwrap_or(self.model.end);
                let room = (limit - self.model.start).max(0);
                let offset = self.model.start + room * i64::from(part) / 255;
                self.after.start = offset;
                self.after.epochs_from = self.after.epochs_from.max(offset);
                self.log.advance_log_start_offset(offset)?;
                Ok(())
            }
            Op::Retention { by_size } => self.retain(by_size),
            Op::RemoveDeleted => {
                self.log.remove_deleted(now_ms)?;
                Ok(())
            }
            Op::Snapshot => Ok(self.log.take_producer_snapshot()?),
            Op::CheckpointRecovery => Ok(write_number(&self.fs, RECOVERY_POINT, self.log.recovery_point())?),
            Op::CheckpointStart => Ok(write_number(&self.fs, LOG_START, self.log.log_start_offset())?),
            Op::Reopen => self.reopen(),
            Op::Kill => self
                .restart_process(Expected { required_end: self.model.end, ..Expected::at_rest(&self.model) }),
            Op::Configure { choice } => {
                self.config = choice;
                self.log.update_config(config(choice));
                Ok(())
            }
            Op::Wait { steps } => {
                self.after.now_ms += 100 * (1 + i64::from(steps) % 8);
                Ok(())
            }
        }
    }

    fn retain(&mut self, by_size: bool) -> std::result::Result<(), Failure> {
        let high_watermark = self.model.replay().first_unstable().unwrap_or(self.model.end);
        let mut changed = config(self.config);
        if by_size {
            changed.retention_bytes = 1200;
        } else {
            changed.retention_ms = 600;
        }
        self.log.update_config(changed);
        let deleted = self.log.delete_old_segments(self.model.now_ms, high_watermark);
        self.log.update_config(config(self.config));
        deleted?;
        let start = self.log.log_start_offset();
        if start < self.model.start || start > high_watermark.max(self.model.start) {
            return Err(Failure::Mismatch(format!(
                "retention moved the log start offset from {} to {start}, high watermark {high_watermark}",
                self.model.start
            )));
        }
        self.after.start = start;
        self.after.epochs_from = self.after.epochs_from.max(start);
        Ok(())
    }

    fn reopen(&mut self) -> std::result::Result<(), Failure> {
        self.log.close()?;
        self.after.flushed = self.model.end;
        write_number(&self.fs, RECOVERY_POINT, self.log.recovery_point())?;
        write_number(&self.fs, LOG_START, self.log.log_start_offset())?;
        write_file_atomically(&self.fs, &root(CLEAN), b"")?;
        let model = self.after.clone();
        self.restart_process(Expected { required_end: model.end, ..Expected::at_rest(&model) })
    }

    /// Begin again on the same disk, nothing lost.
    fn restart_process(&mut self, expected: Expected) -> std::result::Result<(), Failure> {
        let flushed = self.after.flushed;
        let (log, mut model) =
            check::recover(&self.fs, &expected, config(self.config)).map_err(Failure::Mismatch)?;
        model.flushed = flushed;
        self.log = log;
        self.after = model;
        Ok(())
    }

    fn build(&mut self, draft: &Draft) -> Result<Batch> {
        let options = draft.options;
        let mut builder = BatchBuilder::new(options)?;
        let mut records = Vec::with_capacity(draft.records);
        for index in 0..draft.records {
            let value = self.after.next_value;
            self.after.next_value += 1;
            let timestamp = self.model.now_ms + (value as i64 * 37) % 200 - 100;
            match draft.marker {
                Some(marker) => builder.append(
                    timestamp,
                    Some(&[0, 0, 0, u8::from(!marker.is_abort)]),
                    Some(&[0, 0, 0, 0, 0, 3]),
                    &[],
                )?,
                None => {
                    let key = format!("k{}", value % 7);
                    builder.append(
                        timestamp,
                        Some(key.as_bytes()),
                        Some(format!("{value:010}").as_bytes()),
                        &[],
                    )?;
                }
            }
            records.push((self.after.end + index as i64, timestamp));
        }
        let mut bytes = builder.finish()?;
        let (header, _) = split_header_mut(&mut bytes)?;
        set_base_offset(header, self.after.end);
        set_partition_leader_epoch(header, self.after.leader_epoch);
        let count = draft.records as i32;
        Ok(Batch {
            base: self.after.end,
            last: self.after.end + i64::from(count) - 1,
            epoch: self.after.leader_epoch,
            bytes: bytes.into(),
            records: records.into(),
            producer: (options.producer_id >= 0).then_some(Sequence {
                id: options.producer_id,
                epoch: options.producer_epoch,
                first: options.base_sequence,
                last: if draft.marker.is_some() { -1 } else { options.base_sequence + count - 1 },
            }),
            is_transactional: options.is_transactional,
            marker: draft.marker,
        })
    }

    fn lead(&mut self, draft: Draft) -> std::result::Result<(), Failure> {
        let batch = self.build(&draft)?;
        let origin = if draft.marker.is_some() { Origin::Coordinator } else { Origin::Client };
        let expected = (batch.base, batch.last, false);
        let bytes = Arc::clone(&batch.bytes);
        self.after.push(batch);
        let info = self.log.append_as_leader(&bytes, self.after.leader_epoch, self.model.now_ms, origin)?;
        self.agree(
            "appended offsets and duplicate",
            (info.first_offset, info.last_offset, info.is_duplicate),
            expected,
        )
    }

    fn produce(
        &mut self,
        producer: u8,
        records: u8,
        in_transaction: bool,
        epoch_bump: i16,
    ) -> std::result::Result<(), Failure> {
        let id = i64::from(producer);
        let known = self.model.replay().producers.get(&id).copied();
        let is_open = known.is_some_and(|producer| producer.transaction.is_some());
        if is_open && epoch_bump > 0 {
            return Ok(());
        }
        let epoch = known.map_or(0, |producer| producer.epoch) + epoch_bump;
        let base_sequence = match known {
            Some(producer) if epoch_bump == 0 => producer.last_sequence + 1,
            _ => 0,
        };
        let options = BatchOptions {
            producer_id: id,
            producer_epoch: epoch,
            base_sequence,
            is_transactional: in_transaction || is_open,
            ..BatchOptions::default()
        };
        let is_deleted =
            known.is_some_and(|producer| producer.last_base.is_some_and(|base| base < self.model.start));
        match self.lead(Draft { options, records: 1 + usize::from(records) % 4, marker: None }) {
            // Of a producer whose data is deleted a start may find nothing but a marker, with its epoch and without a
            // sequence. Kafka asks it to begin a new epoch then; so do we.
            Err(Failure::Engine(Error::Rejected { code: OUT_OF_ORDER_SEQUENCE_NUMBER, .. }))
                if is_deleted =>
            {
                self.after = self.model.clone();
                Ok(())
            }
            other => other,
        }
    }

    fn end_transaction(&mut self, id: i64, is_abort: bool) -> std::result::Result<(), Failure> {
        let Some(producer) = self.model.replay().producers.get(&id).copied() else { return Ok(()) };
        if producer.transaction.is_none() {
            return Ok(());
        }
        let options = BatchOptions {
            producer_id: id,
            producer_epoch: producer.epoch,
            base_sequence: -1,
            is_transactional: true,
            is_control: true,
            ..BatchOptions::default()
        };
        self.lead(Draft { options, records: 1, marker: Some(Marker { is_abort }) })
    }

    fn follow(&mut self, batches: usize, raises_epoch: bool) -> std::result::Result<(), Failure> {
        let mut bytes = Vec::new();
        let first = self.after.end;
        for index in 0..batches {
            if raises_epoch && index > 0 {
                self.after.leader_epoch += 1;
            }
            let draft = Draft { options: BatchOptions::default(), records: 1 + index, marker: None };
            let batch = self.build(&draft)?;
            bytes.extend_from_slice(&batch.bytes);
            self.after.push(batch);
        }
        let info = self.log.append_as_follower(&bytes, self.after.leader_epoch, self.model.now_ms)?;
        self.agree(
            "offsets appended as follower",
            (info.first_offset, info.last_offset),
            (first, self.after.end - 1),
        )
    }
}
