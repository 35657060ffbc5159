//! Listeners of the first thread, over loopback.
use std::net::{SocketAddr, TcpListener, TcpStream};

use super::*;
use crate::admission::{AddressRateLimits, Admission, AdmissionLimits};

struct Accepting {
    threads: IoThreads<Message>,
    inbox: Arc<Mailbox<IoEvent>>,
    events: Vec<IoEvent>,
    admission: Arc<Admission>,
}

impl Accepting {
    fn new(threads: u16, change: impl FnOnce(&mut AdmissionLimits)) -> Self {
        let inbox = Arc::new(Mailbox::<IoEvent>::new().unwrap());
        let as_inbox: Arc<dyn Inbox> = Arc::<Mailbox<IoEvent>>::clone(&inbox);
        let threads = IoThreads::start(threads, Limits::new(8 << 20, None), &as_inbox, |_| Scripted {
            handled: Arc::default(),
            together: Arc::default(),
            pending: Arc::default(),
            lost: Arc::default(),
        })
        .unwrap();
        let accepting = Self { threads, inbox, events: Vec::new(), admission: Arc::default() };
        accepting.publish(change);
        accepting
    }

    fn publish(&self, change: impl FnOnce(&mut AdmissionLimits)) {
        let mut limits = AdmissionLimits::unbounded();
        change(&mut limits);
        self.admission.publish(limits);
    }

    fn listen(&self, number: u16) -> SocketAddr {
        let socket = TcpListener::bind("127.0.0.1:0").unwrap();
        socket.set_nonblocking(true).unwrap();
        let address = socket.local_addr().unwrap();
        self.threads.listen(Listener {
            number,
            name: format!("L{number}").into(),
            socket: OwnedFd::from(socket),
            admission: Arc::clone(&self.admission),
            send_buffer_bytes: None,
        });
        address
    }

    /// Wait until `count` events have come, and take them.
    fn events(&mut self, count: usize) -> Vec<IoEvent> {
        let mut taken = Vec::new();
        let (events, inbox) = (&mut self.events, &self.inbox);
        until(|| {
            inbox.take(&mut taken);
            events.append(&mut taken);
            events.len() >= count
        });
        self.events.drain(..count).collect()
    }

    fn accepted(&mut self, count: usize) -> Vec<Socket> {
        let accepted = |event| match event {
            IoEvent::Accepted { socket, .. } => socket,
            other => panic!("{other:?}"),
        };
        self.events(count).into_iter().map(accepted).collect()
    }
}

fn connect(address: SocketAddr) -> TcpStream {
    let stream = TcpStream::connect(address).unwrap();
    stream.set_read_timeout(Some(PATIENCE)).unwrap();
    stream
}

fn echo(stream: &mut TcpStream) {
    stream.write_all(&request(METADATA, b'e', b"hello")).unwrap();
    let mut data = [0; 9];
    stream.read_exact(&mut data).unwrap();
    assert_eq!(&data[4..], b"hello");
}

fn is_closed(stream: &mut TcpStream) -> bool {
    matches!(stream.read(&mut [0; 1]), Ok(0)) || stream.take_error().is_ok_and(|error| error.is_some())
}

