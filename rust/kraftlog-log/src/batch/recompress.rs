//! A batch with another codec, for topics whose `compression.type` is not that of the producer.
use super::{
    attributes, put, split_header_mut, update_crc, BatchHeader, BatchView, HEADER_SIZE, LOG_OVERHEAD,
};
use crate::compression::{self, Codec};
use crate::{Error, Result};

/// Writes `batch` with its records in `codec` into `out`, whose content is replaced. The records are not
/// encoded anew, so deltas and headers stay as the producer wrote them.
///
/// Kafka leaves control records uncompressed; so should the caller.
///
/// # Errors
/// [`Error::Invalid`] for a level that the codec does not have, or a batch that passes 2 GiB.
pub fn recompress(
    batch: &BatchView<'_>,
    uncompressed_body: &[u8],
    codec: Codec,
    level: Option<i32>,
    out: &mut Vec<u8>,
) -> Result<()> {
    out.clear();
    out.extend_from_slice(batch.header().as_bytes());
    compression::compress(codec, level, uncompressed_body, out)
        .map_err(|error| Error::Invalid(error.to_string()))?;
    let length = i32::try_from(out.len() - LOG_OVERHEAD)
        .map_err(|_| Error::Invalid(format!("the recompressed batch has {} bytes", out.len())))?;
    let (header, body): (&mut [u8; HEADER_SIZE], _) = split_header_mut(out)?;
    let others = BatchHeader::new(header).attributes() & !attributes::COMPRESSION_MASK;
    put(header, 8, length.to_be_bytes());
    put(header, 21, (others | codec as i16).to_be_bytes());
    update_crc(header, body);
    Ok(())
}
