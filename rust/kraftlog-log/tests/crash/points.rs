//! Crashes at the points of a history, during the recoveries that follow, and in what is done after those.
use kraftlog_log::fs::{Crash, DataLoss, MemoryFileSystem, NameLoss, Random};

use crate::check::{check_log, recover, Check};
use crate::history::{config, History};
use crate::machine::{new_disk, Machine};
use crate::model::{Expected, Model};

/// Where a check failed.
#[derive(Debug)]
pub struct Found {
    pub context: String,
    pub reason: String,
}

/// What was run.
#[derive(Clone, Copy, Debug, Default)]
pub struct Counts {
    pub histories: u64,
    /// Moments at which a crash was tried.
    pub points: u64,
    /// Crashes, each with a recovery and all checks.
    pub crashes: u64,
    /// Those among them that hit a recovery or what came after one.
    pub nested: u64,
    /// Runs with a fault or a flipped bit.
    pub faults: u64,
}

/// Ways to crash that are tried at every point of a short history.
const CRASHES: [(DataLoss, NameLoss); 9] = [
    (DataLoss::Nothing, NameLoss::Suffix),
    (DataLoss::Everything, NameLoss::Everything),
    (DataLoss::Everything, NameLoss::Nothing),
    (DataLoss::Nothing, NameLoss::Nothing),
    (DataLoss::Contents, NameLoss::Suffix),
    (DataLoss::Suffix, NameLoss::Suffix),
    (DataLoss::Torn { sector_bytes: 1 }, NameLoss::Nothing),
    (DataLoss::Torn { sector_bytes: 512 }, NameLoss::Suffix),
    (DataLoss::Pages, NameLoss::Suffix),
];

pub fn random_crash(random: &mut Random) -> Crash {
    let (data, names) = CRASHES[random.index(CRASHES.len())];
    Crash { data, names, seed: random.next_u64() }
}

/// States of a disk while something was done, and what may be found after a crash in each.
pub struct Span {
    pub what: String,
    pub at_rest: Expected,
    pub during: Expected,
    pub disks: Vec<MemoryFileSystem>,
}

impl Span {
    pub fn expected(&self, index: usize) -> &Expected {
        if index == 0 {
            &self.at_rest
        } else {
            &self.during
        }
    }
}

fn found(context: impl Into<String>) -> impl FnOnce(String) -> Found {
    let context = context.into();
    move |reason| Found { context, reason }
}

/// Run a history and keep the disk before each change.
pub fn record(history: &History) -> Result<(Vec<Span>, u8), Found> {
    let disk = new_disk();
    disk.start_recording();
    let mut machine = Machine::new(disk.clone(), history.config)
        .map_err(|error| found("open of a new log")(error.to_string()))?;
    let at_rest = Expected::at_rest(&machine.model);
    let mut spans = vec![Span {
        what: "open of a new log".to_owned(),
        during: at_rest.clone(),
        at_rest,
        disks: disk.take_recording(),
    }];
    follow(&mut machine, history, &mut spans)?;
    Ok((spans, machine.config))
}

fn follow(machine: &mut Machine, history: &History, spans: &mut Vec<Span>) -> Result<(), Found> {
    let disk = machine.fs.clone();
    for (index, op) in history.ops.iter().enumerate() {
        let what = format!("operation {index}, {op:?}");
        let before = machine.model.clone();
        disk.start_recording();
        machine.step(*op).map_err(|failure| found(what.clone())(failure.to_string()))?;
        let disks = disk.take_recording();
        check_log_unless_closed(machine).map_err(found(format!("after {what}")))?;
        spans.push(Span {
            what,
            at_rest: Expected::at_rest(&before),
            during: Expected::during(&before, &machine.model),
            disks,
        });
    }
    let at_rest = Expected::at_rest(&machine.model);
    spans.push(Span {
        what: "the end of the history".to_owned(),
        during: at_rest.clone(),
        at_rest,
        disks: vec![disk],
    });
    Ok(())
}

