//! Produce frames that one receive brought: the service gets them in one call.
use std::time::Instant;

use super::{api_key, cut, Connection, Cut, Desk, Handled};
use crate::exchange::{RequestId, Service, PRODUCE};

/// Frames of one call; a client has at most five requests in flight by default.
const FRAMES_MAX: usize = 16;

impl Connection {
    /// Handle the first frame with those that follow it in `rest`, if there are several and the service does; the bytes
    /// of the frames handled, prefixes included. The caller has seen that the first may be handled.
    ///
    /// # Errors
    /// Why the connection ends.
    pub(super) fn handle_together<S: Service>(
        &mut self,
        first: &[u8],
        mut rest: &[u8],
        desk: &mut Desk<'_, S>,
    ) -> Result<usize, String> {
        if api_key(first) != PRODUCE || rest.is_empty() {
            return Ok(0);
        }
        let free = desk.limits.max_in_flight.saturating_sub(self.requests.len());
        let limit = FRAMES_MAX.min(desk.frames_left).min(free);
        let (mut frames, mut count) = ([first; FRAMES_MAX], 1);
        while let Some(place) = frames.get_mut(count).filter(|_| count < limit) {
            let Ok(Cut::Whole(size)) = cut(rest, desk.limits.max_frame_bytes) else { break };
            let (frame, behind) = rest.get(4..).unwrap_or_default().split_at(size);
            if api_key(frame) != PRODUCE {
                break;
            }
            (*place, rest) = (frame, behind);
            count += 1;
        }
        if count < 2 || self.session.hands_over(PRODUCE, desk.now) {
            return Ok(0);
        }
        let frames = frames.get(..count).unwrap_or_default();
        let request = RequestId { connection: self.id, number: self.requests.next_number() };
        let mut outcomes = std::mem::take(desk.outcomes);
        desk.service.handle_together(request, &self.peer, frames, desk.now, &mut outcomes);
        if !outcomes.is_empty() {
            self.waits_for_room = false;
            desk.frames_left -= outcomes.len();
            desk.now = Instant::now();
        }
        let mut handled = 0;
        let mut failure = None;
        for (frame, outcome) in frames.iter().zip(outcomes.drain(..)) {
            let request = RequestId { connection: self.id, number: self.requests.next_number() };
            handled += 4 + frame.len();
            failure = match self.settle(request, frame, outcome, false) {
                Ok(Handled::Done) => continue,
                Ok(_) => Some("internal error: a frame handled with others was handed over".to_owned()),
                Err(reason) => Some(reason),
            };
            break;
        }
        *desk.outcomes = outcomes;
        failure.map_or(Ok(handled), Err)
    }
}
