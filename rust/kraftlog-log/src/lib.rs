//! Kafka's on-disk log format in pure Rust: record batches, compression, segments, indexes,
//! recovery and Arrow columns. No Python in it; files behind the [`fs::FileSystem`] trait.

#![deny(unsafe_code)]

mod error;
pub use error::{Error, Result};

pub mod batch;
mod batch_view;
pub mod builder;
pub mod byte_pool;
pub mod columns;
pub mod compression;
mod continuation;
pub mod crc;
pub mod epoch_checkpoint;
pub mod fetched;
pub mod fs;
pub mod index;
mod json;
mod legacy;
pub mod lock;
pub mod log;
mod offset_order;
pub mod partition_metadata;
pub mod partitioner;
pub mod producer_state;
mod raw;
pub mod record;
pub mod recovery_event;
pub mod rows;
pub mod salvage;
pub mod scan;
pub mod segment;
pub mod time_index;
pub mod topic_hash;
pub mod topic_pattern;
pub mod varint;
pub mod verify;
