//! What moved among the partitions of a fetch session since somebody last looked.
use std::fmt;
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::partition::{AckToken, FollowerSession, Listener};

/// Remembers which partitions moved, and wakes the long poll that waits for one.
///
/// A partition calls [`Listener::moved`] under its lock; nothing here calls a partition.
#[derive(Debug, Default)]
pub(crate) struct Bell {
    state: Mutex<State>,
    /// When the last fetch of a follower arrived, milliseconds.
    fetched_ms: AtomicI64,
}

#[derive(Default)]
struct State {
    /// Places of the partitions that moved, in the order in which they did, each once.
    moved: Vec<u32>,
    /// By place: whether it is in `moved`.
    is_moved: Vec<bool>,
    /// A long poll that begins now has to look at once.
    is_rung: bool,
    waiter: Option<Waiter>,
}

struct Waiter {
    listener: Arc<dyn Listener>,
    token: u64,
}

impl fmt::Debug for State {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let waiter = self.waiter.as_ref().map(|waiter| waiter.token);
        formatter.debug_struct("State").field("moved", &self.moved).field("waiter", &waiter).finish()
    }
}

impl Bell {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Take the places that moved since the last call, in order; `into` is cleared first.
    pub(crate) fn take(&self, into: &mut Vec<u32>) {
        into.clear();
        let mut state = self.state();
        state.is_rung = false;
        std::mem::swap(&mut state.moved, into);
        for &place in into.iter() {
            if let Some(flag) = state.is_moved.get_mut(place as usize) {
                *flag = false;
            }
        }
    }

    /// Tell `listener` once when something moves that ends a long poll. False, and nothing happens, if that has happened
    /// already.
    pub(crate) fn wait(&self, listener: &Arc<dyn Listener>, token: u64) -> bool {
        let mut state = self.state();
        if state.is_rung {
            return false;
        }
        state.waiter = Some(Waiter { listener: Arc::clone(listener), token });
        true
    }

    /// Wake the long poll that waits, if there is one.
    pub(crate) fn wake(&self) {
        let waiter = self.state().waiter.take();
        if let Some(waiter) = waiter {
            waiter.listener.moved(waiter.token);
        }
    }
}

impl Bell {
    /// The follower's fetch of this time has looked at all that had moved.
    pub(crate) fn set_fetched_ms(&self, now_ms: i64) {
        self.fetched_ms.store(now_ms, Ordering::Release);
    }

    fn note(&self, place: u32, rings: bool) {
        let mut state = self.state();
        let index = place as usize;
        if state.is_moved.len() <= index {
            state.is_moved.resize(index + 1, false);
        }
        if let Some(flag) = state.is_moved.get_mut(index) {
            if !std::mem::replace(flag, true) {
                state.moved.push(place);
            }
        }
        if rings {
            state.is_rung = true;
            if let Some(waiter) = state.waiter.take() {
                waiter.listener.moved(waiter.token);
            }
        }
    }
}

impl Listener for Bell {
    fn acknowledged(&self, _token: AckToken, _error_code: i16) {
        // Nobody appends with a bell.
    }

    fn moved(&self, token: u64) {
        if let Ok(place) = u32::try_from(token) {
            self.note(place, true);
        }
    }
}

/// Followers wait for appends; the high watermark goes with the next answer, as in Kafka.
impl FollowerSession for Bell {
    fn appended(&self, place: u32) {
        self.note(place, true);
    }

    fn moved(&self, place: u32) {
        self.note(place, false);
    }

    fn fetched_ms(&self) -> i64 {
        self.fetched_ms.load(Ordering::Acquire)
    }
}
