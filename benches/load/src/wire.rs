//! Requests as bytes. A frame starts with its length prefix; bytes 8 to 12 are the correlation id, patched when sent.
use crate::Failure;

/// Produce v13 and Fetch v17 name topics by their ids.
pub const PRODUCE: (i16, i16) = (0, 13);
/// See [`PRODUCE`].
pub const FETCH: (i16, i16) = (1, 17);
const API_VERSIONS: (i16, i16) = (18, 0);

/// Where the correlation id stands in a frame.
pub const CORRELATION: std::ops::Range<usize> = 8..12;

/// A topic of the broker.
#[derive(Debug, Clone)]
pub struct Topic {
    /// The topic's id.
    pub id: [u8; 16],
    /// Number of partitions.
    pub partitions: i32,
}

impl Topic {
    /// Parses `ID:PARTITIONS`.
    pub fn parse(text: &str) -> Result<Self, Failure> {
        let (id, partitions) = text.split_once(':').ok_or(format!("{text:?} is not ID:PARTITIONS"))?;
        let id = u128::from_str_radix(id, 16).map_err(|_| format!("{id:?} is no topic id"))?;
        Ok(Self { id: id.to_be_bytes(), partitions: partitions.parse()? })
    }
}

/// A frame with the header of a flexible request; `body` adds the rest.
pub fn request((key, version): (i16, i16), body: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut frame = vec![0; 4];
    frame.extend_from_slice(&key.to_be_bytes());
    frame.extend_from_slice(&version.to_be_bytes());
    frame.extend_from_slice(&0_i32.to_be_bytes()); // correlation id
    frame.extend_from_slice(&4_i16.to_be_bytes());
    frame.extend_from_slice(b"load");
    if (key, version) != API_VERSIONS {
        frame.push(0); // no tagged fields; version 0 of ApiVersions has an older header
    }
    body(&mut frame);
    let size = (frame.len() - 4) as i32;
    frame[..4].copy_from_slice(&size.to_be_bytes());
    frame
}

/// ApiVersions v0, which every broker answers.
pub fn api_versions() -> Vec<u8> {
    request(API_VERSIONS, |_| ())
}

/// Produce of one batch to each of the partitions, which are sorted by topic.
pub fn produce(partitions: &[([u8; 16], i32)], batch: &[u8], acks: i16) -> Vec<u8> {
    let topics: Vec<_> = partitions.chunk_by(|left, right| left.0 == right.0).collect();
    request(PRODUCE, |frame| {
        frame.push(0); // no transactional id
        frame.extend_from_slice(&acks.to_be_bytes());
        frame.extend_from_slice(&30_000_i32.to_be_bytes());
        put_count(frame, topics.len());
        for topic in topics {
            frame.extend_from_slice(&topic[0].0);
            put_count(frame, topic.len());
            for (_, index) in topic {
                frame.extend_from_slice(&index.to_be_bytes());
                put_count(frame, batch.len());
                frame.extend_from_slice(batch);
                frame.push(0);
            }
            frame.push(0);
        }
        frame.push(0);
    })
}

/// The length of a compact array or compact bytes: one more, as an unsigned varint.
pub fn put_count(out: &mut Vec<u8>, count: usize) {
    let mut rest = count as u64 + 1;
    while rest >= 0x80 {
        out.push(rest as u8 | 0x80);
        rest >>= 7;
    }
    out.push(rest as u8);
}

/// Reads the fields of an answer in turn.
#[derive(Debug)]
pub struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    /// A reader of a frame behind its length prefix.
    pub fn new(frame: &'a [u8]) -> Self {
        Self { rest: frame }
    }

    /// The next `count` bytes.
    pub fn bytes(&mut self, count: usize) -> Result<&'a [u8], Failure> {
        let (taken, rest) =
            self.rest.split_at_checked(count).ok_or("an answer is shorter than its fields")?;
        self.rest = rest;
        Ok(taken)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Failure> {
        Ok(self.bytes(N)?.try_into()?)
    }

    /// The next 16 bytes.
    pub fn id(&mut self) -> Result<[u8; 16], Failure> {
        self.array()
    }

    /// The next INT16.
    pub fn i16(&mut self) -> Result<i16, Failure> {
        Ok(i16::from_be_bytes(self.array()?))
    }

    /// The next INT32.
    pub fn i32(&mut self) -> Result<i32, Failure> {
        Ok(i32::from_be_bytes(self.array()?))
    }

    /// The next INT64.
    pub fn i64(&mut self) -> Result<i64, Failure> {
        Ok(i64::from_be_bytes(self.array()?))
    }

    fn varint(&mut self) -> Result<usize, Failure> {
        let (mut value, mut shift) = (0, 0);
        loop {
            let [byte] = self.array()?;
            value |= usize::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
            shift += 7;
            if shift > 28 {
                return Err("a varint of an answer is too long".into());
            }
        }
    }

    /// The length of a compact array or compact bytes; null counts as 0.
    pub fn count(&mut self) -> Result<usize, Failure> {
        Ok(self.varint()?.saturating_sub(1))
    }

    /// Skip tagged fields.
    pub fn tags(&mut self) -> Result<(), Failure> {
        for _ in 0..self.varint()? {
            self.varint()?;
            let size = self.varint()?;
            self.bytes(size)?;
        }
        Ok(())
    }
}

/// The error codes of a Produce v13 answer, behind its length prefix: the first that is not 0.
pub fn produce_error(frame: &[u8]) -> Result<i16, Failure> {
    let mut reader = Reader::new(frame);
    reader.i32()?;
    reader.tags()?;
    for _ in 0..reader.count()? {
        reader.id()?;
        for _ in 0..reader.count()? {
            reader.i32()?;
            let error = reader.i16()?;
            if error != 0 {
                return Ok(error);
            }
            reader.bytes(24)?; // base offset, append time, log start offset
            for _ in 0..reader.count()? {
                reader.i32()?;
                let size = reader.count()?;
                reader.bytes(size)?;
                reader.tags()?;
            }
            let size = reader.count()?;
            reader.bytes(size)?;
            reader.tags()?;
        }
        reader.tags()?;
    }
    Ok(0)
}
