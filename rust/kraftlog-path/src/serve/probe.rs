//! A data service over logs of its own, driven by one thread: what tests hold against the Python handlers.
use std::path::PathBuf;
use std::sync::Arc;
use std::time::{Duration, Instant};

use kraftlog_log::fs::RealFileSystem;
use kraftlog_log::log::{AppendOptions, Log, LogConfig, OpenOptions};
use kraftlog_log::producer_state::Origin;
use kraftlog_log::Result;
use rustix::event::{poll, PollFd, PollFlags, Timespec};

use super::{DataMessage, DataService, ServiceSettings, ServiceShared};
use crate::core::{Assignment, ReplicaStart};
use crate::exchange::{ConnectionId, Outcome, Output, Peer, RequestId, Service};
use crate::flush::FlushPool;
use crate::mailbox::Mailbox;
use crate::partition::{AppendError, Appended, Listener, Partition, PartitionKey, PartitionParts};
use crate::partitions::Partitions;
use crate::python_inbox::PythonInbox;

const NODE_ID: i32 = 1;
const REQUEST: RequestId =
    RequestId { connection: ConnectionId { thread: 0, slot: 0, generation: 0 }, number: 0 };

/// Answers one frame after the other, as an I/O thread with one connection would.
pub struct DataServiceProbe {
    directory: PathBuf,
    flush_on_ack: bool,
    partitions: Arc<Partitions>,
    shared: Arc<ServiceShared>,
    service: DataService,
    mailbox: Arc<Mailbox<DataMessage>>,
    pool: Arc<FlushPool>,
    inbox: Arc<PythonInbox>,
    peer: Peer,
}

impl DataServiceProbe {
    /// Over these partitions; the logs of those that are added are made in `directory`. `clock_ms` is the wall clock.
    ///
    /// # Errors
    /// No descriptor is left.
    pub fn new(
        directory: PathBuf,
        flush_on_ack: bool,
        settings: ServiceSettings,
        clock_ms: Box<dyn Fn() -> i64 + Send + Sync>,
        partitions: Arc<Partitions>,
    ) -> std::io::Result<Self> {
        let shared = Arc::new(ServiceShared::new(Arc::clone(&partitions), settings, clock_ms, 1));
        let mailbox = Arc::new(Mailbox::new()?);
        let listener = Arc::clone(&mailbox) as Arc<dyn Listener>;
        let service = DataService::new(Arc::clone(&shared), listener);
        Ok(Self {
            directory,
            flush_on_ack,
            partitions,
            shared,
            service,
            mailbox,
            pool: Arc::new(FlushPool::new("probe-flush", 2)),
            inbox: Arc::new(PythonInbox::new()?),
            peer: Peer::anonymous(0, "127.0.0.1"),
        })
    }

    /// What it shares with others of its node.
    pub fn shared(&self) -> &ServiceShared {
        &self.shared
    }

    /// Open a partition that this node leads alone, in epoch `leader_epoch`.
    ///
    /// # Errors
    /// Its log cannot be opened.
    pub fn add_partition(
        &self,
        topic: &str,
        key: PartitionKey,
        leader_epoch: i32,
        config: LogConfig,
    ) -> Result<()> {
        let path = self.directory.join(format!("{topic}-{}", key.index));
        let now_ms = self.shared.now_ms();
        let options = OpenOptions { recovery_point: 0, log_start_offset: 0, clean_shutdown: false, now_ms };
        let log = Arc::new(Log::open(Arc::new(RealFileSystem), &path, config, options)?);
        let start = ReplicaStart {
            node_id: NODE_ID,
            flush_on_ack: self.flush_on_ack,
            min_insync_replicas: 1,
            log_end_offset: log.log_end_offset(),
            flushed_offset: log.recovery_point(),
            high_watermark: 0,
        };
        let partition = Partition::new(PartitionParts {
            key,
            topic: topic.to_owned(),
            log: Arc::clone(&log),
            start,
            pool: Arc::clone(&self.pool),
            inbox: Arc::clone(&self.inbox),
            number: 0,
        });
        let assignment = Assignment {
            leader_id: NODE_ID,
            leader_epoch,
            partition_epoch: 0,
            replicas: vec![NODE_ID],
            isr: vec![NODE_ID],
        };
        if let Some((epoch, start_offset)) = partition.assign(assignment, now_ms).epoch_start {
            log.assign_epoch_start(epoch, start_offset)?;
        }
        partition.hold(false);
        partition.publish(true);
        self.partitions.add(&partition);
        Ok(())
    }

    /// A partition that was added.
    pub fn partition(&self, topic: &str, index: i32) -> Option<Arc<Partition>> {
        self.partitions.get_by_name(topic, index)
    }

    /// Append past the service, as Python does with what was handed over; returns once it is committed.
    ///
    /// # Errors
    /// As [`Partition::append`].
    pub fn append(
        &self,
        partition: &Arc<Partition>,
        records: &[u8],
        origin: Origin,
    ) -> std::result::Result<Appended, AppendError> {
        let options = AppendOptions {
            transaction_version: Some(0),
            ..AppendOptions::new(-1, self.shared.now_ms(), origin)
        };
        let appended = partition.append_with(records, -1, options, None)?;
        if appended.needs_flush {
            partition.request_flush();
        }
        while partition.high_watermark() <= appended.info.last_offset {
            std::thread::yield_now();
        }
        Ok(appended)
    }

    /// Handle one frame without its size, and wait for its answer.
    pub fn handle(&mut self, frame: &[u8]) -> Outcome {
        let outcome = self.service.handle(REQUEST, &self.peer, frame, Instant::now());
        let mut answered = Vec::new();
        let mut messages = Vec::new();
        self.service.end_turn(Instant::now(), false, &mut answered);
        if !matches!(outcome, Outcome::Pending) {
            return outcome;
        }
        loop {
            if let Some(answer) = answered.pop() {
                return answer.outcome;
            }
            self.sleep();
            let now = Instant::now();
            self.mailbox.take(&mut messages);
            for message in messages.drain(..) {
                self.service.message(message, now, &mut answered);
            }
            self.service.on_time(now, &mut answered);
            self.service.end_turn(now, false, &mut answered);
        }
    }

    /// Wait for a message or for the next deadline.
    fn sleep(&self) {
        let deadline = self.service.next_deadline();
        let wait = deadline.map(|deadline| deadline.saturating_duration_since(Instant::now()));
        let wait = wait.map(|wait| wait + Duration::from_micros(100));
        let timeout = wait.and_then(|wait| Timespec::try_from(wait).ok());
        // A signal wakes it early; the loop around looks again.
        let _ = poll(&mut [PollFd::from_borrowed_fd(self.mailbox.bell(), PollFlags::IN)], timeout.as_ref());
    }
}

impl Drop for DataServiceProbe {
    fn drop(&mut self) {
        self.pool.stop();
    }
}

/// The bytes of an answer, its files read.
///
/// # Errors
/// A file cannot be read.
pub fn answer_bytes(outputs: &[Output]) -> Result<Vec<u8>> {
    let mut all = Vec::new();
    for output in outputs {
        match output {
            Output::Bytes(bytes) => all.extend_from_slice(bytes),
            Output::File(slice) => all.extend_from_slice(&slice.read()?),
        }
    }
    Ok(all)
}
