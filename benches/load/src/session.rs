//! One consumer whose fetch session has many partitions, of which few or none get records.
use std::collections::HashMap;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::batch::{batch, whole_batches};
use crate::fetch_wire::{fetch, read, Limits, Position, Session};
use crate::histogram::Histogram;
use crate::options::Options;
use crate::report::Report;
use crate::sampler::Sampler;
use crate::wire::{produce, produce_error};
use crate::Failure;

/// A socket that blocks.
struct Caller {
    stream: TcpStream,
}

impl Caller {
    fn open(address: &str) -> Result<Self, Failure> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(Duration::from_secs(60)))?;
        Ok(Self { stream })
    }

    fn send(&mut self, frame: &[u8]) -> Result<(), Failure> {
        Ok(self.stream.write_all(frame)?)
    }

    fn receive(&mut self) -> Result<Vec<u8>, Failure> {
        let mut size = [0; 4];
        self.stream.read_exact(&mut size)?;
        let mut frame = vec![0; u32::from_be_bytes(size) as usize];
        self.stream.read_exact(&mut frame)?;
        Ok(frame)
    }
}

/// Options: `address pid topics changing wait-ms warm seconds`. In each round the consumer's Fetch is sent, then one
/// record for each of `changing` partitions in one Produce request; the round ends when all have been fetched. With
/// `changing=0` a round is one Fetch that waits `wait-ms` for nothing. The topics must be empty.
pub fn run(options: &mut Options) -> Result<Report, Failure> {
    let address: String = options.need("address")?;
    let pid: u32 = options.need("pid")?;
    let topics = options.topics()?;
    let changing: usize = options.take("changing", 0)?;
    let wait_ms: i32 = options.take("wait-ms", 500)?;
    let warm_s: f64 = options.take("warm", 1.0)?;
    let seconds: f64 = options.take("seconds", 5.0)?;
    options.finish()?;
    let partitions: Vec<_> =
        topics.iter().flat_map(|topic| (0..topic.partitions).map(|index| (topic.id, index))).collect();
    if changing > partitions.len() {
        return Err("more partitions change than there are".into());
    }
    let frames: Vec<_> = match changing {
        0 => Vec::new(),
        _ => {
            let batch = batch(1, 100);
            partitions.chunks_exact(changing).map(|chunk| produce(chunk, &batch, -1)).collect()
        }
    };
    let mut producer = Caller::open(&address)?;
    let mut consumer = Consumer {
        caller: Caller::open(&address)?,
        session: Session::default(),
        offsets: partitions.iter().map(|&partition| (partition, 0)).collect(),
        limits: Limits { wait_ms, max_bytes: 50 << 20, partition_max_bytes: 1 << 20 },
        fetches: 0,
    };
    let all: Vec<_> = partitions.iter().map(|&(topic, index)| Position { topic, index, offset: 0 }).collect();
    consumer.ask(&all)?;
    consumer.answer()?; // opens the session; there is nothing to read yet

    let began = Instant::now();
    let done = Arc::new(AtomicU64::new(0));
    let (mut sampler, mut latencies) = (None, Histogram::default());
    let (mut measured, mut first_fetch, mut round) = (0_u64, 0, 0);
    let mut moved = Vec::new();
    while began.elapsed().as_secs_f64() < warm_s + seconds {
        if sampler.is_none() && began.elapsed().as_secs_f64() >= warm_s {
            first_fetch = consumer.fetches;
            sampler = Some(Sampler::start(pid, Arc::clone(&done)));
        }
        let round_began = Instant::now();
        consumer.ask(&moved)?;
        if changing > 0 {
            producer.send(&frames[round % frames.len()])?;
            let error = produce_error(&producer.receive()?)?;
            if error != 0 {
                return Err(format!("Produce: error code {error}").into());
            }
        }
        moved = consumer.answer()?;
        let mut seen = moved.len();
        while seen < changing {
            consumer.ask(&moved)?;
            moved = consumer.answer()?;
            seen += moved.len();
        }
        round += 1;
        if sampler.is_some() {
            latencies.record(round_began.elapsed().as_nanos() as u64);
            measured += 1;
            done.fetch_add(1, Ordering::Relaxed);
        }
    }
    let usage = sampler.ok_or("the run was over before its warm-up")?.usage()?;
    let mut report = Report::default();
    report.put("requests_s", measured as f64 / seconds);
    report.put("fetches_per_round", (consumer.fetches - first_fetch) as f64 / measured.max(1) as f64);
    report.put_latencies("", &latencies);
    report.put_usage(pid, &usage, measured, 0)?;
    Ok(report)
}

struct Consumer {
    caller: Caller,
    session: Session,
    offsets: HashMap<([u8; 16], i32), i64>,
    limits: Limits,
    fetches: u64,
}

impl Consumer {
    fn ask(&mut self, moved: &[Position]) -> Result<(), Failure> {
        self.caller.send(&fetch(self.session, moved, self.limits))?;
        self.session.epoch += 1;
        self.fetches += 1;
        Ok(())
    }

    /// The positions that moved, sorted by topic.
    fn answer(&mut self) -> Result<Vec<Position>, Failure> {
        let frame = self.caller.receive()?;
        let mut moved = Vec::new();
        let offsets = &mut self.offsets;
        self.session.id = read(&frame, |fetched| {
            let Some((_, end)) = whole_batches(fetched.records) else { return Ok(()) };
            offsets.insert((fetched.topic, fetched.index), end);
            moved.push(Position { topic: fetched.topic, index: fetched.index, offset: end });
            Ok(())
        })?;
        if self.session.id == 0 {
            return Err("the broker gave no fetch session".into());
        }
        Ok(moved)
    }
}
