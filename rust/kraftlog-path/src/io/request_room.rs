//! How many requests may wait for Python, over all connections: Kafka's queue of requests and its memory pool.
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use super::limits::Limits;

/// Called when there is room again; only leaves a message.
pub(super) type Waker = Box<dyn Fn() + Send + Sync>;

/// Counts what was handed over and that Python has not taken up.
///
/// A connection counts as one request, however many it has there: Kafka reads its next one after the answer. Frames
/// count with their bytes; one is let in while there is any room, so that a frame larger than the bound passes alone.
pub(super) struct RequestRoom {
    requests_max: usize,
    /// `usize::MAX` without a bound.
    bytes_max: usize,
    requests: AtomicUsize,
    bytes: AtomicUsize,
    is_wanted: AtomicBool,
    wakers: Mutex<Vec<Waker>>,
}

impl RequestRoom {
    pub(super) fn new(limits: &Limits) -> Self {
        Self {
            requests_max: limits.max_queued_requests.max(1),
            bytes_max: limits.max_queued_bytes.unwrap_or(usize::MAX),
            requests: AtomicUsize::new(0),
            bytes: AtomicUsize::new(0),
            is_wanted: AtomicBool::new(false),
            wakers: Mutex::default(),
        }
    }

    /// Call `waker` when there is room again after [`Self::is_free_or_wanted`] was false.
    pub(super) fn add_waker(&self, waker: Waker) {
        self.wakers.lock().unwrap_or_else(PoisonError::into_inner).push(waker);
    }

    fn is_free(&self) -> bool {
        self.free_requests() > 0 && self.bytes.load(Ordering::SeqCst) < self.bytes_max
    }

    /// Connections that may come to have a request there.
    pub(super) fn free_requests(&self) -> usize {
        self.requests_max.saturating_sub(self.requests.load(Ordering::SeqCst))
    }

    /// Whether a further frame may be handed over; if not, the wakers are called once one may.
    pub(super) fn is_free_or_wanted(&self) -> bool {
        if self.is_free() {
            return true;
        }
        self.is_wanted.store(true, Ordering::SeqCst);
        // What left in between did not see the wish.
        self.is_free()
    }

    /// A frame is handed over; `is_first` if its connection has no other one there.
    pub(super) fn enter(&self, bytes: usize, is_first: bool) {
        self.requests.fetch_add(usize::from(is_first), Ordering::SeqCst);
        self.bytes.fetch_add(bytes, Ordering::SeqCst);
    }

    /// Frames were taken up, or their connection ended; `is_last` if it has no other one there.
    pub(super) fn leave(&self, bytes: usize, is_last: bool) {
        self.requests.fetch_sub(usize::from(is_last), Ordering::SeqCst);
        self.bytes.fetch_sub(bytes, Ordering::SeqCst);
        if self.is_wanted.load(Ordering::SeqCst)
            && self.is_free()
            && self.is_wanted.swap(false, Ordering::SeqCst)
        {
            for waker in self.wakers.lock().unwrap_or_else(PoisonError::into_inner).iter() {
                waker();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    fn room(requests: usize, bytes: Option<usize>) -> (RequestRoom, Arc<AtomicUsize>) {
        let limits =
            Limits { max_queued_requests: requests, max_queued_bytes: bytes, ..Limits::new(1 << 20, None) };
        let (room, woken) = (RequestRoom::new(&limits), Arc::new(AtomicUsize::new(0)));
        let count = Arc::clone(&woken);
        room.add_waker(Box::new(move || {
            count.fetch_add(1, Ordering::SeqCst);
        }));
        (room, woken)
    }

    #[test]
    fn bytes_are_let_in_while_any_are_free_and_a_wish_is_answered_once() {
        let (room, woken) = room(500, Some(100));
        room.enter(99, true);
        assert!(room.is_free_or_wanted());
        room.enter(1_000, true);
        assert!(!room.is_free_or_wanted());
        room.leave(99, true);
        assert_eq!(woken.load(Ordering::SeqCst), 0, "there is still too much");
        room.leave(1_000, true);
        assert_eq!(woken.load(Ordering::SeqCst), 1);
        room.enter(100, true);
        room.leave(100, true);
        assert_eq!(woken.load(Ordering::SeqCst), 1, "nobody asked since");
    }

    #[test]
    fn a_connection_counts_once_until_its_last_request_was_taken_up() {
        let (room, woken) = room(2, None);
        room.enter(10, true);
        room.enter(10, false);
        assert_eq!(room.free_requests(), 1);
        room.enter(10, true);
        assert!(!room.is_free_or_wanted());
        room.leave(10, false);
        assert_eq!((room.free_requests(), woken.load(Ordering::SeqCst)), (0, 0));
        room.leave(10, true);
        assert_eq!((room.free_requests(), woken.load(Ordering::SeqCst)), (1, 1));
    }
}
