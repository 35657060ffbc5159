//! Produce, as a closed loop with a fixed number of requests under way, or as an open loop with a fixed rate.
use std::collections::VecDeque;
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Instant;

use crate::batch::batch;
use crate::connection::{Connection, Poller};
use crate::histogram::Histogram;
use crate::idle::open_idle;
use crate::options::Options;
use crate::report::Report;
use crate::sampler::Sampler;
use crate::wire::{produce, produce_error};
use crate::Failure;

const DRAIN_NS: u64 = 10_000_000_000;
const MOST_UNANSWERED: u64 = 100_000;
const ANSWER_BYTES: usize = 16 << 10;

/// Request under way, in nanoseconds since the start.
struct UnderWay {
    /// When it had to be sent: the latency counts from here, even if the generator or the socket delayed it.
    due_ns: u64,
    /// When it was given to the socket's queue.
    queued_ns: u64,
}

struct Client {
    connection: Connection,
    frames: Vec<Rc<Vec<u8>>>,
    next_frame: usize,
    under_way: VecDeque<UnderWay>,
    watches_space: bool,
}

/// What was measured between the warm-up and the end.
#[derive(Default)]
struct Seen {
    answered: u64,
    latencies: Histogram,
    from_queue: Histogram,
    errors: u64,
    last_error: i16,
}

/// Options: `address pid topics connections in-flight acks records record-bytes partitions-per-request rate idle warm
/// seconds`. A rate of 0 is a closed loop.
pub fn run(options: &mut Options) -> Result<Report, Failure> {
    let address: String = options.need("address")?;
    let pid: u32 = options.need("pid")?;
    let topics = options.topics()?;
    let connections: usize = options.take("connections", 1)?;
    let in_flight: usize = options.take("in-flight", 1)?;
    let acks: i16 = options.take("acks", -1)?;
    let records: usize = options.take("records", 1)?;
    let record_bytes: usize = options.take("record-bytes", 100)?;
    let per_request: usize = options.take("partitions-per-request", 1)?;
    let rate: f64 = options.take("rate", 0.0)?;
    let idle: usize = options.take("idle", 0)?;
    let warm_ns = (options.take("warm", 1.0)? * 1e9) as u64;
    let seconds: f64 = options.take("seconds", 5.0)?;
    options.finish()?;

    let batch = batch(records, record_bytes);
    let partitions: Vec<_> =
        topics.iter().flat_map(|topic| (0..topic.partitions).map(|index| (topic.id, index))).collect();
    let frames: Vec<_> =
        partitions.chunks(per_request).map(|partitions| Rc::new(produce(partitions, &batch, acks))).collect();
    let mut clients = Vec::with_capacity(connections);
    let mut sockets = Vec::with_capacity(connections);
    for place in 0..connections {
        sockets.push(Connection::open(&address, ANSWER_BYTES)?);
        let first = place % frames.len();
        clients.push(frames.iter().skip(first).step_by(connections).map(Rc::clone).collect::<Vec<_>>());
    }
    let idle_sockets = open_idle(&address, idle)?;
    let poller = Poller::new(&sockets)?;
    let clients = sockets
        .into_iter()
        .zip(clients)
        .map(|(connection, frames)| Client {
            connection,
            frames,
            next_frame: 0,
            under_way: VecDeque::new(),
            watches_space: false,
        })
        .collect();
    let end_ns = warm_ns + (seconds * 1e9) as u64;
    let pace = if rate > 0.0 { Pace::Open { interval_ns: 1e9 / rate } } else { Pace::Closed { in_flight } };
    let loaded =
        Load { clients, poller, pace, acks, warm_ns, end_ns, began: Instant::now(), seen: Seen::default() };
    let (seen, usage, unanswered) = loaded.run(pid)?;
    drop(idle_sockets);

    let mut report = Report::default();
    report.put("requests_s", seen.answered as f64 / seconds);
    report.put("records_s", (seen.answered * (records * per_request) as u64) as f64 / seconds);
    let unit_bytes = batch.len() * per_request;
    report.put("MB_s", seen.answered as f64 * unit_bytes as f64 / 1e6 / seconds);
    report.put_latencies("", &seen.latencies);
    if rate > 0.0 {
        report.put_latencies("sent_", &seen.from_queue);
    }
    report.put("unanswered", unanswered as f64);
    report.put("errors", seen.errors as f64);
    if seen.errors > 0 {
        report.put("last_error_code", f64::from(seen.last_error));
    }
    report.put_usage(pid, &usage, seen.answered, seen.answered * unit_bytes as u64)?;
    Ok(report)
}

enum Pace {
    Closed { in_flight: usize },
    Open { interval_ns: f64 },
}

struct Load {
    clients: Vec<Client>,
    poller: Poller,
    pace: Pace,
    acks: i16,
    warm_ns: u64,
    end_ns: u64,
    began: Instant,
    seen: Seen,
}

