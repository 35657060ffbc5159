use super::*;
use crate::fs::{read_file, Random};

const PATH: &str = "/d/file";

fn disk() -> (MemoryFileSystem, Arc<dyn FileHandle>) {
    let fs = MemoryFileSystem::with_directory(Path::new("/d"));
    let file = fs.open(Path::new(PATH), OpenMode::Create).unwrap();
    fs.sync_dir(Path::new("/d")).unwrap();
    (fs, file)
}

fn content(fs: &MemoryFileSystem) -> Option<Vec<u8>> {
    read_file(fs, Path::new(PATH)).unwrap()
}

fn outcomes(fs: &MemoryFileSystem, data: DataLoss, names: NameLoss) -> Vec<Option<Vec<u8>>> {
    let mut found: Vec<_> =
        (0..200).map(|seed| content(&fs.crash_with(&Crash { data, names, seed }))).collect();
    found.sort();
    found.dedup();
    found
}

fn some(texts: &[&str]) -> Vec<Option<Vec<u8>>> {
    texts.iter().map(|text| Some(text.as_bytes().to_vec())).collect()
}

#[test]
fn unsynced_writes_are_lost_as_told() {
    let (fs, file) = disk();
    file.write_all_at(&[b"ab"], 0).unwrap();
    file.sync_data().unwrap();
    file.write_all_at(&[b"cd"], 2).unwrap();
    file.write_all_at(&[b"ef"], 4).unwrap();
    let lost = |data| outcomes(&fs, data, NameLoss::Nothing);
    assert_eq!(lost(DataLoss::Nothing), some(&["abcdef"]));
    assert_eq!(lost(DataLoss::Everything), some(&["ab"]));
    assert_eq!(lost(DataLoss::Suffix), some(&["ab", "abcd", "abcdef"]));
    assert_eq!(lost(DataLoss::Torn { sector_bytes: 1 }), some(&["ab", "abc", "abcd", "abcde", "abcdef"]));
    assert_eq!(lost(DataLoss::Contents), some(&["ab\0\0\0\0"]));
    assert_eq!(lost(DataLoss::Tail { bytes: 3 }), some(&["abcde"]));
    assert_eq!(lost(DataLoss::Pages), some(&["ab", "ab\0\0", "ab\0\0\0\0", "abcd", "abcd\0\0", "abcdef"]));
    file.truncate(1).unwrap();
    assert!(lost(DataLoss::Suffix).contains(&Some(b"abcdef".to_vec())));
    assert!(lost(DataLoss::Suffix).contains(&Some(b"a".to_vec())));
}

#[test]
fn names_are_lost_without_a_sync_of_their_directory() {
    let (fs, file) = disk();
    file.write_all_at(&[b"x"], 0).unwrap();
    file.sync_data().unwrap();
    let [one, two] = ["/d/one", "/d/two"].map(Path::new);
    fs.rename(Path::new(PATH), one).unwrap();
    fs.rename(one, two).unwrap();
    let found = |names| -> Vec<Vec<String>> {
        let crash = |seed| fs.crash_with(&Crash { data: DataLoss::Nothing, names, seed });
        let mut found: Vec<_> = (0..100).map(|seed| crash(seed).list(Path::new("/d")).unwrap()).collect();
        found.sort();
        found.dedup();
        found
    };
    assert_eq!(found(NameLoss::Everything), [["file"]]);
    assert_eq!(found(NameLoss::Nothing), [["two"]]);
    assert_eq!(found(NameLoss::Suffix), [["file"], ["one"], ["two"]]);
    fs.sync_dir(Path::new("/d")).unwrap();
    assert_eq!(found(NameLoss::Everything), [["two"]]);
    // A directory without a durable name takes its files along.
    fs.create_dir(Path::new("/d/e")).unwrap();
    fs.open(Path::new("/d/e/f"), OpenMode::Create).unwrap();
    fs.sync_dir(Path::new("/d/e")).unwrap();
    let crash = Crash { data: DataLoss::Nothing, names: NameLoss::Everything, seed: 0 };
    assert!(!fs.crash_with(&crash).exists(Path::new("/d/e/f")).unwrap());
    fs.sync_dir(Path::new("/d")).unwrap();
    assert!(fs.crash_with(&crash).exists(Path::new("/d/e/f")).unwrap());
}

