//! One error type; its kind says what the caller can do, its text says where and what.
use std::path::PathBuf;

/// Result with the engine's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

/// What can go wrong in the engine, divided by what a caller would do differently.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Bytes that no valid log holds: a wrong CRC, length, count, magic or record body.
    #[error("{origin} position {position}: {reason} (batch base_offset {base_offset})")]
    Corrupt {
        /// File path, or "buffer" for bytes in memory.
        origin: String,
        /// Byte position of the batch in that file or buffer.
        position: u64,
        /// `base_offset` of the batch as stored, -1 if unreadable.
        base_offset: i64,
        /// What differs, with both values where there are two.
        reason: String,
    },
    /// An offset outside `[log_start_offset, log_end_offset]`.
    #[error("offset {offset} is outside [{log_start_offset}, {log_end_offset}] of {origin}")]
    OffsetOutOfRange {
        /// The log's directory.
        origin: String,
        /// The offset asked for.
        offset: i64,
        /// First readable offset, inclusive.
        log_start_offset: i64,
        /// Exclusive end.
        log_end_offset: i64,
    },
    /// A produce that Kafka's protocol refuses: the error code goes to the client.
    #[error("{reason}")]
    Rejected {
        /// Kafka's error code, such as 45 (OUT_OF_ORDER_SEQUENCE_NUMBER).
        code: i16,
        /// Why, with the offending values.
        reason: String,
        /// Index of a refused record in its batch, and why (the protocol's `RecordErrors`).
        record_errors: Vec<(i32, String)>,
    },
    /// A compressed batch has more records than the caller has time for (`AppendOptions::uncompressed_bytes_max`).
    /// Nothing else was found wrong with it.
    #[error("the records have more than {limit} bytes uncompressed")]
    OverBudget {
        /// Uncompressed bytes that the caller allows.
        limit: usize,
    },
    /// A write or an fsync failed earlier: the log takes no more calls, as a retried fsync lies.
    #[error("log {origin} is poisoned: {reason}")]
    Poisoned {
        /// The log's directory.
        origin: String,
        /// The first failure.
        reason: String,
    },
    /// The operating system refused.
    #[error("{operation} {}: {source}", path.display())]
    Io {
        /// What was tried: "open", "write", "fsync", ...
        operation: &'static str,
        /// The file.
        path: PathBuf,
        /// The cause.
        #[source]
        source: std::io::Error,
    },
    /// An object of a remote directory could not be read, or is not what was listed.
    #[error("{} position {position}, offset {offset}: {reason}", url.display())]
    Remote {
        /// The object.
        url: PathBuf,
        /// First byte that was asked for.
        position: u64,
        /// Offset of the next record, -1 where none was being read.
        offset: i64,
        /// What happened.
        reason: String,
        /// There is no such object any more.
        is_missing: bool,
    },
    /// An argument that makes no sense, or a file that is not what its name says.
    #[error("{0}")]
    Invalid(String),
}

impl Error {
    /// An I/O error with what was tried and on which file.
    pub fn io(operation: &'static str, path: impl Into<PathBuf>, source: std::io::Error) -> Self {
        Self::Io { operation, path: path.into(), source }
    }

    /// No descriptor was left to open a file (EMFILE, ENFILE): nothing was written, and no disk has failed.
    pub fn is_out_of_descriptors(&self) -> bool {
        const ENFILE: i32 = 23;
        const EMFILE: i32 = 24;
        match self {
            Self::Io { source, .. } => matches!(source.raw_os_error(), Some(EMFILE | ENFILE)),
            _ => false,
        }
    }

    /// A refusal with Kafka's error code.
    pub fn rejected(code: i16, reason: impl Into<String>) -> Self {
        Self::Rejected { code, reason: reason.into(), record_errors: Vec::new() }
    }

    /// Bad bytes in memory; [`Error::located`] names the file they came from.
    #[cold]
    pub fn corrupt(position: u64, base_offset: i64, reason: impl Into<String>) -> Self {
        Self::Corrupt { origin: "buffer".to_owned(), position, base_offset, reason: reason.into() }
    }

    /// The same error with the offset of the record that would have come next.
    #[must_use]
    pub fn at_offset(self, next_offset: i64) -> Self {
        match self {
            Self::Remote { url, position, offset: -1, reason, is_missing } => {
                Self::Remote { url, position, offset: next_offset, reason, is_missing }
            }
            other => other,
        }
    }

    /// The same error for bytes that were read from `origin`, starting at byte `start_position` of it.
    #[must_use]
    pub fn located(self, origin: impl Into<String>, start_position: u64) -> Self {
        match self {
            Self::Corrupt { position, base_offset, reason, .. } => {
                let position = position.saturating_add(start_position);
                Self::Corrupt { origin: origin.into(), position, base_offset, reason }
            }
            other => other,
        }
    }
}
