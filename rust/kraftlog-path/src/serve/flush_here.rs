//! Whether an I/O thread may wait for the disk itself.
use std::time::{Duration, Instant};

/// A flush that took longer delays whatever comes meanwhile noticeably.
const SHORT: Duration = Duration::from_millis(2);
/// After it the pool has all flushes for so many times as long: a thread waits for a slow disk for a small part of its
/// time.
const PAUSE_FACTOR: u32 = 20;

/// Remembers whether the disk is fast enough for it.
#[derive(Debug, Default)]
pub(super) struct FlushHere {
    paused_until: Option<Instant>,
}

impl FlushHere {
    /// Whether the next flush may run on the I/O thread.
    pub(super) fn is_allowed(&self, now: Instant) -> bool {
        self.paused_until.is_none_or(|until| until <= now)
    }

    /// One ran there.
    pub(super) fn ended(&mut self, began: Instant, now: Instant) {
        let took = now.saturating_duration_since(began);
        self.paused_until = (took > SHORT).then(|| now + PAUSE_FACTOR * took);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_slow_flush_gives_the_next_ones_to_the_pool_for_a_while() {
        let start = Instant::now();
        let mut flush_here = FlushHere::default();
        assert!(flush_here.is_allowed(start));
        flush_here.ended(start, start + SHORT);
        assert!(flush_here.is_allowed(start + SHORT));
        let slow = start + 2 * SHORT;
        flush_here.ended(start, slow);
        assert!(!flush_here.is_allowed(slow));
        let pause = PAUSE_FACTOR * SHORT;
        flush_here.ended(slow, slow + 2 * SHORT);
        assert!(!flush_here.is_allowed(slow + 2 * pause));
        assert!(flush_here.is_allowed(slow + 2 * SHORT + 2 * pause));
    }
}
