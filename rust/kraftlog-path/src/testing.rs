//! What the tests of this crate share: a partition over a log in memory, and a listener that remembers.
use std::path::Path;
use std::sync::{Arc, Mutex};

use kraftlog_log::builder::{BatchBuilder, BatchOptions};
use kraftlog_log::fs::{FileSystem, MemoryFileSystem};
use kraftlog_log::log::{Log, LogConfig, OpenOptions};

use crate::core::{Assignment, ReplicaStart};
use crate::flush::FlushPool;
use crate::mailbox::Mailbox;
use crate::partition::{AckToken, Listener, Partition, PartitionKey, PartitionParts};
use crate::python_inbox::{PythonEvent, PythonInbox};

pub(crate) const NODE: i32 = 1;

/// Remembers what it was told.
#[derive(Default)]
pub(crate) struct Recorder {
    pub(crate) acks: Mutex<Vec<(AckToken, i16)>>,
    pub(crate) moves: Mutex<Vec<u64>>,
}

impl Listener for Recorder {
    fn acknowledged(&self, token: AckToken, error_code: i16) {
        self.acks.lock().unwrap().push((token, error_code));
    }

    fn moved(&self, token: u64) {
        self.moves.lock().unwrap().push(token);
    }
}

impl Recorder {
    pub(crate) fn listener(self: &Arc<Self>) -> Arc<dyn Listener> {
        Arc::<Self>::clone(self)
    }

    pub(crate) fn acks(&self) -> Vec<(u64, i16)> {
        self.acks.lock().unwrap().iter().map(|(token, code)| (token.id, *code)).collect()
    }

    pub(crate) fn move_count(&self) -> usize {
        self.moves.lock().unwrap().len()
    }
}

pub(crate) fn token(id: u64) -> AckToken {
    AckToken { id, position: 0 }
}

/// A log in a directory of a file system in memory.
pub(crate) fn open_log(fs: &MemoryFileSystem, path: &str) -> Arc<Log> {
    if !fs.exists(Path::new("/data")).unwrap() {
        fs.create_dir(Path::new("/data")).unwrap();
        fs.sync_dir(Path::new("/data")).unwrap();
    }
    let options = OpenOptions { recovery_point: 0, log_start_offset: 0, clean_shutdown: false, now_ms: 0 };
    Arc::new(Log::open(Arc::new(fs.clone()), Path::new(path), LogConfig::default(), options).unwrap())
}

/// A partition and what belongs to it.
pub(crate) struct Fixture {
    pub(crate) pool: Arc<FlushPool>,
    pub(crate) inbox: Arc<PythonInbox>,
    pub(crate) partition: Arc<Partition>,
}

impl Fixture {
    pub(crate) fn new(flush_on_ack: bool) -> Self {
        let pool = Arc::new(FlushPool::new("flush", 2));
        Self::over(&MemoryFileSystem::new(), 0, flush_on_ack, &pool)
    }

    /// A partition that this node leads alone in epoch 1.
    pub(crate) fn over(fs: &MemoryFileSystem, index: i32, flush_on_ack: bool, pool: &Arc<FlushPool>) -> Self {
        let log = open_log(fs, &format!("/data/t-{index}"));
        let start = ReplicaStart {
            node_id: NODE,
            flush_on_ack,
            min_insync_replicas: 1,
            log_end_offset: log.log_end_offset(),
            flushed_offset: log.recovery_point(),
            high_watermark: 0,
        };
        let inbox = Arc::new(Mailbox::new().unwrap());
        let partition = Partition::new(PartitionParts {
            key: PartitionKey { topic_id: [7; 16], index },
            topic: "t".to_owned(),
            log,
            start,
            pool: Arc::clone(pool),
            inbox: Arc::clone(&inbox),
            number: 42,
        });
        partition.assign(assignment(NODE, 1, 0, &[NODE], &[NODE]), 0);
        partition.hold(false);
        partition.publish(true);
        Self { pool: Arc::clone(pool), inbox, partition }
    }

    pub(crate) fn events(&self) -> Vec<PythonEvent> {
        let mut events = Vec::new();
        self.inbox.take(&mut events);
        events
    }
}

pub(crate) fn assignment(
    leader_id: i32,
    leader_epoch: i32,
    partition_epoch: i32,
    replicas: &[i32],
    isr: &[i32],
) -> Assignment {
    Assignment { leader_id, leader_epoch, partition_epoch, replicas: replicas.to_vec(), isr: isr.to_vec() }
}

/// A batch of one record.
pub(crate) fn batch(value: &str) -> Vec<u8> {
    idempotent_batch(value, -1, -1)
}

pub(crate) fn idempotent_batch(value: &str, producer_id: i64, base_sequence: i32) -> Vec<u8> {
    let options = BatchOptions {
        producer_id,
        producer_epoch: if producer_id < 0 { -1 } else { 0 },
        base_sequence,
        ..BatchOptions::default()
    };
    let mut builder = BatchBuilder::new(options).unwrap();
    builder.append(1, None, Some(value.as_bytes()), &[]).unwrap();
    builder.finish().unwrap()
}

/// Wait for another thread, at most ten seconds.
pub(crate) fn until(what: &str, mut is_true: impl FnMut() -> bool) {
    for _ in 0..10_000 {
        if is_true() {
            return;
        }
        std::thread::sleep(std::time::Duration::from_millis(1));
    }
    panic!("{what}: not within ten seconds");
}
