//! I/O threads over socket pairs, with a service that does what each frame says.
use std::io::{ErrorKind, Read, Write};
use std::os::fd::OwnedFd;
use std::os::unix::net::UnixStream;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::thread::sleep;
use std::time::{Duration, Instant};

use super::*;
use crate::exchange::{
    Answered, ConnectionId, Outcome, Output, Peer, RequestId, RequestNumber, Service, FETCH, PRODUCE,
};
use crate::mailbox::Mailbox;

const METADATA: i16 = 3;
const PATIENCE: Duration = Duration::from_secs(10);

/// The third byte of a frame says what becomes of it; the answer has the bytes behind it.
struct Scripted {
    handled: Arc<AtomicUsize>,
    /// Of them, those that came with others.
    together: Arc<AtomicUsize>,
    pending: Arc<Mutex<Vec<RequestId>>>,
    lost: Arc<Mutex<Vec<ConnectionId>>>,
}

fn framed(data: &[u8]) -> Vec<u8> {
    let mut frame = i32::try_from(data.len()).unwrap().to_be_bytes().to_vec();
    frame.extend_from_slice(data);
    frame
}

fn answer(data: &[u8]) -> Outcome {
    Outcome::Answer(vec![Output::Bytes(framed(data))])
}

impl Service for Scripted {
    type Message = (RequestId, Vec<u8>);

    fn handle(&mut self, request: RequestId, _peer: &Peer, frame: &[u8], _now: Instant) -> Outcome {
        self.handled.fetch_add(1, Ordering::SeqCst);
        let (what, rest) = frame[2..].split_first().unwrap();
        match what {
            b'e' => answer(rest),
            // As many bytes as the four at the end say.
            b'l' => {
                let size = u32::from_be_bytes(rest.try_into().unwrap());
                answer(&vec![7; size as usize])
            }
            b's' => {
                let end = Instant::now() + Duration::from_millis(1);
                while Instant::now() < end {}
                answer(rest)
            }
            b'p' => {
                self.pending.lock().unwrap().push(request);
                Outcome::Pending
            }
            b'h' => Outcome::HandOver,
            b'n' => Outcome::NoAnswer,
            b'!' => panic!("as the frame says"),
            _ => Outcome::Close("not a request".to_owned()),
        }
    }

