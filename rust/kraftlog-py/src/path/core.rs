//! The state machine of a replica alone, as tests drive it.
use std::sync::{Mutex, MutexGuard, PoisonError};

use kraftlog_path::core::{self, Assignment, Effect, ReplicaStart};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// One replica without a log: events in, effects out. Tokens are any objects.
#[pyclass(frozen, module = "kraftlog._kraftlog")]
pub(crate) struct PartitionCore {
    core: Mutex<core::PartitionCore<Py<PyAny>>>,
}

impl PartitionCore {
    fn lock(&self) -> MutexGuard<'_, core::PartitionCore<Py<PyAny>>> {
        self.core.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[pymethods]
impl PartitionCore {
    #[new]
    #[pyo3(signature = (*, node_id, flush_on_ack, min_insync_replicas, log_end_offset, flushed_offset,
        high_watermark))]
    fn new(
        node_id: i32,
        flush_on_ack: bool,
        min_insync_replicas: i32,
        log_end_offset: i64,
        flushed_offset: i64,
        high_watermark: i64,
    ) -> Self {
        let core = core::PartitionCore::new(ReplicaStart {
            node_id,
            flush_on_ack,
            min_insync_replicas,
            log_end_offset,
            flushed_offset,
            high_watermark,
        });
        Self { core: Mutex::new(core) }
    }

    #[getter]
    fn min_insync_replicas(&self) -> i32 {
        self.lock().min_insync_replicas()
    }

    #[getter]
    fn effective_min_insync_replicas(&self) -> i32 {
        self.lock().effective_min_insync_replicas()
    }

    #[getter]
    fn log_end_offset(&self) -> i64 {
        self.lock().log_end_offset()
    }

    #[getter]
    fn flushed_offset(&self) -> i64 {
        self.lock().flushed_offset()
    }

    #[getter]
    fn high_watermark(&self) -> i64 {
        self.lock().high_watermark()
    }

    #[getter]
    fn leader_id(&self) -> i32 {
        self.lock().leader_id()
    }

    #[getter]
    fn leader_epoch(&self) -> i32 {
        self.lock().leader_epoch()
    }

    #[getter]
    fn partition_epoch(&self) -> i32 {
        self.lock().partition_epoch()
    }

    #[getter]
    fn epoch_start_offset(&self) -> i64 {
        self.lock().epoch_start_offset()
    }

    #[getter]
    fn is_leader(&self) -> bool {
        self.lock().is_leader()
    }

    #[getter]
    fn is_high_watermark_settled(&self) -> bool {
        self.lock().is_high_watermark_settled()
    }

    fn last_caught_up_ms(&self, replica_id: i32) -> Option<i64> {
        self.lock().last_caught_up_ms(replica_id)
    }

    #[pyo3(signature = (*, leader_id, leader_epoch, partition_epoch, replicas, isr, now_ms))]
    fn handle_assignment(
        &self,
        leader_id: i32,
        leader_epoch: i32,
        partition_epoch: i32,
        replicas: Vec<i32>,
        isr: Vec<i32>,
        now_ms: i64,
    ) {
        let assignment = Assignment { leader_id, leader_epoch, partition_epoch, replicas, isr };
        self.lock().handle_assignment(assignment, now_ms);
    }

    fn update_min_insync_replicas(&self, min_insync_replicas: i32) {
        self.lock().update_min_insync_replicas(min_insync_replicas);
    }

    #[pyo3(signature = (current_leader_epoch, *, needs_leader=true))]
    fn check_leader_epoch(&self, current_leader_epoch: i32, needs_leader: bool) -> i16 {
        self.lock().check_leader_epoch(current_leader_epoch, needs_leader)
    }

    fn check_append(&self, acks: i16) -> i16 {
        self.lock().check_append(acks)
    }

    fn follower_refusal(&self, current_leader_epoch: i32) -> i16 {
        self.lock().follower_refusal(current_leader_epoch)
    }

    fn on_appended(&self, log_end_offset: i64) {
        self.lock().on_appended(log_end_offset);
    }

    fn on_flushed(&self, flushed_offset: i64) {
        self.lock().on_flushed(flushed_offset);
    }

    fn on_follower_fetch(&self, replica_id: i32, fetch_offset: i64, now_ms: i64) -> bool {
        self.lock().on_follower_fetch(replica_id, fetch_offset, now_ms)
    }

    fn on_truncated_fully(&self, start_offset: i64) {
        self.lock().on_truncated_fully(start_offset);
    }

    fn on_log_failed(&self) {
        self.lock().on_log_failed();
    }

    fn wait_for_ack(&self, end_offset: i64, token: Py<PyAny>) {
        self.lock().wait_for_ack(end_offset, token);
    }

    fn close(&self) {
        self.lock().close();
    }

    /// The name of each effect and its fields, in order.
    fn take_effects<'py>(&self, py: Python<'py>) -> PyResult<Vec<Bound<'py, PyTuple>>> {
        let mut effects = Vec::new();
        self.lock().take_effects(&mut effects);
        effects
            .into_iter()
            .map(|effect| match effect {
                Effect::FlushLog { end_offset } => ("FlushLog", end_offset).into_pyobject(py),
                Effect::AssignEpochStart { leader_epoch, start_offset } => {
                    ("AssignEpochStart", leader_epoch, start_offset).into_pyobject(py)
                }
                Effect::HighWatermarkAdvanced { high_watermark } => {
                    ("HighWatermarkAdvanced", high_watermark).into_pyobject(py)
                }
                Effect::LeadershipChanged { leader_epoch, leader_id } => {
                    ("LeadershipChanged", leader_epoch, leader_id).into_pyobject(py)
                }
                Effect::AckCompleted { token, error_code } => {
                    ("AckCompleted", token, error_code).into_pyobject(py)
                }
            })
            .collect()
    }
}
