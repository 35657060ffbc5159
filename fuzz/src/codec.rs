//! The checks of the four codec targets.
use crate::bounded;
use kraftlog_log::compression::{compress, decompress, Bound, Codec, CodecError};
use std::io::Read;

/// Decompresses `data` in the bound that its first two bytes choose, and holds the outcome to what must be true.
pub fn check(codec: Codec, data: &[u8]) {
    let Some((choice, data)) = data.split_first_chunk::<2>() else { return };
    let limit = match choice[0] & 3 {
        0 => Bound::DEFAULT.limit(data.len()),
        1 => usize::from(choice[1]),
        2 => usize::from(choice[1]) << 8,
        _ => usize::from(choice[1]) << 14,
    };
    let bound = Bound::of_bytes(limit);
    // Twice the bound for the last doubling of gzip; a codec's own state is not in it.
    let most = 2 * limit + (1 << 20);
    let mut out = Vec::new();
    let outcome = bounded(most, || decompress(codec, data, bound, &mut out));
    let mut again = Vec::with_capacity(100);
    let repeated = decompress(codec, data, bound, &mut again);
    // Which of two defects is named first may depend on the room there is.
    assert_eq!(outcome.is_ok(), repeated.is_ok(), "a used context decodes otherwise");
    match outcome {
        Ok(()) => {
            assert_eq!(out, again);
            assert!(out.len() <= limit);
            tighter(codec, data, &out);
            streamed(codec, data, &out);
            round_trip(codec, &out);
        }
        Err(CodecError::OverBound { limit: named, compressed, .. }) => {
            assert_eq!((named, compressed), (limit, data.len()));
        }
        Err(CodecError::Malformed { reason, .. }) => {
            assert!(!reason.is_empty());
            // A larger bound does not make bad bytes good.
            let wide = Bound::of_bytes(limit.saturating_mul(2).max(1 << 20));
            if let Ok(()) = decompress(codec, data, wide, &mut again) {
                panic!("malformed within {limit} bytes, {} bytes in a larger bound", again.len());
            }
        }
        Err(other) => panic!("{other}"),
    }
}

/// The exact size is enough, one byte less is not.
fn tighter(codec: Codec, data: &[u8], out: &[u8]) {
    let mut again = Vec::new();
    decompress(codec, data, Bound::of_bytes(out.len()), &mut again).unwrap();
    assert_eq!(again, out);
    if let Some(less) = out.len().checked_sub(1) {
        let outcome = decompress(codec, data, Bound::of_bytes(less), &mut again);
        assert!(matches!(outcome, Err(CodecError::OverBound { .. })), "{outcome:?}");
    }
}

/// A second decoder, piece by piece, gives the same bytes.
fn streamed(codec: Codec, data: &[u8], out: &[u8]) {
    let mut other = Vec::new();
    match codec {
        Codec::Gzip => {
            // The first member alone: what follows the last one is not read alike everywhere.
            let mut reader = flate2::bufread::GzDecoder::new(data);
            read_in_pieces(&mut reader, &mut other).unwrap();
            assert!(out.starts_with(&other));
        }
        Codec::Lz4 => {
            let mut reader = lz4_flex::frame::FrameDecoder::new(data);
            // It ends at a block of nothing, and goes on with a second frame.
            if read_in_pieces(&mut reader, &mut other).is_ok() {
                assert!(other.starts_with(out) || out.starts_with(&other), "{} and {}", other.len(), out.len());
            }
        }
        Codec::Zstd => {
            let mut context = zstd_safe::DCtx::create();
            let mut input = zstd_safe::InBuffer::around(data);
            let mut piece = [0u8; 777];
            loop {
                let mut output = zstd_safe::OutBuffer::around(&mut piece[..]);
                // Windows above 128 MiB are refused by the streaming decoder alone.
                let Ok(left) = context.decompress_stream(&mut output, &mut input) else { return };
                let written = output.pos();
                other.extend_from_slice(&piece[..written]);
                if (left == 0 || written < piece.len()) && input.pos() == data.len() {
                    break;
                }
            }
            assert_eq!(other, out);
        }
        Codec::Snappy | Codec::None => {
            if let Ok(raw) = snap::raw::Decoder::new().decompress_vec(data) {
                assert_eq!(raw, out);
            }
        }
    }
}

fn read_in_pieces(reader: &mut impl Read, out: &mut Vec<u8>) -> std::io::Result<()> {
    let mut piece = [0; 777];
    loop {
        match reader.read(&mut piece)? {
            0 => return Ok(()),
            size => out.extend_from_slice(&piece[..size]),
        }
    }
}

fn round_trip(codec: Codec, out: &[u8]) {
    let out = &out[..out.len().min(1 << 20)];
    let mut compressed = Vec::new();
    compress(codec, None, out, &mut compressed).unwrap();
    let mut again = Vec::new();
    decompress(codec, &compressed, Bound::of_bytes(out.len()), &mut again).unwrap();
    assert_eq!(again, out);
}
