//! Reading that leaves the page cache as it was, for bulk reads of files that somebody else serves from it.
use arrow_buffer::Buffer;
use rustix::fs::{fadvise, Advice};
use rustix::io::{pread, preadv2, Errno, ReadWriteFlags};
use std::fs::File;
use std::io::IoSliceMut;
use std::num::NonZeroU64;

/// Has the kernel read nothing ahead: what it read by itself could not be told from what others want.
pub(super) fn prepare(file: &File) {
    // Advice: a file system that takes none reads as ever.
    let _ = fadvise(file, 0, None, Advice::Random);
}

/// Up to `size` bytes of the file, fewer only where it ends. Pages that the cache did not have before are dropped from
/// it again; what it had from the first byte on stays, since somebody else reads or wrote it lately.
pub(super) fn read_once(file: &File, position: u64, size: usize) -> std::io::Result<Buffer> {
    let mut bytes = vec![0; size];
    let cached = read_cached(file, position, &mut bytes)?;
    let mut length = cached;
    while let Some(rest) = bytes.get_mut(length..).filter(|rest| !rest.is_empty()) {
        match pread(file, rest, position + length as u64) {
            Ok(0) => break,
            Ok(read) => length += read,
            Err(Errno::INTR) => {}
            Err(error) => return Err(error.into()),
        }
    }
    if let Some(new) = NonZeroU64::new((length - cached) as u64) {
        // Whole pages only: of two neighbouring reads one page may stay.
        let _ = fadvise(file, position + cached as u64, Some(new), Advice::DontNeed);
    }
    bytes.truncate(length);
    Ok(Buffer::from_vec(bytes))
}

/// How many bytes the cache gave without waiting for the disk; none where the file system cannot say.
fn read_cached(file: &File, position: u64, bytes: &mut [u8]) -> std::io::Result<usize> {
    let mut slices = [IoSliceMut::new(bytes)];
    loop {
        match preadv2(file, &mut slices, position, ReadWriteFlags::NOWAIT) {
            Ok(read) => return Ok(read),
            Err(Errno::INTR) => {}
            Err(Errno::AGAIN | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => return Ok(0),
            Err(error) => return Err(error.into()),
        }
    }
}
