//! A partition of this node, and the registry that the I/O threads read.
use std::sync::Arc;
use std::time::Instant;

use kraftlog_log::log::AppendOptions;
use kraftlog_path::core::{Assignment, FollowerFetch, ReplicaStart};
use kraftlog_path::partition::{
    self as path, AckToken, AppendError, FollowError, FollowerPosition, Listener, PartitionKey,
    PartitionParts, PartitionSettings,
};
use kraftlog_path::partitions;
use kraftlog_path::python_inbox::PythonListener;
use pyo3::prelude::*;

use super::core::{live_brokers, proposal, Proposal};
use super::flush_pool::FlushPool;
use super::inbox::Inbox;
use crate::errors::{KafkaError, PyLogError};
use crate::log::{parse_origin, with_keeper, Log};
use crate::raw::ByteBuffer;

/// What an append to a partition did.
#[pyclass(frozen, get_all, module = "kraftlog._kraftlog")]
pub(crate) struct Appended {
    first_offset: i64,
    last_offset: i64,
    log_append_time_ms: i64,
    log_start_offset: i64,
    duplicate: bool,
    leader_epoch: i32,
    is_committed: bool,
    needs_flush: bool,
}

impl From<path::Appended> for Appended {
    fn from(appended: path::Appended) -> Self {
        let info = appended.info;
        Self {
            first_offset: info.first_offset,
            last_offset: info.last_offset,
            log_append_time_ms: info.log_append_time_ms,
            log_start_offset: info.log_start_offset,
            duplicate: info.is_duplicate,
            leader_epoch: appended.leader_epoch,
            is_committed: appended.is_committed,
            needs_flush: appended.needs_flush,
        }
    }
}

/// A log and the state machine of its replica under one lock.
#[pyclass(frozen, module = "kraftlog._kraftlog")]
pub(crate) struct Partition {
    pub(super) partition: Arc<path::Partition>,
    listener: Arc<dyn Listener>,
    append_listener: Arc<dyn Listener>,
    number: u64,
}

type FollowerAnswered = (i16, Option<(i32, i64)>, i64, i64, i64, Option<Proposal>);

/// A log that was cut, or `None` where this replica no longer follows.
fn cut(outcome: Result<path::Replicated, FollowError>) -> kraftlog_log::Result<Option<(i64, i32, i64)>> {
    match outcome {
        Ok(replicated) => {
            Ok(Some((replicated.log_end_offset, replicated.last_epoch, replicated.high_watermark)))
        }
        Err(FollowError::Superseded | FollowError::OffsetMoved { .. }) => Ok(None),
        Err(FollowError::Log(error)) => Err(error),
    }
}

