//! A service that answers nothing.
use std::convert::Infallible;
use std::time::Instant;

use crate::exchange::{Answered, ConnectionId, Outcome, Peer, RequestId, Service};

/// Hands every frame over.
#[derive(Clone, Copy, Debug, Default)]
pub struct HandOverAll;

impl Service for HandOverAll {
    type Message = Infallible;

    fn serves(&self, _api_key: i16) -> bool {
        false
    }

    fn handle(&mut self, _request: RequestId, _peer: &Peer, _frame: &[u8], _now: Instant) -> Outcome {
        Outcome::HandOver
    }

    fn message(&mut self, message: Infallible, _now: Instant, _answered: &mut Vec<Answered>) {
        match message {}
    }

    fn next_deadline(&self) -> Option<Instant> {
        None
    }

    fn on_time(&mut self, _now: Instant, _answered: &mut Vec<Answered>) {}

    fn end_turn(&mut self, _now: Instant, _is_alone: bool, _answered: &mut Vec<Answered>) {}

    fn connection_lost(&mut self, _connection: ConnectionId) {}
}
