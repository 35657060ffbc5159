//! What the kernel alone takes for an answered request: a server of one thread that looks at nothing but lengths.
use std::fs::File;
use std::io::{ErrorKind, Read, Write};
use std::net::{TcpListener, TcpStream};
use std::os::unix::fs::FileExt;

use rustix::buffer::spare_capacity;
use rustix::event::epoll;

use crate::options::Options;
use crate::wire::{put_count, CORRELATION};
use crate::Failure;

const RECEIVE_BYTES: usize = 128 << 10;

/// Options: `file`, to which each request is written with a call of its own; nothing is written without it.
///
/// Prints its address, answers the Produce v13 requests of one connection at a time with success, and never ends.
pub fn run(options: &mut Options) -> Result<(), Failure> {
    let path: String = options.take("file", String::new())?;
    options.finish()?;
    let file = if path.is_empty() { None } else { Some(File::create(path)?) };
    let listener = TcpListener::bind("127.0.0.1:0")?;
    println!("{}", listener.local_addr()?);
    let mut position = 0;
    for stream in listener.incoming() {
        serve(stream?, file.as_ref(), &mut position)?;
    }
    Ok(())
}

/// The answer of a broker to one batch on one partition; the correlation id is patched.
fn answer() -> Vec<u8> {
    let mut frame = vec![0; 8];
    frame.push(0);
    put_count(&mut frame, 1);
    frame.extend_from_slice(&[0; 16]);
    put_count(&mut frame, 1);
    frame.extend_from_slice(&[0; 4 + 2 + 24]); // index, error code, offsets
    put_count(&mut frame, 0);
    frame.extend_from_slice(&[0; 2 + 1 + 4 + 1]); // no message, tags of partition and topic, throttle time, tags
    let size = (frame.len() - 4) as i32;
    frame[..4].copy_from_slice(&size.to_be_bytes());
    frame
}

/// Answer until the client leaves: per wake-up one wait, one receive and one send, as a node does.
fn serve(mut stream: TcpStream, file: Option<&File>, position: &mut u64) -> Result<(), Failure> {
    stream.set_nodelay(true)?;
    stream.set_nonblocking(true)?;
    let epoll = epoll::create(epoll::CreateFlags::CLOEXEC)?;
    let flags = epoll::EventFlags::IN | epoll::EventFlags::RDHUP | epoll::EventFlags::ET;
    epoll::add(&epoll, &stream, epoll::EventData::new_u64(0), flags)?;
    let (one, mut ready) = (answer(), Vec::with_capacity(16));
    let (mut buffer, mut filled) = (vec![0; RECEIVE_BYTES], 0);
    let mut answers = Vec::new();
    loop {
        ready.clear();
        epoll::wait(&epoll, spare_capacity(&mut ready), None)?;
        match stream.read(&mut buffer[filled..]) {
            Ok(0) => return Ok(()),
            Ok(count) => filled += count,
            Err(error) if error.kind() == ErrorKind::WouldBlock => continue,
            Err(error) => return Err(error.into()),
        }
        let mut at = 0;
        while filled - at >= 4 {
            let size = 4 + u32::from_be_bytes(buffer[at..at + 4].try_into()?) as usize;
            if size > RECEIVE_BYTES {
                return Err("a request is larger than this server takes".into());
            }
            if filled - at < size {
                break;
            }
            if let Some(file) = file {
                file.write_all_at(&buffer[at..at + size], *position)?;
                *position += size as u64;
            }
            let start = answers.len();
            answers.extend_from_slice(&one);
            answers[start + 4..start + 8].copy_from_slice(&buffer[at..at + size][CORRELATION]);
            at += size;
        }
        buffer.copy_within(at..filled, 0);
        filled -= at;
        stream.write_all(&answers)?;
        answers.clear();
    }
}
