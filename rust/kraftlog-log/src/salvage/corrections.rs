//! Corrections of leader epochs in the copy.
use super::epochs::Verdict;
use super::Copying;
use crate::batch::BatchView;
use crate::fs::OpenMode;
use crate::{Error, Result};
use std::path::PathBuf;

/// Corrected leader epochs of one partition that are listed one by one.
const CORRECTIONS_MAX: u64 = 1000;
/// Where a batch has its leader epoch.
const EPOCH_POSITION: u64 = 12;

/// Where a batch was written.
pub(super) struct KeptBatch {
    pub(super) segment: PathBuf,
    pub(super) position: u64,
    pub(super) base_offset: i64,
    pub(super) epoch: i32,
}

impl Copying {
    /// The epoch to write into a batch; corrects the batch before if that one was wrong.
    pub(super) fn corrected_epoch(&mut self, batch: &BatchView<'_>) -> Result<i32> {
        let (epoch, offset) = (batch.partition_leader_epoch(), batch.base_offset());
        match self.order.judge(epoch, offset) {
            Verdict::Follows => Ok(epoch),
            Verdict::Mend(mended) => {
                self.remark_correction(offset, epoch, mended);
                Ok(mended)
            }
            Verdict::MendBefore(mended) => {
                if let Some(kept) = self.last_kept.take() {
                    self.epochs.truncate_from_end(kept.base_offset);
                    if self.epochs.latest().is_none_or(|latest| mended > latest.epoch) {
                        self.epochs.assign(mended, kept.base_offset);
                    }
                    let io = |error| Error::io("write", kept.segment.as_path(), error);
                    let file = self.fs.open(&kept.segment, OpenMode::ReadWrite).map_err(io)?;
                    let bytes = mended.to_be_bytes();
                    file.write_all_at(&[&bytes], kept.position + EPOCH_POSITION).map_err(io)?;
                    file.sync_data().map_err(io)?;
                    self.remark_correction(kept.base_offset, kept.epoch, mended);
                }
                Ok(epoch)
            }
        }
    }

    fn remark_correction(&mut self, offset: i64, found: i32, written: i32) {
        self.corrections += 1;
        if self.corrections <= CORRECTIONS_MAX {
            self.result.remarks.push(format!(
                "the batch at offset {offset} had leader epoch {found}, which those around it contradict; the copy has \
                 {written}"
            ));
        }
    }

    /// Say how many corrections were not listed.
    pub(super) fn remark_further_corrections(&mut self) {
        if self.corrections > CORRECTIONS_MAX {
            let more = self.corrections - CORRECTIONS_MAX;
            self.result.remarks.push(format!("the leader epochs of {more} more batches were corrected"));
        }
    }
}
