//! One partition's log, its slices and the lock on a data directory.
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{SystemTime, UNIX_EPOCH};

use kraftlog_log::log as engine;
use kraftlog_log::producer_state::{Origin, ProducerEntry, Verification};
use kraftlog_log::segment::FoundTimestamp;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyType};

use crate::errors::PyLogError;
use crate::memory_disk::file_system;
use crate::raw::ByteBuffer;

mod cleaner;
mod config;
mod directory_lock;
mod recovery;
mod slice;

pub(crate) use config::LogConfig;
use recovery::{RecoveryEvent, RecoveryProgress};
pub(crate) use slice::FileSlice;

type Result<T> = std::result::Result<T, PyLogError>;

pub(crate) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<Log>()?;
    m.add_class::<LogConfig>()?;
    m.add_class::<AppendInfo>()?;
    m.add_class::<FileSlice>()?;
    m.add_class::<SegmentInfo>()?;
    m.add_class::<ProducerInfo>()?;
    m.add_function(wrap_pyfunction!(flush_logs, m)?)?;
    cleaner::register(m)?;
    recovery::register(m)?;
    directory_lock::register(m)
}

/// What an append did.
#[pyclass(frozen, get_all, module = "kraftlog._kraftlog")]
pub(crate) struct AppendInfo {
    first_offset: i64,
    last_offset: i64,
    log_append_time_ms: i64,
    log_start_offset: i64,
    duplicate: bool,
    record_count: i64,
    size_bytes: u64,
    rolled: bool,
}

impl From<engine::AppendInfo> for AppendInfo {
    fn from(info: engine::AppendInfo) -> Self {
        Self {
            first_offset: info.first_offset,
            last_offset: info.last_offset,
            log_append_time_ms: info.log_append_time_ms,
            log_start_offset: info.log_start_offset,
            duplicate: info.is_duplicate,
            record_count: info.record_count,
            size_bytes: info.size_bytes,
            rolled: info.is_rolled,
        }
    }
}

#[pymethods]
impl AppendInfo {
    fn __repr__(&self) -> String {
        format!(
            "AppendInfo(first_offset={}, last_offset={}, duplicate={}, size_bytes={})",
            self.first_offset,
            self.last_offset,
            if self.duplicate { "True" } else { "False" },
            self.size_bytes
        )
    }
}

/// A segment of a log.
#[pyclass(frozen, get_all, module = "kraftlog._kraftlog")]
pub(crate) struct SegmentInfo {
    base_offset: i64,
    size_bytes: u64,
    max_timestamp: i64,
    path: PathBuf,
}

/// State of one producer.
#[pyclass(frozen, get_all, module = "kraftlog._kraftlog")]
#[derive(Clone)]
pub(crate) struct ProducerInfo {
    producer_id: i64,
    producer_epoch: i16,
    last_sequence: i32,
    last_offset: i64,
    last_timestamp: i64,
    coordinator_epoch: i32,
    current_txn_first_offset: Option<i64>,
}

impl From<&ProducerEntry> for ProducerInfo {
    fn from(entry: &ProducerEntry) -> Self {
        Self {
            producer_id: entry.producer_id,
            producer_epoch: entry.producer_epoch,
            last_sequence: entry.last_sequence(),
            last_offset: entry.last_offset(),
            last_timestamp: entry.last_timestamp,
            coordinator_epoch: entry.coordinator_epoch,
            current_txn_first_offset: entry.current_txn_first_offset,
        }
    }
}

fn triple(found: Option<FoundTimestamp>) -> Option<(i64, i64, i32)> {
    found.map(|found| (found.offset, found.timestamp, found.leader_epoch))
}

pub(crate) fn clock_ms(now_ms: Option<i64>) -> i64 {
    now_ms.unwrap_or_else(|| {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
    })
}

pub(crate) fn parse_origin(origin: &str) -> PyResult<Origin> {
    match origin {
        "client" => Ok(Origin::Client),
        "coordinator" => Ok(Origin::Coordinator),
        "raft" => Ok(Origin::Raft),
        other => Err(PyValueError::new_err(format!("origin {other:?} is not client, coordinator or raft"))),
    }
}

type Keep<'a> = &'a mut dyn FnMut(i64) -> kraftlog_log::Result<()>;

