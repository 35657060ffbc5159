//! Produce 9 to 13 and Fetch 12 to 18 on the wire: parsed in place from a borrowed frame, encoded into one buffer.
//! OffsetCommit 8 to 10, which Python decides about, is read and written here as well.
//!
//! A parser reports what it reads to a closure or visitor and allocates nothing; records stay a range of the frame. Each
//! count and length is compared with the bytes that are left. A frame that does not parse, or that has something these
//! modules do not read, is [`NotPlain`]: Python decodes it, and names the error if there is one.
use std::ops::Range;

pub mod fetch;
pub mod offset_commit;
pub mod produce;
mod reader;
mod writer;

pub use reader::Reader;
pub use writer::Writer;

pub use crate::exchange::{FETCH as FETCH_KEY, PRODUCE as PRODUCE_KEY};

/// The data path does not answer this frame; Python does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotPlain {
    /// The bytes do not decode.
    Malformed,
    /// More array elements than one turn of a thread should look at.
    TooLarge,
    /// Another API or version.
    NotServed,
    /// A tagged field that only a follower, a controller or a newer client sends.
    Tagged,
    /// The visitor does not want the request.
    Refused,
}

/// Result with [`NotPlain`].
pub type Parsed<T> = Result<T, NotPlain>;

/// A topic as a request names it: by name up to Produce 12 and Fetch 12, by id from then on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Topic<'a> {
    /// Its name.
    Name(&'a str),
    /// Its id.
    Id(&'a [u8; 16]),
}

/// The header of a request, version 2.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RequestHeader {
    /// Which API.
    pub api_key: i16,
    /// Which version of it.
    pub api_version: i16,
    /// Repeated in the answer.
    pub correlation_id: i32,
}

impl RequestHeader {
    /// API key and version of a frame: enough to tell whether the data path reads any further.
    pub fn peek(frame: &[u8]) -> Option<(i16, i16)> {
        let [k0, k1, v0, v1] = *frame.first_chunk()?;
        Some((i16::from_be_bytes([k0, k1]), i16::from_be_bytes([v0, v1])))
    }

    /// Read the header of a flexible version; the client id is skipped.
    fn parse(reader: &mut Reader<'_>) -> Parsed<Self> {
        let header =
            Self { api_key: reader.int16()?, api_version: reader.int16()?, correlation_id: reader.int32()? };
        // The client id keeps its old encoding, two bytes of length, in every version of the header.
        if let Ok(length) = usize::try_from(reader.int16()?) {
            reader.skip(length)?;
        }
        reader.unknown_tags()?;
        Ok(header)
    }
}

/// Where records lie in a frame; `None` when the request has null.
pub type Records = Option<Range<usize>>;
