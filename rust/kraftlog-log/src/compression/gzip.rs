//! gzip: any number of members; what follows the last one is ignored when it is no member, as
//! `java.util.zip.GZIPInputStream` does.
//!
//! A member is decoded at once by libdeflate where its trailer, if it is the last, says a size that is not too far from
//! what is there; everything else, errors too, is for zlib, which needs no such number.
use super::{with_context, Failure};
use crate::raw::GzipDecoder;
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};
use std::cell::RefCell;

const WINDOW_BITS: u8 = 15;
/// Output space to begin with, per byte of input.
const FIRST_RATIO: usize = 4;
const STEP_MIN: usize = 4096;
const MEMBER_MAGIC: [u8; 3] = [0x1f, 0x8b, 8];
/// Bytes of a header without optional fields, and of a trailer.
const MEMBER_SIZE_MIN: usize = 18;
/// Most output, per byte of input, that is believed before anything was decoded.
const BELIEVED_RATIO: usize = 32;

thread_local! {
    static DECODER: RefCell<Option<GzipDecoder>> = const { RefCell::new(None) };
}

pub(super) fn decompress(data: &[u8], limit: usize, out: &mut Vec<u8>) -> Result<(), Failure> {
    let mut rest = data;
    loop {
        let taken = match member_at_once(rest, limit, out) {
            Some(taken) => taken,
            None => member(rest, limit, out)?,
        };
        rest = rest.get(taken..).unwrap_or_default();
        if !rest.starts_with(&MEMBER_MAGIC) {
            return Ok(());
        }
    }
}

/// As [`member`], for a plain header and an output of the size that the last four bytes of `data` say; else None, and
/// `out` is as before.
fn member_at_once(data: &[u8], limit: usize, out: &mut Vec<u8>) -> Option<usize> {
    // Optional fields, which no producer writes, are for zlib: it compares the checksum of the header as well.
    if data.len() < MEMBER_SIZE_MIN || data.get(3) != Some(&0) {
        return None;
    }
    let size = u32::from_le_bytes(*data.last_chunk::<4>()?) as usize;
    let is_believable = size <= data.len().saturating_mul(BELIEVED_RATIO);
    if !is_believable || size > limit.saturating_sub(out.len()) {
        return None;
    }
    out.reserve(size);
    let before = out.len();
    let taken = with_context(&DECODER, GzipDecoder::new, |decoder| decoder.member(data, out))??;
    // The vector may have had more space than it was asked for.
    if out.len() > limit {
        out.truncate(before);
        return None;
    }
    Some(taken)
}

/// Decompresses one member and tells how many bytes it took, header and trailer included.
fn member(data: &[u8], limit: usize, out: &mut Vec<u8>) -> Result<usize, Failure> {
    let mut state = Decompress::new_gzip(WINDOW_BITS);
    let first = data.len().saturating_mul(FIRST_RATIO).clamp(STEP_MIN, limit.max(STEP_MIN));
    out.reserve(first);
    loop {
        let taken = usize::try_from(state.total_in()).unwrap_or(usize::MAX);
        let input = data.get(taken..).unwrap_or_default();
        let before = (state.total_in(), state.total_out());
        let status = state
            .decompress_vec(input, out, FlushDecompress::None)
            .map_err(|error| Failure::malformed(error.to_string()))?;
        if out.len() > limit {
            return Err(Failure::OverBound);
        }
        if status == Status::StreamEnd {
            return Ok(usize::try_from(state.total_in()).unwrap_or(usize::MAX));
        }
        if out.len() < out.capacity() && (state.total_in(), state.total_out()) == before {
            return Err(Failure::malformed("the stream ends before its end mark"));
        }
        if out.len() == out.capacity() {
            // Doubling, but never far past the bound.
            let step = out.len().clamp(STEP_MIN, (limit - out.len()).saturating_add(1).max(STEP_MIN));
            out.reserve(step);
        }
    }
}

pub(super) fn compress(level: i32, data: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
    let level = u32::try_from(level).map_or_else(|_| Compression::default(), Compression::new);
    let mut state = Compress::new_gzip(level, WINDOW_BITS);
    loop {
        let taken = usize::try_from(state.total_in()).unwrap_or(usize::MAX);
        let input = data.get(taken..).unwrap_or_default();
        out.reserve(input.len() / 2 + STEP_MIN);
        match state.compress_vec(input, out, FlushCompress::Finish) {
            Ok(Status::StreamEnd) => return Ok(()),
            Ok(_) => {}
            Err(error) => return Err(error.to_string()),
        }
    }
}
