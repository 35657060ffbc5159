//! What the fuzz targets share: an allocator that holds code to a bound, bytes made into sound frames, and files.
pub mod codec;

use kraftlog_log::batch::{split_header_mut, update_crc, HEADER_SIZE, LOG_OVERHEAD};
use kraftlog_log::compression::{compress, Codec};
use kraftlog_log::fs::{FileSystem, MemoryFileSystem, OpenMode};
use std::alloc::{GlobalAlloc, Layout, System};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::Arc;

static SINGLE_MAX: AtomicUsize = AtomicUsize::new(usize::MAX);
static LIVE_MAX: AtomicUsize = AtomicUsize::new(usize::MAX);
static LIVE: AtomicUsize = AtomicUsize::new(0);

/// The system's allocator, which ends the process when an allocation passes the bounds of [`bounded`].
struct Bounded;

#[global_allocator]
static ALLOCATOR: Bounded = Bounded;

impl Bounded {
    fn note(size: usize) {
        let live = LIVE.fetch_add(size, Relaxed).wrapping_add(size);
        let (single_max, live_max) = (SINGLE_MAX.load(Relaxed), LIVE_MAX.load(Relaxed));
        if size > single_max || live > live_max {
            SINGLE_MAX.store(usize::MAX, Relaxed);
            LIVE_MAX.store(usize::MAX, Relaxed);
            eprintln!("allocation of {size} bytes, {live} in use; allowed are {single_max} and {live_max}");
            std::process::abort();
        }
    }
}

// SAFETY: every call goes to the system's allocator unchanged.
unsafe impl GlobalAlloc for Bounded {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        Self::note(layout.size());
        System.alloc(layout)
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        Self::note(layout.size());
        System.alloc_zeroed(layout)
    }

    unsafe fn dealloc(&self, pointer: *mut u8, layout: Layout) {
        LIVE.fetch_sub(layout.size(), Relaxed);
        System.dealloc(pointer, layout);
    }

    unsafe fn realloc(&self, pointer: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        Self::note(size);
        LIVE.fetch_sub(layout.size(), Relaxed);
        System.realloc(pointer, layout, size)
    }
}

/// Runs `body`; an allocation of more than `bytes`, or more than that in use at once, is a finding.
pub fn bounded<T>(bytes: usize, body: impl FnOnce() -> T) -> T {
    LIVE_MAX.store(LIVE.load(Relaxed).saturating_add(bytes), Relaxed);
    SINGLE_MAX.store(bytes, Relaxed);
    let result = body();
    SINGLE_MAX.store(usize::MAX, Relaxed);
    LIVE_MAX.store(usize::MAX, Relaxed);
    result
}

/// What a parser without decompression may take for `input` bytes: copies, a few structures, chunks.
pub fn plain_bound(input: usize) -> usize {
    256 * input + (16 << 20)
}

/// What `input` compressed bytes may grow to in the default bound, with room for doubling and columns.
pub fn inflating_bound(input: usize) -> usize {
    plain_bound(input) + 4 * kraftlog_log::compression::Bound::DEFAULT.limit(input)
}

/// A batch out of any bytes: length, magic and checksum are made right, all else stays. None if too short.
pub fn framed(data: &[u8]) -> Option<Vec<u8>> {
    if data.len() < HEADER_SIZE {
        return None;
    }
    let mut batch = data.to_vec();
    batch[8..12].copy_from_slice(&((data.len() - LOG_OVERHEAD) as u32).to_be_bytes());
    batch[16] = 2;
    let (header, body) = split_header_mut(&mut batch).ok()?;
    update_crc(header, body);
    Some(batch)
}

/// As [`framed`], with the records compressed as the attributes ask when `compress_body`.
pub fn framed_compressed(data: &[u8]) -> Option<Vec<u8>> {
    let header = data.get(..HEADER_SIZE)?;
    let codec = Codec::from_id(header[22] & 7)?;
    let mut batch = header.to_vec();
    compress(codec, None, &data[HEADER_SIZE..], &mut batch).ok()?;
    framed(&batch)
}

