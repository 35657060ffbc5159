//! gzip: any number of members; what follows the last one is ignored when it is no member, as
//! `java.util.zip.GZIPInputStream` does.
use super::Failure;
use flate2::{Compress, Compression, Decompress, FlushCompress, FlushDecompress, Status};

const WINDOW_BITS: u8 = 15;
/// Output space to begin with, per byte of input.
const FIRST_RATIO: usize = 4;
const STEP_MIN: usize = 4096;
const MEMBER_MAGIC: [u8; 3] = [0x1f, 0x8b, 8];

pub(super) fn decompress(data: &[u8], limit: usize, out: &mut Vec<u8>) -> Result<(), Failure> {
    let mut rest = data;
    loop {
        let taken = member(rest, limit, out)?;
        rest = rest.get(taken..).unwrap_or_default();
        if !rest.starts_with(&MEMBER_MAGIC) {
            return Ok(());
        }
    }
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
