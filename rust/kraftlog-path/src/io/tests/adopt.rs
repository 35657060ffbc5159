//! Connections that another owner began: what it left, their place, and sessions that end.
use super::*;
use crate::admission::{Admission, Admitted};
use crate::exchange::SASL_HANDSHAKE;

impl Stage {
    fn adopt(&self, change: impl FnOnce(&mut Adoption)) -> (Socket, UnixStream) {
        let (mine, peer) = UnixStream::pair().unwrap();
        mine.set_nonblocking(true).unwrap();
        peer.set_read_timeout(Some(PATIENCE)).unwrap();
        let mut adoption = Adoption::new(OwnedFd::from(mine), Peer::anonymous(0, "test"));
        change(&mut adoption);
        (self.threads.adopt(adoption).unwrap(), peer)
    }
}

#[test]
fn what_was_received_and_not_sent_before_comes_first() {
    let stage = Stage::new(|_| {});
    let (large, small) = (request(METADATA, b'e', &[7; 300_000]), request(METADATA, b'e', b"last"));
    let received = [request(METADATA, b'e', b"first"), large[..1000].to_vec()].concat();
    let (socket, mut peer) = stage.adopt(|adoption| {
        adoption.received = received;
        adoption.unsent = framed(b"of the earlier owner");
    });
    assert_eq!(receive(&mut peer), b"of the earlier owner");
    assert_eq!(receive(&mut peer), b"first");
    peer.write_all(&large[1000..]).unwrap();
    assert_eq!(receive(&mut peer), [7; 300_000]);
    peer.write_all(&small).unwrap();
    assert_eq!(receive(&mut peer), b"last");
    until(|| socket.status().unsent_bytes() == 0);
}

#[test]
fn a_connection_of_which_nothing_is_whole_waits_for_the_rest() {
    let stage = Stage::new(|_| {});
    let whole = request(METADATA, b'e', b"whole");
    let (_socket, mut peer) = stage.adopt(|adoption| adoption.received = whole[..3].to_vec());
    peer.write_all(&whole[3..]).unwrap();
    assert_eq!(receive(&mut peer), b"whole");
}

#[test]
fn a_size_that_is_too_large_ends_the_connection() {
    let mut stage = Stage::new(|limits| limits.max_frame_bytes = 1000);
    let (_socket, _peer) = stage.adopt(|adoption| adoption.received = 1001_i32.to_be_bytes().to_vec());
    assert_eq!(stage.lost_reason().unwrap(), "a frame of 1001 bytes is not between 0 and 1000 bytes");
}

#[test]
fn a_place_is_given_back_once_before_the_loss_is_told() {
    let admission = Arc::new(Admission::default());
    let listener: Arc<str> = "L".into();
    for host in ["a", "b"] {
        admission.admit(&listener, host).unwrap();
    }
    let mut stage = Stage::new(|_| {});
    let (_socket, peer) = stage.adopt(|adoption| {
        adoption.place = Some(Admitted::taken_over(&admission, &listener, "a"));
    });
    assert_eq!(admission.open(), 2);
    drop(peer);
    assert_eq!(stage.lost_reason(), None);
    assert_eq!(admission.open(), 1);
    // Of one that the thread gets and ends with.
    let (_socket, _peer) = stage.adopt(|adoption| {
        adoption.place = Some(Admitted::taken_over(&admission, &listener, "b"));
    });
    stage.threads.stop();
    assert_eq!(admission.open(), 0);
    // And of one that no thread gets any more.
    admission.admit(&listener, "c").unwrap();
    stage.adopt(|adoption| adoption.place = Some(Admitted::taken_over(&admission, &listener, "c")));
    drop(stage);
    assert_eq!(admission.open(), 0);
}

#[test]
fn after_the_end_of_a_session_every_frame_is_handed_over_until_another_one_begins() {
    let mut stage = Stage::new(|_| {});
    let (socket, mut peer) = stage.adopt(|adoption| adoption.session_left = Some(PATIENCE));
    peer.write_all(&request(PRODUCE, b'e', b"in time")).unwrap();
    assert_eq!(receive(&mut peer), b"in time");
    socket.set_session(Some(Duration::ZERO));
    stage.threads.flush();
    // The thread obeys before it reads what comes then.
    let (_other, mut other) = stage.connect();
    other.write_all(&request(METADATA, b'e', b"obeyed")).unwrap();
    assert_eq!(receive(&mut other), b"obeyed");
    peer.write_all(&request(PRODUCE, b'e', b"late")).unwrap();
    let (number, frame) = stage.handed_over(1).remove(0);
    assert_eq!(frame[2..], *b"elate");
    socket.set_session(Some(PATIENCE));
    socket.answer(number, bytes(b"python's"));
    stage.threads.flush();
    assert_eq!(receive(&mut peer), b"python's");
    peer.write_all(&request(PRODUCE, b'e', b"again")).unwrap();
    assert_eq!(receive(&mut peer), b"again");
}

#[test]
fn requests_behind_a_handshake_wait_for_its_answer_and_are_served_in_the_session_that_follows() {
    let mut stage = Stage::new(|_| {});
    let (socket, mut peer) = stage.adopt(|adoption| adoption.session_left = Some(PATIENCE));
    let frames =
        [request(SASL_HANDSHAKE, b'e', b"!"), request(PRODUCE, b'e', b"1"), request(PRODUCE, b'e', b"2")];
    peer.write_all(&frames.concat()).unwrap();
    let (number, frame) = stage.handed_over(1).remove(0);
    assert_eq!((number, api_key(&frame)), (0, SASL_HANDSHAKE));
    assert_eq!(stage.handled(), 0, "by the service");
    // Python answers before the session is known: what follows is handed over, in order.
    socket.answer(0, bytes(b"mechanism"));
    stage.threads.flush();
    assert_eq!(receive(&mut peer), b"mechanism");
    assert_eq!(stage.handed_over(1).remove(0).1[2..], *b"e1");
    socket.set_session(None);
    socket.answer(1, bytes(b"token"));
    stage.threads.flush();
    assert_eq!((receive(&mut peer), receive(&mut peer)), (b"token".to_vec(), b"2".to_vec()));
    assert_eq!(stage.handled(), 1);
}

fn api_key(frame: &[u8]) -> i16 {
    i16::from_be_bytes(frame[..2].try_into().unwrap())
}
