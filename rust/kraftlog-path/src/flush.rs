//! Group commit: a pool of threads per log directory that fsyncs the logs that grew.
//!
//! A log is in at most one round. What is appended while a round runs is covered by the next one, so the number of
//! fsyncs does not grow with the number of requests; up to eight logs are fsynced at a time.
use std::collections::VecDeque;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use kraftlog_log::log::Log;
use kraftlog_log::Error;

use crate::python_inbox::{PythonEvent, PythonInbox};
use crate::sync::{AtomicU8, Ordering};

/// fsyncs at a time per log directory.
pub const FLUSH_THREADS: usize = 8;

const IDLE_THREAD: Duration = Duration::from_secs(10);
const RETRY: Duration = Duration::from_secs(1);

/// Where a log is between being asked for and being durable.
#[derive(Debug)]
pub struct Round(AtomicU8);

const IDLE: u8 = 0;
const QUEUED: u8 = 1;
const RUNNING: u8 = 2;
const RUNNING_AND_WANTED: u8 = 3;

impl Default for Round {
    fn default() -> Self {
        Self(AtomicU8::new(IDLE))
    }
}

impl Round {
    /// A flush is wanted; true when the log has to be queued for it.
    pub(crate) fn want(&self) -> bool {
        let mut seen = self.0.load(Ordering::Relaxed);
        loop {
            let next = match seen {
                IDLE => QUEUED,
                RUNNING => RUNNING_AND_WANTED,
                other => other,
            };
            // Written also where nothing changes: the round that begins next then sees what was appended before.
            match self.0.compare_exchange_weak(seen, next, Ordering::AcqRel, Ordering::Relaxed) {
                Ok(_) => return seen == IDLE,
                Err(now) => seen = now,
            }
        }
    }

    /// A queued log's turn has come: whatever was appended before is covered.
    pub(crate) fn begin(&self) {
        self.0.swap(RUNNING, Ordering::AcqRel);
    }

    /// The round is over; true when another is wanted and the log has to be queued for it.
    pub(crate) fn end(&self) -> bool {
        if self.0.compare_exchange(RUNNING, IDLE, Ordering::AcqRel, Ordering::Acquire).is_ok() {
            return false;
        }
        self.0.swap(QUEUED, Ordering::AcqRel);
        true
    }

    /// The round could not begin and is to be tried again.
    fn delay(&self) {
        self.0.swap(QUEUED, Ordering::AcqRel);
    }
}

/// A log that can be made durable, and what follows when it is.
pub trait Flushable: Send + Sync + 'static {
    /// Where it is; the pool's own.
    fn round(&self) -> &Round;

    /// The log.
    fn log(&self) -> &Arc<Log>;

    /// A flush ended; on a thread of the pool.
    fn flush_ended(&self, outcome: Result<i64, Error>);

    /// No descriptor was left to open a file; false when that ends the flush, true when it is tried again.
    fn flush_delayed(&self, error: &Error) -> bool;
}

type Job = Arc<dyn Flushable>;

/// The threads of one log directory. They start when there is something to flush and end when there is nothing.
#[derive(Debug)]
pub struct FlushPool {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    name: String,
    threads_max: usize,
    queue: Mutex<Queue>,
    wake_up: Condvar,
}

#[derive(Default)]
struct Queue {
    jobs: VecDeque<Job>,
    /// When they are tried again; in this order.
    delayed: VecDeque<(Instant, Job)>,
    threads: Vec<JoinHandle<()>>,
    thread_count: usize,
    waiting_count: usize,
    /// Flushes that run on the threads of callers.
    callers_count: usize,
    is_stopped: bool,
    /// No thread is ever started.
    is_stepped: bool,
}

impl std::fmt::Debug for Queue {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Queue")
            .field("jobs", &self.jobs.len())
            .field("delayed", &self.delayed.len())
            .field("thread_count", &self.thread_count)
            .finish_non_exhaustive()
    }
}