#[test]
fn a_failed_fsync_drops_pages_for_good() {
    let mut lost = 0;
    for seed in 0..40 {
        let (fs, file) = disk();
        fs.set_fault_seed(seed);
        file.write_all_at(&[b"abc"], 0).unwrap();
        fs.fail(Operation::Sync, 0, libc::EIO);
        assert!(file.sync_data().is_err());
        assert_eq!(content(&fs), Some(b"abc".to_vec()));
        file.write_all_at(&[b"d"], 3).unwrap();
        file.sync_data().unwrap();
        let crash = Crash { data: DataLoss::Everything, names: NameLoss::Nothing, seed };
        let found = content(&fs.crash_with(&crash)).unwrap();
        assert_eq!(found[3], b'd');
        lost += usize::from(found != b"abcd");
    }
    assert!((1..40).contains(&lost), "{lost}");
}

#[test]
fn faults_come_when_told() {
    let (fs, file) = disk();
    fs.set_capacity(Some(4));
    assert_eq!(file.write_all_at(&[b"abcdef"], 0).unwrap_err().raw_os_error(), Some(libc::ENOSPC));
    assert_eq!(content(&fs), Some(b"abcd".to_vec()));
    fs.set_capacity(None);
    fs.flip_on_read(0);
    let flipped = content(&fs).unwrap();
    let bits: u32 = flipped.iter().zip(b"abcd").map(|(a, b)| (a ^ b).count_ones()).sum();
    assert_eq!(bits, 1);
    assert_eq!(content(&fs), Some(b"abcd".to_vec()));
    assert!(fs.flip_bit(Path::new(PATH), 8));
    assert_eq!(content(&fs), Some(b"accd".to_vec()));
    assert!(!fs.flip_bit(Path::new(PATH), 32));
    fs.set_short_io(Some(3));
    let data: Vec<u8> = (0..9000_u32).map(|index| index as u8).collect();
    file.write_all_at(&[&data[..5000], &data[5000..]], 0).unwrap();
    assert_eq!(content(&fs), Some(data));
}

#[test]
fn disks_of_a_machine_stop_together() {
    let ((first, file), (second, other)) = (disk(), disk());
    MemoryFileSystem::crash_together_after(&[first.clone(), second.clone()], 3);
    file.write_all_at(&[b"one"], 0).unwrap();
    other.write_all_at(&[b"two"], 0).unwrap();
    other.sync_data().unwrap();
    for result in [file.sync_data(), other.write_all_at(&[b"three"], 0)] {
        assert_eq!(result.unwrap_err().raw_os_error(), Some(libc::EIO));
    }
    assert_eq!(content(&second), Some(b"two".to_vec()));
    first.never_crash();
    file.sync_data().unwrap();
    assert!(other.sync_data().is_err());
}

#[test]
fn recordings_hold_the_state_before_each_change() {
    let (fs, file) = disk();
    fs.start_recording();
    file.write_all_at(&[b"a"], 0).unwrap();
    file.sync_data().unwrap();
    file.write_all_at(&[b"b"], 0).unwrap();
    let contents: Vec<_> = fs.take_recording().iter().map(content).collect();
    assert_eq!(contents, some(&["", "a", "a"]));
}

#[test]
fn removed_files_are_forgotten_once_nobody_can_reach_them() {
    let fs = MemoryFileSystem::with_directory(Path::new("/d"));
    let kept = fs.open(Path::new("/d/kept"), OpenMode::Create).unwrap();
    kept.write_all_at(&[b"k"], 0).unwrap();
    fs.remove(Path::new("/d/kept")).unwrap();
    let mut random = Random::new(1);
    for number in 0..1000 {
        let path = format!("/d/{number}");
        fs.open(Path::new(&path), OpenMode::Create).unwrap();
        fs.remove(Path::new(&path)).unwrap();
        if random.one_in(10) {
            fs.sync_dir(Path::new("/d")).unwrap();
        }
    }
    assert!(fs.lock().inodes.len() < 200);
    let mut byte = [0];
    kept.read_exact_at(&mut byte, 0).unwrap();
    assert_eq!(byte, *b"k");
}