/// Run a truncation that tells a callable the recovery point to keep; what the callable raises comes out unchanged.
pub(crate) fn with_keeper<T: Send>(
    py: Python<'_>,
    keeper: Option<Py<PyAny>>,
    truncate: impl FnOnce(Keep<'_>) -> kraftlog_log::Result<T> + Send,
) -> PyResult<T> {
    let mut raised = None;
    let result = py.detach(|| {
        truncate(&mut |offset| {
            let Some(keeper) = &keeper else { return Ok(()) };
            Python::attach(|py| keeper.call1(py, (offset,))).map(drop).map_err(|error| {
                raised = Some(error);
                kraftlog_log::Error::Invalid("the recovery point was not kept".to_owned())
            })
        })
    });
    match raised {
        Some(error) => Err(error),
        None => result.map_err(|error| PyLogError(error).into()),
    }
}

/// Flush several logs, one after the other, without the GIL from the first to the last; the error of one leaves the
/// others alone.
#[pyfunction]
fn flush_logs(py: Python<'_>, logs: Vec<Py<Log>>) -> PyResult<Vec<Py<PyAny>>> {
    let outcomes: Vec<_> = py.detach(|| logs.iter().map(|log| log.get().log.flush()).collect());
    outcomes
        .into_iter()
        .map(|outcome| match outcome {
            Ok(end_offset) => Ok(end_offset.into_pyobject(py)?.into_any().unbind()),
            Err(error) => Ok(PyErr::from(PyLogError(error)).into_value(py).into_any()),
        })
        .collect()
}

/// One partition directory; any thread may call.
#[pyclass(frozen, module = "kraftlog._kraftlog")]
pub(crate) struct Log {
    pub(crate) log: Arc<engine::Log>,
}

#[pymethods]
impl Log {
    #[classmethod]
    #[pyo3(signature = (path, *, config, now_ms, recovery_point=0, log_start_offset=0, clean_shutdown=false,
        recovery_threads=1, progress=None))]
    #[allow(clippy::too_many_arguments)]
    fn open(
        _cls: &Bound<'_, PyType>,
        py: Python<'_>,
        path: PathBuf,
        config: &LogConfig,
        now_ms: i64,
        recovery_point: i64,
        log_start_offset: i64,
        clean_shutdown: bool,
        recovery_threads: usize,
        progress: Option<&RecoveryProgress>,
    ) -> Result<Self> {
        let options = engine::OpenOptions { recovery_point, log_start_offset, clean_shutdown, now_ms };
        let config = config.0.clone();
        let mut recovery = engine::Recovery { threads: recovery_threads, ..engine::Recovery::default() };
        if let Some(progress) = progress {
            recovery.progress = Arc::clone(&progress.0);
        }
        let log =
            py.detach(|| engine::Log::open_with(file_system(&path), &path, config, options, &recovery))?;
        Ok(Self { log: Arc::new(log) })
    }

    #[getter]
    fn path(&self) -> PathBuf {
        self.log.path()
    }

    #[getter]
    fn log_start_offset(&self) -> i64 {
        self.log.log_start_offset()
    }

    #[getter]
    fn log_end_offset(&self) -> i64 {
        self.log.log_end_offset()
    }

    #[getter]
    fn recovery_point(&self, py: Python<'_>) -> i64 {
        py.detach(|| self.log.recovery_point())
    }

    #[getter]
    fn size_bytes(&self, py: Python<'_>) -> u64 {
        py.detach(|| self.log.size_bytes())
    }

    #[getter]
    fn segment_count(&self, py: Python<'_>) -> usize {
        py.detach(|| self.log.segment_count())
    }

    #[getter]
    fn active_segment_base_offset(&self, py: Python<'_>) -> i64 {
        py.detach(|| self.log.active_segment_base_offset())
    }

    #[getter]
    fn topic_id<'py>(&self, py: Python<'py>) -> Option<Bound<'py, PyBytes>> {
        let id = py.detach(|| self.log.topic_id())?;
        Some(PyBytes::new(py, &id))
    }

    #[getter]
    fn recovery_events(&self) -> Vec<RecoveryEvent> {
        self.log.recovery_events().iter().map(RecoveryEvent::from).collect()
    }

    #[getter]
    fn poisoned(&self) -> Option<&str> {
        self.log.poisoned()
    }

    #[getter]
    fn latest_epoch(&self, py: Python<'_>) -> Option<i32> {
        py.detach(|| self.log.latest_epoch())
    }

    #[getter]
    fn first_unstable_offset(&self) -> Option<i64> {
        self.log.first_unstable_offset()
    }

    fn write_partition_metadata(&self, py: Python<'_>, topic_id: [u8; 16]) -> Result<()> {
        Ok(py.detach(|| self.log.write_partition_metadata(topic_id))?)
    }

    #[pyo3(signature = (producer_id, *, epoch, sequence, supports_epoch_bump, now_ms))]
    fn begin_verification(
        &self,
        py: Python<'_>,
        producer_id: i64,
        epoch: i16,
        sequence: i32,
        supports_epoch_bump: bool,
        now_ms: i64,
    ) -> Result<Option<u64>> {
        let asked = Verification { lowest_sequence: sequence, supports_epoch_bump };
        Ok(py.detach(|| self.log.begin_verification(producer_id, epoch, asked, now_ms))?)
    }

    #[pyo3(signature = (records, *, leader_epoch, now_ms, origin="client", transaction_version=0, verification=None))]
    #[allow(clippy::too_many_arguments)]
    fn append_as_leader(
        &self,
        py: Python<'_>,
        records: ByteBuffer,
        leader_epoch: i32,
        now_ms: i64,
        origin: &str,
        transaction_version: i16,
        verification: Option<(i32, bool)>,
    ) -> PyResult<AppendInfo> {
        let options = engine::AppendOptions {
            transaction_version: Some(transaction_version),
            verification: verification.map(|(lowest_sequence, supports_epoch_bump)| Verification {
                lowest_sequence,
                supports_epoch_bump,
            }),
            ..engine::AppendOptions::new(leader_epoch, now_ms, parse_origin(origin)?)
        };
        let info =
            py.detach(|| self.log.append_as_leader_with(records.as_slice(), options)).map_err(PyLogError)?;
        Ok(info.into())
    }

    #[pyo3(signature = (records, *, leader_epoch, now_ms=None))]
    fn append_as_follower(
        &self,
        py: Python<'_>,
        records: ByteBuffer,
        leader_epoch: i32,
        now_ms: Option<i64>,
    ) -> Result<AppendInfo> {
        let now_ms = clock_ms(now_ms);
        let info = py.detach(|| self.log.append_as_follower(records.as_slice(), leader_epoch, now_ms))?;
        Ok(info.into())
    }

    #[pyo3(signature = (offset, *, max_bytes, end_offset, min_one_batch=true))]
    fn read(
        &self,
        py: Python<'_>,
        offset: i64,
        max_bytes: i64,
        end_offset: i64,
        min_one_batch: bool,
    ) -> Result<FileSlice> {
        let max_bytes = u64::try_from(max_bytes).unwrap_or(0);
        let slice = py.detach(|| self.log.read(offset, max_bytes, end_offset, min_one_batch))?;
        Ok(FileSlice::new(slice))
    }

    fn flush(&self, py: Python<'_>) -> Result<i64> {
        Ok(py.detach(|| self.log.flush())?)
    }

    fn offset_for_timestamp(&self, py: Python<'_>, timestamp: i64) -> Result<Option<(i64, i64, i32)>> {
        Ok(triple(py.detach(|| self.log.offset_for_timestamp(timestamp))?))
    }

    fn max_timestamp(&self, py: Python<'_>) -> Result<Option<(i64, i64, i32)>> {
        Ok(triple(py.detach(|| self.log.max_timestamp())?))
    }

    fn end_offset_for_epoch(&self, py: Python<'_>, epoch: i32) -> (i32, i64) {
        py.detach(|| self.log.end_offset_for_epoch(epoch))
    }

    fn epoch_for_offset(&self, py: Python<'_>, offset: i64) -> Option<i32> {
        py.detach(|| self.log.epoch_for_offset(offset))
    }

    fn epoch_entries(&self, py: Python<'_>) -> Vec<(i32, i64)> {
        let entries = py.detach(|| self.log.epoch_entries());
        entries.into_iter().map(|entry| (entry.epoch, entry.start_offset)).collect()
    }

    fn assign_epoch_start(&self, py: Python<'_>, epoch: i32, offset: i64) -> Result<()> {
        Ok(py.detach(|| self.log.assign_epoch_start(epoch, offset))?)
    }

    #[pyo3(signature = (offset, *, now_ms=None, keep_recovery_point=None))]
    fn truncate_to(
        &self,
        py: Python<'_>,
        offset: i64,
        now_ms: Option<i64>,
        keep_recovery_point: Option<Py<PyAny>>,
    ) -> PyResult<bool> {
        let now_ms = clock_ms(now_ms);
        with_keeper(py, keep_recovery_point, |keep| self.log.truncate_to_with(offset, now_ms, keep))
    }

    #[pyo3(signature = (offset, *, now_ms=None, keep_recovery_point=None))]
    fn truncate_fully_and_start_at(
        &self,
        py: Python<'_>,
        offset: i64,
        now_ms: Option<i64>,
        keep_recovery_point: Option<Py<PyAny>>,
    ) -> PyResult<()> {
        let now_ms = clock_ms(now_ms);
        with_keeper(py, keep_recovery_point, |keep| {
            self.log.truncate_fully_and_start_at_with(offset, now_ms, keep)
        })
    }

    fn advance_log_start_offset(&self, py: Python<'_>, offset: i64) -> Result<bool> {
        Ok(py.detach(|| self.log.advance_log_start_offset(offset))?)
    }

    fn delete_old_segments(&self, py: Python<'_>, now_ms: i64, high_watermark: i64) -> Result<Vec<i64>> {
        Ok(py.detach(|| self.log.delete_old_segments(now_ms, high_watermark))?)
    }

    fn remove_deleted(&self, py: Python<'_>, now_ms: i64) -> Result<usize> {
        Ok(py.detach(|| self.log.remove_deleted(now_ms))?)
    }

    fn update_high_watermark(&self, py: Python<'_>, high_watermark: i64) {
        py.detach(|| self.log.update_high_watermark(high_watermark));
    }

    fn roll(&self, py: Python<'_>, now_ms: i64) -> Result<i64> {
        Ok(py.detach(|| self.log.roll(now_ms))?)
    }

    fn take_producer_snapshot(&self, py: Python<'_>) -> Result<()> {
        Ok(py.detach(|| self.log.take_producer_snapshot())?)
    }

    fn active_producers(&self, py: Python<'_>) -> Vec<ProducerInfo> {
        py.detach(|| self.log.active_producers()).iter().map(ProducerInfo::from).collect()
    }

    /// (producer_id, first_offset, last_offset, last_stable_offset) each.
    fn aborted_transactions(
        &self,
        py: Python<'_>,
        start: i64,
        end: i64,
    ) -> Result<Vec<(i64, i64, i64, i64)>> {
        let found = py.detach(|| self.log.aborted_transactions(start, end))?;
        Ok(found
            .into_iter()
            .map(|txn| (txn.producer_id, txn.first_offset, txn.last_offset, txn.last_stable_offset))
            .collect())
    }

    fn update_config(&self, py: Python<'_>, config: &LogConfig) {
        let config = config.0.clone();
        py.detach(|| self.log.update_config(config));
    }

    fn segments(&self, py: Python<'_>) -> Result<Vec<SegmentInfo>> {
        let segments = py.detach(|| self.log.segments())?;
        Ok(segments
            .into_iter()
            .map(|segment| SegmentInfo {
                base_offset: segment.base_offset,
                size_bytes: segment.size_bytes,
                max_timestamp: segment.max_timestamp,
                path: segment.path,
            })
            .collect())
    }

    #[pyo3(signature = (*, first_dirty_offset, first_uncleanable_offset, now_ms, delete_retention_ms=86_400_000,
        dedupe_buffer_bytes=134_217_728, load_factor=0.9, io_buffer_bytes=262_144, cancel=None, throttle=None))]
    #[allow(clippy::too_many_arguments)]
    fn clean(
        &self,
        py: Python<'_>,
        first_dirty_offset: i64,
        first_uncleanable_offset: i64,
        now_ms: i64,
        delete_retention_ms: i64,
        dedupe_buffer_bytes: u64,
        load_factor: f64,
        io_buffer_bytes: usize,
        cancel: Option<&cleaner::CleanCancel>,
        throttle: Option<&cleaner::CleanThrottle>,
    ) -> Result<cleaner::CleanReport> {
        let options = engine::CleanOptions {
            first_dirty_offset,
            first_uncleanable_offset,
            delete_retention_ms,
            now_ms,
            dedupe_buffer_bytes,
            load_factor,
            io_buffer_bytes,
            ..engine::CleanOptions::default()
        };
        cleaner::clean(py, &self.log, options, cancel, throttle)
    }

    fn cleanable_segments(&self, py: Python<'_>, start_offset: i64) -> Result<Vec<cleaner::CleanSegment>> {
        cleaner::cleanable_segments(py, &self.log, start_offset)
    }

    fn close(&self, py: Python<'_>) -> Result<()> {
        Ok(py.detach(|| self.log.close())?)
    }

    fn discard(&self, py: Python<'_>) {
        py.detach(|| self.log.discard());
    }

    fn delete(&self, py: Python<'_>) -> Result<()> {
        Ok(py.detach(|| self.log.delete())?)
    }

    fn __repr__(&self) -> String {
        format!(
            "Log({:?}, log_start_offset={}, log_end_offset={})",
            self.log.path().display().to_string(),
            self.log.log_start_offset(),
            self.log.log_end_offset()
        )
    }
}
