//! The headers column: `List<Struct<key: Utf8, value: Binary>>`.
use super::bytes::{ByteColumn, CopyColumn};
use crate::raw::memory::Column;
use crate::record::Headers;
use crate::varint::read_varint;
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
    /// Nothing, or 0 and the index of the first header after each row.
    offsets: Column<i32>,
    keys: CopyColumn,
    values: CopyColumn,
}

impl HeadersColumn {
    pub(super) fn new(empty_null: bool) -> Self {
        Self {
            empty_null,
            offsets: Column::default(),
            keys: CopyColumn::default(),
            values: CopyColumn::default(),
        }
    }

    pub(super) fn reserve(&mut self, rows: usize) {
        if self.offsets.len() == 0 {
            self.offsets.push(0);
        }
        self.offsets.reserve(rows);
    }

    /// Rows without headers, until there are `rows`.
    pub(super) fn fill_to(&mut self, rows: usize) {
        let headers = self.keys.len() as i32;
        self.reserve(0);
        self.offsets.fill_to(rows + 1, headers);
    }

    /// Key bytes that are not UTF-8 get U+FFFD in their place, as in Kafka's reader.
    ///
    /// False when the headers do not fit into a column; the caller then rolls back.
    #[must_use]
    pub(super) fn push(&mut self, headers: Headers<'_>) -> bool {
        for (key, value) in headers {
            if !self.push_header(key, value) {
                return false;
            }
        }
        self.end_row();
        true
    }

    #[inline]
    fn push_header(&mut self, key: &[u8], value: Option<&[u8]>) -> bool {
        let pushed = match std::str::from_utf8(key) {
            Ok(_) => self.keys.push(key),
            Err(_) => self.keys.push(String::from_utf8_lossy(key).as_bytes()),
        };
        pushed && self.values.push_nullable(value)
    }

    #[inline]
    fn end_row(&mut self) {
        self.reserve(1);
        self.offsets.push(self.keys.len() as i32);
    }

    /// Row number `row` with the headers of a record as stored, count first; rows before it that have none yet get
    /// no headers. False for stored bytes that are not sound, and where they do not fit; what is appended then is
    /// for [`truncate`](Self::truncate).
    #[must_use]
    pub(super) fn push_stored(&mut self, row: usize, stored: &[u8]) -> bool {
        self.fill_to(row);
        let sound = for_each_stored(stored, |key, value| self.push_header(key, value));
        self.end_row();
        sound
    }

    pub(super) fn truncate(&mut self, rows: usize) {
        self.offsets.truncate(rows + 1);
        let headers = self.offsets.last().map_or(0, |end| end as usize);
        self.keys.truncate(headers);
        self.values.truncate(headers);
    }

    /// The rows so far; the column is empty afterwards.
    pub(super) fn take(&mut self) -> ArrayRef {
        self.reserve(0);
        let nulls = if self.empty_null {
            self.offsets
                .as_slice()
                .windows(2)
                .map(|pair| pair.first() != pair.last())
                .collect::<NullBuffer>()
                .into()
        } else {
            None
        };
        let (key_offsets, key_data, _) = self.keys.take_parts();
        let (value_offsets, value_data, value_nulls) = self.values.take_parts();
        let keys: ArrayRef = Arc::new(StringArray::new(key_offsets, key_data, None));
        let values: ArrayRef = Arc::new(BinaryArray::new(value_offsets, value_data, value_nulls));
        let items = StructArray::new(item_fields(), vec![keys, values], None);
        let rows = self.offsets.len() - 1;
        let offsets = OffsetBuffer::new(ScalarBuffer::new(self.offsets.take(), 0, rows + 1));
        Arc::new(ListArray::new(item_field(), offsets, Arc::new(items), nulls))
    }
}

/// Calls `take` with each header of a record as stored, count first, while it says true. True when all were taken and
/// the bytes are sound.
pub(super) fn for_each_stored<'a>(
    stored: &'a [u8],
    mut take: impl FnMut(&'a [u8], Option<&'a [u8]>) -> bool,
) -> bool {
    let Ok((count, size)) = read_varint(stored) else { return false };
    let mut rest = stored.get(size..).unwrap_or_default();
    for _ in 0..count {
        match (nullable_bytes(&mut rest), nullable_bytes(&mut rest)) {
            (Some(Some(key)), Some(value)) if take(key, value) => {}
            _ => return false,
        }
    }
    count >= 0 && rest.is_empty()
}

/// Takes bytes behind their length off the front: None within for a null, None when they are not sound.
#[inline(always)]
fn nullable_bytes<'a>(rest: &mut &'a [u8]) -> Option<Option<&'a [u8]>> {
    let (length, size) = read_varint(rest).ok()?;
    let (taken, behind) = rest.get(size..)?.split_at_checked(usize::try_from(length).unwrap_or(0))?;
    *rest = behind;
    Some((length >= 0).then_some(taken))
}
