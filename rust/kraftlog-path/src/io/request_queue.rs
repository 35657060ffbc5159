//! The requests of one connection that are not answered, in the order of their answers.
use std::collections::VecDeque;

use crate::exchange::{Output, RequestNumber};

/// Who answers a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Owner {
    /// The service; a long poll is owed to nobody who waits for the end of the connection.
    Service { is_long_poll: bool },
    /// Python, which holds so many bytes of the frame.
    Python { frame_bytes: usize },
}

#[derive(Debug)]
enum State {
    Waiting(Owner),
    Known(Vec<Output>),
}

/// Requests from the first one without a sent answer to the newest.
#[derive(Debug, Default)]
pub(super) struct RequestQueue {
    /// Number of the request at the front.
    first: RequestNumber,
    states: VecDeque<State>,
    handed_over: usize,
    handed_over_bytes: usize,
    /// Requests that Python has not taken up, and the bytes of their frames.
    queued: VecDeque<(RequestNumber, usize)>,
    /// All requests below this number have begun in Python, as far as they were handed over.
    begun_below: RequestNumber,
    /// The newest request that was handed over.
    last_handed_over: Option<RequestNumber>,
}

impl RequestQueue {
    /// The number of the next request.
    pub(super) fn next_number(&self) -> RequestNumber {
        self.first + self.states.len() as u64
    }

    pub(super) fn len(&self) -> usize {
        self.states.len()
    }

    pub(super) fn handed_over(&self) -> usize {
        self.handed_over
    }

    pub(super) fn handed_over_bytes(&self) -> usize {
        self.handed_over_bytes
    }

    /// Whether a request was handed over that has not begun in Python.
    pub(super) fn has_unbegun(&self) -> bool {
        self.last_handed_over.is_some_and(|number| number >= self.begun_below)
    }

    /// Python has begun all requests up to this one, inclusive. Whether that ended the wait for any.
    pub(super) fn begun(&mut self, number: RequestNumber) -> bool {
        let had_unbegun = self.has_unbegun();
        self.begun_below = self.begun_below.max(number.saturating_add(1));
        had_unbegun && !self.has_unbegun()
    }

    /// Whether Python has not taken up everything.
    pub(super) fn has_queued(&self) -> bool {
        !self.queued.is_empty()
    }

    /// Python has taken up all requests up to this one, inclusive. The bytes of those that it had not before; `None` if
    /// there are none.
    pub(super) fn taken(&mut self, number: RequestNumber) -> Option<usize> {
        let mut taken = None;
        while let Some((_, bytes)) = self.queued.front().filter(|(queued, _)| *queued <= number) {
            taken = Some(taken.unwrap_or(0) + bytes);
            self.queued.pop_front();
        }
        taken
    }

    /// The next request is answered later.
    pub(super) fn wait(&mut self, owner: Owner) {
        if let Owner::Python { frame_bytes } = owner {
            self.handed_over += 1;
            self.handed_over_bytes += frame_bytes;
            self.last_handed_over = Some(self.next_number());
            self.queued.push_back((self.next_number(), frame_bytes));
        }
        self.states.push_back(State::Waiting(owner));
    }

    /// The next request is answered now. Gives the answer back if it may be sent at once.
    pub(super) fn answer_next(&mut self, outputs: Vec<Output>) -> Option<Vec<Output>> {
        if self.states.is_empty() {
            self.first += 1;
            return Some(outputs);
        }
        self.states.push_back(State::Known(outputs));
        None
    }

    /// An answer became known. Who owned the request; `None` if it does not wait for an answer.
    pub(super) fn answer(&mut self, number: RequestNumber, outputs: Vec<Output>) -> Option<Owner> {
        let index = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let state = self.states.get_mut(index)?;
        let State::Waiting(owner) = *state else { return None };
        *state = State::Known(outputs);
        if let Owner::Python { frame_bytes } = owner {
            self.handed_over -= 1;
            self.handed_over_bytes -= frame_bytes;
            self.begun(number);
        }
        Some(owner)
    }

    /// The next answer to send, if it is known.
    pub(super) fn pop_known(&mut self) -> Option<Vec<Output>> {
        if !matches!(self.states.front(), Some(State::Known(_))) {
            return None;
        }
        match self.states.pop_front() {
            Some(State::Known(outputs)) => {
                self.first += 1;
                Some(outputs)
            }
            _ => None,
        }
    }
}
