//! What failed once: run before all else. Shrunk histories stay true when the generator changes; where shrinking did
//! not end within its time, the seed stands for its history.
use crate::history::{
    History,
    Op::{self, *},
};

/// Seed that found it, what was wrong, and the shrunk history; every point of it is tried.
pub fn histories() -> Vec<(u64, &'static str, History)> {
    let history = |config, ops: &[Op]| History { config, ops: ops.to_vec() };
    let append = Append { records: 0, codec: 0 };
    vec![
        (
            12,
            "the producer snapshot of a clean shutdown was not durable",
            history(26, &[Produce { producer: 0, records: 0, in_transaction: false }, Reopen]),
        ),
        (
            73,
            "the directory made by a killed process was never synced, flushed records went with it",
            history(8, &[append, Kill, Flush]),
        ),
        (52, "the same, killed before the first append", history(6, &[Kill, append, Flush])),
        (
            150,
            "an emptied transaction index was not synced",
            history(
                24,
                &[
                    Produce { producer: 2, records: 226, in_transaction: true },
                    Marker { producer: 2, is_abort: true },
                    Truncate { records: 8 },
                    append,
                    Reopen,
                ],
            ),
        ),
        (
            172,
            "the same, with a commit in the place of the abort",
            history(
                8,
                &[
                    Produce { producer: 0, records: 19, in_transaction: true },
                    Marker { producer: 0, is_abort: true },
                    Truncate { records: 60 },
                    Append { records: 209, codec: 0 },
                    Marker { producer: 0, is_abort: false },
                    Reopen,
                ],
            ),
        ),
        (
            277,
            "a segment with missing indexes was recovered before the damaged one in front of it, and opening failed",
            history(
                33,
                &[
                    Flush,
                    Append { records: 2, codec: 4 },
                    append,
                    append,
                    Append { records: 1, codec: 0 },
                    Produce { producer: 2, records: 167, in_transaction: false },
                    Produce { producer: 2, records: 9, in_transaction: true },
                    Marker { producer: 2, is_abort: true },
                    append,
                ],
            ),
        ),
        (
            75,
            "a log that began anew twice was back at offset 0 in between",
            history(17, &[Restart { offset: 17 }, Restart { offset: 8 }]),
        ),
        (
            19,
            "indexes rebuilt by one recovery were trusted, unsynced, by the next",
            history(
                17,
                &[
                    append,
                    Roll,
                    append,
                    Produce { producer: 2, records: 129, in_transaction: true },
                    Reopen,
                ],
            ),
        ),
    ]
}

/// Seeds whose histories are long, and what was wrong.
pub const SEEDS: [(u64, &str); 2] = [
    (10_201, "a producer snapshot from before deleted segments was loaded, and opening failed"),
    (10_572, "the same, with a sequence that was behind"),
];
