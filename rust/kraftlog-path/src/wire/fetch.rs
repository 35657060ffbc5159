//! Fetch, versions 12 to 18, of consumers and of followers (KIP-595, KIP-516, KIP-903, KIP-951, KIP-853, KIP-1166).
use kraftlog_log::log::FileSlice;
use kraftlog_log::segment::AbortedTransaction;

use super::produce::{write_leaders, BrokerAddress};
use super::{NotPlain, Parsed, Reader, RequestHeader, Topic, Writer, FETCH_KEY};

/// First version served.
pub const MIN_VERSION: i16 = 12;
/// Last version served.
pub const MAX_VERSION: i16 = 18;
/// First version that names topics by id.
const TOPIC_IDS_FROM: i16 = 13;
/// From this version on an answer names new leaders (KIP-951).
pub const NAMES_LEADERS_FROM: i16 = 16;
/// First version with the replica id in a tagged field.
const REPLICA_STATE_FROM: i16 = 15;
/// First version with the directory of the replica; the next one adds the follower's high watermark.
const REPLICA_DIRECTORY_FROM: i16 = 17;
/// Tag of that directory's id, in a partition.
const REPLICA_DIRECTORY_TAG: usize = 0;
/// Tag of the replica's id and broker epoch, in the request.
const REPLICA_STATE_TAG: usize = 1;

/// The fields of a request before its partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchRequest {
    /// -1 for a consumer, otherwise the broker that follows; from version 15 on known once the whole request was read.
    pub replica_id: i32,
    /// Of the registration of that broker, or -1; known likewise.
    pub replica_epoch: i64,
    /// How long to wait for `min_bytes`, milliseconds.
    pub max_wait_ms: i32,
    /// Bytes of records worth an answer before that.
    pub min_bytes: i32,
    /// Bytes of records of the whole answer, but for a first batch that is larger.
    pub max_bytes: i32,
    /// 1 for read_committed.
    pub isolation_level: i8,
    /// Of the session that the request continues or replaces, or 0.
    pub session_id: i32,
    /// Of the request within its session; 0 begins one, -1 goes without.
    pub session_epoch: i32,
    /// Whether the consumer says in which rack it is (KIP-392); known once the whole request was read.
    pub has_rack: bool,
}

/// One partition of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FetchPartition {
    /// Its number.
    pub index: i32,
    /// What the client takes for the leader's epoch, or -1.
    pub current_leader_epoch: i32,
    /// First offset wanted.
    pub fetch_offset: i64,
    /// Epoch of the record before, or -1.
    pub last_fetched_epoch: i32,
    /// Of a follower's log, or -1.
    pub log_start_offset: i64,
    /// Bytes of records of this partition.
    pub max_bytes: i32,
}

/// Who wants to know what a request holds.
pub trait FetchVisitor<'a> {
    /// The fields before the partitions.
    ///
    /// # Errors
    /// The request is not wanted.
    fn begin(&mut self, request: &FetchRequest) -> Parsed<()>;

    /// A partition to read.
    ///
    /// # Errors
    /// The request is not wanted.
    fn partition(&mut self, topic: Topic<'a>, partition: &FetchPartition) -> Parsed<()>;

    /// A partition to take out of the session.
    ///
    /// # Errors
    /// The request is not wanted.
    fn forgotten(&mut self, topic: Topic<'a>, index: i32) -> Parsed<()>;
}

/// Whether topics are named by id in `version`.
pub fn has_topic_ids(version: i16) -> bool {
    version >= TOPIC_IDS_FROM
}

/// Read a whole frame.
///
/// # Errors
/// The frame is not plain, or `visitor` said so: then it may have seen some of the partitions.
pub fn parse<'a>(
    frame: &'a [u8],
    visitor: &mut impl FetchVisitor<'a>,
) -> Parsed<(RequestHeader, FetchRequest)> {
    match RequestHeader::peek(frame) {
        Some((FETCH_KEY, MIN_VERSION..=MAX_VERSION)) => {}
        _ => return Err(NotPlain::NotServed),
    }
    let mut reader = Reader::new(frame);
    let header = RequestHeader::parse(&mut reader)?;
    let request = parse_body(&mut reader, header.api_version, visitor)?;
    Ok((header, request))
}

