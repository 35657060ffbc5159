//! `partition.metadata`: an id that is read is written as a file that reads the same.
#![no_main]
use kraftlog_fuzz::{bounded, directory, plain_bound};
use kraftlog_log::partition_metadata::{read, write};
use libfuzzer_sys::fuzz_target;

fuzz_target!(|data: &[u8]| {
    bounded(plain_bound(data.len()), || {
        let (fs, path) = directory(&[("partition.metadata", data)]);
        if let Ok(Some(id)) = read(fs.as_ref(), &path) {
            assert_ne!(id, [0; 16]);
            write(fs.as_ref(), &path, id).unwrap();
            assert_eq!(read(fs.as_ref(), &path).unwrap(), Some(id));
        }
    });
});
