//! snappy: bounded, repeatable, the same as another decoder, and the same bytes after compressing again.
#![no_main]
use kraftlog_log::compression::Codec;
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| kraftlog_fuzz::codec::check(Codec::Snappy, data));
