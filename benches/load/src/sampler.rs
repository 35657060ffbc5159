//! The broker's processor time in windows of 50 ms beside what it did in them.
use std::fs;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use crate::Failure;

const WINDOW: Duration = Duration::from_millis(50);

/// Nanoseconds of processor time that all threads of a process took, from the kernel's clock of that process; the
/// ticks of `/proc/PID/stat` are too coarse for a window.
pub fn cpu_ns(pid: u32) -> Result<u64, Failure> {
    let mut clock = 0;
    let mut time = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: both calls write through pointers to live variables of this frame and keep none of them.
    let failed = unsafe {
        libc::clock_getcpuclockid(pid.try_into()?, &mut clock) != 0
            || libc::clock_gettime(clock, &mut time) != 0
    };
    if failed {
        return Err(format!("the processor time of process {pid} cannot be read").into());
    }
    Ok(time.tv_sec as u64 * 1_000_000_000 + time.tv_nsec as u64)
}

/// Resident memory of a process in kB.
pub fn rss_kb(pid: u32) -> Result<u64, Failure> {
    let status = fs::read_to_string(format!("/proc/{pid}/status"))?;
    let line = status.lines().find(|line| line.starts_with("VmRSS:")).ok_or("no VmRSS")?;
    Ok(line.split_whitespace().nth(1).ok_or("no VmRSS")?.parse()?)
}

/// One window.
#[derive(Debug, Clone, Copy)]
struct Window {
    cpu_ns: u64,
    done: u64,
}

/// What the broker took.
#[derive(Debug)]
pub struct Usage {
    /// Seconds of wall time that were watched.
    pub wall_s: f64,
    /// Nanoseconds of processor time in all.
    pub cpu_ns: u64,
    windows: Vec<Window>,
}

impl Usage {
    /// Nanoseconds of processor time per unit of work: median and best decile of the windows in which work was done.
    pub fn per_unit_ns(&self) -> Option<(f64, f64)> {
        let mut costs: Vec<f64> = self
            .windows
            .iter()
            .filter(|window| window.done > 0)
            .map(|window| window.cpu_ns as f64 / window.done as f64)
            .collect();
        costs.sort_by(f64::total_cmp);
        let at = |share: f64| costs.get((costs.len() as f64 * share) as usize).copied();
        Some((at(0.5)?, at(0.1)?))
    }
}

/// A thread that reads the process clock.
#[derive(Debug)]
pub struct Sampler {
    is_over: Arc<AtomicBool>,
    thread: JoinHandle<Result<Usage, String>>,
}

impl Sampler {
    /// Start; `done` counts units of work.
    pub fn start(pid: u32, done: Arc<AtomicU64>) -> Self {
        let is_over = Arc::new(AtomicBool::new(false));
        let seen_over = Arc::clone(&is_over);
        let watch = move || -> Result<Usage, Failure> {
            let began = Instant::now();
            let first_ns = cpu_ns(pid)?;
            let mut last = Window { cpu_ns: first_ns, done: done.load(Ordering::Relaxed) };
            let mut windows = Vec::new();
            while !seen_over.load(Ordering::Relaxed) {
                std::thread::sleep(WINDOW);
                let now = Window { cpu_ns: cpu_ns(pid)?, done: done.load(Ordering::Relaxed) };
                windows.push(Window { cpu_ns: now.cpu_ns - last.cpu_ns, done: now.done - last.done });
                last = now;
            }
            Ok(Usage { wall_s: began.elapsed().as_secs_f64(), cpu_ns: last.cpu_ns - first_ns, windows })
        };
        Self { is_over, thread: std::thread::spawn(move || watch().map_err(|failure| failure.to_string())) }
    }

    /// Let it end after the window under way; does not wait.
    pub fn end(&self) {
        self.is_over.store(true, Ordering::Relaxed);
    }

    /// What it saw, once it has ended.
    pub fn usage(self) -> Result<Usage, Failure> {
        self.end();
        Ok(self.thread.join().map_err(|_| "the sampler panicked")??)
    }
}
