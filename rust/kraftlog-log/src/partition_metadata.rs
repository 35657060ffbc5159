//! (partition_metadata)
