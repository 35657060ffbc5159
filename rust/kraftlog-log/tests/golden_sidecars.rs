//! Every sidecar that Kafka wrote into the golden directories is read and written again to the same bytes.
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use kraftlog_log::epoch_checkpoint::{self, EpochCheckpoint};
use kraftlog_log::fs::{read_file, FileSystem, MemoryFileSystem};
use kraftlog_log::index::OffsetIndex;
use kraftlog_log::partition_metadata;
use kraftlog_log::producer_state::{read_snapshot, write_snapshot};
use kraftlog_log::segment::TransactionIndex;
use kraftlog_log::time_index::TimeIndex;

fn files(folder: &Path, matches: &dyn Fn(&str) -> bool, found: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            files(&path, matches, found);
        } else if path.file_name().and_then(|name| name.to_str()).is_some_and(matches) {
            found.push(path);
        }
    }
}

fn golden(matches: impl Fn(&str) -> bool) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden");
    files(&root, &matches, &mut found);
    assert!(found.len() > 10, "{} files", found.len());
    found.into_iter().map(|path| (path.clone(), fs::read(path).unwrap())).collect()
}

fn memory() -> Arc<MemoryFileSystem> {
    let fs = MemoryFileSystem::new();
    fs.create_dir(Path::new("/log")).unwrap();
    Arc::new(fs)
}

fn written(fs: &MemoryFileSystem, name: &str) -> Vec<u8> {
    read_file(fs, &Path::new("/log").join(name)).unwrap().unwrap()
}

fn base_offset(path: &Path) -> i64 {
    path.file_stem().unwrap().to_str().unwrap().parse().unwrap()
}

#[test]
fn producer_snapshots() {
    let mut filled = 0;
    for (path, bytes) in golden(|name| name.ends_with(".snapshot")) {
        let entries = read_snapshot(&bytes).unwrap();
        filled += usize::from(!entries.is_empty());
        assert_eq!(write_snapshot(entries.iter()), bytes, "{}", path.display());
    }
    assert!(filled > 20, "{filled}");
}

#[test]
fn partition_metadata_files() {
    for (path, bytes) in golden(|name| name == partition_metadata::FILE_NAME) {
        let fs = memory();
        let directory = path.parent().unwrap();
        let id = partition_metadata::read(&kraftlog_log::fs::RealFileSystem, directory).unwrap().unwrap();
        partition_metadata::write(fs.as_ref(), Path::new("/log"), id).unwrap();
        assert_eq!(written(&fs, partition_metadata::FILE_NAME), bytes, "{}", path.display());
    }
}

#[test]
fn epoch_checkpoints() {
    let mut longest = 0;
    for (path, bytes) in golden(|name| name == epoch_checkpoint::FILE_NAME) {
        let real = Arc::new(kraftlog_log::fs::RealFileSystem);
        let found = EpochCheckpoint::open(real, path.parent().unwrap()).unwrap();
        assert_eq!(found.is_unreadable(), bytes.is_empty(), "{}", path.display());
        let fs = memory();
        let mut again = EpochCheckpoint::open(fs.clone(), Path::new("/log")).unwrap();
        again.restart();
        for entry in found.entries() {
            again.assign(entry.epoch, entry.start_offset);
        }
        again.flush().unwrap();
        longest = longest.max(found.entries().len());
        if !bytes.is_empty() {
            assert_eq!(written(&fs, epoch_checkpoint::FILE_NAME), bytes, "{}", path.display());
        }
    }
    assert!(longest > 2);
}

#[test]
fn transaction_indexes() {
    let mut count = 0;
    for (path, bytes) in golden(|name| name.ends_with(".txnindex")) {
        let fs = memory();
        let real = Arc::new(kraftlog_log::fs::RealFileSystem);
        let mut found = TransactionIndex::new(real, path.clone());
        let mut again = TransactionIndex::new(fs.clone(), "/log/0.txnindex".into());
        for aborted in found.entries().unwrap().iter() {
            again.append(*aborted).unwrap();
            count += 1;
        }
        if !bytes.is_empty() {
            assert_eq!(written(&fs, "0.txnindex"), bytes, "{}", path.display());
        }
    }
    assert!(count > 10, "{count}");
}

/// The bytes without the zeros that Kafka preallocates and a killed broker leaves.
fn without_zeros(bytes: &[u8], entry_bytes: usize) -> &[u8] {
    let used = bytes.chunks(entry_bytes).rposition(|entry| entry.iter().any(|byte| *byte != 0));
    bytes.get(..used.map_or(0, |last| (last + 1) * entry_bytes)).unwrap_or_default()
}

#[test]
fn offset_and_time_indexes() {
    let mut entries = 0;
    let is_index = |name: &str| name.ends_with(".index") || name.ends_with(".timeindex");
    for (path, bytes) in golden(is_index) {
        let fs = memory();
        let real = Arc::new(kraftlog_log::fs::RealFileSystem);
        let base = base_offset(&path);
        // The first flush writes what is held back; reading again gives the same entries.
        let target = PathBuf::from("/log/written");
        let entry_bytes = if path.extension().is_some_and(|kind| kind == "index") {
            let mut found = OffsetIndex::open(real, path.clone(), base);
            let mut again = OffsetIndex::create(fs.clone(), target.clone(), base).unwrap();
            for index in 0..found.count().unwrap() {
                let entry = found.entry(index).unwrap();
                again.append(entry.offset, entry.position).unwrap();
                entries += 1;
            }
            again.flush().unwrap();
            8
        } else {
            let mut found = TimeIndex::open(real, path.clone(), base);
            let mut again = TimeIndex::create(fs.clone(), target.clone(), base).unwrap();
            for index in 0..found.count().unwrap() {
                again.maybe_append(found.entry(index).unwrap()).unwrap();
                entries += 1;
            }
            again.flush().unwrap();
            12
        };
        assert_eq!(written(&fs, "written"), without_zeros(&bytes, entry_bytes), "{}", path.display());
    }
    assert!(entries > 1000, "{entries}");
}
