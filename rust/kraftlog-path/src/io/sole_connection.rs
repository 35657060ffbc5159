//! Whether a thread serves one connection alone.
use std::time::{Duration, Instant};

use crate::exchange::ConnectionId;

/// No other connection sent anything for so long.
const ALONE_AFTER: Duration = Duration::from_millis(100);

/// The connection that a thread served last, and since when no other one.
#[derive(Debug)]
pub(super) struct SoleConnection {
    last: Option<ConnectionId>,
    since: Instant,
}

impl SoleConnection {
    pub(super) fn new(now: Instant) -> Self {
        Self { last: None, since: now }
    }

    /// A connection is served.
    pub(super) fn served(&mut self, connection: ConnectionId, now: Instant) {
        if self.last != Some(connection) {
            self.last = Some(connection);
            self.since = now;
        }
    }

    /// Whether all that the thread served lately was of one connection.
    pub(super) fn is_alone(&self, now: Instant) -> bool {
        self.last.is_some() && now.saturating_duration_since(self.since) >= ALONE_AFTER
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_second_connection_ends_it_until_it_has_been_silent_for_a_while() {
        let start = Instant::now();
        let id = |slot| ConnectionId { thread: 0, slot, generation: 0 };
        let at = |ms| start + Duration::from_millis(ms);
        let mut sole = SoleConnection::new(start);
        assert!(!sole.is_alone(at(1000)));
        sole.served(id(1), at(1000));
        assert!(!sole.is_alone(at(1099)));
        assert!(sole.is_alone(at(1100)));
        sole.served(id(1), at(1100));
        assert!(sole.is_alone(at(1100)));
        sole.served(id(2), at(1101));
        sole.served(id(1), at(1102));
        assert!(!sole.is_alone(at(1201)));
        assert!(sole.is_alone(at(1202)));
    }
}
