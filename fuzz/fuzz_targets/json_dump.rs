//! JSON lines of a file: each line is text that ends in a brace, and no line is lost between two runs.
#![no_main]
use kraftlog_fuzz::{bounded, framed_many, inflating_bound, scratch_file};
use kraftlog_log::scan::JsonDump;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&choice, data)) = data.split_first() else { return };
    let log = framed_many(data);
    let path = scratch_file("json", "00000000000000000000.log", &log);
    // Escapes take six bytes for one.
    bounded(8 * inflating_bound(log.len()), || {
        let mut outputs = Vec::new();
        for _ in 0..2 {
            let mut dump = JsonDump::open(&path, choice & 1 != 0, choice & 2 != 0, u64::MAX).unwrap();
            let mut out = Vec::new();
            let outcome = loop {
                match dump.next_lines(&mut out) {
                    Ok(true) => {}
                    Ok(false) => break true,
                    Err(_) => break false,
                }
            };
            outputs.push((outcome, out));
        }
        assert_eq!(outputs[0], outputs[1]);
        let text = std::str::from_utf8(&outputs[0].1).expect("JSON is UTF-8");
        for line in text.lines() {
            assert!(line.starts_with('{') && (line.ends_with('}') || !outputs[0].0), "{line}");
        }
    });
});
