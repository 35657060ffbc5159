//! The LZ4 frame format of the C library: LZ4F, with its contexts.
use lz4_sys::{
    LZ4FCompressionContext, LZ4FDecompressOptions, LZ4FDecompressionContext, LZ4FPreferences, LZ4F_VERSION,
};
use std::ffi::CStr;
use std::ptr;

/// A decompression context of LZ4F.
pub(crate) struct Lz4Decoder(LZ4FDecompressionContext);

impl Lz4Decoder {
    /// None when there is no memory for it.
    pub(crate) fn new() -> Option<Self> {
        let mut context = LZ4FDecompressionContext(ptr::null_mut());
        // SAFETY: `context` outlives the call, which fills it or returns an error code.
        let code = unsafe { lz4_sys::LZ4F_createDecompressionContext(&mut context, LZ4F_VERSION) };
        check(code).ok().map(|_| Self(context))
    }

    /// Decodes one frame, header and blocks, into the spare capacity of `out`, which is not
    /// moved meanwhile. True when the frame ended, false when the space did.
    pub(crate) fn frame(&mut self, head: &[u8], body: &[u8], out: &mut Vec<u8>) -> Result<bool, String> {
        // SAFETY: the context came from LZ4F_createDecompressionContext.
        unsafe { lz4_sys::LZ4F_resetDecompressionContext(self.0) };
        let options = LZ4FDecompressOptions { stable_dst: 1, reserved: [0; 3] };
        let mut taken = 0;
        loop {
            let rest_of_head = head.get(taken..).filter(|rest| !rest.is_empty());
            let input = rest_of_head.or_else(|| body.get(taken - head.len()..)).unwrap_or_default();
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

impl Drop for Lz4Decoder {
    fn drop(&mut self) {
        // SAFETY: the context came from LZ4F_createDecompressionContext and is freed once.
        unsafe { lz4_sys::LZ4F_freeDecompressionContext(self.0) };
    }
}

/// A compression context of LZ4F.
pub(crate) struct Lz4Encoder(LZ4FCompressionContext);

impl Lz4Encoder {
    /// None when there is no memory for it.
    pub(crate) fn new() -> Option<Self> {
        let mut context = LZ4FCompressionContext(ptr::null_mut());
        // SAFETY: `context` outlives the call, which fills it or returns an error code.
        let code = unsafe { lz4_sys::LZ4F_createCompressionContext(&mut context, LZ4F_VERSION) };
        check(code).ok().map(|_| Self(context))
    }

    /// Appends one frame holding `data` to `out`.
    pub(crate) fn frame(
        &mut self,
        preferences: &LZ4FPreferences,
        data: &[u8],
        out: &mut Vec<u8>,
    ) -> Result<(), String> {
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

impl Drop for Lz4Encoder {
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
