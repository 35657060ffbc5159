//! A socket that does not block: requests out in order, answers in.
use std::collections::VecDeque;
use std::io::{ErrorKind, IoSlice, Read, Write};
use std::net::TcpStream;
use std::os::fd::OwnedFd;
use std::rc::Rc;

use rustix::buffer::spare_capacity;
use rustix::event::{epoll, Timespec};

use crate::wire::CORRELATION;
use crate::Failure;

const HEAD: usize = CORRELATION.end;
const SLICES: usize = 64;

struct Outgoing {
    head: [u8; HEAD],
    frame: Rc<Vec<u8>>,
}

/// A connection and its requests under way.
pub struct Connection {
    /// The socket.
    pub stream: TcpStream,
    outgoing: VecDeque<Outgoing>,
    sent_bytes: usize,
    incoming: Vec<u8>,
    filled: usize,
    next_id: i32,
    oldest_id: i32,
}

impl Connection {
    /// Connects to `address`; `buffer_bytes` is the capacity for answers at first.
    pub fn open(address: &str, buffer_bytes: usize) -> Result<Self, Failure> {
        let stream = TcpStream::connect(address)?;
        stream.set_nodelay(true)?;
        stream.set_nonblocking(true)?;
        let incoming = vec![0; buffer_bytes];
        Ok(Self {
            stream,
            outgoing: VecDeque::new(),
            sent_bytes: 0,
            incoming,
            filled: 0,
            next_id: 0,
            oldest_id: 0,
        })
    }

    /// Put a request behind those that wait; [`Self::send`] sends it.
    pub fn queue(&mut self, frame: &Rc<Vec<u8>>) {
        let mut head = [0; HEAD];
        head.copy_from_slice(&frame[..HEAD]);
        head[CORRELATION].copy_from_slice(&self.next_id.to_be_bytes());
        self.next_id = self.next_id.wrapping_add(1);
        self.outgoing.push_back(Outgoing { head, frame: Rc::clone(frame) });
    }

    /// Send what the socket takes; the number of requests that went out whole.
    pub fn send(&mut self) -> Result<usize, Failure> {
        let mut whole = 0;
        while !self.outgoing.is_empty() {
            let mut slices = [IoSlice::new(&[]); SLICES];
            let mut used = 0;
            let mut skip = self.sent_bytes;
            for request in self.outgoing.iter().take(SLICES / 2) {
                for part in [&request.head[..], &request.frame[HEAD..]] {
                    let from = skip.min(part.len());
                    skip -= from;
                    if from < part.len() {
                        slices[used] = IoSlice::new(&part[from..]);
                        used += 1;
                    }
                }
            }
            match self.stream.write_vectored(&slices[..used]) {
                Ok(count) => self.sent_bytes += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => break,
                Err(error) => return Err(error.into()),
            }
            while let Some(first) = self.outgoing.front() {
                if self.sent_bytes < first.frame.len() {
                    break;
                }
                self.sent_bytes -= first.frame.len();
                self.outgoing.pop_front();
                whole += 1;
            }
        }
        Ok(whole)
    }

    /// Whether a request is not sent whole.
    pub fn has_unsent(&self) -> bool {
        !self.outgoing.is_empty()
    }

    /// Take what has arrived; `answer` gets each whole frame behind its length prefix.
    pub fn receive(&mut self, mut answer: impl FnMut(&[u8]) -> Result<(), Failure>) -> Result<(), Failure> {
        loop {
            let space = self.incoming.len() - self.filled;
            let count = match self.stream.read(&mut self.incoming[self.filled..]) {
                Ok(0) => return Err("the broker closed a connection".into()),
                Ok(count) => count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(error) => return Err(error.into()),
            };
            self.filled += count;
            let mut at = 0;
            let mut wanted = 0;
            while self.filled - at >= 4 {
                let size = u32::from_be_bytes(self.incoming[at..at + 4].try_into()?) as usize;
                if self.filled - at < 4 + size {
                    wanted = 4 + size;
                    break;
                }
                let frame = &self.incoming[at + 4..at + 4 + size];
                if frame[..4] != self.oldest_id.to_be_bytes() {
                    return Err("an answer has another correlation id than the oldest request".into());
                }
                self.oldest_id = self.oldest_id.wrapping_add(1);
                answer(frame)?;
                at += 4 + size;
            }
            self.incoming.copy_within(at..self.filled, 0);
            self.filled -= at;
            if wanted > self.incoming.len() {
                self.incoming.resize(wanted, 0);
            }
            if count < space {
                return Ok(()); // the socket is empty
            }
        }
    }
}

/// An epoll instance over connections, which it names by their places.
pub struct Poller {
    epoll: OwnedFd,
    ready: Vec<epoll::Event>,
}

impl Poller {
    /// Watches for answers on all of `connections`.
    pub fn new(connections: &[Connection]) -> Result<Self, Failure> {
        let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
        for (place, connection) in connections.iter().enumerate() {
            epoll::add(
                &epoll,
                &connection.stream,
                epoll::EventData::new_u64(place as u64),
                epoll::EventFlags::IN,
            )?;
        }
        Ok(Self { epoll, ready: Vec::with_capacity(1024) })
    }

    /// Watch for space to send too, or no longer.
    pub fn watch_space(&self, place: usize, connection: &Connection, is_wanted: bool) -> Result<(), Failure> {
        let flags =
            if is_wanted { epoll::EventFlags::IN | epoll::EventFlags::OUT } else { epoll::EventFlags::IN };
        Ok(epoll::modify(&self.epoll, &connection.stream, epoll::EventData::new_u64(place as u64), flags)?)
    }

    /// Wait at most `timeout_ns`; appends the places of the connections that are ready.
    pub fn wait(&mut self, timeout_ns: u64, places: &mut Vec<usize>) -> Result<(), Failure> {
        let timeout = Timespec {
            tv_sec: (timeout_ns / 1_000_000_000) as i64,
            tv_nsec: (timeout_ns % 1_000_000_000) as i64,
        };
        self.ready.clear();
        epoll::wait(&self.epoll, spare_capacity(&mut self.ready), Some(&timeout))?;
        places.extend(self.ready.iter().map(|event| event.data.u64() as usize));
        Ok(())
    }
}
