//! What a leader says with an append.
use crate::producer_state::{Origin, Verification};

/// How a leader appends.
#[derive(Clone, Copy, Debug)]
pub struct AppendOptions {
    /// Written into every batch.
    pub leader_epoch: i32,
    /// Wall clock, milliseconds since the epoch.
    pub now_ms: i64,
    /// Who appends.
    pub origin: Origin,
    /// Of the coordinator that writes a marker: from 2 on its epoch has to be above that of the transaction. A marker
    /// without it is refused.
    pub transaction_version: Option<i16>,
    /// Of the transaction whose first batch this is.
    pub verification: Option<Verification>,
    /// What `Log::begin_verification` gave before the coordinator agreed to the transaction.
    pub guard: Option<u64>,
    /// A transactional batch of a client has to belong to an open transaction, or bring a guard that holds.
    pub requires_verification: bool,
    /// Bytes of records, uncompressed, that the caller has time to check; a compressed batch with more gives
    /// [`Error::OverBudget`](crate::Error::OverBudget) and can be appended by a caller that has more time.
    pub uncompressed_bytes_max: usize,
}

impl AppendOptions {
    /// Without checks of transactions.
    pub fn new(leader_epoch: i32, now_ms: i64, origin: Origin) -> Self {
        Self {
            leader_epoch,
            now_ms,
            origin,
            transaction_version: None,
            verification: None,
            guard: None,
            requires_verification: false,
            uncompressed_bytes_max: usize::MAX,
        }
    }
}
