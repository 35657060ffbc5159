//! A client that connects for each request: a connection, one produce request, its answer, the end.
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::Arc;
use std::thread::sleep;
use std::time::{Duration, Instant};

use crate::batch::batch;
use crate::histogram::Histogram;
use crate::options::Options;
use crate::report::Report;
use crate::sampler::Sampler;
use crate::wire::{produce, produce_error};
use crate::Failure;

/// Options: `address pid topics rate warm seconds`. At most `rate` connections per second, one after the other: the
/// kernel keeps the port of each for a minute. A latency counts from `connect` to the answer.
pub fn run(options: &mut Options) -> Result<Report, Failure> {
    let address: String = options.need("address")?;
    let pid: u32 = options.need("pid")?;
    let topics = options.topics()?;
    let rate: f64 = options.take("rate", 200.0)?;
    let warm = Duration::from_secs_f64(options.take("warm", 1.0)?);
    let seconds: f64 = options.take("seconds", 5.0)?;
    options.finish()?;
    if rate <= 0.0 {
        return Err("rate= must be above 0".into());
    }
    let topic = topics.first().ok_or("topics= names none")?;
    let frame = produce(&[(topic.id, 0)], &batch(1, 100), -1);

    let done = Arc::new(AtomicU64::new(0));
    let (mut sampler, mut latencies, mut errors, mut last_error) = (None, Histogram::default(), 0_u64, 0);
    let began = Instant::now();
    let end = began + warm + Duration::from_secs_f64(seconds);
    let mut due = began;
    loop {
        sleep(due.saturating_duration_since(Instant::now()));
        let now = Instant::now();
        if now >= end {
            break;
        }
        due = due.max(now - Duration::from_secs_f64(1.0 / rate)) + Duration::from_secs_f64(1.0 / rate);
        if sampler.is_none() && now >= began + warm {
            sampler = Some(Sampler::start(pid, Arc::clone(&done)));
        }
        let error = ask(&address, &frame)?;
        if error != 0 {
            (errors, last_error) = (errors + 1, error);
        }
        if sampler.is_some() {
            latencies.record(now.elapsed().as_nanos() as u64);
            done.fetch_add(1, Ordering::Relaxed);
        }
    }
    let sampler = sampler.ok_or("the run was over before its warm-up")?;
    sampler.end();
    let usage = sampler.usage()?;
    let answered = done.load(Ordering::Relaxed);
    let mut report = Report::default();
    report.put("requests_s", answered as f64 / seconds);
    report.put_latencies("", &latencies);
    report.put("unanswered", 0.0);
    report.put("errors", errors as f64);
    if errors > 0 {
        report.put("last_error_code", f64::from(last_error));
    }
    report.put_usage(pid, &usage, answered, 0)?;
    Ok(report)
}

/// The error code of the answer.
fn ask(address: &str, frame: &[u8]) -> Result<i16, Failure> {
    let mut socket = TcpStream::connect(address)?;
    socket.set_nodelay(true)?;
    socket.set_read_timeout(Some(Duration::from_secs(30)))?;
    socket.write_all(frame)?;
    let mut size = [0; 4];
    socket.read_exact(&mut size)?;
    let mut answer = vec![0; u32::from_be_bytes(size) as usize];
    socket.read_exact(&mut answer)?;
    produce_error(&answer)
}
