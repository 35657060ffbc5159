//! How long a new connection waits so that the rate of new connections keeps its limit.
use std::collections::VecDeque;

const WINDOWS: u32 = 11;
const WINDOW_S: f64 = 1.0;

/// New connections per second, averaged over ten to eleven seconds: Kafka's `Rate` with default quota windows.
///
/// While less than ten seconds were measured they count as ten, so that a burst of ten times the rate passes at first.
#[derive(Debug, Default)]
pub(super) struct CreationRate {
    /// Start of each window that is still counted, and the connections in it.
    windows: VecDeque<(f64, u32)>,
}

impl CreationRate {
    /// Count a new connection; the seconds that it has to wait, at most one window.
    pub(super) fn add(&mut self, limit_per_s: u64, now_s: f64) -> f64 {
        while self
            .windows
            .front()
            .is_some_and(|(start_s, _)| now_s - start_s >= f64::from(WINDOWS) * WINDOW_S)
        {
            self.windows.pop_front();
        }
        match self.windows.back_mut() {
            Some((start_s, count)) if now_s - *start_s < WINDOW_S => *count = count.saturating_add(1),
            _ => self.windows.push_back((now_s, 1)),
        }
        let first_s = self.windows.front().map_or(now_s, |(start_s, _)| *start_s);
        let mut elapsed_s = now_s - first_s;
        elapsed_s += (f64::from(WINDOWS - 1) - (elapsed_s / WINDOW_S).trunc()).max(0.0) * WINDOW_S;
        let count: u64 = self.windows.iter().map(|(_, count)| u64::from(*count)).sum();
        let (rate, limit) = (count as f64 / elapsed_s, limit_per_s as f64);
        if rate <= limit {
            return 0.0;
        }
        if limit_per_s == 0 {
            return WINDOW_S;
        }
        ((rate - limit) / limit * elapsed_s).min(WINDOW_S)
    }

    /// The connection that was counted last does not count.
    pub(super) fn take_back(&mut self) {
        if let Some((_, count)) = self.windows.back_mut() {
            *count = count.saturating_sub(1);
        }
    }

    /// Whether nothing that was counted matters any more.
    pub(super) fn is_forgotten(&self, now_s: f64) -> bool {
        self.windows.back().is_none_or(|(start_s, _)| now_s - start_s >= f64::from(WINDOWS) * WINDOW_S)
    }
}
