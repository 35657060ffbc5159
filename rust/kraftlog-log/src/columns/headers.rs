//! The headers column: `List<Struct<key: Utf8, value: Binary>>`.
use super::bytes::{ByteColumn, CopyColumn};
use crate::record::Headers;
use arrow_array::{ArrayRef, BinaryArray, ListArray, StringArray, StructArray};
use arrow_buffer::{NullBuffer, OffsetBuffer, ScalarBuffer};
use arrow_schema::{DataType, Field, FieldRef, Fields};
use std::sync::Arc;

fn item_fields() -> Fields {
    Fields::from(vec![Field::new("key", DataType::Utf8, true), Field::new("value", DataType::Binary, true)])
}

fn item_field() -> FieldRef {
    Arc::new(Field::new("element", DataType::Struct(item_fields()), true))
}

pub(super) fn data_type() -> DataType {
    DataType::List(item_field())
}

/// Headers of the rows so far.
#[derive(Debug)]
pub(super) struct HeadersColumn {
    empty_null: bool,
    /// Index of the first header after each row.
    ends: Vec<i32>,
    keys: CopyColumn,
    values: CopyColumn,
}

impl HeadersColumn {
    pub(super) fn new(empty_null: bool) -> Self {
        Self { empty_null, ends: Vec::new(), keys: CopyColumn::default(), values: CopyColumn::default() }
    }

    pub(super) fn reserve(&mut self, rows: usize) {
        self.ends.reserve(rows);
    }

    pub(super) fn size_bytes(&self) -> usize {
        self.keys.size_bytes() + self.values.size_bytes()
    }

    #[inline]
    pub(super) fn push_empty(&mut self) {
        self.ends.push(self.keys.len() as i32);
    }

    /// Key bytes that are not UTF-8 get U+FFFD in their place, as in Kafka's reader.
    ///
    /// False when the headers do not fit into a column; the caller then rolls back.
    #[must_use]
    pub(super) fn push(&mut self, headers: Headers<'_>) -> bool {
        for (key, value) in headers {
            let pushed = match std::str::from_utf8(key) {
                Ok(_) => self.keys.push(Some(key)),
                Err(_) => self.keys.push(Some(String::from_utf8_lossy(key).as_bytes())),
            };
            if !(pushed && self.values.push(value)) {
                return false;
            }
        }
        self.push_empty();
        true
    }

    pub(super) fn truncate(&mut self, rows: usize) {
        self.ends.truncate(rows);
        let headers = self.ends.last().map_or(0, |&end| end as usize);
        self.keys.truncate(headers);
        self.values.truncate(headers);
    }

    /// The rows so far; the column is empty afterwards.
    pub(super) fn take(&mut self) -> ArrayRef {
        let mut offsets = Vec::with_capacity(self.ends.len() + 1);
        offsets.push(0);
        offsets.append(&mut self.ends);
        let nulls = if self.empty_null {
            offsets.windows(2).map(|pair| pair.first() != pair.last()).collect::<NullBuffer>().into()
        } else {
            None
        };
        let (key_offsets, key_data, _) = self.keys.take_parts();
        let (value_offsets, value_data, value_nulls) = self.values.take_parts();
        let keys: ArrayRef = Arc::new(StringArray::new(key_offsets, key_data, None));
        let values: ArrayRef = Arc::new(BinaryArray::new(value_offsets, value_data, value_nulls));
        let items = StructArray::new(item_fields(), vec![keys, values], None);
        let offsets = OffsetBuffer::new(ScalarBuffer::from(offsets));
        Arc::new(ListArray::new(item_field(), offsets, Arc::new(items), nulls))
    }
}
