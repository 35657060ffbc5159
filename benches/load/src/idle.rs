//! Connections that were used once and then stay silent.
use std::io::{Read, Write};
use std::net::TcpStream;
use std::sync::atomic::AtomicU64;
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::options::Options;
use crate::report::Report;
use crate::sampler::{rss_kb, Sampler};
use crate::wire::api_versions;
use crate::Failure;

/// Opens connections; each has sent ApiVersions and got its answer.
pub fn open_idle(address: &str, count: usize) -> Result<Vec<TcpStream>, Failure> {
    let mut sockets = Vec::with_capacity(count);
    let frame = api_versions();
    for _ in 0..count {
        let mut socket = TcpStream::connect(address)?;
        socket.set_read_timeout(Some(Duration::from_secs(30)))?;
        socket.write_all(&frame)?;
        let mut size = [0; 4];
        socket.read_exact(&mut size)?;
        let mut answer = vec![0; u32::from_be_bytes(size) as usize];
        socket.read_exact(&mut answer)?;
        sockets.push(socket);
    }
    Ok(sockets)
}

/// Options: `address pid connections seconds`. What so many idle connections cost.
pub fn run(options: &mut Options) -> Result<Report, Failure> {
    let address: String = options.need("address")?;
    let pid: u32 = options.need("pid")?;
    let connections: usize = options.need("connections")?;
    let seconds: f64 = options.take("seconds", 3.0)?;
    options.finish()?;
    let before_kb = rss_kb(pid)?;
    let began = Instant::now();
    let sockets = open_idle(&address, connections)?;
    let opened_s = began.elapsed().as_secs_f64();
    let sampler = Sampler::start(pid, Arc::new(AtomicU64::new(0)));
    std::thread::sleep(Duration::from_secs_f64(seconds));
    let usage = sampler.usage()?;
    let after_kb = rss_kb(pid)?;
    drop(sockets);
    let mut report = Report::default();
    report.put("opened_s", connections as f64 / opened_s);
    report.put("server_cores", usage.cpu_ns as f64 / 1e9 / usage.wall_s);
    report.put("rss_MB", after_kb as f64 / 1024.0);
    report.put("rss_kB_per_connection", (after_kb as f64 - before_kb as f64) / connections.max(1) as f64);
    Ok(report)
}
