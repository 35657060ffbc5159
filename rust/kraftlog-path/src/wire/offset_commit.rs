//! OffsetCommit 8 to 10: what a plain request says, its answer, and the records that keep its offsets.
//!
//! Plain is a request whose topics, and partitions within a topic, are named once each. Python decides about it; this
//! module reads the request once, and writes what follows from it.
use std::collections::HashSet;
use std::hash::Hash;

use super::{NotPlain, Parsed, Reader, RequestHeader, Topic};

/// Its API key.
pub const KEY: i16 = 8;

const FIRST_VERSION: i16 = 8;
const LAST_VERSION: i16 = 10;
const TOPIC_ID_VERSION: i16 = 10;
/// Of the key, `OffsetCommitKey.json`, and of the value, `OffsetCommitValue.json`.
const KEY_VERSION: i16 = 1;
const VALUE_VERSION: i16 = 4;
const PARTITION_BYTES_MIN: usize = 18;
const TOPIC_BYTES_MIN: usize = 3;

/// How a request names a topic.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum TopicKey {
    /// Up to version 9.
    Name(String),
    /// From version 10 on.
    Id([u8; 16]),
}

/// The position of one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Position {
    /// Index of the partition.
    pub partition: i32,
    /// The committed offset.
    pub offset: i64,
    /// Leader epoch of the last consumed record, -1 for none.
    pub leader_epoch: i32,
    /// What the client keeps with it; empty for null.
    pub metadata: String,
}

/// A topic of a request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Positions {
    /// Which topic.
    pub topic: TopicKey,
    /// In the request's order.
    pub partitions: Vec<Position>,
}

/// A plain request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OffsetCommit {
    /// Repeated in the answer.
    pub correlation_id: i32,
    /// Of the request.
    pub api_version: i16,
    /// Whose offsets.
    pub group_id: String,
    /// Generation of a classic group or epoch of a member; -1 for a commit of no member.
    pub generation_id: i32,
    /// Who commits; empty for a commit of no member.
    pub member_id: String,
    /// The static member that commits, if any.
    pub group_instance_id: Option<String>,
    /// In the request's order.
    pub topics: Vec<Positions>,
}

impl OffsetCommit {
    /// Read a frame, which starts behind its size.
    ///
    /// # Errors
    /// The request is not plain: another version, a topic or partition twice, more than `partitions_max` topics or
    /// partitions, or bytes that do not decode.
    pub fn parse(frame: &[u8], partitions_max: usize) -> Parsed<Self> {
        let mut reader = Reader::new(frame);
        match RequestHeader::peek(frame) {
            Some((KEY, FIRST_VERSION..=LAST_VERSION)) => {}
            _ => return Err(NotPlain::NotServed),
        }
        let header = RequestHeader::parse(&mut reader)?;
        let group_id = text(&mut reader)?;
        let generation_id = reader.int32()?;
        let member_id = text(&mut reader)?;
        let group_instance_id = reader.nullable_text()?.map(str::to_owned);
        let topics = topics(&mut reader, header.api_version >= TOPIC_ID_VERSION, partitions_max)?;
        reader.unknown_tags()?;
        Ok(Self {
            correlation_id: header.correlation_id,
            api_version: header.api_version,
            group_id,
            generation_id,
            member_id,
            group_instance_id,
            topics,
        })
    }

    /// The most UTF-16 code units that a position's metadata has: what Kafka compares with `offset.metadata.max.bytes`.
    pub fn metadata_units_max(&self) -> usize {
        let partitions = self.topics.iter().flat_map(|topic| &topic.partitions);
        partitions.map(|position| position.metadata.encode_utf16().count()).max().unwrap_or(0)
    }

