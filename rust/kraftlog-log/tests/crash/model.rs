//! What a log should hold, kept apart from the engine.
use std::collections::BTreeMap;
use std::sync::Arc;

/// A batch as it lies in the file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Batch {
    pub base: i64,
    pub last: i64,
    pub epoch: i32,
    pub bytes: Arc<[u8]>,
    /// Offset and timestamp of each record.
    pub records: Arc<[(i64, i64)]>,
    pub producer: Option<Sequence>,
    pub is_transactional: bool,
    /// Ends a transaction.
    pub marker: Option<Marker>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Sequence {
    pub id: i64,
    pub epoch: i16,
    /// First and last sequence; -1 for markers.
    pub first: i32,
    pub last: i32,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Marker {
    pub is_abort: bool,
}

/// A producer as the batches up to some point show it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Producer {
    pub epoch: i16,
    pub last_sequence: i32,
    /// Base offset of its last data batch in this epoch.
    pub last_base: Option<i64>,
    pub transaction: Option<i64>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Aborted {
    pub producer: i64,
    pub first: i64,
    pub last: i64,
}

/// Producers, aborted transactions, and where the first open transaction begins.
#[derive(Clone, Debug, Default)]
pub struct Replayed {
    pub producers: BTreeMap<i64, Producer>,
    pub aborted: Vec<Aborted>,
}

impl Replayed {
    pub fn of(batches: &[Batch]) -> Self {
        let mut replayed = Self::default();
        for batch in batches {
            let Some(sequence) = batch.producer else { continue };
            let producer = replayed.producers.entry(sequence.id).or_insert(Producer {
                epoch: sequence.epoch,
                last_sequence: -1,
                last_base: None,
                transaction: None,
            });
            if producer.epoch != sequence.epoch {
                (producer.epoch, producer.last_sequence, producer.last_base) = (sequence.epoch, -1, None);
            }
            match batch.marker {
                Some(marker) => {
                    if let (Some(first), true) = (producer.transaction, marker.is_abort) {
                        replayed.aborted.push(Aborted { producer: sequence.id, first, last: batch.base });
                    }
                    producer.transaction = None;
                }
                None => {
                    (producer.last_sequence, producer.last_base) = (sequence.last, Some(batch.base));
                    if batch.is_transactional {
                        producer.transaction.get_or_insert(batch.base);
                    }
                }
            }
        }
        replayed
    }

    /// First offset of an open transaction.
    pub fn first_unstable(&self) -> Option<i64> {
        self.producers.values().filter_map(|producer| producer.transaction).min()
    }
}

/// The log as the caller knows it.
#[derive(Clone, Debug)]
pub struct Model {
    /// All batches of this log's history, those before the log start too.
    pub batches: Arc<Vec<Batch>>,
    pub start: i64,
    pub end: i64,
    /// All before was flushed (exclusive).
    pub flushed: i64,
    /// The epoch cache was cut here; a lower log start may come back after a crash without its epochs.
    pub epochs_from: i64,
    pub leader_epoch: i32,
    pub now_ms: i64,
    /// Value of the next record; none comes twice.
    pub next_value: u64,
    /// How often the log began anew at some offset.
    pub restarts: u64,
}

impl Model {
    pub fn new() -> Self {
        Self {
            batches: Arc::default(),
            start: 0,
            end: 0,
            flushed: 0,
            epochs_from: 0,
            leader_epoch: 0,
            now_ms: 1_000_000,
            next_value: 0,
            restarts: 0,
        }
    }

    pub fn replay(&self) -> Replayed {
        Replayed::of(&self.batches)
    }

    pub fn push(&mut self, batch: Batch) {
        self.end = batch.last + 1;
        Arc::make_mut(&mut self.batches).push(batch);
    }

    /// Drop the batches that reach `offset`; the new end.
    pub fn truncate(&mut self, offset: i64) {
        let batches = Arc::make_mut(&mut self.batches);
        let mut end = offset;
        while let Some(last) = batches.last() {
            if last.last < offset {
                break;
            }
            end = end.min(last.base);
            batches.pop();
        }
        self.end = end;
        self.flushed = self.flushed.min(end);
        self.start = self.start.min(end);
        self.epochs_from = self.epochs_from.min(end);
    }

    /// Drop everything and begin at `offset`.
    pub fn restart(&mut self, offset: i64) {
        self.restarts += 1;
        self.batches = Arc::default();
        (self.start, self.end, self.flushed, self.epochs_from) = (offset, offset, offset, offset);
    }

    /// The batches that can be read, the one that holds the start included.
    pub fn visible(&self) -> &[Batch] {
        self.from(self.start)
    }

    /// The batches that end at or after `offset`.
    pub fn from(&self, offset: i64) -> &[Batch] {
        let first = self.batches.partition_point(|batch| batch.last < offset);
        &self.batches[first..]
    }
}

/// What may be found after a crash.
#[derive(Clone, Debug)]
pub struct Expected {
    pub before: Model,
    pub after: Model,
    /// All before this offset has to be there (exclusive).
    pub required_end: i64,
    /// The log was about to begin anew here.
    pub restarts_at: Option<i64>,
}

impl Expected {
    /// A crash between two operations.
    pub fn at_rest(model: &Model) -> Self {
        Self::during(model, model)
    }

    /// A crash while an operation led from `before` to `after`.
    pub fn during(before: &Model, after: &Model) -> Self {
        let is_restart = before.restarts != after.restarts;
        let restarts_at = is_restart.then_some(after.end);
        Self {
            before: before.clone(),
            after: after.clone(),
            // A log that begins anew gives up its content, from its end on.
            required_end: if is_restart { 0 } else { before.flushed.min(after.flushed) },
            restarts_at,
        }
    }
}
