//! Kafka's error codes, as far as the data path answers them itself.

/// No error.
pub const NONE: i16 = 0;
/// A checksum or a length of a batch is wrong.
pub const CORRUPT_MESSAGE: i16 = 2;
/// This node does not lead the partition.
pub const NOT_LEADER_OR_FOLLOWER: i16 = 6;
/// Too few replicas are in sync to append with acks=-1.
pub const NOT_ENOUGH_REPLICAS: i16 = 19;
/// The records were appended, but too few replicas are in sync to commit them.
pub const NOT_ENOUGH_REPLICAS_AFTER_APPEND: i16 = 20;
/// The log takes no more writes.
pub const KAFKA_STORAGE_ERROR: i16 = 56;
/// The client's leader epoch is older than the partition's.
pub const FENCED_LEADER_EPOCH: i16 = 74;
/// The client's leader epoch is newer than the partition's.
pub const UNKNOWN_LEADER_EPOCH: i16 = 75;
