//! Random histories: what a broker does to a log, as data that can be printed, shortened and run again.
use kraftlog_log::fs::Random;
use kraftlog_log::log::{CleanupPolicy, LogConfig};

/// One thing done to a log. Numbers are taken modulo what makes sense at that moment, so that any part of a history
/// is a history.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Op {
    /// Append so many records as leader, with a codec.
    Append {
        records: u8,
        codec: u8,
    },
    /// Append the next batch of an idempotent producer, in a transaction or not.
    Produce {
        producer: u8,
        records: u8,
        in_transaction: bool,
    },
    /// Send the last batch of a producer again.
    Retry {
        producer: u8,
    },
    /// Begin a new epoch of a producer with its next batch.
    BumpProducer {
        producer: u8,
    },
    /// End a transaction.
    Marker {
        producer: u8,
        is_abort: bool,
    },
    /// Append so many batches as follower, with the epoch raised between them or not.
    Follow {
        batches: u8,
        raises_epoch: bool,
    },
    /// A new leader epoch; it is assigned at once or with the next batch.
    Elect {
        is_assigned: bool,
    },
    Flush,
    Roll,
    /// Drop about so many records from the end.
    Truncate {
        records: u8,
    },
    /// Begin anew at an offset near the end.
    Restart {
        offset: u8,
    },
    /// Advance the log start offset (DeleteRecords) by a part of 255.
    DeleteRecords {
        part: u8,
    },
    /// Retention by size, or by time.
    Retention {
        by_size: bool,
    },
    RemoveDeleted,
    Snapshot,
    /// Write the recovery point where a restart finds it.
    CheckpointRecovery,
    /// Write the log start offset where a restart finds it.
    CheckpointStart,
    /// Close, say so durably, open again.
    Reopen,
    /// The process is killed and started again; the machine goes on.
    Kill,
    /// Other segment sizes.
    Configure {
        choice: u8,
    },
    /// Time passes, in steps of 100 ms.
    Wait {
        steps: u8,
    },
}

/// A history and what it begins with.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct History {
    pub config: u8,
    pub ops: Vec<Op>,
}

/// Settings that make segments roll within a few batches.
pub fn config(choice: u8) -> LogConfig {
    let choose = |values: &[u64], divisor: u8| values[usize::from(choice / divisor) % values.len()];
    LogConfig {
        segment_bytes: choose(&[700, 500, 5000], 1),
        index_interval_bytes: choose(&[100, 0, 300], 3),
        segment_index_bytes: choose(&[1 << 20, 64], 9),
        segment_ms: choose(&[1 << 40, 400], 18) as i64,
        retention_ms: -1,
        retention_bytes: -1,
        file_delete_delay_ms: 50,
        cleanup_policy: CleanupPolicy { delete: true, compact: false },
        ..LogConfig::default()
    }
}

/// Number of different settings.
pub const CONFIGS: u64 = 36;

fn op(random: &mut Random) -> Op {
    let byte = |random: &mut Random| random.next_u64() as u8;
    let producer = |random: &mut Random| random.below(3) as u8;
    match random.below(64) {
        0..=9 => Op::Append { records: byte(random), codec: if random.one_in(3) { byte(random) } else { 0 } },
        10..=15 => Op::Produce { producer: producer(random), records: byte(random), in_transaction: false },
        16..=21 => Op::Produce { producer: producer(random), records: byte(random), in_transaction: true },
        22 => Op::Retry { producer: producer(random) },
        23 => Op::BumpProducer { producer: producer(random) },
        24..=28 => Op::Marker { producer: producer(random), is_abort: random.one_in(2) },
        29..=32 => Op::Follow { batches: byte(random), raises_epoch: random.one_in(3) },
        33..=34 => Op::Elect { is_assigned: random.one_in(2) },
        35..=41 => Op::Flush,
        42..=44 => Op::Roll,
        45..=47 => Op::Truncate { records: byte(random) },
        48 => Op::Restart { offset: byte(random) },
        49 => Op::DeleteRecords { part: byte(random) },
        50..=51 => Op::Retention { by_size: random.one_in(2) },
        52 => Op::RemoveDeleted,
        53 => Op::Snapshot,
        54..=57 => Op::CheckpointRecovery,
        58 => Op::CheckpointStart,
        59..=60 => Op::Reopen,
        61 => Op::Kill,
        62 => Op::Configure { choice: byte(random) },
        _ => Op::Wait { steps: byte(random) },
    }
}

impl History {
    pub fn random(random: &mut Random, length: usize) -> Self {
        let config = random.below(CONFIGS) as u8;
        Self { config, ops: (0..length).map(|_| op(random)).collect() }
    }
}
