//! Crash tests of the log engine: random histories on a simulated disk that loses, tears and damages, held to a model.
//!
//! `KRAFTLOG_CRASH_POINTS=n` sets at how many points histories are crashed, each in several ways (each crash with a recovery and all checks),
//! `KRAFTLOG_CRASH_MINUTES=m` how long instead, `KRAFTLOG_CRASH_SEED=s` runs one seed again, and
//! `KRAFTLOG_CRASH_FROM=s` begins with another seed. docs/design/0005-crash-safety.md lists what is checked.
#![allow(clippy::disallowed_methods, reason = "it measures and bounds its own time")]

use std::cell::RefCell;
use std::panic::{catch_unwind, AssertUnwindSafe};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use kraftlog_log::fs::Random;

mod check;
mod faults;
mod flips;
mod history;
mod machine;
mod model;
mod points;
mod regressions;
mod shrink;

use history::History;
use points::{Counts, Found};

/// Enough for a look in a debug build; `.ci/dev crash` asks for more of an optimised one.
const POINTS: u64 = if cfg!(debug_assertions) { 300 } else { 20_000 };

thread_local! {
    static PANIC: RefCell<String> = const { RefCell::new(String::new()) };
}

/// A panic of the engine is a failed check.
fn guarded(run: impl FnOnce() -> Result<(), Found>) -> Result<(), Found> {
    catch_unwind(AssertUnwindSafe(run)).unwrap_or_else(|_| {
        Err(Found { context: "panic".to_owned(), reason: PANIC.with_borrow(Clone::clone) })
    })
}

/// How a seed's history is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    /// A crash in every way at every point of a short history.
    Short,
    /// Crashes at some points of a long one.
    Long,
    /// Disks that fail, at some moment of a long one.
    Faults,
    /// Disks with a wrong bit.
    Flips,
}

struct Case {
    kind: Kind,
    history: History,
    random: Random,
}

impl Case {
    fn of(seed: u64) -> Self {
        let mut random = Random::new(seed);
        let kind = match random.below(8) {
            0..=3 => Kind::Short,
            4..=5 => Kind::Long,
            6 => Kind::Faults,
            _ => Kind::Flips,
        };
        let length = match kind {
            Kind::Short => 2 + random.index(9),
            _ => 20 + random.index(60),
        };
        let history = History::random(&mut random, length);
        Self { kind, history, random }
    }

    fn run(&self, history: &History, seed: u64, counts: &mut Counts) -> Result<(), Found> {
        let mut random = self.random;
        match self.kind {
            Kind::Short => points::every_point(history, seed, counts),
            Kind::Long => points::some_points(history, &mut random, 60, counts),
            Kind::Faults => (0..20).try_for_each(|_| faults::run(history, &mut random.fork(), counts)),
            Kind::Flips => (0..4).try_for_each(|_| flips::run(history, &mut random.fork(), counts)),
        }
    }

    /// Try what is left of a failing history in more ways than it failed in.
    fn fails(&self, history: &History, seed: u64) -> Option<Found> {
        let mut counts = Counts::default();
        let result = guarded(|| match self.kind {
            Kind::Short | Kind::Long => points::every_point(history, seed, &mut counts),
            Kind::Faults | Kind::Flips => {
                (0..6).try_for_each(|more| self.run(history, seed + more, &mut counts))
            }
        });
        result.err()
    }
}

fn run_seed(seed: u64, counts: &mut Counts) -> Result<(), String> {
    let case = Case::of(seed);
    let Err(first) = guarded(|| case.run(&case.history, seed, counts)) else { return Ok(()) };
    let text = format!("seed {seed}, {:?}: {}\n  {}", case.kind, first.context, first.reason);
    let (history, found) = shrink::shrink(case.history.clone(), first, |history| case.fails(history, seed));
    Err(format!(
        "{text}\n  KRAFTLOG_CRASH_SEED={seed} runs it again; shrunk:\n  config {}, {:?}\n  {}\n  {}",
        history.config, history.ops, found.context, found.reason
    ))
}

fn number(name: &str) -> Option<u64> {
    std::env::var(name)
        .ok()
        .map(|text| text.trim().parse().unwrap_or_else(|_| panic!("{name}={text} is not a number")))
}

fn replay_regressions(counts: &mut Counts) -> Result<(), String> {
    for (seed, reason, history) in regressions::histories() {
        guarded(|| points::every_point(&history, seed, counts)).map_err(|found| {
            format!("regression of seed {seed} ({reason}): {}\n  {}", found.context, found.reason)
        })?;
    }
    for (seed, reason) in regressions::SEEDS {
        run_seed(seed, counts).map_err(|text| format!("regression ({reason}): {text}"))?;
    }
    Ok(())
}

fn run(counts: &mut Counts, failures: &mut Vec<String>) {
    if let Some(seed) = number("KRAFTLOG_CRASH_SEED") {
        failures.extend(run_seed(seed, counts).err());
        return;
    }
    failures.extend(replay_regressions(counts).err());
    let minutes = number("KRAFTLOG_CRASH_MINUTES").map(|minutes| Duration::from_secs(60 * minutes));
    let points = counts.points + number("KRAFTLOG_CRASH_POINTS").unwrap_or(POINTS);
    let most_failures = number("KRAFTLOG_CRASH_FAILURES").unwrap_or(1) as usize;
    let mut seed = number("KRAFTLOG_CRASH_FROM").unwrap_or(1);
    let start = Instant::now();
    while failures.len() < most_failures
        && minutes.map_or(counts.points < points, |limit| start.elapsed() < limit)
    {
        failures.extend(run_seed(seed, counts).err());
        seed += 1;
    }
    println!("seeds up to {}", seed - 1);
}

fn main() -> ExitCode {
    std::panic::set_hook(Box::new(|info| PANIC.with_borrow_mut(|text| *text = info.to_string())));
    let start = Instant::now();
    let (mut counts, mut failures) = (Counts::default(), Vec::new());
    run(&mut counts, &mut failures);
    let seconds = start.elapsed().as_secs_f64();
    println!(
        "{} crashes ({} nested) at {} points of {} histories, {} faults, in {seconds:.1} s: {:.0} crashes and {:.0} points \
         a minute",
        counts.crashes,
        counts.nested,
        counts.points,
        counts.histories,
        counts.faults,
        counts.crashes as f64 * 60.0 / seconds,
        counts.points as f64 * 60.0 / seconds
    );
    for failure in &failures {
        eprintln!("FAILED {failure}\n");
    }
    if failures.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    }
}
