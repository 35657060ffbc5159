//! Produce, versions 9 to 13 (KIP-482, KIP-951, KIP-890, KIP-516).
use super::{NotPlain, Parsed, Reader, Records, RequestHeader, Topic, Writer, PRODUCE_KEY};

/// First version served.
pub const MIN_VERSION: i16 = 9;
/// Last version served.
pub const MAX_VERSION: i16 = 13;
/// First version that names topics by id.
const TOPIC_IDS_FROM: i16 = 13;

/// The fields of a request around its partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProduceRequest<'a> {
    /// Of a transactional producer.
    pub transactional_id: Option<&'a str>,
    /// -1, 0 or 1 in a valid request.
    pub acks: i16,
    /// How long the client waits for acknowledgements, milliseconds.
    pub timeout_ms: i32,
}

/// Whether topics are named by id in `version`.
pub fn has_topic_ids(version: i16) -> bool {
    version >= TOPIC_IDS_FROM
}

/// Read a whole frame; `each` is called for each partition, in order, with the place of its records in the frame.
///
/// # Errors
/// The frame is not plain, or `each` said so: then it may have seen some of the partitions.
pub fn parse<'a>(
    frame: &'a [u8],
    each: impl FnMut(Topic<'a>, i32, Records) -> Parsed<()>,
) -> Parsed<(RequestHeader, ProduceRequest<'a>)> {
    match RequestHeader::peek(frame) {
        Some((PRODUCE_KEY, MIN_VERSION..=MAX_VERSION)) => {}
        _ => return Err(NotPlain::NotServed),
    }
    let mut reader = Reader::new(frame);
    let header = RequestHeader::parse(&mut reader)?;
    let request = parse_body(&mut reader, header.api_version, each)?;
    Ok((header, request))
}

/// Read what follows the header; bytes after the request are ignored, as Kafka ignores them.
///
/// # Errors
/// As [`parse`].
pub fn parse_body<'a>(
    reader: &mut Reader<'a>,
    version: i16,
    mut each: impl FnMut(Topic<'a>, i32, Records) -> Parsed<()>,
) -> Parsed<ProduceRequest<'a>> {
    let has_topic_ids = has_topic_ids(version);
    let transactional_id = reader.nullable_text()?;
    let (acks, timeout_ms) = (reader.int16()?, reader.int32()?);
    let topic_bytes_min = if has_topic_ids { 18 } else { 3 };
    for _ in 0..reader.count(topic_bytes_min)? {
        let topic = reader.topic(has_topic_ids)?;
        for _ in 0..reader.count(6)? {
            let index = reader.int32()?;
            let records = reader.records()?;
            reader.unknown_tags()?;
            each(topic, index, records)?;
        }
        reader.unknown_tags()?;
    }
    reader.unknown_tags()?;
    Ok(ProduceRequest { transactional_id, acks, timeout_ms })
}

/// What is answered for one partition.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PartitionResponse<'a> {
    /// Its number.
    pub index: i32,
    /// 0, or the protocol's code.
    pub error_code: i16,
    /// First offset of the batch, -1 with an error.
    pub base_offset: i64,
    /// -1 unless the topic's time is LogAppendTime.
    pub log_append_time_ms: i64,
    /// First readable offset, -1 with most errors.
    pub log_start_offset: i64,
    /// Refused records: index in the batch and reason.
    pub record_errors: &'a [(i32, String)],
    /// What is wrong with the batch.
    pub error_message: Option<&'a str>,
    /// Id and epoch of the leader, with NOT_LEADER_OR_FOLLOWER (KIP-951).
    pub current_leader: Option<(i32, i32)>,
}

/// Where a broker is reached on one listener.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BrokerAddress {
    /// Its node id.
    pub broker_id: i32,
    /// Name or address.
    pub host: String,
    /// TCP port.
    pub port: i32,
    /// Its rack, if it has one.
    pub rack: Option<String>,
}

/// From this version on an answer names new leaders (KIP-951).
pub const NAMES_LEADERS_FROM: i16 = 10;

/// Begin an answer with `topic_count` topics; each is [`begin_topic`], its partitions and [`end_topic`].
pub fn begin_response(correlation_id: i32, topic_count: usize) -> Writer {
    let mut writer = Writer::begin(correlation_id, 128);
    writer.count(topic_count);
    writer
}

/// Write the start of a topic with `partition_count` partitions.
pub fn begin_topic(writer: &mut Writer, topic: Topic<'_>, partition_count: usize) {
    writer.topic(topic);
    writer.count(partition_count);
}

/// Write the answer for one partition.
pub fn write_partition(writer: &mut Writer, partition: &PartitionResponse<'_>) {
    writer.int32(partition.index);
    writer.int16(partition.error_code);
    writer.int64(partition.base_offset);
    writer.int64(partition.log_append_time_ms);
    writer.int64(partition.log_start_offset);
    writer.count(partition.record_errors.len());
    for (batch_index, message) in partition.record_errors {
        writer.int32(*batch_index);
        writer.text(message);
        writer.no_tags();
    }
    match partition.error_message {
        Some(message) => writer.text(message),
        None => writer.null(),
    }
    match partition.current_leader {
        Some((leader_id, leader_epoch)) => {
            writer.uvarint(1);
            writer.tagged(0, |writer| {
                writer.int32(leader_id);
                writer.int32(leader_epoch);
                writer.no_tags();
            });
        }
        None => writer.no_tags(),
    }
}

/// Write the end of a topic.
pub fn end_topic(writer: &mut Writer) {
    writer.no_tags();
}

/// Write what follows the topics; `leaders` are the addresses of brokers that partitions name as their leaders.
pub fn end_response(writer: &mut Writer, leaders: &[BrokerAddress]) {
    writer.int32(0); // throttle time
    write_leaders(writer, leaders);
}

/// Write the tagged fields of an answer: the addresses of `leaders`, if there are any.
pub(super) fn write_leaders(writer: &mut Writer, leaders: &[BrokerAddress]) {
    if leaders.is_empty() {
        writer.no_tags();
        return;
    }
    writer.uvarint(1);
    writer.tagged(0, |writer| {
        writer.count(leaders.len());
        for leader in leaders {
            writer.int32(leader.broker_id);
            writer.text(&leader.host);
            writer.int32(leader.port);
            match &leader.rack {
                Some(rack) => writer.text(rack),
                None => writer.null(),
            }
            writer.no_tags();
        }
    });
}
