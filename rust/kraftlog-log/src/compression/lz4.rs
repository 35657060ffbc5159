//! The LZ4 frame format through the C library's LZ4F, with one context a thread for each direction.
//!
//! Trailing bytes after the end mark are ignored, as Kafka's `Lz4BlockInputStream` does.
#![allow(unsafe_code)]
use super::{with_context, Failure};
use lz4_sys::{
    BlockChecksum, BlockMode, BlockSize, ContentChecksum, FrameType, LZ4FCompressionContext,
    LZ4FDecompressOptions, LZ4FDecompressionContext, LZ4FFrameInfo, LZ4FPreferences, LZ4F_VERSION,
};
use std::cell::RefCell;
use std::ffi::CStr;
use std::ptr;

const MAGIC: [u8; 4] = [0x04, 0x22, 0x4d, 0x18];
/// Kafka's level 9 means the fast compressor (`Lz4BlockOutputStream`), any other the high compression one.
const KAFKA_DEFAULT_LEVEL: i32 = 9;
const HIGH_COMPRESSION_MIN: u32 = 2;
/// Each byte of a compressed block stands for at most this many.
const RATIO_MAX: usize = 255;

thread_local! {
    static DECODER: RefCell<Option<Decoder>> = const { RefCell::new(None) };
    static ENCODER: RefCell<Option<Encoder>> = const { RefCell::new(None) };
}

struct Decoder(LZ4FDecompressionContext);

impl Decoder {
    fn new() -> Option<Self> {
        let mut context = LZ4FDecompressionContext(ptr::null_mut());
        // SAFETY: `context` outlives the call, which fills it or returns an error code.
        let code = unsafe { lz4_sys::LZ4F_createDecompressionContext(&mut context, LZ4F_VERSION) };
        check(code).ok().map(|_| Self(context))
    }

    /// Decodes one frame of `data` into the spare capacity of `out`, which is not moved meanwhile.
    /// True when the frame ended, false when the space did.
    fn frame(&mut self, data: &[u8], out: &mut Vec<u8>) -> Result<bool, String> {
        // SAFETY: the context came from LZ4F_createDecompressionContext.
        unsafe { lz4_sys::LZ4F_resetDecompressionContext(self.0) };
        let options = LZ4FDecompressOptions { stable_dst: 1, reserved: [0; 3] };
        let mut taken = 0;
        loop {
            let input = data.get(taken..).unwrap_or_default();
            let space = out.spare_capacity_mut();
            let (mut input_size, mut space_size) = (input.len(), space.len());
            let start = space.as_mut_ptr().cast::<u8>();
            // SAFETY: both pointers are valid for the sizes given with them; LZ4F writes at most
            // `space_size` bytes and sets it to what it wrote. The output stays in place for the
            // whole frame, since nothing here grows `out`, which is what stable_dst promises.
            let hint = unsafe {
                lz4_sys::LZ4F_decompress(
                    self.0,
                    start,
                    &mut space_size,
                    input.as_ptr(),
                    &mut input_size,
                    &options,
                )
            };
            let hint = check(hint)?;
            // SAFETY: LZ4F initialised `space_size` bytes of the spare capacity.
            unsafe { out.set_len(out.len() + space_size) };
            taken += input_size;
            if hint == 0 {
                return Ok(true);
            }
            if out.len() == out.capacity() {
                return Ok(false);
            }
            if input_size == 0 && space_size == 0 {
                return Err("the frame ends before its end mark".to_owned());
            }
        }
    }
}

impl Drop for Decoder {
    fn drop(&mut self) {
        // SAFETY: the context came from LZ4F_createDecompressionContext and is freed once.
        unsafe { lz4_sys::LZ4F_freeDecompressionContext(self.0) };
    }
}

struct Encoder(LZ4FCompressionContext);

impl Encoder {
    fn new() -> Option<Self> {
        let mut context = LZ4FCompressionContext(ptr::null_mut());
        // SAFETY: `context` outlives the call, which fills it or returns an error code.
        let code = unsafe { lz4_sys::LZ4F_createCompressionContext(&mut context, LZ4F_VERSION) };
        check(code).ok().map(|_| Self(context))
    }

    /// Appends one frame holding `data` to `out`.
    fn frame(&mut self, preferences: &LZ4FPreferences, data: &[u8], out: &mut Vec<u8>) -> Result<(), String> {
        const FRAME_OVERHEAD: usize = 64;
        // SAFETY: `preferences` is only read.
        let bound = unsafe { lz4_sys::LZ4F_compressBound(data.len(), preferences) };
        out.reserve(bound.saturating_add(FRAME_OVERHEAD));
        self.step(out, |context, target, space| {
            // SAFETY: `target` is valid for `space` bytes.
            unsafe { lz4_sys::LZ4F_compressBegin(context, target, space, preferences) }
        })?;
        self.step(out, |context, target, space| {
            // SAFETY: `target` is valid for `space` bytes and `data` for its length; null options are allowed.
            unsafe {
                lz4_sys::LZ4F_compressUpdate(context, target, space, data.as_ptr(), data.len(), ptr::null())
            }
        })?;
        self.step(out, |context, target, space| {
            // SAFETY: `target` is valid for `space` bytes; null options are allowed.
            unsafe { lz4_sys::LZ4F_compressEnd(context, target, space, ptr::null()) }
        })
    }

    fn step(
        &mut self,
        out: &mut Vec<u8>,
        call: impl FnOnce(LZ4FCompressionContext, *mut u8, usize) -> usize,
    ) -> Result<(), String> {
        let space = out.spare_capacity_mut();
        let written = check(call(self.0, space.as_mut_ptr().cast::<u8>(), space.len()))?;
        // SAFETY: LZ4F initialised `written` bytes of the spare capacity it was given.
        unsafe { out.set_len(out.len() + written) };
        Ok(())
    }
}

impl Drop for Encoder {
    fn drop(&mut self) {
        // SAFETY: the context came from LZ4F_createCompressionContext and is freed once.
        unsafe { lz4_sys::LZ4F_freeCompressionContext(self.0) };
    }
}

/// The result of an LZ4F call, or the name of its error.
fn check(code: usize) -> Result<usize, String> {
    // SAFETY: a pure function of its argument.
    if unsafe { lz4_sys::LZ4F_isError(code) } == 0 {
        return Ok(code);
    }
    // SAFETY: LZ4F_getErrorName returns a static string that ends in zero for any code.
    let name = unsafe { CStr::from_ptr(lz4_sys::LZ4F_getErrorName(code)) };
    Err(name.to_string_lossy().into_owned())
}

pub(super) fn decompress(data: &[u8], limit: usize, out: &mut Vec<u8>) -> Result<(), Failure> {
    let most =
        output_size_max(data).ok_or_else(|| Failure::malformed("the frame is damaged or cut short"))?;
    // One byte more than the output, so that a full buffer always means an output over the bound.
    out.reserve(most.min(limit).saturating_add(1));
    let ended = with_context(&DECODER, Decoder::new, |decoder| decoder.frame(data, out));
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
    with_context(&ENCODER, Encoder::new, |encoder| encoder.frame(&preferences, data, out))
        .unwrap_or_else(|| Err("no memory for a context".to_owned()))
}
