//! Produce and Fetch frames that Kafka wrote (`tests/golden/wire`): parsed, and written again from what was parsed.
use std::fs::File;
use std::io::{BufRead, BufReader};

use flate2::read::GzDecoder;
use kraftlog_path::wire::fetch::{FetchPartition, FetchRequest, FetchVisitor};
use kraftlog_path::wire::{fetch, produce, NotPlain, Parsed, Reader, Topic, Writer};

const WIRE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../tests/golden/wire");

/// The raw text of a field; enough for fields whose values have no comma.
fn field<'a>(line: &'a str, name: &str) -> Option<&'a str> {
    // The last of that name: unknown tags have a `hex` of their own, before that of the message.
    let rest = line.rsplit_once(&format!("\"{name}\":"))?.1;
    Some(rest[..rest.find([',', '}']).unwrap()].trim_matches('"'))
}

fn bytes(hex: &str) -> Vec<u8> {
    (0..hex.len()).step_by(2).map(|i| u8::from_str_radix(&hex[i..i + 2], 16).unwrap()).collect()
}

struct Row {
    version: i16,
    has_unknown_tags: bool,
    /// A topic without partitions leaves no trace in what a visitor sees.
    has_empty_topics: bool,
    /// What followers and controllers say of a partition is checked and left out.
    has_partition_tags: bool,
    /// The follower's id and broker epoch, where the message gives them.
    replica: (Option<i32>, Option<i64>),
    /// Kafka's decoder does not refuse it.
    is_sound: bool,
    body: Vec<u8>,
}

fn rows(file: &str, api: &str, versions: std::ops::RangeInclusive<i16>) -> Vec<Row> {
    let lines = BufReader::new(GzDecoder::new(File::open(format!("{WIRE}/{file}")).unwrap())).lines();
    lines
        .map(Result::unwrap)
        .filter(|line| field(line, "api") == Some(api))
        .map(|line| Row {
            version: field(&line, "version").unwrap().parse().unwrap(),
            has_unknown_tags: line.contains("\"unknownTags\""),
            has_empty_topics: line.contains("\"partitions\":[]") || line.contains("\"partitionData\":[]"),
            has_partition_tags: line.contains("\"replicaDirectoryId\"") || line.contains("\"highWatermark\""),
            replica: (
                field(&line, "replicaId").and_then(|text| text.parse().ok()),
                field(&line, "replicaEpoch").and_then(|text| text.parse().ok()),
            ),
            is_sound: field(&line, "result") != Some("error"),
            body: bytes(field(&line, "hex").unwrap()),
        })
        .filter(|row| versions.contains(&row.version))
        .collect()
}

/// What follows the size and the header of an answer that was begun for it.
fn body_of(writer: Writer) -> Vec<u8> {
    let outputs = writer.finish();
    let [kraftlog_path::exchange::Output::Bytes(bytes)] = outputs.as_slice() else { panic!("{outputs:?}") };
    bytes[9..].to_vec()
}

fn write_text(writer: &mut Writer, text: Option<&str>) {
    match text {
        Some(text) => writer.text(text),
        None => writer.null(),
    }
}

fn write_records(writer: &mut Writer, records: Option<&[u8]>) {
    match records {
        Some(records) => {
            writer.count(records.len());
            records.iter().for_each(|&byte| writer.int8(byte as i8));
        }
        None => writer.null(),
    }
}