    /// The whole frame of the answer: `error_code` for each partition.
    pub fn answer(&self, error_code: i16) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(64);
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&self.correlation_id.to_be_bytes());
        bytes.push(0);
        bytes.extend_from_slice(&0i32.to_be_bytes());
        count(&mut bytes, self.topics.len());
        for topic in &self.topics {
            match &topic.topic {
                TopicKey::Name(name) => compact_text(&mut bytes, name),
                TopicKey::Id(id) => bytes.extend_from_slice(id),
            }
            count(&mut bytes, topic.partitions.len());
            for position in &topic.partitions {
                bytes.extend_from_slice(&position.partition.to_be_bytes());
                bytes.extend_from_slice(&error_code.to_be_bytes());
                bytes.push(0);
            }
            bytes.push(0);
        }
        bytes.push(0);
        // A request has at most 2 GiB, and its answer has fewer bytes per entry.
        let size = u32::try_from(bytes.len().saturating_sub(4)).unwrap_or(u32::MAX);
        if let Some(prefix) = bytes.first_chunk_mut::<4>() {
            *prefix = size.to_be_bytes();
        }
        bytes
    }

    /// The key of the record that keeps a position, `OffsetCommitKey`.
    pub fn record_key(&self, topic: &str, position: &Position) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(10 + self.group_id.len() + topic.len());
        bytes.extend_from_slice(&KEY_VERSION.to_be_bytes());
        for text in [self.group_id.as_str(), topic] {
            // Neither is longer: the reader checks strings of requests, and names of topics have at most 249 characters.
            bytes.extend_from_slice(&(text.len() as u16).to_be_bytes());
            bytes.extend_from_slice(text.as_bytes());
        }
        bytes.extend_from_slice(&position.partition.to_be_bytes());
        bytes
    }

    /// The value of that record, `OffsetCommitValue`.
    pub fn record_value(position: &Position, topic_id: &[u8; 16], commit_timestamp_ms: i64) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(48 + position.metadata.len());
        bytes.extend_from_slice(&VALUE_VERSION.to_be_bytes());
        bytes.extend_from_slice(&position.offset.to_be_bytes());
        bytes.extend_from_slice(&position.leader_epoch.to_be_bytes());
        compact_text(&mut bytes, &position.metadata);
        bytes.extend_from_slice(&commit_timestamp_ms.to_be_bytes());
        if *topic_id == [0; 16] {
            bytes.push(0);
        } else {
            // One tagged field, number 0, of 16 bytes.
            bytes.extend_from_slice(&[1, 0, 16]);
            bytes.extend_from_slice(topic_id);
        }
        bytes
    }
}

fn text(reader: &mut Reader<'_>) -> Parsed<String> {
    reader.nullable_text()?.map(str::to_owned).ok_or(NotPlain::Malformed)
}

fn topics(reader: &mut Reader<'_>, has_topic_ids: bool, partitions_max: usize) -> Parsed<Vec<Positions>> {
    let topic_count = reader.count(TOPIC_BYTES_MIN)?;
    if topic_count > partitions_max {
        return Err(NotPlain::TooLarge);
    }
    let mut left = partitions_max;
    let mut topics = Vec::with_capacity(topic_count);
    for _ in 0..topic_count {
        let topic = match reader.topic(has_topic_ids)? {
            Topic::Name(name) => TopicKey::Name(name.to_owned()),
            Topic::Id(id) => TopicKey::Id(*id),
        };
        let partition_count = reader.count(PARTITION_BYTES_MIN)?;
        left = left.checked_sub(partition_count).ok_or(NotPlain::TooLarge)?;
        let mut partitions = Vec::with_capacity(partition_count);
        for _ in 0..partition_count {
            let position = Position {
                partition: reader.int32()?,
                offset: reader.int64()?,
                leader_epoch: reader.int32()?,
                metadata: reader.nullable_text()?.unwrap_or_default().to_owned(),
            };
            reader.unknown_tags()?;
            partitions.push(position);
        }
        reader.unknown_tags()?;
        once_each(partitions.iter().map(|position| position.partition))?;
        topics.push(Positions { topic, partitions });
    }
    once_each(topics.iter().map(|positions| &positions.topic))?;
    Ok(topics)
}

/// Of what is named twice the last counts, which is for Python to say.
fn once_each<T: Hash + Eq>(names: impl ExactSizeIterator<Item = T>) -> Parsed<()> {
    if names.len() < 2 {
        return Ok(());
    }
    let mut seen = HashSet::with_capacity(names.len());
    for name in names {
        if !seen.insert(name) {
            return Err(NotPlain::Refused);
        }
    }
    Ok(())
}

fn count(bytes: &mut Vec<u8>, count: usize) {
    // At most the bytes of a frame.
    let mut value = count as u32 + 1;
    while value >= 0x80 {
        bytes.push((value as u8) | 0x80);
        value >>= 7;
    }
    bytes.push(value as u8);
}

fn compact_text(bytes: &mut Vec<u8>, text: &str) {
    count(bytes, text.len());
    bytes.extend_from_slice(text.as_bytes());
}
