//! Log directories as streams of Arrow batches, and what they tell of themselves.
use crate::arrow::{ArrowStream, BatchSource};
use crate::arrow_request::Representation;
use crate::errors::PyLogError;
use crate::log::ProducerInfo;
use crate::scan::remote::DirectoryArg;
use arrow_array::RecordBatch;
use kraftlog_log::scan::{
    self, AbortedRanges, BatchColumns, BatchRows, BatchRowsOptions, Directory, IsolationLevel, OnCorrupt,
    Report, Scan, ScanOptions, ScanSource, Transactions,
};
use kraftlog_log::segment::AbortedTransaction;
use kraftlog_log::Result;
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedStr;
use pyo3::types::PyDict;
use std::path::PathBuf;
use std::sync::Arc;

/// Runs without the GIL whatever the caller holds, where other threads need it to go on.
fn detached<T: Send>(needs_python: bool, mut work: impl FnMut() -> T + Send) -> T {
    let done = needs_python.then(|| Python::try_attach(|py| py.detach(&mut work))).flatten();
    done.unwrap_or_else(work)
}

struct RunningScan {
    scan: Option<Scan>,
    report: Arc<Report>,
    /// Threads of the scan fetch through Python.
    needs_python: bool,
}

impl RunningScan {
    fn new(sources: Vec<ScanSource>, options: Arc<ScanOptions>) -> Self {
        let is_remote = sources.iter().any(|source| matches!(source.directory, Directory::Remote(_)));
        let scan = Scan::new(sources, options);
        Self { report: Arc::clone(scan.report()), scan: Some(scan), needs_python: is_remote }
    }
}

impl BatchSource for RunningScan {
    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        let scan = &mut self.scan;
        detached(self.needs_python, || scan.as_mut().map_or(Ok(None), Scan::next_batch))
    }

    fn report(&self) -> Arc<Report> {
        Arc::clone(&self.report)
    }
}

impl Drop for RunningScan {
    fn drop(&mut self) {
        let scan = &mut self.scan;
        // It waits for its threads.
        detached(self.needs_python, || drop(scan.take()));
    }
}

struct RunningBatchRows(BatchRows);

impl BatchSource for RunningBatchRows {
    fn next_batch(&mut self) -> Result<Option<RecordBatch>> {
        self.0.next_batch()
    }

    fn report(&self) -> Arc<Report> {
        Arc::clone(self.0.report())
    }
}

#[pyfunction]
#[pyo3(signature = (
    sources, *, columns=None, timestamp_unit="ms", check_crc=false, begin_in_range=false, on_corrupt="raise",
    batch_rows=16384
))]
fn scan_batches_stream(
    sources: Vec<SourceTuple>,
    columns: Option<Vec<PyBackedStr>>,
    timestamp_unit: &str,
    check_crc: bool,
    begin_in_range: bool,
    on_corrupt: &str,
    batch_rows: usize,
) -> PyResult<ArrowStream> {
    let unit = super::timestamp_unit(timestamp_unit)?;
    let columns = BatchColumns::new(columns.as_deref(), unit).map_err(super::value_error)?;
    let schema = columns.schema();
    let on_corrupt = on_corrupt_named(on_corrupt)?;
    let options = BatchRowsOptions { columns, check_crc, rows_max: batch_rows, begin_in_range, on_corrupt };
    let sources: Vec<ScanSource> = sources.into_iter().map(source).collect();
    Ok(ArrowStream::new(schema, move |_| {
        Box::new(RunningBatchRows(BatchRows::new(sources.clone(), options.clone())))
    }))
}

fn on_corrupt_named(name: &str) -> PyResult<OnCorrupt> {
    match name {
        "raise" => Ok(OnCorrupt::Raise),
        "skip" => Ok(OnCorrupt::Skip),
        other => Err(PyValueError::new_err(format!("on_corrupt is raise or skip, not {other:?}"))),
    }
}