impl FlushPool {
    /// A pool of at most `threads_max` threads, at least one, called `name` for debuggers.
    pub fn new(name: impl Into<String>, threads_max: usize) -> Self {
        let shared = Shared {
            name: name.into(),
            threads_max: threads_max.max(1),
            queue: Mutex::new(Queue::default()),
            wake_up: Condvar::new(),
        };
        Self { shared: Arc::new(shared) }
    }

    /// A pool without threads: what is queued waits for [`Self::run_next`]. For simulations.
    pub fn stepped(name: impl Into<String>) -> Self {
        let pool = Self::new(name, 1);
        pool.shared.lock().is_stepped = true;
        pool
    }

    /// Flushes that wait for a thread, or for a step.
    pub fn queued_count(&self) -> usize {
        self.shared.lock().jobs.len()
    }

    /// Carry out the queued flush number `index` on this thread; false when there is none.
    pub fn run_next(&self, index: usize) -> bool {
        let job = self.shared.lock().jobs.remove(index);
        let is_there = job.is_some();
        if let Some(job) = job {
            self.shared.flush(job);
        }
        is_there
    }

    /// Carry out what is queued if there are no threads that could: for a caller that waits.
    pub(crate) fn run_if_stepped(&self) {
        if self.shared.lock().is_stepped {
            while self.run_next(0) {}
        }
    }

    /// Flush soon; nothing is queued if a round that has not begun covers it already.
    pub fn request<F: Flushable>(&self, target: &Arc<F>) {
        if target.round().want() {
            let job: Job = Arc::<F>::clone(target);
            self.shared.push(job);
        }
    }

    /// Like [`Self::request`], but the flush runs on this thread: it saves two changes of threads if nobody else needs
    /// this one meanwhile. A round that has begun is not waited for.
    pub fn flush_here<F: Flushable>(&self, target: &Arc<F>) {
        if !target.round().want() {
            return;
        }
        let job: Job = Arc::<F>::clone(target);
        {
            let mut queue = self.shared.lock();
            if queue.is_stopped || queue.is_stepped {
                drop(queue);
                self.shared.push(job);
                return;
            }
            queue.callers_count += 1;
        }
        self.shared.flush(job);
        let mut queue = self.shared.lock();
        queue.callers_count -= 1;
        if queue.is_stopped {
            drop(queue);
            self.shared.wake_up.notify_all();
        }
    }

    /// Flush a log that belongs to no partition; `inbox` gets the outcome with `token`.
    pub fn request_log(&self, log: Arc<Log>, inbox: Arc<PythonInbox>, token: u64) {
        self.request(&Arc::new(LogFlush { log, inbox, token, round: Round::default() }));
    }

    /// Threads that exist now.
    pub fn thread_count(&self) -> usize {
        self.shared.lock().thread_count
    }

    /// End the threads after what is queued; what waits to be tried again is dropped, and later requests are.
    pub fn stop(&self) {
        self.run_if_stepped();
        let threads = {
            let mut queue = self.shared.lock();
            queue.is_stopped = true;
            queue.delayed.clear();
            std::mem::take(&mut queue.threads)
        };
        self.shared.wake_up.notify_all();
        for thread in threads {
            // A thread that panicked has told so.
            let _ = thread.join();
        }
        let mut queue = self.shared.lock();
        while queue.callers_count > 0 {
            queue = self.shared.wake_up.wait(queue).unwrap_or_else(PoisonError::into_inner);
        }
    }
}

impl Drop for FlushPool {
    fn drop(&mut self) {
        let mut queue = self.shared.lock();
        queue.is_stopped = true;
        queue.delayed.clear();
        drop(queue);
        self.shared.wake_up.notify_all();
    }
}

impl Shared {
    fn lock(&self) -> std::sync::MutexGuard<'_, Queue> {
        self.queue.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn push(self: &Arc<Self>, job: Job) {
        let mut queue = self.lock();
        if queue.is_stopped {
            return;
        }
        queue.jobs.push_back(job);
        self.wake_one(queue);
    }

