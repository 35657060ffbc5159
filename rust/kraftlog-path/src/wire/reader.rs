//! Reads the flexible encoding from a borrowed frame.
use std::ops::Range;

use super::{NotPlain, Parsed, Topic};

/// Unknown tagged fields of one request, and bytes in them: the bounds of the Python decoder.
const UNKNOWN_TAG_COUNT_MAX: usize = 128;
const UNKNOWN_TAG_BYTES_MAX: usize = 64 * 1024;
/// Array elements of one request. A larger one is not plain, so that it cannot hold an I/O thread; Python answers it in
/// slices.
const ELEMENT_COUNT_MAX: usize = 16 * 1024;
/// Kafka refuses longer strings.
const TEXT_BYTES_MAX: usize = 0x7fff;

/// A position in a frame.
#[derive(Clone, Debug)]
pub struct Reader<'a> {
    frame: &'a [u8],
    position: usize,
    elements_left: usize,
    unknown_tags_left: usize,
    unknown_bytes_left: usize,
}

macro_rules! integer {
    ($name:ident, $type:ty) => {
        #[doc = concat!("A big-endian ", stringify!($type), ".")]
        ///
        /// # Errors
        /// The frame ends before.
        #[inline]
        pub fn $name(&mut self) -> Parsed<$type> {
            Ok(<$type>::from_be_bytes(*self.array()?))
        }
    };
}

impl<'a> Reader<'a> {
    /// Read `frame` from its start.
    pub fn new(frame: &'a [u8]) -> Self {
        Self {
            frame,
            position: 0,
            elements_left: ELEMENT_COUNT_MAX,
            unknown_tags_left: UNKNOWN_TAG_COUNT_MAX,
            unknown_bytes_left: UNKNOWN_TAG_BYTES_MAX,
        }
    }

    /// Bytes read so far.
    pub fn position(&self) -> usize {
        self.position
    }

    fn remaining(&self) -> usize {
        self.frame.len().saturating_sub(self.position)
    }

