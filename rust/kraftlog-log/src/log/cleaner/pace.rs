//! Stopping a clean from outside, and slowing it down.
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// Tells a clean to stop; shared between threads.
#[derive(Debug, Default)]
pub struct CancelFlag(AtomicBool);

impl CancelFlag {
    /// Ask for the end: the clean stops before its next chunk of input and leaves the log as it then is.
    pub fn cancel(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether that was asked.
    pub fn is_cancelled(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// Unused allowance goes no further back than this, as in Kafka's `Throttler` of the cleaner.
const WINDOW: Duration = Duration::from_millis(300);
/// A sleeping clean looks at its flag this often.
const STEP: Duration = Duration::from_millis(50);

#[derive(Debug)]
struct Allowance {
    bytes_per_second: f64,
    /// When what was charged so far is paid for.
    paid_until: Option<Instant>,
}

/// A rate that all cleans which share it keep together: bytes read plus bytes written, per second.
#[derive(Debug)]
pub struct Throttle(Mutex<Allowance>);

impl Throttle {
    /// A throttle; a rate that is not finite is no limit.
    pub fn new(bytes_per_second: f64) -> Self {
        Self(Mutex::new(Allowance { bytes_per_second, paid_until: None }))
    }

    /// Use another rate from the next chunk on.
    pub fn set_rate(&self, bytes_per_second: f64) {
        let mut allowance = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        allowance.bytes_per_second = bytes_per_second;
        allowance.paid_until = None;
    }

    /// Book `bytes` that were moved at `now`; the answer is how long to wait.
    fn charge(&self, bytes: u64, now: Instant) -> Duration {
        let mut allowance = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let seconds = bytes as f64 / allowance.bytes_per_second.max(1.0);
        let Ok(cost) = Duration::try_from_secs_f64(seconds) else { return Duration::ZERO };
        if cost.is_zero() {
            return Duration::ZERO;
        }
        let from = match allowance.paid_until {
            Some(paid_until) if paid_until + WINDOW > now => paid_until,
            _ => now,
        };
        let paid_until = from.checked_add(cost).unwrap_or(from);
        allowance.paid_until = Some(paid_until);
        paid_until.saturating_duration_since(now)
    }

    /// Book `bytes` and sleep as long as the rate demands, or until cancelled.
    #[expect(
        clippy::disallowed_methods,
        reason = "a throttle is about time that passes; bytes do not depend on it"
    )]
    pub(super) fn pay(&self, bytes: u64, cancel: Option<&CancelFlag>) {
        let mut remaining = self.charge(bytes, Instant::now());
        while !remaining.is_zero() && !cancel.is_some_and(CancelFlag::is_cancelled) {
            let step = remaining.min(STEP);
            std::thread::sleep(step);
            remaining -= step;
        }
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "a throttle is about time that passes")]
mod tests {
    use super::*;

    #[test]
    fn the_rate_holds_over_many_charges_and_a_pause_is_not_saved_up() {
        let throttle = Throttle::new(1000.0);
        let start = Instant::now();
        let waits: Vec<_> = (0..5).map(|_| throttle.charge(100, start).as_millis()).collect();
        assert_eq!(waits, [100, 200, 300, 400, 500]);
        let later = start + Duration::from_secs(60);
        assert_eq!(throttle.charge(100, later).as_millis(), 100);
        throttle.set_rate(f64::MAX);
        assert_eq!(throttle.charge(u64::MAX, later), Duration::ZERO);
    }

    #[test]
    fn a_cancelled_clean_does_not_sleep_on() {
        let throttle = Throttle::new(1.0);
        let flag = CancelFlag::default();
        flag.cancel();
        let start = Instant::now();
        throttle.pay(3600, Some(&flag));
        assert!(start.elapsed() < Duration::from_secs(60));
    }
}
