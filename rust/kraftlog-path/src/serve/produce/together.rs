//! Produce requests that came together: neighbours for one partition share a lock and a write.
use std::ops::Range;
use std::sync::Arc;
use std::time::Instant;

use super::{Parameters, PlannedAppend, ProduceResult};
use crate::exchange::{Outcome, Peer, RequestId};
use crate::partition::{AckToken, AppendError, Appended};
use crate::serve::DataService;

/// Memory for the requests of one call, used again by the next.
#[derive(Debug, Default)]
pub(in crate::serve) struct ProduceRun {
    appends: Vec<PlannedAppend>,
    requests: Vec<PlannedRequest>,
}

/// A plain request, and which of the planned appends are its own.
#[derive(Debug)]
struct PlannedRequest {
    parameters: Parameters,
    appends: Range<usize>,
}

impl ProduceRun {
    fn appends_of(&self, request: &PlannedRequest) -> &[PlannedAppend] {
        self.appends.get(request.appends.clone()).unwrap_or_default()
    }

    /// How many requests from the first of `requests` on can be appended with one write.
    fn joined_count(&self, requests: &[PlannedRequest]) -> usize {
        let Some((first, rest)) = requests.split_first() else { return 0 };
        let [append] = self.appends_of(first) else { return 1 };
        let Parameters { acks, is_compressed, .. } = first.parameters;
        // What acks=0 has to say about a failure ends the connection: nothing is to be appended after it.
        if is_compressed || acks == 0 {
            return 1;
        }
        let joins = |request: &&PlannedRequest| {
            let parameters = &request.parameters;
            let is_same = matches!(self.appends_of(request), [other] if Arc::ptr_eq(&other.partition, &append.partition));
            is_same && !parameters.is_compressed && parameters.acks == acks
        };
        1 + rest.iter().take_while(joins).count()
    }
}

impl DataService {
    /// Handle Produce requests that follow each other, up to the first that is not plain; an outcome for each handled.
    pub(in crate::serve) fn produce_together(
        &mut self,
        first: RequestId,
        peer: &Peer,
        frames: &[&[u8]],
        now: Instant,
        outcomes: &mut Vec<Outcome>,
    ) {
        let mut run = std::mem::take(&mut self.produce_run);
        for frame in frames {
            let begin = run.appends.len();
            match self.plan(peer, frame, &mut run.appends) {
                Ok(parameters) => {
                    run.requests.push(PlannedRequest { parameters, appends: begin..run.appends.len() });
                }
                Err(_) => break,
            }
        }
        let mut done = 0;
        while let Some(requests) = run.requests.get(done..).filter(|requests| !requests.is_empty()) {
            let count = run.joined_count(requests);
            let (Some(joined), Some(frames)) = (requests.get(..count), frames.get(done..done + count)) else {
                break;
            };
            let id = RequestId { number: first.number + done as u64, ..first };
            if let ([request], [frame]) = (joined, frames) {
                let appends = run.appends_of(request);
                match self.append_planned(id, peer.listener, frame, appends, request.parameters, now) {
                    Some(outcome) => outcomes.push(outcome),
                    None => break,
                }
            } else {
                self.append_joined(id, peer.listener, frames, &run, joined, now, outcomes);
            }
            done += count;
            if matches!(outcomes.last(), Some(Outcome::Close(_))) {
                break;
            }
        }
        run.appends.clear();
        run.requests.clear();
        self.produce_run = run;
    }

    /// Append one batch of each request, all to one partition.
    #[allow(clippy::too_many_arguments, reason = "one call site, and each is needed once")]
    fn append_joined(
        &mut self,
        first: RequestId,
        listener: u16,
        frames: &[&[u8]],
        run: &ProduceRun,
        requests: &[PlannedRequest],
        now: Instant,
        outcomes: &mut Vec<Outcome>,
    ) {
        let appends = || requests.iter().filter_map(|request| run.appends_of(request).first());
        let (Some(partition), Some(request)) =
            (appends().next().map(|append| &append.partition), requests.first())
        else {
            return;
        };
        let acks = request.parameters.acks;
        let options = self.append_options();
        let mut tokens = Vec::with_capacity(requests.len());
        let mut prepared = Vec::with_capacity(requests.len());
        let mut refused: Vec<Option<AppendError>> = Vec::with_capacity(requests.len());
        let ids: Vec<u64> = requests.iter().map(|_| self.pending.reserve()).collect();
        for ((append, frame), id) in appends().zip(frames).zip(&ids) {
            let batch = frame.get(append.records.clone()).unwrap_or_default();
            match partition.prepare_append(batch, acks, options) {
                Ok(batch) => {
                    prepared.push(batch);
                    tokens.push(AckToken { id: *id, position: 0 });
                    refused.push(None);
                }
                Err(error) => refused.push(Some(error)),
            }
        }
        let mut appended = partition.append_all_prepared(prepared, acks, &self.listener, &tokens).into_iter();
        let results: Vec<Result<Appended, AppendError>> = refused
            .into_iter()
            .filter_map(|error| error.map_or_else(|| appended.next(), |error| Some(Err(error))))
            .collect();
        if results.iter().flatten().any(|appended| appended.needs_flush) {
            self.flush_later(partition);
        }
        for (index, ((request, append), (result, id))) in
            requests.iter().zip(appends()).zip(results.into_iter().zip(ids)).enumerate()
        {
            let result = match result {
                Ok(appended) => ProduceResult::appended(append, &appended, acks),
                Err(error) => ProduceResult::failed(append, error),
            };
            let request_id = RequestId { number: first.number + index as u64, ..first };
            outcomes.push(self.outcome(request_id, id, listener, &request.parameters, vec![result], now));
        }
    }
}