/// Entries in the order of a request, cut where another topic begins.
fn by_topic<'a, T>(entries: &'a [(usize, Topic<'a>, T)]) -> Vec<&'a [(usize, Topic<'a>, T)]> {
    entries.chunk_by(|left, right| left.0 == right.0).collect()
}

/// A number that changes with the place of the topic in the frame, as two entries may name the same topic.
fn place(topic: Topic<'_>) -> usize {
    match topic {
        Topic::Name(name) => name.as_ptr() as usize,
        Topic::Id(id) => id.as_ptr() as usize,
    }
}

fn produce_again(row: &Row) -> Parsed<Vec<u8>> {
    let mut entries = Vec::new();
    let mut reader = Reader::new(&row.body);
    let request = produce::parse_body(&mut reader, row.version, |topic, index, records| {
        entries.push((place(topic), topic, (index, records)));
        Ok(())
    })?;
    let mut writer = Writer::begin(0, 0);
    write_text(&mut writer, request.transactional_id);
    writer.int16(request.acks);
    writer.int32(request.timeout_ms);
    let topics = by_topic(&entries);
    writer.count(topics.len());
    for topic in topics {
        produce::begin_topic(&mut writer, topic[0].1, topic.len());
        for (_, _, (index, records)) in topic {
            writer.int32(*index);
            write_records(&mut writer, records.clone().map(|range| &row.body[range]));
            writer.no_tags();
        }
        writer.no_tags();
    }
    writer.no_tags();
    Ok(body_of(writer))
}

#[derive(Default)]
struct Collected<'a> {
    partitions: Vec<(usize, Topic<'a>, FetchPartition)>,
    forgotten: Vec<(usize, Topic<'a>, i32)>,
}

impl<'a> FetchVisitor<'a> for Collected<'a> {
    fn begin(&mut self, _: &FetchRequest) -> Parsed<()> {
        Ok(())
    }

    fn partition(&mut self, topic: Topic<'a>, partition: &FetchPartition) -> Parsed<()> {
        self.partitions.push((place(topic), topic, *partition));
        Ok(())
    }

    fn forgotten(&mut self, topic: Topic<'a>, index: i32) -> Parsed<()> {
        self.forgotten.push((place(topic), topic, index));
        Ok(())
    }
}

/// The request again, up to the rack.
fn fetch_again(row: &Row) -> Parsed<Vec<u8>> {
    let mut found = Collected::default();
    let request = fetch::parse_body(&mut Reader::new(&row.body), row.version, &mut found)?;
    assert_eq!(request.replica_id, row.replica.0.unwrap_or(-1));
    assert_eq!(request.replica_epoch, row.replica.1.unwrap_or(-1));
    let mut writer = Writer::begin(0, 0);
    if row.version < 15 {
        writer.int32(request.replica_id);
    }
    for number in [request.max_wait_ms, request.min_bytes, request.max_bytes] {
        writer.int32(number);
    }
    writer.int8(request.isolation_level);
    writer.int32(request.session_id);
    writer.int32(request.session_epoch);
    let topics = by_topic(&found.partitions);
    writer.count(topics.len());
    for topic in topics {
        fetch::begin_topic(&mut writer, topic[0].1, topic.len());
        for (_, _, partition) in topic {
            writer.int32(partition.index);
            writer.int32(partition.current_leader_epoch);
            writer.int64(partition.fetch_offset);
            writer.int32(partition.last_fetched_epoch);
            writer.int64(partition.log_start_offset);
            writer.int32(partition.max_bytes);
            writer.no_tags();
        }
        writer.no_tags();
    }
    let topics = by_topic(&found.forgotten);
    writer.count(topics.len());
    for topic in topics {
        fetch::begin_topic(&mut writer, topic[0].1, topic.len());
        topic.iter().for_each(|(_, _, index)| writer.int32(*index));
        writer.no_tags();
    }
    Ok(body_of(writer))
}

#[test]
fn produce_requests_of_kafka_are_read_whole() {
    let mut count = 0;
    for row in rows("api/000-Produce.jsonl.gz", "ProduceRequest", 9..=13) {
        let again = produce_again(&row).unwrap();
        // Unknown tags are skipped.
        if !row.has_unknown_tags && !row.has_empty_topics {
            assert_eq!(again, row.body, "version {}", row.version);
            count += 1;
        }
    }
    assert!(count >= 15, "{count}");
}

#[test]
fn fetch_requests_of_kafka_are_read_whole_or_named_tagged() {
    let (mut whole, mut tagged) = (0, 0);
    for row in rows("api/001-Fetch.jsonl.gz", "FetchRequest", 12..=18) {
        match fetch_again(&row) {
            Ok(again) if !row.has_unknown_tags && !row.has_empty_topics && !row.has_partition_tags => {
                assert!(row.body.starts_with(&again), "version {}", row.version);
                whole += 1;
            }
            Ok(_) => {}
            Err(reason) => {
                assert_eq!(reason, NotPlain::Tagged, "version {}", row.version);
                tagged += 1;
            }
        }
    }
    assert!(whole >= 4 && tagged >= 4, "{whole} {tagged}");
}

#[test]
fn what_kafka_refuses_is_not_plain() {
    let mut refused = 0;
    for row in rows("malformed.jsonl.gz", "ProduceRequest", 9..=13) {
        assert!(row.is_sound || produce_again(&row).is_err());
        refused += usize::from(!row.is_sound);
    }
    for row in rows("malformed.jsonl.gz", "FetchRequest", 12..=18) {
        assert!(row.is_sound || fetch_again(&row).is_err());
        refused += usize::from(!row.is_sound);
    }
    assert!(refused >= 5, "{refused}");
}

#[test]
fn every_shorter_frame_is_not_plain() {
    for row in rows("api/000-Produce.jsonl.gz", "ProduceRequest", 9..=13) {
        for end in 0..row.body.len() {
            let cut = Row { body: row.body[..end].to_vec(), ..row };
            assert_eq!(produce_again(&cut), Err(NotPlain::Malformed));
        }
    }
    for row in rows("api/001-Fetch.jsonl.gz", "FetchRequest", 12..=18) {
        for end in 0..row.body.len() {
            let cut = Row { body: row.body[..end].to_vec(), ..row };
            assert!(fetch_again(&cut).is_err());
        }
    }
}

#[test]
fn produce_answers_are_written_as_kafka_writes_them() {
    let mut count = 0;
    for row in rows("api/000-Produce.jsonl.gz", "ProduceResponse", 9..=13) {
        if let Some(again) = response_again(&row) {
            assert!(row.body.starts_with(&again), "version {}", row.version);
            count += 1;
        }
    }
    assert!(count >= 3, "{count}");
}

/// The topics of an answer written again, and what follows them if it has no throttle time; nothing if a partition has
/// a tagged field, which is not written here, or a refused record without a reason, which the data path never sends.
fn response_again(row: &Row) -> Option<Vec<u8>> {
    let mut reader = Reader::new(&row.body);
    let topic_count = reader.count(1).unwrap();
    let mut writer = produce::begin_response(0, topic_count);
    for _ in 0..topic_count {
        let topic = reader.topic(produce::has_topic_ids(row.version)).unwrap();
        let partition_count = reader.count(1).unwrap();
        produce::begin_topic(&mut writer, topic, partition_count);
        for _ in 0..partition_count {
            let mut partition = produce::PartitionResponse {
                index: reader.int32().unwrap(),
                error_code: reader.int16().unwrap(),
                base_offset: reader.int64().unwrap(),
                log_append_time_ms: reader.int64().unwrap(),
                log_start_offset: reader.int64().unwrap(),
                ..produce::PartitionResponse::default()
            };
            let mut record_errors = Vec::new();
            for _ in 0..reader.count(1).unwrap() {
                let index = reader.int32().unwrap();
                record_errors.push((index, reader.nullable_text().unwrap()?.to_owned()));
                reader.tags(0).unwrap();
            }
            partition.record_errors = &record_errors;
            partition.error_message = reader.nullable_text().unwrap();
            reader.tags(1).ok()?;
            produce::write_partition(&mut writer, &partition);
        }
        reader.tags(0).unwrap();
        produce::end_topic(&mut writer);
    }
    if reader.int32().unwrap() == 0 && reader.tags(1).is_ok() && !row.has_unknown_tags {
        produce::end_response(&mut writer, &[]);
    }
    Some(body_of(writer))
}
