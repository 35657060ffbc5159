//! Answers on their way into a socket.
use std::collections::VecDeque;
use std::io::{self, IoSlice};
use std::os::fd::BorrowedFd;

use kraftlog_log::log::FileSlice;
use rustix::io::Errno;
use rustix::net::{SendAncillaryBuffer, SendFlags};

use crate::exchange::Output;

/// Below this a read and a copy cost less than a system call of its own: with one batch of a producer's default 16 KB,
/// a fetch takes three quarters of the processor time.
const COPY_BELOW_BYTES: u64 = 32 * 1024;
const BUFFERS_PER_SEND: usize = 64;

#[derive(Debug)]
enum Piece {
    Bytes {
        data: Vec<u8>,
        sent: usize,
    },
    /// The unsent rest; the slice keeps its file open.
    File {
        slice: FileSlice,
        position: u64,
        remaining: u64,
    },
}

/// How far [`OutputQueue::send`] came.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Sent {
    /// Nothing is left.
    All,
    /// The kernel takes no more for now.
    Blocked,
    /// The caller's bound was used up.
    Bounded,
}

/// Unsent pieces in order.
#[derive(Debug, Default)]
pub(super) struct OutputQueue {
    pieces: VecDeque<Piece>,
}

/// Bytes of an answer on the wire.
pub(super) fn size_bytes(outputs: &[Output]) -> usize {
    let size = |output: &Output| match output {
        Output::Bytes(data) => data.len(),
        Output::File(slice) => usize::try_from(slice.size_bytes()).unwrap_or(usize::MAX),
    };
    outputs.iter().map(size).sum()
}

impl OutputQueue {
    pub(super) fn is_empty(&self) -> bool {
        self.pieces.is_empty()
    }

    /// Queue an answer; small slices of files are read now.
    ///
    /// # Errors
    /// A file cannot be read.
    pub(super) fn push(&mut self, outputs: Vec<Output>) -> Result<(), String> {
        for output in outputs {
            let data = match output {
                Output::Bytes(data) => data,
                Output::File(slice)
                    if slice.size_bytes() >= COPY_BELOW_BYTES && slice.descriptor().is_some() =>
                {
                    let (position, remaining) = (slice.position(), slice.size_bytes());
                    self.pieces.push_back(Piece::File { slice, position, remaining });
                    continue;
                }
                Output::File(slice) => slice.read().map_err(|error| format!("send failed: {error}"))?,
            };
            self.push_bytes(data);
        }
        Ok(())
    }

    /// Queue bytes.
    pub(super) fn push_bytes(&mut self, data: Vec<u8>) {
        if !data.is_empty() {
            self.pieces.push_back(Piece::Bytes { data, sent: 0 });
        }
    }

    /// Send until nothing is left, the kernel takes no more, or `max_bytes` are sent. `count` is given each number of
    /// bytes that the kernel took.
    ///
    /// # Errors
    /// The socket failed, or a file ended before its slice did.
    pub(super) fn send(
        &mut self,
        socket: BorrowedFd<'_>,
        max_bytes: usize,
        mut count: impl FnMut(usize),
    ) -> io::Result<Sent> {
        let mut left = max_bytes;
        while !self.pieces.is_empty() {
            if left == 0 {
                return Ok(Sent::Bounded);
            }
            let taken = match self.pieces.front_mut() {
                Some(Piece::File { slice, position, remaining }) => {
                    send_file(socket, slice, position, remaining, left)
                }
                _ => self.send_buffers(socket),
            };
            match taken {
                Ok(taken) => {
                    count(taken);
                    left = left.saturating_sub(taken);
                    self.drop_sent(taken);
                }
                Err(Errno::AGAIN) => return Ok(Sent::Blocked),
                Err(Errno::INTR) => {}
                Err(Errno::NODATA) => {
                    return Err(io::Error::new(
                        io::ErrorKind::UnexpectedEof,
                        "the file ended before the slice did",
                    ));
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(Sent::All)
    }

    /// Send the run of buffers at the front in one call.
    fn send_buffers(&self, socket: BorrowedFd<'_>) -> rustix::io::Result<usize> {
        let mut buffers = [IoSlice::new(&[]); BUFFERS_PER_SEND];
        let mut used = 0;
        let mut flags = SendFlags::NOSIGNAL;
        for (piece, buffer) in self.pieces.iter().zip(&mut buffers) {
            match piece {
                Piece::Bytes { data, sent } => *buffer = IoSlice::new(data.get(*sent..).unwrap_or_default()),
                Piece::File { .. } => {
                    // The file's bytes follow at once: let the kernel fill the packet instead of sending a short one.
                    flags |= SendFlags::MORE;
                    break;
                }
            }
            used += 1;
        }
        let buffers = buffers.get(..used).unwrap_or_default();
        rustix::net::sendmsg(socket, buffers, &mut SendAncillaryBuffer::default(), flags)
    }

    /// Forget bytes of buffers that were sent; of a file they were counted when it was sent.
    fn drop_sent(&mut self, mut taken: usize) {
        while let Some(piece) = self.pieces.front_mut() {
            match piece {
                Piece::Bytes { data, sent } => {
                    let rest = data.len() - *sent;
                    if taken < rest {
                        *sent += taken;
                        return;
                    }
                    taken -= rest;
                }
                Piece::File { remaining, .. } => {
                    if *remaining > 0 {
                        return;
                    }
                    taken = 0;
                }
            }
            self.pieces.pop_front();
            if taken == 0 {
                return;
            }
        }
    }
}

fn send_file(
    socket: BorrowedFd<'_>,
    slice: &FileSlice,
    position: &mut u64,
    remaining: &mut u64,
    max_bytes: usize,
) -> rustix::io::Result<usize> {
    let file = slice.descriptor().ok_or(Errno::BADF)?;
    let count = usize::try_from(*remaining).unwrap_or(usize::MAX).min(max_bytes);
    let mut from = *position;
    let taken = rustix::fs::sendfile(socket, file, Some(&mut from), count)?;
    if taken == 0 {
        return Err(Errno::NODATA);
    }
    *position += taken as u64;
    *remaining = remaining.saturating_sub(taken as u64);
    Ok(taken)
}
