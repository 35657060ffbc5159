//! Snappy: blocks behind the header of the xerial library, or one raw block without it.
use super::Failure;

/// First bytes of the framed form; the version numbers that follow are not looked at.
const MAGIC: [u8; 8] = [0x82, b'S', b'N', b'A', b'P', b'P', b'Y', 0];
const FRAME_HEADER_SIZE: usize = 16;
/// What snappy-java compresses at a time.
const BLOCK_SIZE: usize = 32 * 1024;
/// A copy of 64 bytes takes 3, so no block grows more than this for each byte.
const RATIO_MAX: usize = 22;

pub(super) fn decompress(data: &[u8], limit: usize, out: &mut Vec<u8>) -> Result<(), Failure> {
    if !data.starts_with(&MAGIC) {
        return block(data, limit, out);
    }
    let mut rest =
        data.get(FRAME_HEADER_SIZE..).ok_or_else(|| Failure::malformed("the xerial header is cut short"))?;
    // Like SnappyInputStream: fewer than four bytes at the end are not looked at, and a header may
    // come again where streams were joined.
    while let Some((size, after)) = rest.split_first_chunk::<4>() {
        if rest.starts_with(&MAGIC) {
            rest = rest
                .get(FRAME_HEADER_SIZE..)
                .ok_or_else(|| Failure::malformed("a xerial header is cut short"))?;
            continue;
        }
        let size = u32::from_be_bytes(*size) as usize;
        let (compressed, next) = after.split_at_checked(size).ok_or_else(|| {
            Failure::malformed(format!("a block of {size} bytes where {} remain", after.len()))
        })?;
        block(compressed, limit, out)?;
        rest = next;
    }
    Ok(())
}

/// Decompresses one raw block behind what `out` holds.
fn block(data: &[u8], limit: usize, out: &mut Vec<u8>) -> Result<(), Failure> {
    let malformed = |error: snap::Error| Failure::malformed(error.to_string());
    if data.is_empty() {
        return Err(Failure::malformed("an empty block"));
    }
    let size = snap::raw::decompress_len(data).map_err(malformed)?;
    if size > data.len().saturating_mul(RATIO_MAX) {
        return Err(Failure::malformed(format!("{} bytes cannot hold the {size} they announce", data.len())));
    }
    let start = out.len();
    let end = start.saturating_add(size);
    if end > limit {
        return Err(Failure::OverBound);
    }
    out.resize(end, 0);
    let target = out.get_mut(start..).unwrap_or_default();
    let written = snap::raw::Decoder::new().decompress(data, target).map_err(malformed)?;
    out.truncate(start + written);
    Ok(())
}

pub(super) fn compress(data: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
    out.extend_from_slice(&MAGIC);
    // Version 1, readable by version 1.
    out.extend_from_slice(&[0, 0, 0, 1, 0, 0, 0, 1]);
    let mut encoder = snap::raw::Encoder::new();
    for chunk in data.chunks(BLOCK_SIZE) {
        let size_at = out.len();
        out.extend_from_slice(&[0; 4]);
        let start = out.len();
        out.resize(start + snap::raw::max_compress_len(chunk.len()), 0);
        let target = out.get_mut(start..).unwrap_or_default();
        let size = encoder.compress(chunk, target).map_err(|error| error.to_string())?;
        out.truncate(start + size);
        if let Some(field) = out.get_mut(size_at..start) {
            field.copy_from_slice(&(size as u32).to_be_bytes());
        }
    }
    Ok(())
}
