//! Text and JSON lines of a file: UTF-8, the same twice, and each line of JSON an object.
#![no_main]
use kraftlog_fuzz::{bounded, framed_many, inflating_bound, scratch_file};
use kraftlog_log::scan::{DumpFormat, DumpOptions, FileDump, Plain};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    let Some((&choice, data)) = data.split_first() else { return };
    let log = framed_many(data);
    let path = scratch_file("json", "00000000000000000000.log", &log);
    let is_json = choice & 4 == 0;
    // Escapes take six bytes for one.
    bounded(8 * inflating_bound(log.len()), || {
        let mut outputs = Vec::new();
        for _ in 0..2 {
            let format =
                if is_json { DumpFormat::Json { first_members: String::new() } } else { DumpFormat::Text };
            let options = DumpOptions {
                format,
                records: choice & 1 != 0,
                data: choice & 2 != 0,
                record_metadata: choice & 8 != 0,
                ..DumpOptions::default()
            };
            let mut dump = FileDump::open(&path, options).unwrap();
            let mut out = Vec::new();
            let outcome = loop {
                match dump.next_lines(&mut out, &mut Plain) {
                    Ok(true) => {}
                    Ok(false) => break true,
                    Err(_) => break false,
                }
            };
            outputs.push((outcome, out));
        }
        assert_eq!(outputs[0], outputs[1]);
        let text = std::str::from_utf8(&outputs[0].1).expect("lines are UTF-8");
        if is_json {
            for line in text.lines() {
                assert!(line.starts_with('{') && (line.ends_with('}') || !outputs[0].0), "{line}");
            }
        }
    });
});
