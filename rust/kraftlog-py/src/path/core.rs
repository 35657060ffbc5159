//! The state machine of a replica alone, as tests drive it.
use std::sync::{Mutex, MutexGuard, PoisonError};

use kraftlog_path::core::{self, Assignment, Effect, FollowerFetch, IsrProposal, LiveBroker, ReplicaStart};
use pyo3::prelude::*;
use pyo3::types::PyTuple;

/// Number, leader epoch, partition epoch, and the members with their broker epochs.
pub(super) type Proposal = (u64, i32, i32, Vec<(i32, i64)>);

pub(super) fn proposal(proposal: IsrProposal) -> Proposal {
    (proposal.number, proposal.leader_epoch, proposal.partition_epoch, proposal.members)
}

pub(super) fn live_brokers(brokers: Vec<(i32, i64, bool)>) -> Vec<LiveBroker> {
    brokers
        .into_iter()
        .map(|(broker_id, epoch, is_shutting_down)| LiveBroker { broker_id, epoch, is_shutting_down })
        .collect()
}

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

    #[pyo3(signature = (replica_id, fetch_offset, now_ms, *, broker_epoch=-1, log_start_offset=0))]
    fn on_follower_fetch(
        &self,
        replica_id: i32,
        fetch_offset: i64,
        now_ms: i64,
        broker_epoch: i64,
        log_start_offset: i64,
    ) -> Option<Proposal> {
        let fetch = FollowerFetch { replica_id, broker_epoch, fetch_offset, log_start_offset, now_ms };
        self.lock().on_follower_fetch(&fetch).map(proposal)
    }

    fn propose_shrink(&self, now_ms: i64) -> Option<Proposal> {
        self.lock().propose_shrink(now_ms).map(proposal)
    }

    fn on_isr_committed(&self, number: u64, leader_epoch: i32, partition_epoch: i32, isr: Vec<i32>) -> bool {
        self.lock().on_isr_committed(number, leader_epoch, partition_epoch, isr)
    }

    fn on_isr_refused(&self, number: u64) {
        self.lock().on_isr_refused(number);
    }

    fn update_live_brokers(&self, brokers: Vec<(i32, i64, bool)>) {
        self.lock().update_live_brokers(live_brokers(brokers));
    }

    fn update_lag_max_ms(&self, lag_max_ms: i64) {
        self.lock().update_lag_max_ms(lag_max_ms);
    }

    fn is_stale_broker(&self, replica_id: i32, broker_epoch: i64) -> bool {
        self.lock().is_stale_broker(replica_id, broker_epoch)
    }

    #[getter]
    fn isr(&self) -> Vec<i32> {
        self.lock().isr().to_vec()
    }

    #[getter]
    fn maximal_isr(&self) -> Vec<i32> {
        self.lock().maximal_isr().collect()
    }

    #[getter]
    fn pending_proposal(&self) -> Option<u64> {
        self.lock().pending_proposal()
    }

    #[getter]
    fn is_under_min_isr(&self) -> bool {
        self.lock().is_under_min_isr()
    }

    #[getter]
    fn is_at_min_isr(&self) -> bool {
        self.lock().is_at_min_isr()
    }

    fn in_sync_followers_with(&self, offset: i64) -> Vec<(i32, i64, i64)> {
        self.lock().in_sync_followers_with(offset)
    }

    #[getter]
    fn is_under_replicated(&self) -> bool {
        self.lock().is_under_replicated()
    }

    fn follower_end_offset(&self, replica_id: i32) -> Option<i64> {
        self.lock().follower_end_offset(replica_id)
    }

    fn on_replicated(&self, log_end_offset: i64, leader_high_watermark: i64, log_start_offset: i64) {
        self.lock().on_replicated(log_end_offset, leader_high_watermark, log_start_offset);
    }

    fn on_truncated(&self, log_end_offset: i64) {
        self.lock().on_truncated(log_end_offset);
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
                Effect::HighWatermarkHeld => ("HighWatermarkHeld",).into_pyobject(py),
                Effect::IsrChanged => ("IsrChanged",).into_pyobject(py),
                Effect::AckCompleted { token, error_code } => {
                    ("AckCompleted", token, error_code).into_pyobject(py)
                }
            })
            .collect()
    }
}
