//! The LZ4 frame format through the C library's LZ4F, with one context a thread for each direction.
//!
//! Content size, content checksum and bytes behind the end mark are ignored, as in Kafka's `Lz4BlockInputStream`; a
//! content checksum must be there all the same. Linked blocks are read here though Kafka refuses them: files may hold
//! them, and [`kafka_refusal`] keeps them out of new batches.
use super::{with_context, Failure};
use crate::raw::{Lz4Decoder, Lz4Encoder};
use lz4_sys::{
    BlockChecksum, BlockMode, BlockSize, ContentChecksum, FrameType, LZ4FFrameInfo, LZ4FPreferences,
};
use std::borrow::Cow;
use std::cell::RefCell;

const MAGIC: [u8; 4] = [0x04, 0x22, 0x4d, 0x18];
/// Bits of the flags of a frame header.
const INDEPENDENT_BLOCKS: u8 = 0x20;
const BLOCK_CHECKSUM: u8 = 0x10;
const CONTENT_SIZE: u8 = 0x08;
const CONTENT_CHECKSUM: u8 = 0x04;
const DICTIONARY_ID: u8 = 0x01;
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
    let (header, blocks) = FrameHeader::read(data).ok_or_else(cut_short)?;
    let most = header.output_size_max(blocks).ok_or_else(cut_short)?;
    let header = header.without_ignored_fields()?;
    // One byte more than the output, so that a full buffer always means an output over the bound.
    out.reserve(most.min(limit).saturating_add(1));
    let ended = with_context(&DECODER, Lz4Decoder::new, |decoder| decoder.frame(&header, blocks, out));
    match ended {
        Some(Ok(_)) if out.len() > limit => Err(Failure::OverBound),
        Some(Ok(true)) => Ok(()),
        Some(Ok(false)) => Err(Failure::OverBound),
        Some(Err(reason)) => Err(Failure::malformed(reason)),
        None => Err(Failure::malformed("no memory for a context")),
    }
}

#[cold]
fn cut_short() -> Failure {
    Failure::malformed("the frame is damaged or cut short")
}

/// Why Kafka's reader (`Lz4BlockInputStream.FLG.validate`) refuses a frame that liblz4 reads; None if it does not.
pub(super) fn kafka_refusal(data: &[u8]) -> Option<&'static str> {
    let (header, _) = FrameHeader::read(data)?;
    if header.flags() & INDEPENDENT_BLOCKS == 0 {
        Some("the LZ4 frame has linked blocks; the producer must write independent blocks")
    } else if header.flags() & DICTIONARY_ID != 0 {
        Some("the LZ4 frame names a dictionary")
    } else {
        None
    }
}

/// The header of a frame: magic, flags, block descriptor, content size and dictionary id if there are such, checksum.
struct FrameHeader<'a>(&'a [u8]);

impl<'a> FrameHeader<'a> {
    /// The header at the beginning of `data`, with what follows it; None if `data` is too short or no frame.
    fn read(data: &'a [u8]) -> Option<(Self, &'a [u8])> {
        let flags = *data.strip_prefix(&MAGIC)?.first()?;
        let content_size = if flags & CONTENT_SIZE != 0 { 8 } else { 0 };
        let dictionary_id = if flags & DICTIONARY_ID != 0 { 4 } else { 0 };
        let (header, blocks) = data.split_at_checked(MAGIC.len() + 3 + content_size + dictionary_id)?;
        Some((Self(header), blocks))
    }

    fn flags(&self) -> u8 {
        self.0.get(MAGIC.len()).copied().unwrap_or_default()
    }

    fn block_descriptor(&self) -> u8 {
        self.0.get(MAGIC.len() + 1).copied().unwrap_or_default()
    }

    /// The same header without content size and content checksum, which Kafka's reader ignores and liblz4 compares.
    fn without_ignored_fields(&self) -> Result<Cow<'a, [u8]>, Failure> {
        if self.flags() & (CONTENT_SIZE | CONTENT_CHECKSUM) == 0 {
            return Ok(Cow::Borrowed(self.0));
        }
        let (&checksum, descriptor) =
            self.0.get(MAGIC.len()..).and_then(<[u8]>::split_last).ok_or_else(cut_short)?;
        if checksum != header_checksum(descriptor) {
            return Err(Failure::malformed("the checksum of the frame header differs"));
        }
        let fields_at = if self.flags() & CONTENT_SIZE != 0 { 10 } else { 2 };
        let mut kept = vec![self.flags() & !(CONTENT_SIZE | CONTENT_CHECKSUM), self.block_descriptor()];
        kept.extend_from_slice(descriptor.get(fields_at..).unwrap_or_default());
        kept.push(header_checksum(&kept));
        Ok(Cow::Owned([&MAGIC[..], &kept].concat()))
    }

    /// The most that the frame can decompress to, from its block headers; None if it is cut short.
    fn output_size_max(&self, blocks: &[u8]) -> Option<usize> {
        let block_checksum = if self.flags() & BLOCK_CHECKSUM != 0 { 4 } else { 0 };
        let content_checksum = if self.flags() & CONTENT_CHECKSUM != 0 { 4 } else { 0 };
        let block_size_max = 1usize << (8 + 2 * u32::from((self.block_descriptor() >> 4) & 7));
        let mut rest = blocks;
        let mut total = 0usize;
        loop {
            let (size, after) = rest.split_first_chunk::<4>()?;
            let size = u32::from_le_bytes(*size);
            if size == 0 {
                return (after.len() >= content_checksum).then_some(total);
            }
            let stored = (size & 0x7fff_ffff) as usize;
            let is_compressed = size >> 31 == 0;
            let most =
                if is_compressed { stored.saturating_mul(RATIO_MAX).min(block_size_max) } else { stored };
            total = total.saturating_add(most);
            rest = after.get(stored.saturating_add(block_checksum)..)?;
        }
    }
}

/// The checksum of a frame header over what lies between magic and checksum, at most 14 bytes.
pub(crate) fn header_checksum(descriptor: &[u8]) -> u8 {
    (xxh32_short(descriptor) >> 8) as u8
}

/// XXH32 with seed 0 of fewer than 16 bytes.
fn xxh32_short(data: &[u8]) -> u32 {
    const PRIME: [u32; 5] = [0x9e37_79b1, 0x85eb_ca77, 0xc2b2_ae3d, 0x27d4_eb2f, 0x1656_67b1];
    let [prime1, prime2, prime3, prime4, prime5] = PRIME;
    let mut hash = prime5.wrapping_add(data.len() as u32);
    let mut lanes = data.chunks_exact(4);
    for lane in &mut lanes {
        let lane = lane.first_chunk().map_or(0, |lane| u32::from_le_bytes(*lane));
        hash = hash.wrapping_add(lane.wrapping_mul(prime3)).rotate_left(17).wrapping_mul(prime4);
    }
    for &byte in lanes.remainder() {
        hash = hash.wrapping_add(u32::from(byte).wrapping_mul(prime5)).rotate_left(11).wrapping_mul(prime1);
    }
    hash = (hash ^ hash >> 15).wrapping_mul(prime2);
    hash = (hash ^ hash >> 13).wrapping_mul(prime3);
    hash ^ hash >> 16
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn xxh32_of_known_inputs() {
        // XXH32 test values: empty, "a", "abc".
        assert_eq!(xxh32_short(b""), 0x02cc_5d05);
        assert_eq!(xxh32_short(b"a"), 0x550d_7456);
        assert_eq!(xxh32_short(b"abc"), 0x32d1_53ff);
    }
}
