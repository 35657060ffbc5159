//! Notes on what is damaged or missing while a log is opened.
use super::Loader;
use crate::recovery_event::{RecoveryEvent, RecoveryKind};
use crate::segment::{segment_path, Segment, LOG_SUFFIX};
use crate::{Error, Result};

const COMPARE_BYTES: usize = 64 << 10;

impl Loader<'_> {
    /// Note the index files of a segment that were not there, or whose transaction index is unsound.
    pub(super) fn note_indexes(&mut self, base_offset: i64, missing: &[&'static str], is_sound: bool) {
        let rebuilt = |suffix, reason| {
            RecoveryEvent::rebuilt(
                RecoveryKind::IndexRebuilt,
                segment_path(self.path, base_offset, suffix),
                reason,
            )
        };
        self.events.extend(missing.iter().map(|suffix| rebuilt(*suffix, "the file is missing")));
        if !is_sound {
            self.events.push(rebuilt("txnindex", "the file is not a transaction index of this segment"));
        }
    }

    /// Note that a segment ends at `position` from now on.
    pub(super) fn note_cut(
        &mut self,
        segment: &Segment,
        position: u64,
        next_offset: i64,
        reason: &str,
    ) -> Result<()> {
        // What preallocation left holds no record.
        if self.config.preallocate && is_zeros(segment, position)? {
            return Ok(());
        }
        self.events.push(RecoveryEvent {
            kind: RecoveryKind::SegmentCut,
            path: segment.path().to_owned(),
            position,
            offset: next_offset,
            lost_bytes: segment.size_bytes().saturating_sub(position),
            reason: reason.to_owned(),
        });
        Ok(())
    }

    /// Note that a whole segment goes.
    pub(super) fn note_removed(&mut self, segment: &Segment, reason: &str) {
        self.events.push(RecoveryEvent {
            kind: RecoveryKind::SegmentRemoved,
            path: segment_path(self.path, segment.base_offset(), LOG_SUFFIX),
            position: 0,
            offset: segment.base_offset(),
            lost_bytes: segment.size_bytes(),
            reason: reason.to_owned(),
        });
    }
}

fn is_zeros(segment: &Segment, mut position: u64) -> Result<bool> {
    let file = segment.file()?;
    let mut bytes = vec![0; COMPARE_BYTES];
    loop {
        let read = file
            .read_at(&mut bytes, position)
            .map_err(|error| Error::io("read", segment.path().to_owned(), error))?;
        if bytes.get(..read).unwrap_or_default().iter().any(|byte| *byte != 0) {
            return Ok(false);
        }
        if read == 0 {
            return Ok(true);
        }
        position += read as u64;
    }
}
