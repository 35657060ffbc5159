//! Leader epochs that cannot be right. No checksum covers the leader epoch of a batch, but epochs never fall.
use crate::epoch_checkpoint::EpochCheckpoint;

/// What a batch's leader epoch says about those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Verdict {
    /// It follows, or nothing says which of two is wrong.
    Follows,
    /// This batch was written in the named epoch.
    Mend(i32),
    /// The batch before was written in the named epoch.
    MendBefore(i32),
}

/// The epochs of the batches that were kept, and the checkpoint of the source as a second witness.
#[derive(Debug)]
pub(super) struct EpochOrder {
    witness: Option<EpochCheckpoint>,
    /// Epoch before `latest`.
    before: Option<i32>,
    latest: Option<i32>,
    /// Base offset of the one batch that has the epoch `latest`; None once there are several.
    only: Option<i64>,
}

impl EpochOrder {
    pub(super) fn new(witness: Option<EpochCheckpoint>) -> Self {
        Self { witness, before: None, latest: None, only: None }
    }

    fn told(&self, offset: i64) -> Option<i32> {
        self.witness.as_ref().and_then(|witness| witness.epoch_for_offset(offset))
    }

    /// The batch at `offset`, of message format 2, has `epoch`; batches come by rising offsets.
    pub(super) fn judge(&mut self, epoch: i32, offset: i64) -> Verdict {
        let verdict = self.verdict(epoch, offset);
        match verdict {
            Verdict::Follows => self.note(epoch, offset),
            Verdict::Mend(mended) => self.note(mended, offset),
            Verdict::MendBefore(mended) => {
                let at = self.only.unwrap_or(offset);
                (self.latest, self.only) = (self.before, None);
                self.note(mended, at);
                self.note(epoch, offset);
            }
        }
        verdict
    }

    fn verdict(&self, epoch: i32, offset: i64) -> Verdict {
        let Some(latest) = self.latest else {
            // -1 is "no epoch"; nothing else below 0 is one.
            let is_none = epoch >= -1;
            return if is_none { Verdict::Follows } else { Verdict::Mend(self.told(offset).unwrap_or(-1)) };
        };
        if epoch >= latest || epoch == -1 {
            return Verdict::Follows;
        }
        let told = self.told(offset);
        let is_higher_before = self.before.is_none_or(|before| epoch >= before);
        if let Some(only) = self.only.filter(|_| epoch >= 0 && is_higher_before) {
            let told_before = self.told(only);
            if told_before != Some(latest) {
                let mended = told_before
                    .filter(|told| self.before.is_none_or(|before| *told >= before) && *told <= epoch);
                return Verdict::MendBefore(mended.or(self.before).unwrap_or(epoch));
            }
        }
        if told == Some(epoch) {
            return Verdict::Follows;
        }
        Verdict::Mend(told.filter(|told| *told >= latest).unwrap_or(latest))
    }

    fn note(&mut self, epoch: i32, offset: i64) {
        match self.latest {
            Some(latest) if epoch == latest => self.only = None,
            Some(latest) if epoch < latest => {}
            _ if epoch < 0 => {}
            latest => (self.before, self.latest, self.only) = (latest, Some(epoch), Some(offset)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::fs::{FileSystem, MemoryFileSystem};
    use std::path::Path;
    use std::sync::Arc;

    fn judged(witness: &[(i32, i64)], epochs: &[i32]) -> Vec<Verdict> {
        let fs: Arc<dyn FileSystem> = Arc::new(MemoryFileSystem::new());
        let mut checkpoint = EpochCheckpoint::detached(fs, Path::new("/"));
        witness.iter().for_each(|(epoch, offset)| checkpoint.assign(*epoch, *offset));
        let mut order = EpochOrder::new((!witness.is_empty()).then_some(checkpoint));
        (0..).zip(epochs).map(|(offset, epoch)| order.judge(*epoch, offset)).collect()
    }

    fn changes(witness: &[(i32, i64)], epochs: &[i32]) -> Vec<(usize, Verdict)> {
        judged(witness, epochs)
            .into_iter()
            .enumerate()
            .filter(|(_, verdict)| *verdict != Verdict::Follows)
            .collect()
    }

    #[test]
    fn epochs_that_rise_are_right() {
        assert_eq!(changes(&[], &[-1, -1, 0, 0, 2, 2, 7]), []);
    }

    #[test]
    fn one_batch_that_rises_and_falls_again_was_wrong() {
        for witness in [&[][..], &[(1, 0)]] {
            assert_eq!(changes(witness, &[1, 1, 9, 1, 1]), [(3, Verdict::MendBefore(1))]);
            assert_eq!(changes(witness, &[9, 1, 1]), [(1, Verdict::MendBefore(1))]);
        }
        assert_eq!(changes(&[(1, 0), (2, 2)], &[1, 1, 9, 2, 2, 3]), [(3, Verdict::MendBefore(2))]);
        assert_eq!(changes(&[], &[1, 1, 9, 2, 2, 3]), [(3, Verdict::MendBefore(1))]);
    }

    #[test]
    fn one_batch_that_falls_is_wrong() {
        for witness in [&[][..], &[(4, 0)]] {
            assert_eq!(changes(witness, &[4, 4, 0, 4, 4]), [(2, Verdict::Mend(4))]);
            assert_eq!(changes(witness, &[4, 4, i32::MIN + 4, 4, 4]), [(2, Verdict::Mend(4))]);
        }
        assert_eq!(changes(&[(4, 0), (5, 2)], &[4, 4, 1, 5]), [(2, Verdict::Mend(5))]);
        // The checkpoint says that the batch before is right.
        assert_eq!(changes(&[(4, 0), (5, 1)], &[4, 5, 4, 5]), [(2, Verdict::Mend(5))]);
        assert_eq!(changes(&[(0, 0)], &[i32::MIN, 0, 0]), [(0, Verdict::Mend(0))]);
        assert_eq!(changes(&[], &[i32::MIN, 0, 0]), [(0, Verdict::Mend(-1))]);
    }

    #[test]
    fn where_several_are_wrong_the_checkpoint_decides() {
        assert_eq!(changes(&[(1, 0)], &[1, 7, 7, 1, 1]), []);
        assert_eq!(changes(&[], &[1, 7, 7, 1, 1]), [(3, Verdict::Mend(7)), (4, Verdict::Mend(7))]);
    }
}
