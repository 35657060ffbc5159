//! Batches of the formats before v2: their messages become v2 records, which the decoder reads as any others.
use super::decode::{BatchCursor, ColumnsDecoder, Place};
use crate::batch::BatchView;
use crate::compression::Bound;
use crate::legacy::{is_legacy, transcode};
use crate::Result;

impl ColumnsDecoder {
    /// Makes a batch with another magic than 2 ready to be decoded.
    ///
    /// # Errors
    /// [`Error::Corrupt`](crate::Error::Corrupt) for a magic that no format has, and as [`transcode`].
    #[cold]
    pub(super) fn start_other_format(
        &mut self,
        batch: &BatchView<'_>,
        cursor: &mut BatchCursor,
    ) -> Result<Place> {
        if !is_legacy(batch.magic()) {
            return Err(batch.corrupt(format!("magic {} is unknown", batch.magic())));
        }
        // The messages inside have checksums of their own.
        cursor.crc_ok &= self.options.check_crc
            || !self.tells_crc
            || transcode(batch, Bound::default(), true, &mut self.scratch).is_ok();
        let count = transcode(batch, Bound::default(), self.options.check_crc, &mut self.scratch)?;
        if count != batch.record_count() {
            // The view is shallow; only a resolved one has the offsets that decide whether it is wanted.
            return Err(batch.corrupt(format!("{count} messages, the header says {}", batch.record_count())));
        }
        cursor.filter = self.needs_filter(batch);
        Ok(self.place_of_scratch())
    }
}
