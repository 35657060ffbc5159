//! Decodes a file of record batches with the kafka-protocol crate. Lines on standard input: `load PATH` reads a file, any
//! other line has it decoded as many times as the first argument says; each is answered by a line with the records.
use bytes::Bytes;
use kafka_protocol::records::RecordBatchDecoder;
use std::io::{BufRead, Write};

fn decode(mut bytes: Bytes) -> usize {
    let mut count = 0;
    for set in RecordBatchDecoder::decode_all(&mut bytes).expect("batches") {
        for record in &set.records {
            std::hint::black_box((record.offset, &record.key, &record.value));
        }
        count += set.records.len();
    }
    count
}

fn main() {
    let times: usize = std::env::args().nth(1).expect("times").parse().expect("a number");
    let mut bytes = Bytes::new();
    for line in std::io::stdin().lock().lines() {
        let line = line.expect("a line");
        let count = match line.strip_prefix("load ") {
            Some(path) => {
                bytes = Bytes::from(std::fs::read(path).expect("the file"));
                decode(bytes.clone())
            }
            None => (0..times).map(|_| decode(bytes.clone())).sum(),
        };
        println!("{count}");
        std::io::stdout().flush().expect("standard output");
    }
}
