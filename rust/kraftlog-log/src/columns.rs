//! Record batches to Arrow columns, without an allocation or a call per record.
//!
//! [`ColumnsDecoder`] takes batches one after the other and gives Arrow batches of bounded rows and
//! bytes; a record batch larger than what is left of a bound is continued in the next Arrow batch.
//! Columns that were not asked for are not built, though the structure of every record is checked.
//!
//! Sketch of the limit, per record of 100 B value and 10 B key: CRC-32C of 120 bytes 1-4 ns, the copy of
//! 110 bytes in cache 3-5 ns, six varints and five stores about 4 ns. Views save the copy.
mod bytes;
mod decode;
mod fast;
mod headers;
mod legacy;
mod lengths;
mod options;
mod rows;

pub use decode::{BatchCursor, ColumnsDecoder, Progress};
pub use options::{BinaryType, Column, ColumnOptions, TimestampUnit};
pub use rows::RowsMark;
