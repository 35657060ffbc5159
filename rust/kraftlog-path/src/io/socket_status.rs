//! What both sides of the seam know of a connection without a message.
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// Shared by the I/O thread and Python.
#[derive(Debug, Default)]
pub struct SocketStatus {
    /// Bytes of answers that the kernel has not taken, those included that wait for an earlier answer.
    unsent_bytes: AtomicUsize,
    /// Requests that the service answers later, long polls not counted.
    owed: AtomicUsize,
    wants_drained: AtomicBool,
}

impl SocketStatus {
    /// Bytes of answers, of either side, that the kernel has not taken.
    pub fn unsent_bytes(&self) -> usize {
        self.unsent_bytes.load(Ordering::SeqCst)
    }

    /// Requests that the service of the thread will answer, without its long polls.
    pub fn owed(&self) -> usize {
        self.owed.load(Ordering::SeqCst)
    }

    /// Send [`super::IoEvent::Drained`] once the unsent bytes are below half of the high water. The caller looks at
    /// [`Self::unsent_bytes`] again afterwards: they may have sunk before.
    pub fn ask_for_drained(&self) {
        self.wants_drained.store(true, Ordering::SeqCst);
    }

    pub(super) fn add_unsent(&self, bytes: usize) {
        self.unsent_bytes.fetch_add(bytes, Ordering::SeqCst);
    }

    /// Note what was sent; whether [`super::IoEvent::Drained`] is due.
    pub(super) fn sent(&self, bytes: usize, low_water_bytes: usize) -> bool {
        let before = self.unsent_bytes.fetch_sub(bytes, Ordering::SeqCst);
        before.saturating_sub(bytes) <= low_water_bytes
            && self.wants_drained.load(Ordering::Relaxed)
            && self.wants_drained.swap(false, Ordering::SeqCst)
    }

    pub(super) fn owe(&self) {
        self.owed.fetch_add(1, Ordering::SeqCst);
    }

    pub(super) fn settle(&self) {
        self.owed.fetch_sub(1, Ordering::SeqCst);
    }
}
