//! The codecs of record batches, each decompressing within a stated bound.
//!
//! Framing is what Kafka's Java client reads and writes: gzip with any number of members, snappy in
//! blocks of 32 KiB behind the xerial header (or raw, as other clients write it), the LZ4 frame
//! format, and zstd frames.
use std::cell::RefCell;

mod gzip;
mod lz4;
mod snappy;
mod zstd;

pub(crate) use lz4::header_checksum as lz4_header_checksum;

/// A compression type, with the id that batch attributes hold.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum Codec {
    /// Records as they are.
    #[default]
    None = 0,
    /// RFC 1952.
    Gzip = 1,
    /// Snappy blocks, framed or raw.
    Snappy = 2,
    /// LZ4 frame format.
    Lz4 = 3,
    /// RFC 8878.
    Zstd = 4,
}

impl Codec {
    /// All codecs, by id.
    pub const ALL: [Self; 5] = [Self::None, Self::Gzip, Self::Snappy, Self::Lz4, Self::Zstd];

    /// The codec with an id of the attributes.
    #[inline]
    pub const fn from_id(id: u8) -> Option<Self> {
        match id {
            0 => Some(Self::None),
            1 => Some(Self::Gzip),
            2 => Some(Self::Snappy),
            3 => Some(Self::Lz4),
            4 => Some(Self::Zstd),
            _ => None,
        }
    }

    /// The codec with a name of `compression.type`.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|codec| codec.name() == name)
    }

    /// The name that `compression.type` has.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::Gzip => "gzip",
            Self::Snappy => "snappy",
            Self::Lz4 => "lz4",
            Self::Zstd => "zstd",
        }
    }

    /// Kafka's default of `compression.<codec>.level`; None for codecs without levels.
    pub const fn default_level(self) -> Option<i32> {
        match self {
            Self::Gzip => Some(-1),
            Self::Lz4 => Some(9),
            Self::Zstd => Some(3),
            Self::None | Self::Snappy => None,
        }
    }

    /// Smallest and largest level, both inclusive; gzip also takes -1. None for codecs without levels.
    pub const fn level_range(self) -> Option<(i32, i32)> {
        match self {
            Self::Gzip => Some((1, 9)),
            Self::Lz4 => Some((1, 17)),
            Self::Zstd => Some((-131_072, 22)),
            Self::None | Self::Snappy => None,
        }
    }
}

/// Why bytes cannot be compressed or decompressed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum CodecError {
    /// Not what the codec writes, or cut short.
    #[error("{} does not decompress: {reason}", codec.name())]
    Malformed {
        /// The codec asked for.
        codec: Codec,
        /// What its library or framing says.
        reason: String,
    },
    /// More output than the [`Bound`] allows.
    #[error("{} of {compressed} bytes decompresses to more than the bound of {limit} bytes", codec.name())]
    OverBound {
        /// The codec asked for.
        codec: Codec,
        /// Bytes of input.
        compressed: usize,
        /// The bound for that input.
        limit: usize,
    },
    /// A level that the codec does not have.
    #[error("{} has no compression level {level}", codec.name())]
    Level {
        /// The codec asked for.
        codec: Codec,
        /// The level asked for.
        level: i32,
    },
}

impl CodecError {
    #[cold]
    fn malformed(codec: Codec, reason: impl Into<String>) -> Self {
        Self::Malformed { codec, reason: reason.into() }
    }
}

/// How far a compressed block may grow: to `max_ratio` times its size, but always to `floor_bytes`, and
/// never beyond `max_bytes`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Bound {
    /// Largest output of any input, in bytes.
    pub max_bytes: usize,
    /// Largest output for each byte of input.
    pub max_ratio: usize,
    /// Output that is allowed whatever the ratio, in bytes: a batch of equal records compresses well.
    pub floor_bytes: usize,
}

impl Bound {
    /// The default: 1 GiB, 1024 times the input, 64 MiB at any ratio. Deflate cannot pass 1032, LZ4 not 255 and
    /// snappy not 22; a zstd batch that does holds tens of MiB of one repeated byte.
    pub const DEFAULT: Self = Self { max_bytes: 1 << 30, max_ratio: 1024, floor_bytes: 64 << 20 };

