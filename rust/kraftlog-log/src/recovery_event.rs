//! What opening a log found damaged or missing, for the operator.
use std::path::PathBuf;

/// What was done to a file while the log was opened.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RecoveryKind {
    /// The file was cut: records from a byte position on are gone.
    SegmentCut,
    /// A whole segment was removed with its records.
    SegmentRemoved,
    /// Offsets between two segments are in neither of them; nothing was changed.
    SegmentMissing,
    /// The end of a segment that others follow cannot be read; nothing was changed.
    SegmentUnreadable,
    /// An index file was missing or contradicts its segment and was built anew; no record is lost.
    IndexRebuilt,
    /// An index file without a segment was removed.
    OrphanRemoved,
    /// `leader-epoch-checkpoint` was missing, damaged or incomplete and was built anew from the batches.
    EpochsRebuilt,
    /// The log starts behind what its checkpoint says, at an offset up to which records were deleted before.
    LogStartKept,
    /// A producer snapshot was missing or damaged; the state comes from an older one and the batches.
    ProducersRebuilt,
    /// No producer snapshot is left: sequences of producers are not known any more.
    ProducersForgotten,
}

impl RecoveryKind {
    /// A stable name.
    pub fn name(self) -> &'static str {
        match self {
            Self::SegmentCut => "segment-cut",
            Self::SegmentRemoved => "segment-removed",
            Self::SegmentMissing => "segment-missing",
            Self::SegmentUnreadable => "segment-unreadable",
            Self::IndexRebuilt => "index-rebuilt",
            Self::OrphanRemoved => "orphan-removed",
            Self::EpochsRebuilt => "epochs-rebuilt",
            Self::LogStartKept => "log-start-kept",
            Self::ProducersRebuilt => "producers-rebuilt",
            Self::ProducersForgotten => "producers-forgotten",
        }
    }
}

/// One thing that was cut, removed or built anew while a log was opened.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RecoveryEvent {
    /// What was done.
    pub kind: RecoveryKind,
    /// The file.
    pub path: PathBuf,
    /// First byte of the file that is concerned.
    pub position: u64,
    /// First offset that is concerned, -1 where none is known.
    pub offset: i64,
    /// Bytes of records that are gone.
    pub lost_bytes: u64,
    /// What was found.
    pub reason: String,
}

impl RecoveryEvent {
    /// An event that loses no records.
    pub(crate) fn rebuilt(kind: RecoveryKind, path: PathBuf, reason: impl Into<String>) -> Self {
        Self { kind, path, position: 0, offset: -1, lost_bytes: 0, reason: reason.into() }
    }
}
