//! Produce and Fetch as the data path reads them: in place, in order, and not from a shorter frame.
#![no_main]
use kraftlog_fuzz::bounded;
use kraftlog_path::wire::fetch::{FetchPartition, FetchRequest, FetchVisitor};
use kraftlog_path::wire::{fetch, produce, Parsed, Reader, Topic};
use libfuzzer_sys::fuzz_target;

/// The parsers allocate nothing; whatever runs beside them may a little.
const BOUND: usize = 1024;
/// What the parsers promise at most.
const ELEMENTS_MAX: usize = 16 * 1024;

fuzz_target!(|data: &[u8]| {
    let Some((choice, body)) = data.split_first() else { return };
    bounded(BOUND, || {
        // As a whole frame, with the header.
        let mut before = 0;
        let parsed = produce::parse(body, |_, _, records| {
            let records = records.unwrap_or(before..before);
            assert!(before <= records.start && records.start <= records.end && records.end <= body.len());
            before = records.end;
            Ok(())
        });
        if let Ok((header, _)) = parsed {
            assert!((9..=13).contains(&header.api_version) && header.api_key == 0);
        }
        if let Ok((header, _)) = fetch::parse(body, &mut Counter::default()) {
            assert!((12..=18).contains(&header.api_version) && header.api_key == 1);
        }
        // As what follows the header.
        produce_body(body, 9 + i16::from(choice % 5));
        fetch_body(body, 12 + i16::from(choice % 7));
    });
});

fn produce_body(body: &[u8], version: i16) {
    let parse = |body| {
        let (mut reader, mut count) = (Reader::new(body), 0);
        let parsed = produce::parse_body(&mut reader, version, |_, _, _| {
            count += 1;
            Ok(())
        });
        assert!(count <= ELEMENTS_MAX);
        parsed.map(|_| reader.position())
    };
    if let Ok(end) = parse(body) {
        assert!(end <= body.len());
        assert_eq!(parse(&body[..end]), Ok(end));
        assert!(parse(&body[..end - 1]).is_err());
    }
}

fn fetch_body(body: &[u8], version: i16) {
    let parse = |body| {
        let (mut reader, mut counter) = (Reader::new(body), Counter::default());
        let parsed = fetch::parse_body(&mut reader, version, &mut counter);
        assert!(counter.0 <= ELEMENTS_MAX);
        parsed.map(|request| (request, counter.0, reader.position()))
    };
    if let Ok(found @ (_, _, end)) = parse(body) {
        assert!(end <= body.len());
        assert_eq!(parse(&body[..end]), Ok(found));
        assert!(parse(&body[..end - 1]).is_err());
    }
}

#[derive(Default)]
struct Counter(usize);

impl<'a> FetchVisitor<'a> for Counter {
    fn begin(&mut self, _: &FetchRequest) -> Parsed<()> {
        Ok(())
    }

    fn partition(&mut self, _: Topic<'a>, _: &FetchPartition) -> Parsed<()> {
        self.0 += 1;
        Ok(())
    }

    fn forgotten(&mut self, _: Topic<'a>, _: i32) -> Parsed<()> {
        self.0 += 1;
        Ok(())
    }
}