#[pymethods]
impl Partition {
    #[new]
    #[pyo3(signature = (*, topic, topic_id, index, log, node_id, flush_on_ack, min_insync_replicas, high_watermark,
        flushed_offset, pool, inbox, number))]
    #[allow(clippy::too_many_arguments)]
    fn new(
        topic: String,
        topic_id: [u8; 16],
        index: i32,
        log: &Log,
        node_id: i32,
        flush_on_ack: bool,
        min_insync_replicas: i32,
        high_watermark: i64,
        flushed_offset: i64,
        pool: &FlushPool,
        inbox: &Inbox,
        number: u64,
    ) -> Self {
        let log = Arc::clone(&log.log);
        let start = ReplicaStart {
            node_id,
            flush_on_ack,
            min_insync_replicas,
            log_end_offset: log.log_end_offset(),
            flushed_offset,
            high_watermark,
        };
        let partition = path::Partition::new(PartitionParts {
            key: PartitionKey { topic_id, index },
            topic,
            log,
            start,
            pool: Arc::clone(&pool.pool),
            inbox: Arc::clone(&inbox.inbox),
            number,
        });
        let listener = || Arc::new(PythonListener::new(Arc::clone(&inbox.inbox)));
        Self { partition, listener: listener(), append_listener: listener(), number }
    }

    #[getter]
    fn leader_id(&self) -> i32 {
        self.partition.role().1
    }

    #[getter]
    fn leader_epoch(&self) -> i32 {
        self.partition.role().0
    }

    #[getter]
    fn is_leader(&self) -> bool {
        self.partition.is_leader()
    }

    #[getter]
    fn high_watermark(&self) -> i64 {
        self.partition.high_watermark()
    }

    #[getter]
    fn last_stable_offset(&self) -> i64 {
        self.partition.last_stable_offset()
    }

    #[getter]
    fn log_end_offset(&self) -> i64 {
        self.partition.log().log_end_offset()
    }

    #[getter]
    fn is_high_watermark_settled(&self) -> bool {
        self.partition.is_high_watermark_settled()
    }

    #[getter]
    fn is_published(&self) -> bool {
        self.partition.is_published()
    }

    #[getter]
    fn serves_followers(&self) -> bool {
        self.partition.serves_followers()
    }

    #[getter]
    fn min_insync_replicas(&self, py: Python<'_>) -> i32 {
        py.detach(|| self.partition.with_core(|core| core.min_insync_replicas()))
    }

    #[getter]
    fn partition_epoch(&self, py: Python<'_>) -> i32 {
        py.detach(|| self.partition.with_core(|core| core.partition_epoch()))
    }

    #[getter]
    fn flushed_offset(&self, py: Python<'_>) -> i64 {
        py.detach(|| self.partition.with_core(|core| core.flushed_offset()))
    }

    #[pyo3(signature = (current_leader_epoch, *, needs_leader=true))]
    fn check_leader_epoch(&self, current_leader_epoch: i32, needs_leader: bool) -> i16 {
        self.partition.check_leader_epoch(current_leader_epoch, needs_leader)
    }

    fn follower_refusal(&self, current_leader_epoch: i32) -> i16 {
        self.partition.follower_refusal(current_leader_epoch)
    }

    #[pyo3(signature = (
        records, *, acks, now_ms, origin="client", transaction_version=None, guard=None, requires_verification=false
    ))]
    #[allow(clippy::too_many_arguments)]
    fn append(
        &self,
        py: Python<'_>,
        records: ByteBuffer,
        acks: i16,
        now_ms: i64,
        origin: &str,
        transaction_version: Option<i16>,
        guard: Option<u64>,
        requires_verification: bool,
    ) -> PyResult<Appended> {
        let options = AppendOptions {
            transaction_version,
            guard,
            requires_verification,
            ..AppendOptions::new(-1, now_ms, parse_origin(origin)?)
        };
        match py.detach(|| self.partition.append_with(records.as_slice(), acks, options, None)) {
            Ok(appended) => Ok(appended.into()),
            Err(AppendError::Refused(code)) => Err(KafkaError::new_err((code,))),
            Err(AppendError::Log(error)) => Err(PyLogError(error).into()),
        }
    }

    #[pyo3(signature = (end_offset, *, leader_epoch, token))]
    fn wait_for_ack(&self, py: Python<'_>, end_offset: i64, leader_epoch: i32, token: u64) -> Option<i16> {
        let token = AckToken { id: token, position: 0 };
        py.detach(|| self.partition.wait_for_ack(end_offset, leader_epoch, &self.listener, token))
    }

    fn watch(&self, py: Python<'_>) {
        py.detach(|| self.partition.subscribe(&self.listener, self.number));
    }

    fn unwatch(&self, py: Python<'_>) {
        py.detach(|| self.partition.unsubscribe(&self.listener, self.number));
    }

    fn request_flush(&self, py: Python<'_>) {
        py.detach(|| self.partition.request_flush());
    }

    fn flush_in_time(&self, py: Python<'_>) {
        py.detach(|| self.partition.flush_in_time());
    }

    fn log_start_moved(&self, py: Python<'_>) {
        py.detach(|| self.partition.log_start_moved());
    }

    #[pyo3(signature = (*, leader_id, leader_epoch, partition_epoch, replicas, isr, now_ms, brokers=None))]
    #[allow(clippy::too_many_arguments)]
    fn assign(
        &self,
        py: Python<'_>,
        leader_id: i32,
        leader_epoch: i32,
        partition_epoch: i32,
        replicas: Vec<i32>,
        isr: Vec<i32>,
        now_ms: i64,
        brokers: Option<Vec<(i32, i64, bool)>>,
    ) -> Option<(i32, i64)> {
        let assignment = Assignment { leader_id, leader_epoch, partition_epoch, replicas, isr };
        py.detach(|| {
            let assigned = self.partition.assign_among(assignment, brokers.map(live_brokers), now_ms);
            if assigned.needs_flush {
                self.partition.request_flush();
            }
            assigned.epoch_start
        })
    }

    #[pyo3(signature = (*, min_insync_replicas, flush_messages, flushes_in_time, answers_followers=false))]
    fn update(
        &self,
        py: Python<'_>,
        min_insync_replicas: i32,
        flush_messages: i64,
        flushes_in_time: bool,
        answers_followers: bool,
    ) {
        let settings =
            PartitionSettings { min_insync_replicas, flush_messages, flushes_in_time, answers_followers };
        py.detach(|| self.partition.update(settings));
    }

    fn publish(&self, py: Python<'_>, is_published: bool) {
        py.detach(|| self.partition.publish(is_published));
    }

    fn hold(&self, is_held: bool) {
        self.partition.hold(is_held);
    }

    fn withdraw(&self, py: Python<'_>) {
        py.detach(|| self.partition.withdraw());
    }

    /// A follower's fetch: error code, epoch and end offset to truncate to, high watermark, log start, log end, and a
    /// proposal for the controller.
    #[pyo3(signature = (*, replica_id, broker_epoch, current_leader_epoch, fetch_offset, last_fetched_epoch,
        log_start_offset, now_ms, is_arrival))]
    #[allow(clippy::too_many_arguments)]
    fn follower_fetch(
        &self,
        py: Python<'_>,
        replica_id: i32,
        broker_epoch: i64,
        current_leader_epoch: i32,
        fetch_offset: i64,
        last_fetched_epoch: i32,
        log_start_offset: i64,
        now_ms: i64,
        is_arrival: bool,
    ) -> FollowerAnswered {
        let fetch = FollowerFetch { replica_id, broker_epoch, fetch_offset, log_start_offset, now_ms };
        let position = FollowerPosition { fetch, current_leader_epoch, last_fetched_epoch };
        let answer = py.detach(|| match is_arrival {
            true => self.partition.follower_fetch(&position),
            false => self.partition.look_for_follower(&position),
        });
        (
            answer.error_code,
            answer.diverging_epoch,
            answer.high_watermark,
            answer.log_start_offset,
            answer.log_end_offset,
            answer.proposal.map(proposal),
        )
    }

    fn propose_shrink(&self, py: Python<'_>, now_ms: i64) -> Option<Proposal> {
        py.detach(|| self.partition.propose_shrink(now_ms)).map(proposal)
    }

    fn is_proposal_pending(&self, py: Python<'_>, number: u64) -> bool {
        py.detach(|| self.partition.is_proposal_pending(number))
    }

    #[pyo3(signature = (number, *, leader_epoch, partition_epoch, isr))]
    fn isr_committed(
        &self,
        py: Python<'_>,
        number: u64,
        leader_epoch: i32,
        partition_epoch: i32,
        isr: Vec<i32>,
    ) -> bool {
        py.detach(|| self.partition.isr_committed(number, leader_epoch, partition_epoch, isr))
    }

    fn isr_refused(&self, py: Python<'_>, number: u64) {
        py.detach(|| self.partition.isr_refused(number));
    }

    fn set_adding(&self, py: Python<'_>, replica_ids: Vec<i32>) {
        py.detach(|| self.partition.set_adding(replica_ids));
    }

    fn update_live_brokers(&self, py: Python<'_>, brokers: Vec<(i32, i64, bool)>) {
        py.detach(|| self.partition.update_live_brokers(live_brokers(brokers)));
    }

    fn update_lag_max_ms(&self, py: Python<'_>, lag_max_ms: i64) {
        py.detach(|| self.partition.update_lag_max_ms(lag_max_ms));
    }

    fn write_epoch_start(&self, py: Python<'_>, leader_epoch: i32, start_offset: i64) -> PyResult<()> {
        py.detach(|| self.partition.write_epoch_start(leader_epoch, start_offset))
            .map_err(|error| PyLogError(error).into())
    }

    fn watch_appends(&self, py: Python<'_>, number: u64) {
        py.detach(|| self.partition.watch_appends(Some((Arc::clone(&self.append_listener), number))));
    }

    fn unwatch_appends(&self, py: Python<'_>) {
        py.detach(|| self.partition.watch_appends(None));
    }

    #[getter]
    fn isr(&self, py: Python<'_>) -> Vec<i32> {
        py.detach(|| self.partition.with_core(|core| core.isr()))
    }

    #[getter]
    fn maximal_isr(&self, py: Python<'_>) -> Vec<i32> {
        py.detach(|| self.partition.with_core(|core| core.maximal_isr()))
    }

    #[getter]
    fn is_under_min_isr(&self, py: Python<'_>) -> bool {
        py.detach(|| self.partition.with_core(|core| core.is_under_min_isr()))
    }

    #[getter]
    fn is_under_replicated(&self, py: Python<'_>) -> bool {
        py.detach(|| self.partition.with_core(|core| core.is_under_replicated()))
    }

    /// The other members of the in-sync set that have `offset`: id, log end, time caught up.
    fn in_sync_followers_with(&self, py: Python<'_>, offset: i64) -> Vec<(i32, i64, i64)> {
        py.detach(|| self.partition.with_core(|core| core.in_sync_followers_with(offset)))
    }

    #[getter]
    fn low_watermark(&self, py: Python<'_>) -> i64 {
        let own = self.partition.log().log_start_offset();
        py.detach(|| self.partition.with_core(|core| core.low_watermark(own)))
    }

    /// Cut a follower's log; log end, last epoch and high watermark afterwards, or None when it no longer follows in
    /// that epoch.
    #[pyo3(signature = (offset, *, leader_epoch, now_ms, keep_recovery_point))]
    fn truncate_as_follower(
        &self,
        py: Python<'_>,
        offset: i64,
        leader_epoch: i32,
        now_ms: i64,
        keep_recovery_point: Py<PyAny>,
    ) -> PyResult<Option<(i64, i32, i64)>> {
        with_keeper(py, Some(keep_recovery_point), |keep| {
            cut(self.partition.truncate_as_follower(offset, leader_epoch, now_ms, keep))
        })
    }

    /// Like `truncate_as_follower`, but everything goes and the log starts at `offset`.
    #[pyo3(signature = (offset, *, leader_epoch, now_ms, keep_recovery_point))]
    fn restart_as_follower(
        &self,
        py: Python<'_>,
        offset: i64,
        leader_epoch: i32,
        now_ms: i64,
        keep_recovery_point: Py<PyAny>,
    ) -> PyResult<Option<(i64, i32, i64)>> {
        with_keeper(py, Some(keep_recovery_point), |keep| {
            cut(self.partition.restart_as_follower(offset, leader_epoch, now_ms, keep))
        })
    }

    /// Fill this log from now on, which is in another data directory; None fills none any more.
    #[pyo3(signature = (log))]
    fn set_future(&self, py: Python<'_>, log: Option<&Log>) {
        let log = log.map(|log| Arc::clone(&log.log));
        py.detach(|| self.partition.set_future(log));
    }

    fn on_log_failed(&self, py: Python<'_>, reason: &str) {
        py.detach(|| self.partition.on_log_failed(reason));
    }

    fn __repr__(&self) -> String {
        let (epoch, leader) = self.partition.role();
        let (topic, index) = (self.partition.topic(), self.partition.key().index);
        format!("Partition({topic}-{index}, leader_id={leader}, leader_epoch={epoch})")
    }
}

