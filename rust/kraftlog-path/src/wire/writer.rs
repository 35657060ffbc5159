//! Writes an answer: its size, its header, its fields, with files between the bytes.
use kraftlog_log::log::FileSlice;

use crate::exchange::Output;

use super::Topic;

/// An answer while it is written.
#[derive(Debug, Default)]
pub struct Writer {
    bytes: Vec<u8>,
    /// Pieces before `bytes`.
    outputs: Vec<Output>,
    /// Bytes in `outputs`.
    size_before: u64,
}

impl Writer {
    /// Begin a frame in the flexible encoding, with room for `capacity` bytes; the size is filled in by
    /// [`Self::finish`].
    pub fn begin(correlation_id: i32, capacity: usize) -> Self {
        let mut writer = Self { bytes: Vec::with_capacity(capacity), outputs: Vec::new(), size_before: 0 };
        writer.int32(0);
        writer.int32(correlation_id);
        writer.no_tags();
        writer
    }

    /// An int8.
    pub fn int8(&mut self, value: i8) {
        self.bytes.extend_from_slice(&value.to_be_bytes());
    }

    /// An int16.
    pub fn int16(&mut self, value: i16) {
        self.bytes.extend_from_slice(&value.to_be_bytes());
    }

    /// An int32.
    pub fn int32(&mut self, value: i32) {
        self.bytes.extend_from_slice(&value.to_be_bytes());
    }

    /// An int64.
    pub fn int64(&mut self, value: i64) {
        self.bytes.extend_from_slice(&value.to_be_bytes());
    }

    /// An unsigned varint.
    pub fn uvarint(&mut self, mut value: u32) {
        while value >= 0x80 {
            self.bytes.push((value as u8) | 0x80);
            value >>= 7;
        }
        self.bytes.push(value as u8);
    }

    /// The count of an array that is not null.
    pub fn count(&mut self, count: usize) {
        self.uvarint(u32::try_from(count).unwrap_or(u32::MAX - 1) + 1);
    }

    /// A null array, string or byte field.
    pub fn null(&mut self) {
        self.bytes.push(0);
    }

    /// A string; what does not fit a string of the protocol is cut at a character.
    pub fn text(&mut self, text: &str) {
        let mut end = text.len().min(0x7fff);
        while !text.is_char_boundary(end) {
            end -= 1;
        }
        let text = text.get(..end).unwrap_or_default();
        self.count(text.len());
        self.bytes.extend_from_slice(text.as_bytes());
    }

    /// A topic by name or id.
    pub fn topic(&mut self, topic: Topic<'_>) {
        match topic {
            Topic::Name(name) => self.text(name),
            Topic::Id(id) => self.bytes.extend_from_slice(id),
        }
    }

    /// No tagged field.
    pub fn no_tags(&mut self) {
        self.bytes.push(0);
    }

    /// A tagged field that `write` fills; its count of fields precedes the first one, [`Self::uvarint`].
    pub fn tagged(&mut self, tag: u32, write: impl FnOnce(&mut Self)) {
        let mut field = Self::default();
        write(&mut field);
        self.uvarint(tag);
        self.uvarint(u32::try_from(field.bytes.len()).unwrap_or(u32::MAX));
        self.bytes.extend_from_slice(&field.bytes);
    }

    /// Records, sent from a file if there are any.
    pub fn records(&mut self, records: Option<FileSlice>) {
        match records {
            Some(records) if records.size_bytes() > 0 => {
                let size_bytes = records.size_bytes();
                self.count(usize::try_from(size_bytes).unwrap_or(usize::MAX));
                let bytes = std::mem::take(&mut self.bytes);
                self.size_before += bytes.len() as u64 + size_bytes;
                self.outputs.push(Output::Bytes(bytes));
                self.outputs.push(Output::File(records));
            }
            _ => self.count(0),
        }
    }

    /// The whole answer, its size filled in.
    pub fn finish(mut self) -> Vec<Output> {
        let size = (self.size_before + self.bytes.len() as u64).saturating_sub(4);
        // Fetch sizes are limited by an int32 setting plus one batch per partition; a larger frame cannot be sent.
        let size = i32::try_from(size).unwrap_or(i32::MAX).to_be_bytes();
        let head = match self.outputs.first_mut() {
            Some(Output::Bytes(head)) => head,
            _ => &mut self.bytes,
        };
        if let Some(prefix) = head.first_chunk_mut() {
            *prefix = size;
        }
        if !self.bytes.is_empty() {
            self.outputs.push(Output::Bytes(self.bytes));
        }
        self.outputs
    }
}