/// Batches out of any bytes, back to back: each is given the length its own field asks for, within what is left.
pub fn framed_many(data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = data;
    while rest.len() >= HEADER_SIZE {
        let asked = u32::from_be_bytes([rest[8], rest[9], rest[10], rest[11]]) as usize % (64 << 10);
        let size = (asked + LOG_OVERHEAD).clamp(HEADER_SIZE, rest.len());
        let (batch, after) = rest.split_at(size);
        // One batch in sixteen keeps its damage.
        match framed(batch) {
            Some(batch) if data[0] & 15 != (out.len() & 15) as u8 => out.extend(batch),
            _ => out.extend_from_slice(batch),
        }
        rest = after;
    }
    out.extend_from_slice(rest);
    out
}

/// Entries of the formats before record batches out of any bytes: length, magic 0 or 1 and CRC-32 are made right.
pub fn legacy_framed(data: &[u8]) -> Vec<u8> {
    let mut out = Vec::new();
    let mut rest = data;
    while rest.len() >= 26 {
        let asked = u32::from_be_bytes([rest[8], rest[9], rest[10], rest[11]]) as usize % 4096;
        let size = (asked + 12).clamp(26, rest.len());
        let (entry, after) = rest.split_at(size);
        let mut entry = entry.to_vec();
        entry[8..12].copy_from_slice(&((size - 12) as u32).to_be_bytes());
        entry[16] &= 1;
        let crc = flate2_crc(&entry[16..]);
        entry[12..16].copy_from_slice(&crc.to_be_bytes());
        out.extend(entry);
        rest = after;
    }
    out.extend_from_slice(rest);
    out
}

fn flate2_crc(data: &[u8]) -> u32 {
    let mut crc = flate2::Crc::new();
    crc.update(data);
    crc.sum()
}

/// A directory in memory with these files.
pub fn directory(files: &[(&str, &[u8])]) -> (Arc<dyn FileSystem>, PathBuf) {
    let path = PathBuf::from("/topic-0");
    let fs = MemoryFileSystem::new();
    fs.create_dir(&path).expect("a directory in memory");
    for (name, bytes) in files {
        let file = fs.open(&path.join(name), OpenMode::Truncate).expect("a file in memory");
        file.write_all_at(&[bytes], 0).expect("a write in memory");
    }
    (Arc::new(fs), path)
}

/// All bytes of a file in memory.
pub fn bytes_of(fs: &dyn FileSystem, path: &Path) -> Vec<u8> {
    kraftlog_log::fs::read_file(fs, path).expect("a file in memory").unwrap_or_default()
}

/// A real file that holds `data`, for readers that open paths; the same path every time.
pub fn scratch_file(directory: &str, name: &str, data: &[u8]) -> PathBuf {
    let root = std::env::temp_dir().join(format!("kraftlog-fuzz-{}", std::process::id())).join(directory);
    std::fs::create_dir_all(&root).expect("a scratch directory");
    let path = root.join(name);
    std::fs::write(&path, data).expect("a scratch file");
    path
}

/// Cuts `data` into `count` pieces by lengths in its first bytes.
pub fn pieces<const N: usize>(data: &[u8]) -> [&[u8]; N] {
    let mut pieces: [&[u8]; N] = [&[]; N];
    let header = (2 * N).min(data.len());
    let (lengths, mut rest) = data.split_at(header);
    for (index, piece) in pieces.iter_mut().enumerate() {
        let length = match lengths.get(2 * index..2 * index + 2) {
            Some(length) if index + 1 < N => usize::from(u16::from_be_bytes([length[0], length[1]])),
            _ => rest.len(),
        };
        let (taken, after) = rest.split_at(length.min(rest.len()));
        *piece = taken;
        rest = after;
    }
    pieces
}