/// The partitions that I/O threads find.
#[pyclass(frozen, module = "kraftlog._kraftlog")]
pub(crate) struct Partitions {
    pub(crate) partitions: Arc<partitions::Partitions>,
}

#[pymethods]
impl Partitions {
    #[new]
    fn new() -> Self {
        Self { partitions: Arc::new(partitions::Partitions::new()) }
    }

    fn __len__(&self, py: Python<'_>) -> usize {
        py.detach(|| self.partitions.len())
    }

    fn add(&self, py: Python<'_>, partition: &Partition) {
        py.detach(|| self.partitions.add(&partition.partition));
    }

    /// Bytes that I/O threads sent to followers since the last call, and those of them to replicas that are being added.
    fn take_replicated_out(&self) -> (u64, u64) {
        self.partitions.take_replicated_out()
    }

    fn remove(&self, py: Python<'_>, partition: &Partition) {
        py.detach(|| self.partitions.remove(&partition.partition));
    }

    /// This node begins to lead a partition: fetches of these followers that wait on I/O threads are answered.
    fn lead(&self, py: Python<'_>, topic_id: [u8; 16], index: i32, follower_ids: Vec<i32>) {
        let key = PartitionKey { topic_id, index };
        py.detach(|| self.partitions.follower_polls().lead(key, &follower_ids, Instant::now()));
    }

    /// Partitions, and among those led here: all, under-replicated, under the minimum, at the minimum.
    fn counts(&self, py: Python<'_>) -> (usize, usize, usize, usize, usize) {
        let counts = py.detach(|| self.partitions.counts());
        (counts.partitions, counts.leaders, counts.under_replicated, counts.under_min_isr, counts.at_min_isr)
    }
}
