//! Fetch v17: requests and answers.
use crate::wire::{put_count, request, Reader, FETCH};
use crate::Failure;

/// A partition and the offset to read from.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Position {
    /// Id of its topic.
    pub topic: [u8; 16],
    /// Index of the partition.
    pub index: i32,
    /// The next offset.
    pub offset: i64,
}

/// What stays the same in all requests of a run.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// How long the broker may wait for data.
    pub wait_ms: i32,
    /// Bytes of a whole answer.
    pub max_bytes: i32,
    /// Bytes of one partition in it.
    pub partition_max_bytes: i32,
}

/// A fetch session as the client sees it: id 0 and epoch 0 ask for a new one.
#[derive(Debug, Clone, Copy, Default)]
pub struct Session {
    /// Given by the broker.
    pub id: i32,
    /// Counts the requests.
    pub epoch: i32,
}

/// One request; `positions` are those that are new in the session or have moved, sorted by topic.
pub fn fetch(session: Session, positions: &[Position], limits: Limits) -> Vec<u8> {
    let topics: Vec<_> = positions.chunk_by(|left, right| left.topic == right.topic).collect();
    request(FETCH, |frame| {
        frame.extend_from_slice(&limits.wait_ms.to_be_bytes());
        frame.extend_from_slice(&1_i32.to_be_bytes()); // least bytes
        frame.extend_from_slice(&limits.max_bytes.to_be_bytes());
        frame.push(0); // isolation level
        frame.extend_from_slice(&session.id.to_be_bytes());
        frame.extend_from_slice(&session.epoch.to_be_bytes());
        put_count(frame, topics.len());
        for topic in topics {
            frame.extend_from_slice(&topic[0].topic);
            put_count(frame, topic.len());
            for position in topic {
                frame.extend_from_slice(&position.index.to_be_bytes());
                frame.extend_from_slice(&(-1_i32).to_be_bytes()); // current leader epoch: not known
                frame.extend_from_slice(&position.offset.to_be_bytes());
                frame.extend_from_slice(&(-1_i32).to_be_bytes()); // last fetched epoch
                frame.extend_from_slice(&(-1_i64).to_be_bytes()); // log start offset: of followers
                frame.extend_from_slice(&limits.partition_max_bytes.to_be_bytes());
                frame.push(0);
            }
            frame.push(0);
        }
        put_count(frame, 0); // forgotten topics
        put_count(frame, 0); // rack
        frame.push(0);
    })
}

/// A partition of an answer.
#[derive(Debug)]
pub struct Fetched<'a> {
    /// Id of its topic.
    pub topic: [u8; 16],
    /// Index of the partition.
    pub index: i32,
    /// The end that consumers see.
    pub high_watermark: i64,
    /// Batches; the last may be cut off.
    pub records: &'a [u8],
}

/// Reads an answer behind its length prefix; each partition goes to `take`. The id of the session.
///
/// Fails on any error code: a run has none.
pub fn read<'a>(
    frame: &'a [u8],
    mut take: impl FnMut(Fetched<'a>) -> Result<(), Failure>,
) -> Result<i32, Failure> {
    let mut reader = Reader::new(frame);
    reader.i32()?;
    reader.tags()?;
    reader.i32()?; // throttle time
    let error = reader.i16()?;
    if error != 0 {
        return Err(format!("Fetch: error code {error}").into());
    }
    let session = reader.i32()?;
    for _ in 0..reader.count()? {
        let topic = reader.id()?;
        for _ in 0..reader.count()? {
            let index = reader.i32()?;
            let error = reader.i16()?;
            if error != 0 {
                return Err(format!("Fetch: error code {error} for partition {index}").into());
            }
            let high_watermark = reader.i64()?;
            reader.bytes(16)?; // last stable offset, log start offset
            for _ in 0..reader.count()? {
                reader.bytes(16)?; // an aborted transaction
                reader.tags()?;
            }
            reader.i32()?; // preferred read replica
            let size = reader.count()?;
            let records = reader.bytes(size)?;
            reader.tags()?;
            take(Fetched { topic, index, high_watermark, records })?;
        }
        reader.tags()?;
    }
    Ok(session)
}
