//! What Python's event loop is told by other threads: one mailbox, whose eventfd is in the loop.
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::Arc;

use kraftlog_log::Error;

use crate::core::IsrProposal;
use crate::io::IoEvent;
use crate::mailbox::Mailbox;
use crate::partition::{AckToken, Listener, PartitionKey};

/// The mailbox of one event loop.
pub type PythonInbox = Mailbox<PythonEvent>;

/// Something that an event loop waits for.
#[derive(Debug)]
pub enum PythonEvent {
    /// A wait for acks=all that Python began is over.
    Acknowledged {
        /// What Python gave to wait.
        token: u64,
        /// 0 when the records are committed.
        error_code: i16,
    },
    /// A partition that Python watches moved: its high watermark, its leadership or its log start.
    Moved {
        /// Python's number of the partition.
        partition: u64,
        /// To be cleared when this is taken, before Python looks: later moves then tell again.
        is_told: Arc<AtomicBool>,
    },
    /// The first record that is not durable was appended to a partition with `flush.ms`.
    Unflushed {
        /// Python's number of the partition.
        partition: u64,
    },
    /// A write or an fsync of a partition's log failed: its directory goes offline.
    StorageFailed {
        /// Python's number of the partition.
        partition: u64,
        /// What failed, on which file.
        reason: String,
    },
    /// A flush could not open a file, as the process or the system has no descriptor left. It is tried again.
    FlushDelayed {
        /// Python's number of the partition.
        partition: u64,
        /// What failed, on which file.
        reason: String,
    },
    /// A follower's fetch asks for a change of the in-sync set; Python sends it to the controller.
    InSyncProposed {
        /// Topic id and index.
        key: PartitionKey,
        /// The change.
        proposal: IsrProposal,
    },
    /// A follower was sent the first bytes since Python last took their count.
    Replicated,
    /// A flush of a log without a partition is over.
    LogFlushed {
        /// What Python gave with the request.
        token: u64,
        /// Exclusive end of what is durable.
        outcome: Result<i64, Error>,
    },
    /// Of a connection of the I/O threads, or of one of these threads.
    Socket(IoEvent),
}

impl From<IoEvent> for PythonEvent {
    fn from(event: IoEvent) -> Self {
        Self::Socket(event)
    }
}

/// Passes on to an event loop what it waits for at one partition.
#[derive(Debug)]
pub struct PythonListener {
    inbox: Arc<PythonInbox>,
    is_told: Arc<AtomicBool>,
}

impl PythonListener {
    /// A listener for the partition whose number is given with each subscription.
    pub fn new(inbox: Arc<PythonInbox>) -> Self {
        Self { inbox, is_told: Arc::default() }
    }
}

impl Listener for PythonListener {
    fn acknowledged(&self, token: AckToken, error_code: i16) {
        self.inbox.send(PythonEvent::Acknowledged { token: token.id, error_code });
    }

    fn moved(&self, token: u64) {
        // However often it moves before the loop gets to it, once is enough.
        if !self.is_told.swap(true, Ordering::AcqRel) {
            self.inbox.send(PythonEvent::Moved { partition: token, is_told: Arc::clone(&self.is_told) });
        }
    }
}