fn check_log_unless_closed(machine: &Machine) -> Check {
    machine.log.update_high_watermark(machine.model.end);
    check_log(&machine.log, &machine.model)
}

/// A disk after a crash: recover, check; then, `depth` times, crash again inside the recovery or inside what follows.
pub fn explore(
    disk: &MemoryFileSystem,
    expected: &Expected,
    choice: u8,
    random: &mut Random,
    depth: u32,
    counts: &mut Counts,
) -> Result<(), Found> {
    counts.crashes += 1;
    disk.start_recording();
    let (log, model) = recover(disk, expected, config(choice)).map_err(found("recovery"))?;
    let disks = disk.take_recording();
    if depth == 0 {
        return Ok(());
    }
    if !disks.is_empty() {
        let index = random.index(disks.len());
        let crash = random_crash(random);
        let again = disks[index].crash_with(&crash);
        counts.nested += 1;
        explore(&again, expected, choice, random, depth - 1, counts)
            .map_err(|inner| nest(format!("change {index} of the recovery, {crash:?}"), inner))?;
    }
    let length = 1 + random.index(6);
    let history = History { config: choice, ops: History::random(random, length).ops };
    let mut machine =
        Machine { fs: disk.clone(), log, after: model.clone(), model: next_leader(model), config: choice };
    let mut spans = Vec::new();
    let context = format!("recovered, then {:?}", history.ops);
    follow(&mut machine, &history, &mut spans).map_err(|inner| nest(context.clone(), inner))?;
    let total: usize = spans.iter().map(|span| span.disks.len()).sum();
    let mut index = random.index(total);
    for span in &spans {
        if index < span.disks.len() {
            let crash = random_crash(random);
            let again = span.disks[index].crash_with(&crash);
            counts.nested += 1;
            return explore(&again, span.expected(index), machine.config, random, depth - 1, counts).map_err(
                |inner| nest(format!("{context}: change {index} of {}, {crash:?}", span.what), inner),
            );
        }
        index -= span.disks.len();
    }
    Ok(())
}

fn next_leader(mut model: Model) -> Model {
    model.leader_epoch += 1;
    model
}

fn nest(context: String, inner: Found) -> Found {
    Found { context: format!("{context}\n    then: {}", inner.context), reason: inner.reason }
}

/// Crash at every point in every way.
pub fn every_point(history: &History, seed: u64, counts: &mut Counts) -> Result<(), Found> {
    let (spans, choice) = record(history)?;
    counts.histories += 1;
    for (number, span) in spans.iter().enumerate() {
        for (index, disk) in span.disks.iter().enumerate() {
            counts.points += 1;
            for (way, (data, names)) in CRASHES.into_iter().enumerate() {
                let mut random =
                    Random::new(seed ^ (number as u64) << 40 ^ (index as u64) << 20 ^ (way as u64) << 8);
                let crash = Crash { data, names, seed: random.next_u64() };
                let depth = u32::from(random.one_in(3)) * (1 + random.below(2) as u32);
                explore(&disk.crash_with(&crash), span.expected(index), choice, &mut random, depth, counts)
                    .map_err(|inner| nest(format!("change {index} of {}, {crash:?}", span.what), inner))?;
            }
        }
    }
    Ok(())
}

/// Crash at some points in some way.
pub fn some_points(
    history: &History,
    random: &mut Random,
    wanted: u64,
    counts: &mut Counts,
) -> Result<(), Found> {
    let (spans, choice) = record(history)?;
    counts.histories += 1;
    let total: usize = spans.iter().map(|span| span.disks.len()).sum();
    for _ in 0..wanted {
        counts.points += 1;
        let mut index = random.index(total);
        for span in &spans {
            if index < span.disks.len() {
                let crash = random_crash(random);
                let depth = random.below(4) as u32;
                explore(
                    &span.disks[index].crash_with(&crash),
                    span.expected(index),
                    choice,
                    random,
                    depth,
                    counts,
                )
                .map_err(|inner| nest(format!("change {index} of {}, {crash:?}", span.what), inner))?;
                break;
            }
            index -= span.disks.len();
        }
    }
    Ok(())
}