    #[inline]
    fn array<const N: usize>(&mut self) -> Parsed<&'a [u8; N]> {
        let found = self.frame.get(self.position..).and_then(<[u8]>::first_chunk);
        self.position += N;
        found.ok_or(NotPlain::Malformed)
    }

    #[inline]
    fn take(&mut self, count: usize) -> Parsed<&'a [u8]> {
        let found = self.frame.get(self.position..).and_then(|rest| rest.get(..count));
        let found = found.ok_or(NotPlain::Malformed)?;
        self.position += count;
        Ok(found)
    }

    /// Pass over `count` bytes.
    ///
    /// # Errors
    /// The frame ends before.
    #[inline]
    pub fn skip(&mut self, count: usize) -> Parsed<()> {
        self.take(count).map(drop)
    }

    integer!(int8, i8);
    integer!(int16, i16);
    integer!(int32, i32);
    integer!(int64, i64);

    /// An unsigned varint below 2^31, of at most 5 bytes.
    ///
    /// # Errors
    /// The frame ends before, the varint is longer, or Java would read it as a negative number.
    #[inline]
    pub fn uvarint(&mut self) -> Parsed<usize> {
        let [first] = *self.array()?;
        if first < 0x80 {
            return Ok(usize::from(first));
        }
        let mut value = u32::from(first & 0x7f);
        for shift in [7, 14, 21, 28] {
            let [byte] = *self.array()?;
            value |= u32::from(byte & 0x7f) << shift;
            if byte < 0x80 {
                return i32::try_from(value)
                    .ok()
                    .and_then(|value| usize::try_from(value).ok())
                    .ok_or(NotPlain::Malformed);
            }
        }
        Err(NotPlain::Malformed)
    }

    /// Elements of an array that is not null, each of at least `element_bytes_min` bytes.
    ///
    /// # Errors
    /// The array is null, the rest of the frame cannot hold so many, or the request has too many elements.
    #[inline]
    pub fn count(&mut self, element_bytes_min: usize) -> Parsed<usize> {
        let count = self.uvarint()?.checked_sub(1).ok_or(NotPlain::Malformed)?;
        if count > self.remaining() / element_bytes_min.max(1) {
            return Err(NotPlain::Malformed);
        }
        self.elements_left = self.elements_left.checked_sub(count).ok_or(NotPlain::TooLarge)?;
        Ok(count)
    }

    /// A string, or `None` for null.
    ///
    /// # Errors
    /// It is too long, the frame ends before, or it is not UTF-8: Java replaces the malformed parts, as Python does.
    #[inline]
    pub fn nullable_text(&mut self) -> Parsed<Option<&'a str>> {
        let Some(length) = self.uvarint()?.checked_sub(1) else { return Ok(None) };
        if length > TEXT_BYTES_MAX {
            return Err(NotPlain::Malformed);
        }
        let text = std::str::from_utf8(self.take(length)?);
        text.map(Some).map_err(|_| NotPlain::Malformed)
    }

    /// The topic of an entry: its id if the version has one, otherwise its name.
    ///
    /// # Errors
    /// As [`Self::nullable_text`]; the name is null.
    #[inline]
    pub fn topic(&mut self, has_topic_ids: bool) -> Parsed<Topic<'a>> {
        if has_topic_ids {
            return Ok(Topic::Id(self.array()?));
        }
        self.nullable_text()?.map(Topic::Name).ok_or(NotPlain::Malformed)
    }

    /// Where the records of an entry lie in the frame, or `None` for null.
    ///
    /// # Errors
    /// The frame ends before they do.
    #[inline]
    pub fn records(&mut self) -> Parsed<Option<Range<usize>>> {
        let Some(length) = self.uvarint()?.checked_sub(1) else { return Ok(None) };
        let start = self.position;
        self.skip(length)?;
        Ok(Some(start..self.position))
    }

    /// Tagged fields where the schema has none: skipped.
    ///
    /// # Errors
    /// They are more or larger than one request may have, or the frame ends before.
    #[inline]
    pub fn unknown_tags(&mut self) -> Parsed<()> {
        self.tags(0)
    }

    /// Tagged fields where the schema has those below `known_end`: only others are skipped.
    ///
    /// # Errors
    /// [`NotPlain::Tagged`] for a field that the schema has; as [`Self::unknown_tags`].
    #[inline]
    pub fn tags(&mut self, known_end: usize) -> Parsed<()> {
        match self.uvarint()? {
            0 => Ok(()),
            count => self.skip_tags(count, known_end),
        }
    }

    /// Tagged fields where the schema has those below `known_end`: `read` gets number and bytes of each of these.
    ///
    /// # Errors
    /// As [`Self::unknown_tags`]; a field that the schema has comes twice or out of order; or `read` said so.
    #[inline]
    pub fn known_tags(
        &mut self,
        known_end: usize,
        mut read: impl FnMut(usize, &'a [u8]) -> Parsed<()>,
    ) -> Parsed<()> {
        let mut next_known = 0;
        for _ in 0..self.uvarint()? {
            let tag = self.uvarint()?;
            let size = self.uvarint()?;
            if tag < known_end {
                if tag < next_known {
                    return Err(NotPlain::Malformed);
                }
                next_known = tag + 1;
                read(tag, self.take(size)?)?;
            } else {
                self.skip_unknown(size)?;
            }
        }
        Ok(())
    }

    fn skip_unknown(&mut self, size: usize) -> Parsed<()> {
        self.unknown_tags_left = self.unknown_tags_left.checked_sub(1).ok_or(NotPlain::Malformed)?;
        self.unknown_bytes_left = self.unknown_bytes_left.checked_sub(size).ok_or(NotPlain::Malformed)?;
        self.skip(size)
    }

    #[cold]
    fn skip_tags(&mut self, count: usize, known_end: usize) -> Parsed<()> {
        for _ in 0..count {
            let tag = self.uvarint()?;
            if tag < known_end {
                return Err(NotPlain::Tagged);
            }
            let size = self.uvarint()?;
            self.skip_unknown(size)?;
        }
        Ok(())
    }
}
