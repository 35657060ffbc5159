//! Kafka's error codes, as far as the data path answers them itself.

/// No error.
pub const NONE: i16 = 0;
/// The offset lies outside of the log.
pub const OFFSET_OUT_OF_RANGE: i16 = 1;
/// A checksum or a length of a batch is wrong.
pub const CORRUPT_MESSAGE: i16 = 2;
/// This node does not lead the partition.
pub const NOT_LEADER_OR_FOLLOWER: i16 = 6;
/// The records were not committed within the time that the client gave.
pub const REQUEST_TIMED_OUT: i16 = 7;
/// Too few replicas are in sync to append with acks=-1.
pub const NOT_ENOUGH_REPLICAS: i16 = 19;
/// The records were appended, but too few replicas are in sync to commit them.
pub const NOT_ENOUGH_REPLICAS_AFTER_APPEND: i16 = 20;
/// A record is too old or too far in the future for its topic.
pub const INVALID_TIMESTAMP: i16 = 32;
/// The log takes no more writes.
pub const KAFKA_STORAGE_ERROR: i16 = 56;
/// There is no such fetch session, or no longer.
pub const FETCH_SESSION_ID_NOT_FOUND: i16 = 70;
/// A request is not the next one of its fetch session.
pub const INVALID_FETCH_SESSION_EPOCH: i16 = 71;
/// The client's leader epoch is older than the partition's.
pub const FENCED_LEADER_EPOCH: i16 = 74;
/// The client's leader epoch is newer than the partition's.
pub const UNKNOWN_LEADER_EPOCH: i16 = 75;
/// A fetch session names its topics by id and the request by name, or the other way round.
pub const FETCH_SESSION_TOPIC_ID_ERROR: i16 = 106;
