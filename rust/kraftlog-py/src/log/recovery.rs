//! Recovery of a single segment file, for tools and tests.
use std::path::PathBuf;
use std::sync::Arc;

use kraftlog_log::{recovery_event, segment};
use pyo3::prelude::*;

use crate::errors::PyLogError;

pub(super) fn register(m: &Bound<'_, PyModule>) -> PyResult<()> {
    m.add_class::<SegmentRecovery>()?;
    m.add_class::<RecoveryProgress>()?;
    m.add_class::<RecoveryEvent>()?;
    m.add_function(wrap_pyfunction!(recover_segment, m)?)
}

/// How far the recovery of a log is.
#[pyclass(frozen, module = "kraftlog._kraftlog")]
#[derive(Default)]
pub(crate) struct RecoveryProgress(pub(super) Arc<segment::RecoveryProgress>);

#[pymethods]
impl RecoveryProgress {
    #[new]
    fn new() -> Self {
        Self::default()
    }

    #[getter]
    fn segments_total(&self) -> u64 {
        self.0.segments_total()
    }

    #[getter]
    fn segments_done(&self) -> u64 {
        self.0.segments_done()
    }

    #[getter]
    fn bytes_total(&self) -> u64 {
        self.0.bytes_total()
    }

    #[getter]
    fn bytes_done(&self) -> u64 {
        self.0.bytes_done()
    }

    fn __repr__(&self) -> String {
        format!(
            "RecoveryProgress(segments={}/{}, bytes={}/{})",
            self.segments_done(),
            self.segments_total(),
            self.bytes_done(),
            self.bytes_total()
        )
    }
}

/// One thing that was cut, removed or built anew while a log was opened.
#[pyclass(frozen, get_all, module = "kraftlog._kraftlog")]
pub(crate) struct RecoveryEvent {
    kind: &'static str,
    path: PathBuf,
    position: u64,
    offset: i64,
    lost_bytes: u64,
    reason: String,
}

impl From<&recovery_event::RecoveryEvent> for RecoveryEvent {
    fn from(event: &recovery_event::RecoveryEvent) -> Self {
        Self {
            kind: event.kind.name(),
            path: event.path.clone(),
            position: event.position,
            offset: event.offset,
            lost_bytes: event.lost_bytes,
            reason: event.reason.clone(),
        }
    }
}

/// What a recovery found and did.
#[pyclass(frozen, get_all, module = "kraftlog._kraftlog")]
pub(crate) struct SegmentRecovery {
    truncated_bytes: u64,
    size_bytes: u64,
    next_offset: i64,
    offset_index: Vec<(i64, u64)>,
    time_index: Vec<(i64, i64)>,
    leader_epochs: Vec<(i32, i64)>,
    producer_count: usize,
}

#[pyfunction]
#[pyo3(signature = (path, *, index_interval_bytes=4096))]
fn recover_segment(
    py: Python<'_>,
    path: PathBuf,
    index_interval_bytes: u64,
) -> Result<SegmentRecovery, PyLogError> {
    let found = py.detach(|| segment::recover_file(&path, index_interval_bytes))?;
    Ok(SegmentRecovery {
        truncated_bytes: found.truncated_bytes,
        size_bytes: found.size_bytes,
        next_offset: found.next_offset,
        offset_index: found.offset_index.iter().map(|entry| (entry.offset, entry.position)).collect(),
        time_index: found.time_index.iter().map(|entry| (entry.timestamp, entry.offset)).collect(),
        leader_epochs: found.epochs.iter().map(|entry| (entry.epoch, entry.start_offset)).collect(),
        producer_count: found.producer_count,
    })
}