    /// A bound on the size alone.
    pub const fn of_bytes(max_bytes: usize) -> Self {
        Self { max_bytes, max_ratio: usize::MAX, floor_bytes: 0 }
    }

    /// Largest output for `compressed` bytes of input.
    pub fn limit(&self, compressed: usize) -> usize {
        compressed.saturating_mul(self.max_ratio).max(self.floor_bytes).min(self.max_bytes)
    }
}

impl Default for Bound {
    fn default() -> Self {
        Self::DEFAULT
    }
}

/// Decompresses `data` into `out`, whose content is replaced and whose capacity is kept for the next call.
///
/// # Errors
/// [`CodecError::Malformed`] or [`CodecError::OverBound`]; `out` then holds nothing of use.
pub fn decompress(codec: Codec, data: &[u8], bound: Bound, out: &mut Vec<u8>) -> Result<(), CodecError> {
    out.clear();
    let limit = bound.limit(data.len());
    match codec {
        Codec::None if data.len() > limit => Err(Failure::OverBound),
        Codec::None => {
            out.extend_from_slice(data);
            Ok(())
        }
        Codec::Gzip => gzip::decompress(data, limit, out),
        Codec::Snappy => snappy::decompress(data, limit, out),
        Codec::Lz4 => lz4::decompress(data, limit, out),
        Codec::Zstd => zstd::decompress(data, limit, out),
    }
    .map_err(|failure| match failure {
        Failure::OverBound => CodecError::OverBound { codec, compressed: data.len(), limit },
        Failure::Malformed(reason) => CodecError::malformed(codec, reason),
    })
}

/// Why Kafka's Java client refuses compressed bytes that [`decompress`] reads; None if it does not. A leader appends
/// no such batch, since no Java consumer would get past it.
pub fn kafka_refusal(codec: Codec, data: &[u8]) -> Option<&'static str> {
    match codec {
        Codec::Lz4 => lz4::kafka_refusal(data),
        Codec::None | Codec::Gzip | Codec::Snappy | Codec::Zstd => None,
    }
}

/// Compresses `data` and appends it to `out`. `level` None is Kafka's default; snappy and none have no levels.
///
/// # Errors
/// [`CodecError::Level`] for a level out of range.
pub fn compress(codec: Codec, level: Option<i32>, data: &[u8], out: &mut Vec<u8>) -> Result<(), CodecError> {
    let level = check_level(codec, level)?;
    match codec {
        Codec::None => {
            out.extend_from_slice(data);
            Ok(())
        }
        Codec::Gzip => gzip::compress(level, data, out),
        Codec::Snappy => snappy::compress(data, out),
        Codec::Lz4 => lz4::compress(level, data, out),
        Codec::Zstd => zstd::compress(level, data, out),
    }
    .map_err(|reason| CodecError::malformed(codec, reason))
}

/// The level to use, after checking it against the codec's range.
///
/// # Errors
/// [`CodecError::Level`] for a level out of range.
pub fn check_level(codec: Codec, level: Option<i32>) -> Result<i32, CodecError> {
    let default = codec.default_level().unwrap_or(0);
    match (level, codec.level_range()) {
        (None, _) | (_, None) => Ok(default),
        (Some(level), Some((low, high))) if level == default || (low..=high).contains(&level) => Ok(level),
        (Some(level), _) => Err(CodecError::Level { codec, level }),
    }
}

/// How a codec's decompressor ends when it does not succeed.
enum Failure {
    OverBound,
    Malformed(String),
}

impl Failure {
    #[cold]
    fn malformed(reason: impl Into<String>) -> Self {
        Self::Malformed(reason.into())
    }
}

/// Runs `work` with this thread's reused context, made by `create` the first time.
fn with_context<C, R>(
    cell: &'static std::thread::LocalKey<RefCell<Option<C>>>,
    create: impl FnOnce() -> Option<C>,
    work: impl FnOnce(&mut C) -> R,
) -> Option<R> {
    cell.with(|slot| {
        let mut slot = slot.borrow_mut();
        if slot.is_none() {
            *slot = create();
        }
        slot.as_mut().map(work)
    })
}

#[cfg(test)]
mod tests;
