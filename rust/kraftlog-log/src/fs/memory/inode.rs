//! One file: what readers see, what the disk surely has, and the changes in between.
use std::sync::Arc;

use super::content::Content;
use super::crash::DataLoss;
use crate::fs::Random;

#[derive(Clone, Debug)]
enum Change {
    Write { position: usize, bytes: Arc<[u8]> },
    Resize(usize),
}

impl Change {
    fn apply(&self, content: &mut Content) {
        match self {
            Self::Write { position, bytes } => content.write(*position, bytes),
            Self::Resize(size) => content.resize(*size),
        }
    }

    /// What is left of a change that was under way: some of its sectors, or with `sector_bytes` 1 its first bytes.
    fn apply_torn(&self, content: &mut Content, sector_bytes: usize, random: &mut Random) {
        let Self::Write { position, bytes } = self else { return };
        if sector_bytes <= 1 {
            content.write(*position, bytes.get(..random.index(bytes.len())).unwrap_or_default());
            return;
        }
        let prefix_only = random.one_in(2);
        let mut start = 0;
        while start < bytes.len() {
            let in_sector = (position + start) % sector_bytes;
            let end = bytes.len().min(start + sector_bytes - in_sector);
            if random.one_in(2) {
                content.write(position + start, bytes.get(start..end).unwrap_or_default());
            } else if prefix_only {
                break;
            }
            start = end;
        }
    }
}

#[derive(Clone, Debug, Default)]
pub(super) struct Inode {
    pub(super) current: Content,
    durable: Content,
    pending: Vec<Change>,
    /// A failed fsync dropped changes: the disk is behind for good, whatever is synced later.
    diverged: bool,
    pub(super) modified_ms: i64,
}

impl Inode {
    pub(super) fn of(content: Content, modified_ms: i64) -> Self {
        Self { durable: content.clone(), current: content, pending: Vec::new(), diverged: false, modified_ms }
    }

    pub(super) fn write(&mut self, position: usize, bytes: &[u8]) {
        self.change(Change::Write { position, bytes: bytes.into() });
    }

    pub(super) fn resize(&mut self, size: usize) {
        self.change(Change::Resize(size));
    }

    fn change(&mut self, change: Change) {
        change.apply(&mut self.current);
        self.pending.push(change);
    }

    pub(super) fn sync(&mut self) {
        if self.diverged {
            self.pending.iter().for_each(|change| change.apply(&mut self.durable));
        } else {
            self.durable = self.current.clone();
        }
        self.pending.clear();
    }

    /// Write-back failed: some pages arrived, the others are marked clean and will not be tried again (as Linux does).
    /// Readers go on seeing the latest bytes.
    pub(super) fn fail_sync(&mut self, random: &mut Random) {
        self.durable = self.after_crash(DataLoss::Pages, random);
        self.pending.clear();
        self.diverged = true;
    }

    pub(super) fn flip_bit(&mut self, bit: u64) {
        self.current.flip_bit(bit);
        self.durable.flip_bit(bit);
    }

    /// What a restart finds.
    pub(super) fn after_crash(&self, loss: DataLoss, random: &mut Random) -> Content {
        let mut content = self.durable.clone();
        match loss {
            DataLoss::Nothing => self.pending.iter().for_each(|change| change.apply(&mut content)),
            DataLoss::Everything => {}
            DataLoss::Suffix => {
                let kept = random.index(self.pending.len() + 1);
                self.pending.iter().take(kept).for_each(|change| change.apply(&mut content));
            }
            DataLoss::Torn { sector_bytes } => {
                let kept = random.index(self.pending.len() + 1);
                self.pending.iter().take(kept).for_each(|change| change.apply(&mut content));
                if let Some(torn) = self.pending.get(kept) {
                    torn.apply_torn(&mut content, sector_bytes, random);
                }
            }
            DataLoss::Tail { bytes } => {
                let old_size = content.size();
                self.pending.iter().for_each(|change| change.apply(&mut content));
                content.resize(content.size().min(old_size.saturating_add(bytes)));
            }
            DataLoss::Contents => {
                for change in &self.pending {
                    match change {
                        Change::Resize(size) => content.resize(*size),
                        Change::Write { position, bytes } => {
                            content.resize(content.size().max(position + bytes.len()));
                        }
                    }
                }
            }
            DataLoss::Pages => return self.written_back_in_any_order(random),
        }
        content
    }

    /// The length as some prefix of the changes left it, and each page as some prefix left it.
    fn written_back_in_any_order(&self, random: &mut Random) -> Content {
        let mut versions = Vec::with_capacity(self.pending.len() + 1);
        versions.push(self.durable.clone());
        for change in &self.pending {
            let mut next = versions.last().cloned().unwrap_or_default();
            change.apply(&mut next);
            versions.push(next);
        }
        let last = versions.len() - 1;
        let mut choose = || match random.below(4) {
            0 => 0,
            1 => random.index(last + 1),
            _ => last,
        };
        let mut content = versions.get(choose()).cloned().unwrap_or_default();
        for page in 0..content.page_count() {
            if let Some(version) = versions.get(choose()) {
                content.take_page(version, page);
            }
        }
        content
    }
}