    fn wake_one(self: &Arc<Self>, mut queue: std::sync::MutexGuard<'_, Queue>) {
        if queue.is_stepped {
            return;
        }
        // One that was woken and has not run yet still counts as waiting: there may be more jobs than waiting threads.
        if queue.waiting_count >= queue.jobs.len() {
            drop(queue);
            self.wake_up.notify_one();
            return;
        }
        // While it stops, the threads that are left do what is queued.
        if queue.thread_count >= self.threads_max || queue.is_stopped {
            return;
        }
        queue.threads.retain(|thread| !thread.is_finished());
        let shared = Arc::clone(self);
        let started = std::thread::Builder::new().name(self.name.clone()).spawn(move || shared.run());
        match started {
            Ok(thread) => {
                queue.thread_count += 1;
                queue.threads.push(thread);
            }
            Err(_) if queue.thread_count > 0 => {}
            Err(_) => {
                // No thread can be had: better late than never acknowledged.
                let job = queue.jobs.pop_front();
                drop(queue);
                if let Some(job) = job {
                    self.flush(job);
                }
            }
        }
    }

    fn run(self: Arc<Self>) {
        while let Some(job) = self.next() {
            self.flush(job);
        }
    }

    /// The next job, or `None` when this thread is to end; it is no longer counted then.
    fn next(&self) -> Option<Job> {
        let mut queue = self.lock();
        let idle_since = Instant::now();
        loop {
            let now = Instant::now();
            while queue.delayed.front().is_some_and(|(due, _)| *due <= now) {
                if let Some((_, job)) = queue.delayed.pop_front() {
                    queue.jobs.push_back(job);
                }
            }
            if let Some(job) = queue.jobs.pop_front() {
                return Some(job);
            }
            let idle_for = now.duration_since(idle_since);
            let is_needed = queue.delayed.front().is_some() && queue.waiting_count == 0;
            if queue.is_stopped || (idle_for >= IDLE_THREAD && !is_needed) {
                queue.thread_count -= 1;
                return None;
            }
            let until_due = queue.delayed.front().map(|(due, _)| due.duration_since(now));
            let patience = IDLE_THREAD.saturating_sub(idle_for).max(Duration::from_millis(1));
            let patience = until_due.map_or(patience, |due| due.min(patience));
            queue.waiting_count += 1;
            queue = self.wake_up.wait_timeout(queue, patience).unwrap_or_else(PoisonError::into_inner).0;
            queue.waiting_count -= 1;
        }
    }

    fn flush(self: &Arc<Self>, job: Job) {
        job.round().begin();
        match job.log().flush() {
            Err(error) if error.is_out_of_descriptors() && job.flush_delayed(&error) => {
                job.round().delay();
                let mut queue = self.lock();
                if queue.is_stepped {
                    queue.jobs.push_back(job);
                } else if !queue.is_stopped {
                    queue.delayed.push_back((Instant::now() + RETRY, job));
                }
            }
            outcome => {
                job.flush_ended(outcome);
                if job.round().end() {
                    let mut queue = self.lock();
                    // Also when it is stopped: what was asked for before is done.
                    queue.jobs.push_back(job);
                    self.wake_one(queue);
                }
            }
        }
    }
}

/// One flush of a bare log.
struct LogFlush {
    log: Arc<Log>,
    inbox: Arc<PythonInbox>,
    token: u64,
    round: Round,
}

impl Flushable for LogFlush {
    fn round(&self) -> &Round {
        &self.round
    }

    fn log(&self) -> &Arc<Log> {
        &self.log
    }

    fn flush_ended(&self, outcome: Result<i64, Error>) {
        self.inbox.send(PythonEvent::LogFlushed { token: self.token, outcome });
    }

    fn flush_delayed(&self, _error: &Error) -> bool {
        false
    }
}

#[cfg(test)]
mod tests;
