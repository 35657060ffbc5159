//! Which batches belong to aborted transactions, and which markers still have data (Kafka's
//! `CleanedTransactionMetadata`).
use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap, HashSet};

use crate::batch::BatchHeader;
use crate::segment::AbortedTransaction;

/// What a control batch says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Marker {
    Abort,
    Commit,
    /// Anything but the end of a transaction.
    Other,
    /// The batch was emptied by an earlier clean.
    Gone,
}

impl Marker {
    /// The marker with this key; `None` when the key is no control record's.
    pub(super) fn parse(key: Option<&[u8]>) -> Option<Self> {
        let [v0, v1, t0, t1] = *key?.first_chunk::<4>()?;
        match (i16::from_be_bytes([v0, v1]), i16::from_be_bytes([t0, t1])) {
            (..0, _) => None,
            (_, 0) => Some(Self::Abort),
            (_, 1) => Some(Self::Commit),
            _ => Some(Self::Other),
        }
    }
}

#[derive(Clone, Copy, Debug)]
struct Ongoing {
    aborted: AbortedTransaction,
    has_data: bool,
}

/// Transactions seen while the log is walked from its beginning.
#[derive(Debug, Default)]
pub(super) struct Transactions {
    /// Producers with data of a transaction that is not known to be aborted.
    committing: HashSet<i64>,
    aborting: HashMap<i64, Ongoing>,
    /// First offset and number in `known` of aborted transactions that are still ahead.
    ahead: BinaryHeap<Reverse<(i64, usize)>>,
    known: Vec<AbortedTransaction>,
}

impl Transactions {
    /// Aborted transactions whose data may come; one may be named again.
    pub(super) fn add_aborted(&mut self, found: &[AbortedTransaction]) {
        if self.ahead.is_empty() {
            self.known.clear();
        }
        for aborted in found {
            self.ahead.push(Reverse((aborted.first_offset, self.known.len())));
            self.known.push(*aborted);
        }
    }

    fn begin_up_to(&mut self, offset: i64) {
        while let Some(Reverse((first_offset, number))) = self.ahead.peek().copied() {
            if first_offset > offset {
                return;
            }
            self.ahead.pop();
            if let Some(aborted) = self.known.get(number).copied() {
                self.aborting.entry(aborted.producer_id).or_insert(Ongoing { aborted, has_data: false });
            }
        }
    }

    /// A batch of data: true when it belongs to an aborted transaction.
    pub(super) fn on_data(&mut self, batch: &BatchHeader<'_>) -> bool {
        self.begin_up_to(batch.last_offset());
        if !batch.is_transactional() {
            return false;
        }
        if let Some(ongoing) = self.aborting.get_mut(&batch.producer_id()) {
            ongoing.has_data = true;
            return true;
        }
        self.committing.insert(batch.producer_id());
        false
    }

    /// A control batch: whether it may go, once its time has come, and the aborted transaction to be kept in the
    /// index as some of its data was just seen.
    pub(super) fn on_control(
        &mut self,
        batch: &BatchHeader<'_>,
        marker: Marker,
    ) -> (bool, Option<AbortedTransaction>) {
        self.begin_up_to(batch.last_offset());
        match marker {
            Marker::Abort => match self.aborting.remove(&batch.producer_id()) {
                Some(ongoing) if ongoing.has_data => (false, Some(ongoing.aborted)),
                _ => (true, None),
            },
            Marker::Commit => (!self.committing.remove(&batch.producer_id()), None),
            Marker::Other => (false, None),
            Marker::Gone => (true, None),
        }
    }
}