    fn handle_together(
        &mut self,
        first: RequestId,
        peer: &Peer,
        frames: &[&[u8]],
        now: Instant,
        outcomes: &mut Vec<Outcome>,
    ) {
        for (frame, number) in frames.iter().zip(first.number..) {
            let is_over = matches!(outcomes.last(), Some(Outcome::Close(_)));
            if frame.get(2) == Some(&b'h') || is_over {
                return;
            }
            outcomes.push(self.handle(RequestId { number, ..first }, peer, frame, now));
            self.together.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn message(&mut self, message: (RequestId, Vec<u8>), _now: Instant, answered: &mut Vec<Answered>) {
        answered.push(Answered { request: message.0, outcome: answer(&message.1) });
    }

    fn next_deadline(&self) -> Option<Instant> {
        None
    }

    fn on_time(&mut self, _now: Instant, _answered: &mut Vec<Answered>) {}

    fn end_turn(&mut self, _now: Instant, _is_alone: bool, _answered: &mut Vec<Answered>) {}

    fn connection_lost(&mut self, connection: ConnectionId) {
        self.lost.lock().unwrap().push(connection);
    }
}

type Message = <Scripted as Service>::Message;

struct Stage {
    threads: IoThreads<Message>,
    sender: ServiceSender<Message>,
    inbox: Arc<Mailbox<IoEvent>>,
    events: Vec<IoEvent>,
    handled: Arc<AtomicUsize>,
    together: Arc<AtomicUsize>,
    pending: Arc<Mutex<Vec<RequestId>>>,
    lost: Arc<Mutex<Vec<ConnectionId>>>,
}

impl Stage {
    fn new(change: impl FnOnce(&mut Limits)) -> Self {
        let mut limits = Limits::new(8 << 20, None);
        change(&mut limits);
        let inbox = Arc::new(Mailbox::<IoEvent>::new().unwrap());
        let (handled, together) = (Arc::<AtomicUsize>::default(), Arc::<AtomicUsize>::default());
        let (pending, lost) = (Arc::default(), Arc::default());
        let mut sender = None;
        let as_inbox: Arc<dyn Inbox> = Arc::<Mailbox<IoEvent>>::clone(&inbox);
        let threads = IoThreads::start(1, limits, &as_inbox, |given| {
            sender = Some(given);
            Scripted {
                handled: Arc::clone(&handled),
                together: Arc::clone(&together),
                pending: Arc::clone(&pending),
                lost: Arc::clone(&lost),
            }
        })
        .unwrap();
        Self { threads, sender: sender.unwrap(), inbox, events: Vec::new(), handled, together, pending, lost }
    }

    fn connect(&self) -> (Socket, UnixStream) {
        let (mine, peer) = UnixStream::pair().unwrap();
        mine.set_nonblocking(true).unwrap();
        peer.set_read_timeout(Some(PATIENCE)).unwrap();
        let from = Peer::anonymous(0, "test");
        (self.threads.adopt(Adoption::new(OwnedFd::from(mine), from)).unwrap(), peer)
    }

    fn handled(&self) -> usize {
        self.handled.load(Ordering::SeqCst)
    }

    fn pending(&self) -> Vec<RequestId> {
        self.pending.lock().unwrap().clone()
    }

    /// Collect events until `count` have come.
    fn events(&mut self, count: usize) -> &mut Vec<IoEvent> {
        let mut taken = Vec::new();
        let (events, inbox) = (&mut self.events, &self.inbox);
        until(|| {
            inbox.take(&mut taken);
            events.append(&mut taken);
            events.len() >= count
        });
        &mut self.events
    }

    fn handed_over(&mut self, count: usize) -> Vec<(RequestNumber, Vec<u8>)> {
        let events = self.events(count).drain(..);
        events
            .map(|event| match event {
                IoEvent::HandedOver { request, frame } => (request.number, frame.as_slice().to_vec()),
                other => panic!("{other:?}"),
            })
            .collect()
    }

    fn lost_reason(&mut self) -> Option<String> {
        match self.events(1).remove(0) {
            IoEvent::Lost { reason, .. } => reason,
            other => panic!("{other:?}"),
        }
    }
}

fn until(mut is_true: impl FnMut() -> bool) {
    let end = Instant::now() + PATIENCE;
    while !is_true() {
        assert!(Instant::now() < end, "did not become true");
        sleep(Duration::from_micros(200));
    }
}

fn request(api_key: i16, what: u8, rest: &[u8]) -> Vec<u8> {
    let mut data = api_key.to_be_bytes().to_vec();
    data.push(what);
    data.extend_from_slice(rest);
    framed(&data)
}

fn receive(peer: &mut UnixStream) -> Vec<u8> {
    let mut prefix = [0; 4];
    peer.read_exact(&mut prefix).unwrap();
    let mut data = vec![0; u32::from_be_bytes(prefix) as usize];
    peer.read_exact(&mut data).unwrap();
    data
}

fn bytes(data: &[u8]) -> Option<Vec<Output>> {
    Some(vec![Output::Bytes(framed(data))])
}

#[test]
fn frames_in_pieces_of_any_size_are_answered_in_order() {
    let stage = Stage::new(|_| {});
    let (_socket, mut peer) = stage.connect();
    let mut state = 12345_u32;
    let mut next = move |below: u32| {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) % below
    };
    let sizes: Vec<usize> =
        (0..300).map(|at| if at % 50 == 49 { 700_000 } else { next(400) as usize }).collect();
    let mut sender = peer.try_clone().unwrap();
    let to_send = sizes.clone();
    let writer = std::thread::spawn(move || {
        let data: Vec<u8> = to_send
            .iter()
            .enumerate()
            .flat_map(|(at, size)| request(PRODUCE, b'e', &vec![at as u8; *size]))
            .collect();
        let mut rest = data.as_slice();
        while !rest.is_empty() {
            let limit = if next(3) == 0 { 9 } else { 90_000 };
            let (part, after) = rest.split_at((next(limit) as usize + 1).min(rest.len()));
            sender.write_all(part).unwrap();
            rest = after;
        }
    });
    for (at, size) in sizes.into_iter().enumerate() {
        assert!(receive(&mut peer) == vec![at as u8; size], "answer {at}");
    }
    writer.join().unwrap();
}

#[test]
fn answers_keep_the_order_of_requests_whoever_gives_them() {
    let mut stage = Stage::new(|_| {});
    let (socket, mut peer) = stage.connect();
    let mut data = request(METADATA, b'p', b"");
    data.extend(request(METADATA, b'h', b"over"));
    data.extend(request(METADATA, b'e', b"third"));
    data.extend(request(METADATA, b'n', b""));
    data.extend(request(METADATA, b'p', b""));
    peer.write_all(&data).unwrap();
    assert_eq!(stage.handed_over(1), [(1, b"\0\x03hover".to_vec())]);
    until(|| stage.pending().len() == 2);
    assert_eq!(socket.status().owed(), 2);
    let pending = stage.pending();
    stage.sender.send((pending[1], b"fifth".to_vec()));
    socket.answer(1, bytes(b"second"));
    stage.threads.flush();
    peer.set_read_timeout(Some(Duration::from_millis(50))).unwrap();
    assert_eq!(peer.read(&mut [0; 1]).unwrap_err().kind(), ErrorKind::WouldBlock);
    peer.set_read_timeout(Some(PATIENCE)).unwrap();
    stage.sender.send_all([(pending[0], b"first".to_vec())]);
    for expected in [b"first".as_slice(), b"second", b"third", b"fifth"] {
        assert_eq!(receive(&mut peer), expected);
    }
    until(|| socket.status().unsent_bytes() == 0 && socket.status().owed() == 0);
}

#[test]
fn a_muted_connection_is_answered_but_not_read() {
    let mut stage = Stage::new(|_| {});
    let (socket, mut peer) = stage.connect();
    let (_other, mut other_peer) = stage.connect();
    peer.write_all(&request(METADATA, b'h', b"0")).unwrap();
    stage.handed_over(1);
    socket.mute(true);
    socket.answer(0, bytes(b"throttled"));
    stage.threads.flush();
    assert_eq!(receive(&mut peer), b"throttled");
    let handled = stage.handled();
    peer.write_all(&[request(METADATA, b'e', b"1"), request(METADATA, b'e', b"2")].concat()).unwrap();
    for _ in 0..3 {
        other_peer.write_all(&request(METADATA, b'e', b"served")).unwrap();
        assert_eq!(receive(&mut other_peer), b"served");
    }
    assert_eq!(stage.handled(), handled + 3, "only the other connection was served");
    socket.mute(false);
    stage.threads.flush();
    assert_eq!((receive(&mut peer), receive(&mut peer)), (b"1".to_vec(), b"2".to_vec()));
    socket.mute(true);
    stage.threads.flush();
    other_peer.write_all(&request(METADATA, b'e', b"after the command")).unwrap();
    receive(&mut other_peer);
    drop(peer);
    assert_eq!(stage.lost_reason(), None, "a peer that left while it was muted");
}

#[test]
fn produce_waits_until_what_was_handed_over_has_begun() {
    let mut stage = Stage::new(|_| {});
    let (socket, mut peer) = stage.connect();
    let mut data = request(METADATA, b'h', b"0");
    data.extend(request(METADATA, b'e', b"1"));
    data.extend(request(PRODUCE, b'e', b"2"));
    data.extend(request(METADATA, b'e', b"3"));
    peer.write_all(&data).unwrap();
    assert_eq!(stage.handed_over(1).len(), 1);
    sleep(Duration::from_millis(30));
    assert_eq!(stage.handled(), 2);
    socket.begun(0);
    stage.threads.flush();
    until(|| stage.handled() == 4);
    socket.answer(0, bytes(b"0"));
    stage.threads.flush();
    for expected in [b"0", b"1", b"2", b"3"] {
        assert_eq!(receive(&mut peer), expected);
    }
}

#[test]
fn produce_frames_of_one_receive_are_handled_together() {
    let mut stage = Stage::new(|_| {});
    let (socket, mut peer) = stage.connect();
    let whats = [b'e', b'n', b'e', b'h', b'e', b'e', b'x', b'e'];
    let data: Vec<u8> =
        whats.iter().zip(0_u8..).flat_map(|(what, at)| request(PRODUCE, *what, &[at])).collect();
    peer.write_all(&data).unwrap();
    assert_eq!(stage.handed_over(1), [(3, b"\0\0h\x03".to_vec())]);
    socket.answer(3, bytes(b"python"));
    stage.threads.flush();
    for expected in [&[0_u8][..], &[2], b"python", &[4], &[5]] {
        assert_eq!(receive(&mut peer), expected);
    }
    assert_eq!(stage.lost_reason().as_deref(), Some("not a request"));
    assert!(stage.together.load(Ordering::SeqCst) >= 3, "the first three came in one receive");
}

#[test]
fn an_answer_tells_that_a_request_has_begun() {
    let mut stage = Stage::new(|_| {});
    let (socket, mut peer) = stage.connect();
    let mut data = request(METADATA, b'h', b"0");
    data.extend(request(FETCH, b'e', b"1"));
    peer.write_all(&data).unwrap();
    stage.handed_over(1);
    socket.answer(0, None);
    stage.threads.flush();
    assert_eq!(receive(&mut peer), b"1");
}

#[test]
fn only_so_many_requests_are_handed_over_at_once() {
    let mut stage = Stage::new(|limits| limits.max_handed_over = 5);
    let (socket, mut peer) = stage.connect();
    let data: Vec<u8> = (0..40_u8).flat_map(|at| request(METADATA, b'h', &[at])).collect();
    peer.write_all(&data).unwrap();
    let mut number = 0;
    while number < 40 {
        stage.events(5);
        sleep(Duration::from_millis(5));
        let handed_over = stage.handed_over(0);
        assert_eq!(handed_over.len(), 5);
        for (expected, _) in handed_over {
            assert_eq!(expected, number);
            socket.answer(number, bytes(&[u8::try_from(number).unwrap()]));
            number += 1;
        }
        stage.threads.flush();
    }
    for at in 0..40 {
        assert_eq!(receive(&mut peer), [at]);
    }
}

#[test]
fn bytes_that_were_handed_over_are_bounded() {
    let mut stage = Stage::new(|limits| limits.max_handed_over_bytes = 1_000_000);
    let (socket, mut peer) = stage.connect();
    let mut writer = peer.try_clone().unwrap();
    let writing = std::thread::spawn(move || {
        for at in 0..6_u8 {
            writer.write_all(&request(METADATA, b'h', &vec![at; 600_000])).unwrap();
        }
    });
    stage.events(2);
    sleep(Duration::from_millis(30));
    assert_eq!(stage.events(2).len(), 2);
    for number in 0..6_u8 {
        let event = stage.events(1).remove(0);
        let IoEvent::HandedOver { frame, .. } = event else { panic!("{event:?}") };
        assert!(frame.as_slice()[3..] == vec![number; 600_000]);
        socket.answer(u64::from(number), bytes(&[number]));
        stage.threads.flush();
        assert_eq!(receive(&mut peer), [number]);
    }
    writing.join().unwrap();
}

#[test]
fn nothing_is_handled_while_the_peer_takes_no_answers() {
    let stage = Stage::new(|limits| limits.high_water_bytes = 1 << 20);
    let (socket, mut peer) = stage.connect();
    let data: Vec<u8> = (0..200).flat_map(|_| request(METADATA, b'l', &100_000_u32.to_be_bytes())).collect();
    peer.write_all(&data).unwrap();
    until(|| socket.status().unsent_bytes() > 1 << 20);
    sleep(Duration::from_millis(50));
    assert!(socket.status().unsent_bytes() < (1 << 20) + 200_000);
    assert!(stage.handled() < 30, "{}", stage.handled());
    for _ in 0..200 {
        assert_eq!(receive(&mut peer).len(), 100_000);
    }
    until(|| socket.status().unsent_bytes() == 0);
}

#[test]
fn python_hears_that_the_peer_takes_answers_again() {
    let mut stage = Stage::new(|limits| limits.high_water_bytes = 1 << 20);
    let (socket, mut peer) = stage.connect();
    peer.write_all(&request(METADATA, b'h', b"")).unwrap();
    stage.handed_over(1);
    socket.answer(0, bytes(&vec![1; 3_000_000]));
    assert_eq!(socket.status().unsent_bytes(), 3_000_004);
    socket.status().ask_for_drained();
    stage.threads.flush();
    sleep(Duration::from_millis(20));
    assert!(stage.handed_over(0).is_empty());
    assert_eq!(receive(&mut peer).len(), 3_000_000);
    let event = stage.events(1).remove(0);
    assert!(matches!(event, IoEvent::Drained(id) if id == socket.id()), "{event:?}");
}

#[test]
fn a_late_answer_reaches_no_stranger() {
    let mut stage = Stage::new(|_| {});
    let (old_socket, mut peer) = stage.connect();
    let mut data = request(METADATA, b'p', b"");
    data.extend(request(METADATA, b'h', b""));
    peer.write_all(&data).unwrap();
    until(|| stage.pending().len() == 1);
    stage.handed_over(1);
    drop(peer);
    assert_eq!(stage.lost_reason(), None);
    assert_eq!(*stage.lost.lock().unwrap(), [old_socket.id()]);
    let (socket, mut peer) = stage.connect();
    assert_eq!(socket.id().slot, old_socket.id().slot);
    assert_ne!(socket.id().generation, old_socket.id().generation);
    let mut data = request(METADATA, b'p', b"");
    data.extend(request(METADATA, b'h', b""));
    peer.write_all(&data).unwrap();
    until(|| stage.pending().len() == 2);
    stage.handed_over(1);
    let pending = stage.pending();
    stage.sender.send((pending[0], b"stranger".to_vec()));
    old_socket.answer(1, bytes(b"stranger"));
    old_socket.close(Some("stranger".to_owned()));
    socket.answer(1, bytes(b"1"));
    stage.threads.flush();
    stage.sender.send((pending[1], b"0".to_vec()));
    assert_eq!(receive(&mut peer), b"0");
    assert_eq!(receive(&mut peer), b"1");
}

#[test]
fn a_small_request_does_not_wait_for_those_of_another_connection() {
    let stage = Stage::new(|_| {});
    // 3 000 requests of a millisecond each, and answers that nobody reads.
    let mut greedy = Vec::new();
    for _ in 0..10 {
        let (socket, mut peer) = stage.connect();
        let data: Vec<u8> = (0..300).flat_map(|_| request(METADATA, b's', &[0; 1000])).collect();
        peer.write_all(&data).unwrap();
        greedy.push((socket, peer));
    }
    until(|| stage.handled() > 10);
    let (_socket, mut peer) = stage.connect();
    for _ in 0..10 {
        peer.write_all(&request(METADATA, b'e', b"small")).unwrap();
        assert_eq!(receive(&mut peer), b"small");
    }
    let handled = stage.handled();
    assert!(handled < 2_000, "{handled} requests were handled before the last small one");
}

#[test]
fn many_frames_of_one_connection_are_handled_in_slices() {
    let stage = Stage::new(|limits| limits.slice.frames = 10);
    let (_socket, mut peer) = stage.connect();
    let data: Vec<u8> = (0..5_000_u16).flat_map(|at| request(METADATA, b'e', &at.to_be_bytes())).collect();
    peer.write_all(&data).unwrap();
    for at in 0..5_000_u16 {
        assert_eq!(receive(&mut peer), at.to_be_bytes());
    }
}

#[test]
fn the_reason_of_a_closed_connection_is_told() {
    let mut stage = Stage::new(|_| {});
    for (data, expected) in [
        (request(METADATA, b'?', b""), Some("not a request")),
        ((-2_i32).to_be_bytes().to_vec(), Some("a frame of -2 bytes is not between 0 and 8388608 bytes")),
        (
            0x1000_0000_u32.to_be_bytes().to_vec(),
            Some("a frame of 268435456 bytes is not between 0 and 8388608 bytes"),
        ),
        (vec![0, 0, 0, 9, 1, 2], Some("peer closed the connection inside a frame")),
        (vec![0, 0], Some("peer closed the connection inside a frame")),
        (request(METADATA, b'n', b""), None),
        (Vec::new(), None),
    ] {
        let (_socket, mut peer) = stage.connect();
        peer.write_all(&data).unwrap();
        peer.shutdown(std::net::Shutdown::Write).unwrap();
        assert_eq!(stage.lost_reason().as_deref(), expected);
        assert_eq!(peer.read(&mut [0; 1]).unwrap(), 0);
    }
    let (socket, mut peer) = stage.connect();
    socket.close(Some("because".to_owned()));
    stage.threads.flush();
    assert_eq!(stage.lost_reason().as_deref(), Some("because"));
    assert_eq!(peer.read(&mut [0; 1]).unwrap(), 0);
}

#[test]
fn answers_that_are_known_leave_before_the_connection_is_closed() {
    let mut stage = Stage::new(|_| {});
    let (_socket, mut peer) = stage.connect();
    let mut data = request(METADATA, b'e', b"last words");
    data.extend(request(METADATA, b'?', b""));
    peer.write_all(&data).unwrap();
    assert_eq!(receive(&mut peer), b"last words");
    assert_eq!(stage.lost_reason().as_deref(), Some("not a request"));
}

#[test]
fn a_stopped_connection_still_gets_its_answers() {
    let mut stage = Stage::new(|_| {});
    let (socket, mut peer) = stage.connect();
    peer.write_all(&request(METADATA, b'h', b"")).unwrap();
    stage.handed_over(1);
    socket.stop_reading();
    stage.threads.flush();
    sleep(Duration::from_millis(20));
    peer.write_all(&request(METADATA, b'e', b"too late")).unwrap();
    socket.answer(0, bytes(b"in time"));
    stage.threads.flush();
    assert_eq!(receive(&mut peer), b"in time");
    sleep(Duration::from_millis(20));
    assert_eq!(stage.handled(), 1);
}

#[test]
fn silent_connections_are_closed() {
    let mut stage = Stage::new(|limits| limits.max_idle = Some(Duration::from_millis(100)));
    let (_waiting, mut peer) = stage.connect();
    peer.write_all(&request(METADATA, b'p', b"")).unwrap();
    let (_partial, mut half) = stage.connect();
    half.write_all(&[0, 0, 0, 9, 1]).unwrap();
    assert_eq!(
        stage.lost_reason().as_deref(),
        Some("no bytes for connections.max.idle.ms=100 inside a frame")
    );
    let (_silent, mut silent) = stage.connect();
    assert_eq!(stage.lost_reason(), None);
    assert_eq!(silent.read(&mut [0; 1]).unwrap(), 0);
    stage.sender.send((stage.pending()[0], b"still here".to_vec()));
    assert_eq!(receive(&mut peer), b"still here");
}

#[test]
fn a_defect_of_the_service_is_told() {
    let mut stage = Stage::new(|_| {});
    let (_socket, mut peer) = stage.connect();
    peer.write_all(&request(METADATA, b'!', b"")).unwrap();
    let event = stage.events(1).remove(0);
    assert!(matches!(&event, IoEvent::Failed(text) if text == "as the frame says"), "{event:?}");
}

#[test]
fn connections_end_with_the_threads() {
    let mut stage = Stage::new(|_| {});
    let mut peers: Vec<_> = (0..20).map(|_| stage.connect()).collect();
    peers[0].1.write_all(&request(METADATA, b'p', b"")).unwrap();
    until(|| stage.pending().len() == 1);
    stage.threads.stop();
    assert_eq!(stage.events(20).len(), 20);
    for (_, peer) in &mut peers {
        assert_eq!(peer.read(&mut [0; 1]).unwrap(), 0);
    }
}

mod accept;
mod adopt;
mod request_room;