impl Load {
    fn now_ns(&self) -> u64 {
        self.began.elapsed().as_nanos() as u64
    }

    /// Runs to the end, and until the answers have come; also the number of requests without one.
    fn run(mut self, pid: u32) -> Result<(Seen, crate::sampler::Usage, u64), Failure> {
        let done = Arc::new(AtomicU64::new(0));
        let mut sampler = None;
        let mut places = Vec::new();
        let mut sent = 0_u64;
        self.began = Instant::now();
        if let Pace::Closed { in_flight } = self.pace {
            for place in 0..self.clients.len() {
                (0..in_flight).for_each(|_| self.queue(place, 0));
                self.send(place, &done)?;
            }
        }
        loop {
            let now_ns = self.now_ns();
            if sampler.is_none() && now_ns >= self.warm_ns {
                sampler = Some(Sampler::start(pid, Arc::clone(&done)));
            }
            if now_ns >= self.end_ns {
                sampler.iter().for_each(Sampler::end);
                let is_drained = self.clients.iter().all(|client| client.under_way.is_empty());
                if is_drained || now_ns >= self.end_ns + DRAIN_NS {
                    break;
                }
            }
            let mut wake_ns = if now_ns < self.warm_ns { self.warm_ns } else { self.end_ns };
            if now_ns >= self.end_ns {
                wake_ns = self.end_ns + DRAIN_NS;
            } else if let Pace::Open { interval_ns } = self.pace {
                let mut due_ns = (sent as f64 * interval_ns) as u64;
                while due_ns <= now_ns {
                    let place = sent as usize % self.clients.len();
                    self.queue(place, due_ns);
                    self.send(place, &done)?;
                    sent += 1;
                    due_ns = (sent as f64 * interval_ns) as u64;
                }
                let unanswered: usize = self.clients.iter().map(|client| client.under_way.len()).sum();
                if unanswered as u64 > MOST_UNANSWERED {
                    return Err("the broker does not keep up with the rate".into());
                }
                wake_ns = wake_ns.min(due_ns);
            }
            places.clear();
            self.poller.wait(wake_ns.saturating_sub(self.now_ns()), &mut places)?;
            for &place in &places {
                self.receive(place, &done)?;
                self.send(place, &done)?;
            }
        }
        let unanswered = self.clients.iter().map(|client| client.under_way.len() as u64).sum();
        let sampler = sampler.ok_or("the run was over before its warm-up")?;
        Ok((self.seen, sampler.usage()?, unanswered))
    }

    fn queue(&mut self, place: usize, due_ns: u64) {
        let queued_ns = self.now_ns();
        let client = &mut self.clients[place];
        client.connection.queue(&client.frames[client.next_frame]);
        client.next_frame = (client.next_frame + 1) % client.frames.len();
        let due_ns = if matches!(self.pace, Pace::Open { .. }) { due_ns } else { queued_ns };
        client.under_way.push_back(UnderWay { due_ns, queued_ns });
    }

    fn send(&mut self, place: usize, done: &AtomicU64) -> Result<(), Failure> {
        loop {
            let client = &mut self.clients[place];
            let whole = client.connection.send()?;
            let is_wanted = client.connection.has_unsent();
            if is_wanted != client.watches_space {
                client.watches_space = is_wanted;
                self.poller.watch_space(place, &client.connection, is_wanted)?;
            }
            if self.acks != 0 || whole == 0 {
                return Ok(());
            }
            (0..whole).for_each(|_| self.answered(place, 0, done)); // no answer follows
            if is_wanted {
                return Ok(());
            }
        }
    }

    fn receive(&mut self, place: usize, done: &AtomicU64) -> Result<(), Failure> {
        let mut errors = Vec::new();
        self.clients[place].connection.receive(|frame| {
            errors.push(produce_error(frame)?);
            Ok(())
        })?;
        errors.into_iter().for_each(|error| self.answered(place, error, done));
        Ok(())
    }

    fn answered(&mut self, place: usize, error: i16, done: &AtomicU64) {
        let now_ns = self.now_ns();
        let Some(request) = self.clients[place].under_way.pop_front() else { return };
        if (self.warm_ns..self.end_ns).contains(&request.due_ns) {
            self.seen.latencies.record(now_ns - request.due_ns);
            self.seen.from_queue.record(now_ns - request.queued_ns);
        }
        if (self.warm_ns..self.end_ns).contains(&now_ns) {
            self.seen.answered += 1;
            done.fetch_add(1, Ordering::Relaxed);
        }
        if error != 0 {
            self.seen.errors += 1;
            self.seen.last_error = error;
        }
        if matches!(self.pace, Pace::Closed { .. }) && now_ns < self.end_ns {
            self.queue(place, now_ns);
        }
    }
}
