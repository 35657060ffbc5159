//! What an append will change in the producer state, and whether it may.
use super::append_options::AppendOptions;
use super::Inner;
use crate::batch::BatchHeader;
use crate::producer_state::{CompletedTransaction, EndMarker, ProducerUpdate};
use crate::{Error, Result};

const INVALID_TXN_STATE: i16 = 48;

/// Whether the batch belongs to a transaction that its coordinator knows (KIP-890).
pub(super) fn check_verified(inner: &Inner, header: &BatchHeader<'_>, options: &AppendOptions) -> Result<()> {
    let id = header.producer_id();
    let is_verified = inner.producers.has_ongoing_transaction(id, header.producer_epoch())
        || options.guard.is_some_and(|guard| inner.producers.verification(id, guard).is_some());
    if options.requires_verification && !is_verified {
        let reason = format!("the batch of producer {id} is not part of an ongoing transaction");
        return Err(Error::rejected(INVALID_TXN_STATE, reason));
    }
    Ok(())
}

pub(super) enum ProducerCheck {
    /// First offset, last offset and timestamp of the batch appended before.
    Duplicate(i64, i64, i64),
    Accepted(ProducerChanges),
}

/// What an append will change in the producer state.
#[derive(Default)]
pub(super) struct ProducerChanges {
    pub(super) updates: Vec<ProducerUpdate>,
    pub(super) completed: Vec<CompletedTransaction>,
    /// Producers with a transactional batch, or with a marker of that epoch.
    pub(super) ended_verifications: Vec<(i64, Option<i16>)>,
}

impl ProducerChanges {
    pub(super) fn add(
        &mut self,
        inner: &Inner,
        header: &BatchHeader<'_>,
        marker: Option<EndMarker>,
        options: &AppendOptions,
    ) -> Result<()> {
        let id = header.producer_id();
        let index = match self.updates.iter().position(|update| update.producer_id() == id) {
            Some(index) => index,
            None => {
                let mut update = inner.producers.prepare(id, options.origin);
                let found = options.guard.and_then(|guard| inner.producers.verification(id, guard));
                update.set_verification(found.or(options.verification));
                self.updates.push(update);
                self.updates.len() - 1
            }
        };
        let Some(update) = self.updates.get_mut(index) else { return Ok(()) };
        if header.is_transactional() {
            self.ended_verifications.push((id, marker.map(|_| header.producer_epoch())));
        }
        match marker {
            Some(marker) => {
                let Some(transaction_version) = options.transaction_version else {
                    return Err(Error::Invalid(
                        "a marker needs the transaction version of its coordinator".to_owned(),
                    ));
                };
                let completed = update.append_marker(
                    header.producer_epoch(),
                    header.base_offset(),
                    marker,
                    transaction_version,
                )?;
                self.completed.extend(completed);
                Ok(())
            }
            // A control batch that compaction emptied says nothing.
            None if header.is_control() => Ok(()),
            None => update.append_data(header, header.base_offset()),
        }
    }
}
