//! Room for requests that Python answers, over all connections of all threads.
use super::*;

/// The bytes of the frames that were handed over, in order, and their connections.
fn handed_over(stage: &mut Stage, count: usize) -> Vec<(ConnectionId, u8)> {
    let events = stage.events(count).drain(..);
    events
        .map(|event| match event {
            IoEvent::HandedOver { request, frame } => (request.connection, frame.as_slice()[3]),
            other => panic!("{other:?}"),
        })
        .collect()
}

#[test]
fn above_the_bound_of_bytes_frames_of_all_connections_wait_and_others_are_served() {
    let mut stage = Stage::new(|limits| limits.max_queued_bytes = Some(100));
    let (first, mut large) = stage.connect();
    let (second, mut small) = stage.connect();
    let (_third, mut producer) = stage.connect();
    large.write_all(&request(METADATA, b'h', &[1; 200])).unwrap();
    assert_eq!(handed_over(&mut stage, 1), [(first.id(), 1)]);
    small.write_all(&request(METADATA, b'h', b"2")).unwrap();
    until(|| stage.handled() == 2);
    producer.write_all(&request(PRODUCE, b'e', b"3")).unwrap();
    assert_eq!(receive(&mut producer), b"3");
    assert!(stage.events(0).is_empty());
    first.taken(0);
    stage.threads.flush();
    assert_eq!(handed_over(&mut stage, 1), [(second.id(), b'2')]);
    first.answer(0, bytes(b"1"));
    second.answer(0, bytes(b"2"));
    stage.threads.flush();
    assert_eq!((receive(&mut large), receive(&mut small)), (b"1".to_vec(), b"2".to_vec()));
}

#[test]
fn connections_that_wait_for_room_have_it_in_turn() {
    let mut stage = Stage::new(|limits| limits.max_queued_requests = 1);
    let (first, mut peer) = stage.connect();
    peer.write_all(&request(METADATA, b'h', b"1")).unwrap();
    assert_eq!(handed_over(&mut stage, 1), [(first.id(), b'1')]);
    let (greedy, mut peer_of_greedy) = stage.connect();
    let data: Vec<u8> = (0..3_u8).flat_map(|at| request(METADATA, b'h', &[at])).collect();
    peer_of_greedy.write_all(&data).unwrap();
    until(|| stage.handled() == 2);
    let (modest, mut peer_of_modest) = stage.connect();
    peer_of_modest.write_all(&request(METADATA, b'h', b"m")).unwrap();
    until(|| stage.handled() == 3);
    let turns = [(&first, 0), (&greedy, 0), (&modest, 0), (&greedy, 1), (&greedy, 2)];
    let expected = [(greedy.id(), 0), (modest.id(), b'm'), (greedy.id(), 1), (greedy.id(), 2)];
    for ((socket, number), expected) in turns.into_iter().zip(expected) {
        assert!(stage.events(0).is_empty());
        socket.begun(number);
        stage.threads.flush();
        assert_eq!(handed_over(&mut stage, 1), [expected]);
    }
}

#[test]
fn a_connection_that_ends_gives_its_room_back() {
    let mut stage = Stage::new(|limits| limits.max_queued_bytes = Some(1));
    let (_first, mut peer) = stage.connect();
    peer.write_all(&request(METADATA, b'h', b"1")).unwrap();
    stage.handed_over(1);
    let (second, mut other) = stage.connect();
    other.write_all(&request(METADATA, b'h', b"2")).unwrap();
    until(|| stage.handled() == 2);
    drop(peer);
    assert_eq!(stage.lost_reason(), None);
    assert_eq!(handed_over(&mut stage, 1), [(second.id(), b'2')]);
}
