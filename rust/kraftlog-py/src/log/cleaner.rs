//! `Log.clean`: compaction with the GIL released, and what stops and slows it.
use std::sync::Arc;

use kraftlog_log::log::{self as engine, CancelFlag, CleanOptions, CleanOutcome, Throttle};
use pyo3::prelude::*;

use super::Result;

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<CleanCancel>()?;
    m.add_class::<CleanThrottle>()?;
    m.add_class::<CleanReport>()?;
    m.add_class::<CleanSegment>()
}

/// Stops a clean from another thread.
#[pyclass(frozen, module = "kraftlog._kraftlog")]
pub(crate) struct CleanCancel(Arc<CancelFlag>);

#[pymethods]
impl CleanCancel {
    #[new]
    fn new() -> Self {
        Self(Arc::default())
    }

    fn cancel(&self) {
        self.0.cancel();
    }

    #[getter]
    fn cancelled(&self) -> bool {
        self.0.is_cancelled()
    }
}

/// A rate that several cleans keep together.
#[pyclass(frozen, module = "kraftlog._kraftlog")]
pub(crate) struct CleanThrottle(Arc<Throttle>);

#[pymethods]
impl CleanThrottle {
    #[new]
    fn new(bytes_per_second: f64) -> Self {
        Self(Arc::new(Throttle::new(bytes_per_second)))
    }

    fn set_rate(&self, bytes_per_second: f64) {
        self.0.set_rate(bytes_per_second);
    }
}

/// What a clean did.
#[pyclass(frozen, get_all, module = "kraftlog._kraftlog")]
pub(crate) struct CleanReport {
    outcome: &'static str,
    next_dirty_offset: i64,
    map_bytes_read: u64,
    map_messages_read: u64,
    map_keys: u64,
    map_utilization: f64,
    map_is_full: bool,
    bytes_read: u64,
    bytes_written: u64,
    messages_read: u64,
    messages_retained: u64,
    invalid_messages: u64,
    batches_grown: u64,
    segments_read: u64,
    segments_written: u64,
}

impl From<engine::CleanReport> for CleanReport {
    fn from(report: engine::CleanReport) -> Self {
        Self {
            outcome: match report.outcome {
                CleanOutcome::Completed => "completed",
                CleanOutcome::Cancelled => "cancelled",
                CleanOutcome::Overtaken => "overtaken",
            },
            next_dirty_offset: report.next_dirty_offset,
            map_bytes_read: report.map_bytes_read,
            map_messages_read: report.map_messages_read,
            map_keys: report.map_keys,
            map_utilization: report.map_utilization,
            map_is_full: report.map_is_full,
            bytes_read: report.bytes_read,
            bytes_written: report.bytes_written,
            messages_read: report.messages_read,
            messages_retained: report.messages_retained,
            invalid_messages: report.invalid_messages,
            batches_grown: report.batches_grown,
            segments_read: report.segments_read,
            segments_written: report.segments_written,
        }
    }
}

#[pymethods]
impl CleanReport {
    fn __repr__(&self) -> String {
        format!(
            "CleanReport(outcome={:?}, next_dirty_offset={}, bytes_read={}, bytes_written={}, messages_read={}, \
             messages_retained={})",
            self.outcome,
            self.next_dirty_offset,
            self.bytes_read,
            self.bytes_written,
            self.messages_read,
            self.messages_retained
        )
    }
}

/// What decides whether a segment is cleaned.
#[pyclass(frozen, get_all, module = "kraftlog._kraftlog")]
pub(crate) struct CleanSegment {
    base_offset: i64,
    size_bytes: u64,
    largest_timestamp: i64,
    first_timestamp: Option<i64>,
}

/// [`engine::Log::clean`] without the GIL.
pub(super) fn clean(
    py: Python<'_>,
    log: &engine::Log,
    options: CleanOptions<'static>,
    cancel: Option<&CleanCancel>,
    throttle: Option<&CleanThrottle>,
) -> Result<CleanReport> {
    let options = CleanOptions {
        cancel: cancel.map(|cancel| cancel.0.as_ref()),
        throttle: throttle.map(|throttle| throttle.0.as_ref()),
        ..options
    };
    Ok(py.detach(|| log.clean(&options))?.into())
}

/// [`engine::Log::cleanable_segments`] without the GIL.
pub(super) fn cleanable_segments(
    py: Python<'_>,
    log: &engine::Log,
    start_offset: i64,
) -> Result<Vec<CleanSegment>> {
    let segments = py.detach(|| log.cleanable_segments(start_offset))?;
    let convert = |segment: engine::CleanableSegment| CleanSegment {
        base_offset: segment.base_offset,
        size_bytes: segment.size_bytes,
        largest_timestamp: segment.largest_timestamp,
        first_timestamp: segment.first_timestamp,
    };
    Ok(segments.into_iter().map(convert).collect())
}