/// Producer id, first offset, offset of the marker.
type AbortedTuple = (i64, i64, i64);
/// Directory, topic, partition, first offset, exclusive end offset, aborted transactions when they are known.
type SourceTuple =
    (DirectoryArg, Option<String>, Option<i32>, Option<i64>, Option<i64>, Option<Vec<AbortedTuple>>);

fn source((directory, topic, partition, start_offset, end_offset, aborted): SourceTuple) -> ScanSource {
    let aborted = aborted.map(|aborted| {
        let entry = |(producer_id, first_offset, last_offset)| AbortedTransaction {
            producer_id,
            first_offset,
            last_offset,
            last_stable_offset: last_offset,
        };
        Arc::new(AbortedRanges::new(&aborted.into_iter().map(entry).collect::<Vec<_>>()))
    });
    ScanSource {
        directory: directory.0,
        topic: topic.map(Arc::from),
        partition,
        start_offset: start_offset.unwrap_or(i64::MIN),
        end_offset: end_offset.unwrap_or(i64::MAX),
        aborted,
    }
}

/// The options of a scan; what is not its own is an option of its columns.
fn scan_options(kwargs: Option<&Bound<'_, PyDict>>) -> PyResult<ScanOptions> {
    let mut options = ScanOptions::default();
    let Some(kwargs) = kwargs else { return Ok(options) };
    let columns = kwargs.copy()?;
    for (name, value) in kwargs {
        match &*name.extract::<PyBackedStr>()? {
            "isolation_level" => {
                options.isolation = match &*value.extract::<PyBackedStr>()? {
                    "read_uncommitted" => IsolationLevel::ReadUncommitted,
                    "read_committed" => IsolationLevel::ReadCommitted,
                    other => {
                        return Err(PyValueError::new_err(format!(
                            "isolation_level is read_uncommitted or read_committed, not {other:?}"
                        )))
                    }
                }
            }
            "on_corrupt" => options.on_corrupt = on_corrupt_named(&value.extract::<PyBackedStr>()?)?,
            "drop_behind" => options.drop_behind = value.extract()?,
            "memory_map" => options.memory_map = value.extract()?,
            "threads" => options.threads = super::positive("threads", &value)?,
            _ => continue,
        }
        columns.del_item(name)?;
    }
    options.columns = Arc::new(super::column_options(Some(&columns))?);
    Ok(options)
}

#[pyfunction]
#[pyo3(signature = (sources, **options))]
fn scan_stream(sources: Vec<SourceTuple>, options: Option<&Bound<'_, PyDict>>) -> PyResult<ArrowStream> {
    let options = Arc::new(scan_options(options)?);
    let sources: Vec<ScanSource> = sources.into_iter().map(source).collect();
    Ok(ArrowStream::new(options.columns.schema(), move |representation| {
        let options = represented(&options, representation);
        Box::new(RunningScan::new(sources.clone(), options))
    }))
}

/// The options with the types that a consumer asked for.
fn represented(options: &Arc<ScanOptions>, wanted: Representation) -> Arc<ScanOptions> {
    let mut columns = options.columns.as_ref().clone();
    columns.binary_type = wanted.binary_type.unwrap_or(columns.binary_type);
    columns.timestamp_unit = wanted.timestamp_unit.unwrap_or(columns.timestamp_unit);
    columns.topic_dictionary = wanted.topic_dictionary.unwrap_or(columns.topic_dictionary);
    Arc::new(ScanOptions { columns: Arc::new(columns), ..options.as_ref().clone() })
}

/// A part of a log, of one segment.
#[pyclass(frozen, get_all, module = "kraftlog._kraftlog")]
pub(crate) struct LogSplit {
    segment_base_offset: i64,
    start_offset: i64,
    end_offset: i64,
    position: u64,
    size_bytes: u64,
}