/// Read what follows the header; bytes after the request are ignored, as Kafka ignores them.
///
/// # Errors
/// As [`parse`].
pub fn parse_body<'a>(
    reader: &mut Reader<'a>,
    version: i16,
    visitor: &mut impl FetchVisitor<'a>,
) -> Parsed<FetchRequest> {
    let has_topic_ids = has_topic_ids(version);
    let has_replica_state = version >= REPLICA_STATE_FROM;
    let mut request = FetchRequest {
        replica_id: if has_replica_state { -1 } else { reader.int32()? },
        replica_epoch: -1,
        max_wait_ms: reader.int32()?,
        min_bytes: reader.int32()?,
        max_bytes: reader.int32()?,
        isolation_level: reader.int8()?,
        session_id: reader.int32()?,
        session_epoch: reader.int32()?,
        has_rack: false,
    };
    visitor.begin(&request)?;
    let topic_bytes_min = if has_topic_ids { 18 } else { 3 };
    let known_tags_end = usize::try_from((version + 1).saturating_sub(REPLICA_DIRECTORY_FROM)).unwrap_or(0);
    for _ in 0..reader.count(topic_bytes_min)? {
        let topic = reader.topic(has_topic_ids)?;
        for _ in 0..reader.count(33)? {
            let partition = FetchPartition {
                index: reader.int32()?,
                current_leader_epoch: reader.int32()?,
                fetch_offset: reader.int64()?,
                last_fetched_epoch: reader.int32()?,
                log_start_offset: reader.int64()?,
                max_bytes: reader.int32()?,
            };
            reader.known_tags(known_tags_end, check_partition_tag)?;
            visitor.partition(topic, &partition)?;
        }
        reader.unknown_tags()?;
    }
    for _ in 0..reader.count(topic_bytes_min)? {
        let topic = reader.topic(has_topic_ids)?;
        for _ in 0..reader.count(4)? {
            visitor.forgotten(topic, reader.int32()?)?;
        }
        reader.unknown_tags()?;
    }
    match reader.nullable_text()? {
        None => return Err(NotPlain::Malformed),
        Some(rack) => request.has_rack = !rack.is_empty(),
    }
    let tags_end = if has_replica_state { REPLICA_STATE_TAG + 1 } else { REPLICA_STATE_TAG };
    reader.known_tags(tags_end, |tag, bytes| match tag {
        REPLICA_STATE_TAG => read_replica_state(&mut request, bytes),
        _ => Err(NotPlain::Tagged), // the id of the cluster
    })?;
    Ok(request)
}

/// The directory of a follower's replica and its high watermark: leaders of topic partitions use neither.
fn check_partition_tag(tag: usize, bytes: &[u8]) -> Parsed<()> {
    let size = if tag == REPLICA_DIRECTORY_TAG { 16 } else { 8 };
    if bytes.len() == size {
        Ok(())
    } else {
        Err(NotPlain::Malformed)
    }
}

fn read_replica_state(request: &mut FetchRequest, bytes: &[u8]) -> Parsed<()> {
    let mut reader = Reader::new(bytes);
    (request.replica_id, request.replica_epoch) = (reader.int32()?, reader.int64()?);
    reader.unknown_tags()?;
    if reader.position() == bytes.len() {
        Ok(())
    } else {
        Err(NotPlain::Malformed)
    }
}

/// What is answered for one partition.
#[derive(Debug)]
pub struct PartitionData<'a> {
    /// Its number.
    pub index: i32,
    /// 0, or the protocol's code.
    pub error_code: i16,
    /// Exclusive end of what is committed, -1 with an error.
    pub high_watermark: i64,
    /// Exclusive end of what a read_committed consumer may see, -1 with an error.
    pub last_stable_offset: i64,
    /// First readable offset, -1 with an error.
    pub log_start_offset: i64,
    /// Null unless read_committed.
    pub aborted_transactions: Option<&'a [AbortedTransaction]>,
    /// The batches.
    pub records: Option<FileSlice>,
    /// Epoch and exclusive end offset that a follower has to truncate to (KIP-595).
    pub diverging_epoch: Option<(i32, i64)>,
    /// Id and epoch of the leader, with NOT_LEADER_OR_FOLLOWER and FENCED_LEADER_EPOCH (KIP-951).
    pub current_leader: Option<(i32, i32)>,
}

/// Begin an answer with `topic_count` topics; each is [`begin_topic`], its partitions and [`end_topic`].
pub fn begin_response(correlation_id: i32, error_code: i16, session_id: i32, topic_count: usize) -> Writer {
    let mut writer = Writer::begin(correlation_id, 128);
    writer.int32(0); // throttle time
    writer.int16(error_code);
    writer.int32(session_id);
    writer.count(topic_count);
    writer
}

/// Write the start of a topic with `partition_count` partitions.
pub fn begin_topic(writer: &mut Writer, topic: Topic<'_>, partition_count: usize) {
    writer.topic(topic);
    writer.count(partition_count);
}

/// Write the answer for one partition.
pub fn write_partition(writer: &mut Writer, partition: PartitionData<'_>) {
    writer.int32(partition.index);
    writer.int16(partition.error_code);
    writer.int64(partition.high_watermark);
    writer.int64(partition.last_stable_offset);
    writer.int64(partition.log_start_offset);
    match partition.aborted_transactions {
        None => writer.null(),
        Some(transactions) => {
            writer.count(transactions.len());
            for transaction in transactions {
                writer.int64(transaction.producer_id);
                writer.int64(transaction.first_offset);
                writer.no_tags();
            }
        }
    }
    writer.int32(-1); // preferred read replica
    writer.records(partition.records);
    let (diverging_epoch, current_leader) = (partition.diverging_epoch, partition.current_leader);
    writer.uvarint(u32::from(diverging_epoch.is_some()) + u32::from(current_leader.is_some()));
    if let Some((epoch, end_offset)) = diverging_epoch {
        writer.tagged(0, |writer| {
            writer.int32(epoch);
            writer.int64(end_offset);
            writer.no_tags();
        });
    }
    if let Some((leader_id, leader_epoch)) = current_leader {
        writer.tagged(1, |writer| {
            writer.int32(leader_id);
            writer.int32(leader_epoch);
            writer.no_tags();
        });
    }
}

/// Write the end of a topic.
pub fn end_topic(writer: &mut Writer) {
    writer.no_tags();
}

/// Write what follows the topics; `leaders` are the addresses of brokers that partitions name as their leaders.
pub fn end_response(writer: &mut Writer, leaders: &[BrokerAddress]) {
    write_leaders(writer, leaders);
}
