//! zstd with one context a thread for each direction.
use super::{with_context, Failure};
use crate::byte_pool;
use std::cell::RefCell;
use zstd_safe::{CCtx, CParameter, DCtx, ResetDirective};

thread_local! {
    static DECODER: RefCell<Option<DCtx<'static>>> = const { RefCell::new(None) };
    static ENCODER: RefCell<Option<CCtx<'static>>> = const { RefCell::new(None) };
}

/// A block of three bytes can stand for 128 KiB of one byte.
const RATIO_MAX: usize = (128 << 10) / 3 + 1;
const NO_CONTEXT: &str = "no memory for a context";

pub(super) fn decompress(data: &[u8], limit: usize, out: &mut Vec<u8>) -> Result<(), Failure> {
    // Known content sizes, or the number of blocks times their largest size: what is reserved follows the
    // bytes that are there, and one call decodes all frames without a window copy.
    let most = zstd_safe::decompress_bound(data)
        .map_err(|_| Failure::malformed("the frame is damaged or cut short"))?;
    let most = usize::try_from(most).unwrap_or(usize::MAX).min(data.len().saturating_mul(RATIO_MAX));
    out.reserve(most.min(limit));
    let result = with_context(&DECODER, DCtx::try_create, |context| context.decompress(out, data));
    match result {
        Some(Ok(size)) if size > limit => Err(Failure::OverBound),
        Some(Ok(_)) => Ok(()),
        // A buffer that was used before may have more room than the bound, yet less than the frame.
        Some(Err(code)) if most > limit && (out.capacity() < most || is_out_of_room(code)) => {
            Err(Failure::OverBound)
        }
        Some(Err(code)) => Err(Failure::malformed(zstd_safe::get_error_name(code))),
        None => Err(Failure::malformed(NO_CONTEXT)),
    }
}

fn is_out_of_room(code: zstd_safe::ErrorCode) -> bool {
    zstd_safe::get_error_name(code) == "Destination buffer is too small"
}

pub(super) fn compress(level: i32, data: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
    let mut compressed = byte_pool::take(zstd_safe::compress_bound(data.len()));
    let result = with_context(&ENCODER, CCtx::try_create, |context| {
        context.reset(ResetDirective::SessionAndParameters)?;
        context.set_parameter(CParameter::CompressionLevel(level))?;
        context.compress2(&mut compressed, data)
    });
    let outcome = match result {
        Some(Ok(_)) => {
            out.extend_from_slice(&compressed);
            Ok(())
        }
        Some(Err(code)) => Err(zstd_safe::get_error_name(code).to_owned()),
        None => Err(NO_CONTEXT.to_owned()),
    };
    byte_pool::give(compressed);
    outcome
}
