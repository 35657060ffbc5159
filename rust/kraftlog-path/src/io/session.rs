//! How long a peer that has authenticated may send requests (KIP-368).
use std::time::{Duration, Instant};

use crate::exchange::SASL_HANDSHAKE;

/// The first reader of the frames of a connection.
///
/// Python knows what may follow what in an authentication. It gets every frame from the one on that begins another
/// authentication, or that comes after the end of the session, until it says how long the session lasts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Session {
    /// The service, as long as the connection lasts.
    Unending,
    /// The service until then.
    Until(Instant),
    /// Python.
    InDoubt,
}

impl Session {
    /// A session that lasts for so long; `None` if it does not end.
    pub(super) fn new(left: Option<Duration>, now: Instant) -> Self {
        left.and_then(|left| now.checked_add(left)).map_or(Self::Unending, Self::Until)
    }

    /// Whether the next frame is Python's, whatever it asks for.
    pub(super) fn hands_over(&mut self, api_key: i16, now: Instant) -> bool {
        if let Self::Until(end) = *self {
            if api_key == SASL_HANDSHAKE || now >= end {
                *self = Self::InDoubt;
            }
        }
        *self == Self::InDoubt
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::exchange::PRODUCE;

    #[test]
    fn a_session_without_an_end_leaves_every_frame_to_the_service() {
        let now = Instant::now();
        let mut session = Session::new(None, now);
        assert!(!session.hands_over(PRODUCE, now + Duration::from_secs(1 << 30)));
        assert!(!session.hands_over(SASL_HANDSHAKE, now));
        assert_eq!(Session::new(Some(Duration::MAX), now), Session::Unending);
    }

    #[test]
    fn from_the_end_on_python_has_all_frames() {
        let now = Instant::now();
        let mut session = Session::new(Some(Duration::from_secs(1)), now);
        assert!(!session.hands_over(PRODUCE, now + Duration::from_millis(999)));
        assert!(session.hands_over(PRODUCE, now + Duration::from_secs(1)));
        assert!(session.hands_over(PRODUCE, now), "whatever the clock says then");
    }

    #[test]
    fn a_handshake_gives_python_what_follows_it() {
        let now = Instant::now();
        let mut session = Session::new(Some(Duration::from_secs(1)), now);
        assert!(session.hands_over(SASL_HANDSHAKE, now));
        assert!(session.hands_over(PRODUCE, now));
        session = Session::new(Some(Duration::from_secs(1)), now);
        assert!(!session.hands_over(PRODUCE, now));
    }
}