/// What a partition directory knows of producers and transactions.
#[pyclass(frozen, get_all, module = "kraftlog._kraftlog")]
pub(crate) struct LogTransactions {
    last_stable_offset: i64,
    end_offset: i64,
    aborted: Vec<AbortedTuple>,
    producers: Vec<ProducerInfo>,
}

#[pyfunction]
fn list_segments(py: Python<'_>, directory: DirectoryArg) -> PyResult<Vec<(i64, PathBuf, u64)>> {
    let segments = py.detach(|| directory.0.segments()).map_err(PyLogError)?;
    Ok(segments.into_iter().map(|segment| (segment.base_offset, segment.path, segment.size_bytes)).collect())
}

#[pyfunction]
fn log_end_offset(py: Python<'_>, directory: DirectoryArg) -> PyResult<i64> {
    let end = py.detach(|| scan::log_end_offset(&directory.0.segments()?));
    Ok(end.map_err(PyLogError)?)
}

#[pyfunction]
#[pyo3(signature = (directory, *, split_bytes, start_offset=None, end_offset=None))]
fn plan_splits(
    py: Python<'_>,
    directory: DirectoryArg,
    split_bytes: u64,
    start_offset: Option<i64>,
    end_offset: Option<i64>,
) -> PyResult<Vec<LogSplit>> {
    let (start, end) = (start_offset.unwrap_or(i64::MIN), end_offset.unwrap_or(i64::MAX));
    let splits = py
        .detach(|| scan::plan_splits(&directory.0.segments()?, split_bytes, start, end))
        .map_err(PyLogError)?;
    Ok(splits
        .into_iter()
        .map(|split| LogSplit {
            segment_base_offset: split.segment_base_offset,
            start_offset: split.start_offset,
            end_offset: split.end_offset,
            position: split.position,
            size_bytes: split.size_bytes,
        })
        .collect())
}

#[pyfunction]
#[pyo3(signature = (directory, *, start_offset=None, end_offset=None, on_corrupt="raise"))]
fn read_transactions(
    py: Python<'_>,
    directory: DirectoryArg,
    start_offset: Option<i64>,
    end_offset: Option<i64>,
    on_corrupt: &str,
) -> PyResult<LogTransactions> {
    let on_corrupt = on_corrupt_named(on_corrupt)?;
    let (start, end) = (start_offset.unwrap_or(i64::MIN), end_offset.unwrap_or(i64::MAX));
    let found = py.detach(|| {
        Transactions::read(&directory.0, &directory.0.segments()?, start, end, on_corrupt, &Arc::default())
    });
    let found = found.map_err(PyLogError)?;
    let aborted = found.aborted.iter().map(|one| (one.producer_id, one.first_offset, one.last_offset));
    Ok(LogTransactions {
        last_stable_offset: found.last_stable_offset,
        end_offset: found.end_offset,
        aborted: aborted.collect(),
        producers: found.producers.values().map(ProducerInfo::from).collect(),
    })
}

#[pyfunction]
fn offset_for_timestamp(
    py: Python<'_>,
    directory: DirectoryArg,
    start_offset: i64,
    timestamp: i64,
) -> PyResult<Option<(i64, i64)>> {
    let found = py.detach(|| scan::offset_for_timestamp(directory.0, start_offset, timestamp));
    Ok(found.map_err(PyLogError)?)
}

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<LogSplit>()?;
    m.add_class::<LogTransactions>()?;
    m.add_function(wrap_pyfunction!(scan_stream, m)?)?;
    m.add_function(wrap_pyfunction!(scan_batches_stream, m)?)?;
    m.add_function(wrap_pyfunction!(list_segments, m)?)?;
    m.add_function(wrap_pyfunction!(log_end_offset, m)?)?;
    m.add_function(wrap_pyfunction!(plan_splits, m)?)?;
    m.add_function(wrap_pyfunction!(read_transactions, m)?)?;
    m.add_function(wrap_pyfunction!(offset_for_timestamp, m)?)?;
    Ok(())
}
