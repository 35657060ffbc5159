//! Places in the table of connections of one thread.
use std::sync::{Mutex, MutexGuard, PoisonError};

use crate::exchange::ConnectionId;

/// Gives out places; any thread may take one, the I/O thread gives them back.
#[derive(Debug, Default)]
pub(super) struct Slots {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    /// How often each place was given back.
    generations: Vec<u32>,
    free: Vec<u32>,
}

impl Slots {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// A place that nobody has.
    pub(super) fn take(&self, thread: u16) -> ConnectionId {
        let mut state = self.state();
        let slot = state.free.pop().unwrap_or_else(|| {
            state.generations.push(0);
            u32::try_from(state.generations.len() - 1).unwrap_or(u32::MAX)
        });
        let generation = state.generations.get(slot as usize).copied().unwrap_or(0);
        ConnectionId { thread, slot, generation }
    }

    /// The place may be taken again, as another generation.
    pub(super) fn give_back(&self, connection: ConnectionId) {
        let mut state = self.state();
        if let Some(generation) = state.generations.get_mut(connection.slot as usize) {
            *generation = generation.wrapping_add(1);
            state.free.push(connection.slot);
        }
    }

    /// Places that are taken.
    pub(super) fn taken(&self) -> usize {
        let state = self.state();
        state.generations.len() - state.free.len()
    }
}