#[test]
fn a_connection_is_told_before_its_first_frame_and_goes_to_the_thread_with_the_fewest() {
    let mut accepting = Accepting::new(3, |_| {});
    let address = accepting.listen(4);
    let mut streams = Vec::new();
    for _ in 0..30 {
        let mut stream = connect(address);
        stream.write_all(&request(METADATA, b'h', b"first")).unwrap();
        streams.push(stream);
    }
    let mut told: Vec<ConnectionId> = Vec::new();
    let mut handed_over = 0;
    for event in accepting.events(60) {
        match event {
            IoEvent::Accepted { listener, socket, address, .. } => {
                assert_eq!(listener, 4);
                assert!(streams.iter().any(|stream| stream.local_addr().unwrap() == address));
                told.push(socket.id());
            }
            IoEvent::HandedOver { request, .. } => {
                assert!(told.contains(&request.connection), "{request:?} before its connection");
                handed_over += 1;
            }
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((told.len(), handed_over), (30, 30));
    for thread in 0..3 {
        assert_eq!(told.iter().filter(|id| id.thread == thread).count(), 10);
    }
    assert_eq!(accepting.admission.open(), 30);
}

#[test]
fn connections_above_the_bounds_are_refused_with_the_reason_until_others_end() {
    let mut accepting = Accepting::new(1, |limits| limits.max_connections_per_ip = 2);
    let address = accepting.listen(0);
    let mut streams = [connect(address), connect(address)];
    for stream in &mut streams {
        echo(stream);
    }
    let sockets = accepting.accepted(2);
    let mut third = connect(address);
    match accepting.events(1).remove(0) {
        IoEvent::Refused { listener: 0, address, reason, .. } => {
            assert_eq!(address, third.local_addr().unwrap());
            assert_eq!(reason, "max.connections.per.ip=2 reached");
        }
        other => panic!("{other:?}"),
    }
    assert!(is_closed(&mut third));
    let [first, _second] = streams;
    drop(first);
    let event = accepting.events(1).remove(0);
    assert!(matches!(event, IoEvent::Lost { connection, .. } if connection == sockets[0].id()), "{event:?}");
    echo(&mut connect(address));
}

#[test]
fn a_listener_without_a_slot_lets_a_connection_wait_and_others_go_on() {
    let mut accepting = Accepting::new(1, |limits| {
        limits.max_connections_by_listener.insert("l0".to_owned(), 1);
    });
    let (full, free) = (accepting.listen(0), accepting.listen(1));
    let mut first = connect(full);
    echo(&mut first);
    let mut waiting = connect(full);
    waiting.write_all(&request(METADATA, b'e', b"late")).unwrap();
    echo(&mut connect(free));
    assert_eq!(accepting.accepted(2).len(), 2);
    waiting.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    assert!(waiting.read(&mut [0; 1]).is_err());
    waiting.set_read_timeout(Some(PATIENCE)).unwrap();
    drop(first);
    let mut data = [0; 8];
    waiting.read_exact(&mut data).unwrap();
    assert_eq!(&data[4..], b"late");
}

#[test]
fn a_connection_above_the_rate_waits_and_a_higher_rate_holds_at_once() {
    let accepting = Accepting::new(1, |limits| limits.creation_rate = 1);
    let address = accepting.listen(0);
    let began = Instant::now();
    for _ in 0..11 {
        echo(&mut connect(address));
    }
    // Eleven in ten seconds are a tenth above the limit, over ten seconds; what the first ten took counts.
    assert!(began.elapsed() >= Duration::from_millis(990), "{:?}", began.elapsed());
    accepting.publish(|_| {});
    for _ in 0..50 {
        echo(&mut connect(address));
    }
}

#[test]
fn as_long_as_python_takes_no_events_only_so_many_connections_are_taken() {
    let mut accepting = Accepting::new(1, |limits| limits.max_connections = 300);
    let address = accepting.listen(0);
    let mut streams: Vec<_> = (0..256).map(|_| connect(address)).collect();
    echo(streams.last_mut().unwrap());
    let mut late = connect(address);
    late.write_all(&request(METADATA, b'e', b"late")).unwrap();
    late.set_read_timeout(Some(Duration::from_millis(100))).unwrap();
    assert!(late.read(&mut [0; 1]).is_err());
    assert_eq!(accepting.admission.open(), 256);
    late.set_read_timeout(Some(PATIENCE)).unwrap();
    assert_eq!(accepting.accepted(256).len(), 256);
    let mut data = [0; 8];
    late.read_exact(&mut data).unwrap();
    assert_eq!(&data[4..], b"late");
}

#[test]
fn a_listener_that_ends_keeps_its_connections_and_tells_when_all_of_them_are_told() {
    let mut accepting = Accepting::new(1, |_| {});
    let (address, other) = (accepting.listen(0), accepting.listen(1));
    let mut stream = connect(address);
    echo(&mut stream);
    accepting.threads.end_listener(0);
    accepting.threads.end_listener(7);
    let mut events = accepting.events(2);
    assert!(matches!(events.remove(0), IoEvent::Accepted { listener: 0, .. }));
    assert!(matches!(events.remove(0), IoEvent::ListenerEnded { listener: 0 }));
    assert!(TcpStream::connect(address).is_err());
    echo(&mut stream);
    echo(&mut connect(other));
    assert!(matches!(accepting.events(1).remove(0), IoEvent::Accepted { listener: 1, .. }));
    accepting.threads.stop();
    assert!(TcpStream::connect(other).is_err());
    assert_eq!(accepting.admission.open(), 0);
}

#[test]
fn a_connection_of_an_address_above_its_quota_is_held_unserved_and_closed_while_others_are_served() {
    let mut accepting = Accepting::new(1, |_| {});
    let address = accepting.listen(0);
    let publish = |limit| {
        let by_address = [("127.0.0.1".to_owned(), limit)].into();
        accepting.admission.publish_address_rates(AddressRateLimits { default: None, by_address });
    };
    publish(1000);
    let mut served = connect(address);
    echo(&mut served);
    publish(0);
    let began = Instant::now();
    let mut held = connect(address);
    held.write_all(&request(METADATA, b'e', b"unread")).unwrap();
    for _ in 0..3 {
        echo(&mut served);
    }
    assert!(began.elapsed() < Duration::from_millis(900), "the thread was held up");
    // What was sent and not read makes the end a reset.
    assert!(held.read(&mut [0; 1]).map_or(true, |count| count == 0));
    assert!(began.elapsed() >= Duration::from_millis(900), "{:?}", began.elapsed());
    assert_eq!(accepting.admission.open(), 1);
    accepting.accepted(1);
    accepting.threads.end_listener(0);
    match accepting.events(1).remove(0) {
        IoEvent::ListenerEnded { listener: 0 } => {}
        other => panic!("{other:?}"),
    }
}

#[test]
fn held_connections_end_with_their_listener() {
    let mut accepting = Accepting::new(1, |_| {});
    let address = accepting.listen(0);
    accepting.admission.publish_address_rates(AddressRateLimits { default: Some(0), by_address: [].into() });
    let mut held = connect(address);
    // Time for the thread to accept it; one in the kernel's queue would be closed as well.
    sleep(Duration::from_millis(20));
    accepting.threads.end_listener(0);
    let began = Instant::now();
    accepting.events(1);
    assert!(held.read(&mut [0; 1]).map_or(true, |count| count == 0));
    assert!(began.elapsed() < Duration::from_millis(900), "{:?}", began.elapsed());
}
