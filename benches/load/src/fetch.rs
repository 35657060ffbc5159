//! Consumers that read whole logs again and again, each in a fetch session of its own.
use std::rc::Rc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::Instant;

use crate::batch::whole_batches;
use crate::connection::{Connection, Poller};
use crate::fetch_wire::{fetch, read, Limits, Position, Session};
use crate::histogram::Histogram;
use crate::options::Options;
use crate::report::Report;
use crate::sampler::Sampler;
use crate::Failure;

struct Consumer {
    connection: Connection,
    positions: Vec<Position>,
    session: Session,
    sent_ns: u64,
}

/// Options: `address pid topics connections max-bytes partition-max-bytes warm seconds`. The partitions are shared out
/// among the connections; a partition that was read to its end is read from offset 0 again.
pub fn run(options: &mut Options) -> Result<Report, Failure> {
    let address: String = options.need("address")?;
    let pid: u32 = options.need("pid")?;
    let topics = options.topics()?;
    let connections: usize = options.take("connections", 1)?;
    let max_bytes: i32 = options.take("max-bytes", 1 << 20)?;
    let limits = Limits {
        wait_ms: 500,
        max_bytes,
        partition_max_bytes: options.take("partition-max-bytes", max_bytes)?,
    };
    let warm_ns = (options.take("warm", 1.0)? * 1e9) as u64;
    let seconds: f64 = options.take("seconds", 5.0)?;
    let end_ns = warm_ns + (seconds * 1e9) as u64;
    options.finish()?;

    let all: Vec<_> = topics
        .iter()
        .flat_map(|topic| (0..topic.partitions).map(|index| Position { topic: topic.id, index, offset: 0 }))
        .collect();
    let mut sockets = Vec::new();
    for _ in 0..connections {
        sockets.push(Connection::open(&address, max_bytes as usize + 4096)?);
    }
    let mut poller = Poller::new(&sockets)?;
    let mut consumers: Vec<_> = sockets
        .into_iter()
        .enumerate()
        .map(|(place, connection)| Consumer {
            connection,
            positions: all.iter().skip(place % all.len()).step_by(connections).copied().collect(),
            session: Session::default(),
            sent_ns: 0,
        })
        .collect();

    let began = Instant::now();
    let now_ns = || began.elapsed().as_nanos() as u64;
    let done = Arc::new(AtomicU64::new(0));
    let (mut sampler, mut latencies) = (None, Histogram::default());
    let (mut fetches, mut bytes, mut records) = (0_u64, 0_u64, 0_u64);
    for consumer in &mut consumers {
        let positions = consumer.positions.clone();
        consumer.ask(&positions, limits, now_ns())?;
    }
    let mut places = Vec::new();
    loop {
        let at_ns = now_ns();
        if sampler.is_none() && at_ns >= warm_ns {
            sampler = Some(Sampler::start(pid, Arc::clone(&done)));
        }
        if at_ns >= end_ns {
            break;
        }
        places.clear();
        poller.wait(end_ns - at_ns, &mut places)?;
        for &place in &places {
            let consumer = &mut consumers[place];
            let Some(answer) = consumer.answer()? else { continue };
            let at_ns = now_ns();
            if (warm_ns..end_ns).contains(&at_ns) {
                latencies.record(at_ns - consumer.sent_ns);
                fetches += 1;
                bytes += answer.bytes;
                records += answer.records;
                done.fetch_add(1, Ordering::Relaxed);
            }
            consumer.ask(&answer.moved, limits, at_ns)?;
        }
    }
    let usage = sampler.ok_or("the run was over before its warm-up")?.usage()?;
    let mut report = Report::default();
    report.put("requests_s", fetches as f64 / seconds);
    report.put("records_s", records as f64 / seconds);
    report.put("MB_s", bytes as f64 / 1e6 / seconds);
    report.put_latencies("", &latencies);
    report.put_usage(pid, &usage, fetches, bytes)?;
    Ok(report)
}

#[derive(Default)]
struct Answer {
    moved: Vec<Position>,
    bytes: u64,
    records: u64,
}

impl Consumer {
    fn ask(&mut self, moved: &[Position], limits: Limits, now_ns: u64) -> Result<(), Failure> {
        self.connection.queue(&Rc::new(fetch(self.session, moved, limits)));
        self.session.epoch += 1;
        self.sent_ns = now_ns;
        self.connection.send()?;
        if self.connection.has_unsent() {
            return Err("a Fetch request does not fit into the socket's buffer".into());
        }
        Ok(())
    }

    /// The answer, if it is there whole.
    fn answer(&mut self) -> Result<Option<Answer>, Failure> {
        let Self { connection, positions, session, .. } = self;
        let mut found = None;
        connection.receive(|frame| {
            let mut answer = Answer::default();
            session.id = read(frame, |fetched| {
                let position = positions
                    .iter_mut()
                    .find(|position| position.topic == fetched.topic && position.index == fetched.index)
                    .ok_or("a partition that was not asked for")?;
                // Without a whole batch, others took the bytes of this answer, or the end is reached.
                let (records, end) = whole_batches(fetched.records).unwrap_or((0, position.offset));
                let next = if end >= fetched.high_watermark { 0 } else { end };
                if next != position.offset {
                    position.offset = next;
                    answer.moved.push(*position);
                }
                answer.bytes += fetched.records.len() as u64;
                answer.records += records;
                Ok(())
            })?;
            found = Some(answer);
            Ok(())
        })?;
        Ok(found)
    }
}
