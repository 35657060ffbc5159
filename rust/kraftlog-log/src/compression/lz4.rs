//! The LZ4 frame format through the C library's LZ4F, with one context a thread for each direction.
//!
//! Trailing bytes after the end mark are ignored, as Kafka's `Lz4BlockInputStream` does.
use super::{with_context, Failure};
use crate::raw::{Lz4Decoder, Lz4Encoder};
use lz4_sys::{
    BlockChecksum, BlockMode, BlockSize, ContentChecksum, FrameType, LZ4FFrameInfo, LZ4FPreferences,
};
use std::cell::RefCell;

const MAGIC: [u8; 4] = [0x04, 0x22, 0x4d, 0x18];
/// Kafka's level 9 means the fast compressor (`Lz4BlockOutputStream`), any other the high compression one.
const KAFKA_DEFAULT_LEVEL: i32 = 9;
const HIGH_COMPRESSION_MIN: u32 = 2;
/// Each byte of a compressed block stands for at most this many.
const RATIO_MAX: usize = 255;

thread_local! {
    static DECODER: RefCell<Option<Lz4Decoder>> = const { RefCell::new(None) };
    static ENCODER: RefCell<Option<Lz4Encoder>> = const { RefCell::new(None) };
}

pub(super) fn decompress(data: &[u8], limit: usize, out: &mut Vec<u8>) -> Result<(), Failure> {
    let most =
        output_size_max(data).ok_or_else(|| Failure::malformed("the frame is damaged or cut short"))?;
    // One byte more than the output, so that a full buffer always means an output over the bound.
    out.reserve(most.min(limit).saturating_add(1));
    let ended = with_context(&DECODER, Lz4Decoder::new, |decoder| decoder.frame(data, out));
    match ended {
        Some(Ok(_)) if out.len() > limit => Err(Failure::OverBound),
        Some(Ok(true)) => Ok(()),
        Some(Ok(false)) => Err(Failure::OverBound),
        Some(Err(reason)) => Err(Failure::malformed(reason)),
        None => Err(Failure::malformed("no memory for a context")),
    }
}

/// The most that the first frame of `data` can decompress to, from its block headers.
fn output_size_max(data: &[u8]) -> Option<usize> {
    let rest = data.strip_prefix(&MAGIC)?;
    let (&[flags, descriptor], _) = rest.split_first_chunk::<2>()?;
    let content_size = if flags & 0x08 != 0 { 8 } else { 0 };
    let dictionary_id = if flags & 0x01 != 0 { 4 } else { 0 };
    let block_checksum = if flags & 0x10 != 0 { 4 } else { 0 };
    let block_size_max = 1usize << (8 + 2 * u32::from((descriptor >> 4) & 7));
    let mut rest = rest.get(3 + content_size + dictionary_id..)?;
    let mut total = 0usize;
    loop {
        let (size, after) = rest.split_first_chunk::<4>()?;
        let size = u32::from_le_bytes(*size);
        if size == 0 {
            return Some(total);
        }
        let stored = (size & 0x7fff_ffff) as usize;
        let is_compressed = size >> 31 == 0;
        let most = if is_compressed { stored.saturating_mul(RATIO_MAX).min(block_size_max) } else { stored };
        total = total.saturating_add(most);
        rest = after.get(stored.saturating_add(block_checksum)..)?;
    }
}

pub(super) fn compress(level: i32, data: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
    let compression_level = match u32::try_from(level) {
        Ok(level) if level as i32 != KAFKA_DEFAULT_LEVEL => level.max(HIGH_COMPRESSION_MIN),
        _ => 0,
    };
    let preferences = LZ4FPreferences {
        frame_info: LZ4FFrameInfo {
            block_size_id: BlockSize::Max64KB,
            block_mode: BlockMode::Independent,
            content_checksum_flag: ContentChecksum::NoChecksum,
            frame_type: FrameType::Frame,
            content_size: 0,
            dict_id: 0,
            block_checksum_flag: BlockChecksum::NoBlockChecksum,
        },
        compression_level,
        auto_flush: 1,
        favor_dec_speed: 0,
        reserved: [0; 3],
    };
    with_context(&ENCODER, Lz4Encoder::new, |encoder| encoder.frame(&preferences, data, out))
        .unwrap_or_else(|| Err("no memory for a context".to_owned()))
}
