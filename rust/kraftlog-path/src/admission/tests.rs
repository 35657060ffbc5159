//! Bounds of the node, of an address and of a listener, and the rate of new connections.
use super::*;

fn admission(change: impl FnOnce(&mut AdmissionLimits)) -> Admission {
    let admission = Admission::default();
    let mut limits = AdmissionLimits::unbounded();
    change(&mut limits);
    admission.publish(limits);
    admission
}

#[test]
fn bounds_of_the_node_and_of_addresses_refuse_until_a_connection_has_ended() {
    let admission = admission(|limits| {
        limits.max_connections = 3;
        limits.max_connections_per_ip = 1;
        limits.per_ip_overrides.insert("b".to_owned(), 2);
    });
    assert_eq!(admission.admit("L", "a"), Ok(()));
    assert_eq!(admission.admit("M", "a"), Err(Refusal::Address(1)));
    assert_eq!(admission.admit("L", "b"), Ok(()));
    assert_eq!(admission.admit("M", "b"), Ok(()));
    assert_eq!(admission.admit("L", "b"), Err(Refusal::Node(3)));
    admission.ended("L", "a");
    assert_eq!(admission.admit("L", "b"), Err(Refusal::Address(2)));
    assert_eq!(admission.admit("L", "c"), Ok(()));
    assert_eq!(admission.open(), 3);
}

#[test]
fn a_listener_has_its_own_slots_and_its_name_is_compared_without_case() {
    let admission = admission(|limits| {
        limits.max_connections_by_listener.insert("l".to_owned(), 1);
    });
    assert!(admission.has_slot("L"));
    admission.admit("L", "a").unwrap();
    assert!(!admission.has_slot("L"));
    assert!(admission.has_slot("M"));
    admission.ended("L", "a");
    assert!(admission.has_slot("L"));
}

#[test]
fn new_limits_hold_for_what_comes_then() {
    let admission = admission(|limits| limits.max_connections = 5);
    for _ in 0..3 {
        admission.admit("L", "a").unwrap();
    }
    let mut limits = AdmissionLimits::unbounded();
    limits.max_connections = 2;
    admission.publish(limits);
    assert_eq!(admission.open(), 3);
    assert_eq!(admission.admit("L", "a"), Err(Refusal::Node(2)));
    admission.ended("L", "a");
    admission.ended("L", "a");
    assert_eq!(admission.admit("L", "a"), Ok(()));
}

#[test]
fn a_place_ends_with_its_guard() {
    let admission = Arc::new(admission(|limits| limits.max_connections = 1));
    let listener: Arc<str> = "L".into();
    let admitted = Admitted::new(&admission, &listener, "a").unwrap();
    assert_eq!(Admitted::new(&admission, &listener, "a").unwrap_err(), Refusal::Node(1));
    assert_eq!(admission.open(), 1);
    drop(admitted);
    assert_eq!(admission.open(), 0);
    admission.ended("L", "a");
    assert_eq!(admission.open(), 0, "of nobody");
}

#[test]
fn a_burst_of_ten_seconds_passes_and_what_follows_waits() {
    let admission = admission(|limits| limits.creation_rate = 2);
    let delays: Vec<f64> = (0..22).map(|_| admission.arrived("L", 50.0)).collect();
    assert_eq!(delays[..20], [0.0; 20]);
    // 21 connections in ten seconds are 2.1 a second: a twentieth above the limit, over ten seconds.
    assert!((delays[20] - 0.5).abs() < 1e-9 && (delays[21] - 1.0).abs() < 1e-9, "{delays:?}");
    assert_eq!(admission.arrived("L", 72.0), 0.0, "forgotten after eleven seconds");
}

#[test]
fn rates_of_the_node_and_of_a_listener_both_count_but_for_the_listener_of_brokers() {
    let admission = admission(|limits| {
        limits.creation_rate = 0;
        limits.creation_rate_by_listener.insert("m".to_owned(), 0);
        limits.unlimited_listener = Some("B".to_owned());
    });
    assert_eq!(admission.arrived("L", 1.0), 1.0);
    assert_eq!(admission.arrived("B", 1.0), 0.0);
    let mut limits = AdmissionLimits::unbounded();
    limits.creation_rate_by_listener.insert("m".to_owned(), 0);
    admission.publish(limits);
    assert_eq!(admission.arrived("L", 1.0), 0.0);
    assert_eq!(admission.arrived("M", 1.0), 1.0);
}

#[test]
fn a_clock_that_another_thread_read_before_does_no_harm() {
    let admission = admission(|limits| limits.creation_rate = 1);
    for _ in 0..10 {
        assert_eq!(admission.arrived("L", 5.0), 0.0);
    }
    assert!(admission.arrived("L", 4.999) > 0.0);
}

fn with_address_rates(default: Option<u64>, by_address: &[(&str, u64)]) -> Admission {
    let admission = Admission::default();
    let by_address = by_address.iter().map(|(address, limit)| ((*address).to_owned(), *limit)).collect();
    admission.publish_address_rates(AddressRateLimits { default, by_address });
    admission
}

#[test]
fn an_address_above_its_quota_is_held_and_counts_only_what_was_admitted() {
    let admission = with_address_rates(Some(1), &[("192.0.2.1", 2)]);
    let held: Vec<f64> = (0..22).map(|_| admission.held_for("192.0.2.1", 50.0)).collect();
    assert_eq!(held[..20], [0.0; 20]);
    // The second one is held as long as the first one, which was not counted.
    assert!((held[20] - 0.5).abs() < 1e-9 && (held[21] - 0.5).abs() < 1e-9, "{held:?}");
    assert_eq!(admission.held_for("192.0.2.2", 50.0), 0.0, "another address has a rate of its own");
    assert_eq!(admission.held_for("::ffff:192.0.2.1", 50.0), held[21], "the same address");
    assert_eq!(admission.held_for("192.0.2.1", 61.0), 0.0, "forgotten after eleven seconds");
    assert_eq!(admission.open(), 0);
}

#[test]
fn without_a_quota_nothing_is_counted_and_a_new_quota_holds_from_then_on() {
    let admission = with_address_rates(None, &[("b", 0)]);
    for _ in 0..100 {
        assert_eq!(admission.held_for("a", 1.0), 0.0);
    }
    assert_eq!(admission.held_for("b", 1.0), 1.0);
    admission.publish_address_rates(AddressRateLimits { default: Some(1), by_address: HashMap::new() });
    assert_eq!(admission.held_for("b", 1.0), 0.0);
    assert!((0..10).all(|_| admission.held_for("a", 1.0) == 0.0));
    assert!(admission.held_for("a", 1.0) > 0.0);
}

#[test]
fn addresses_that_came_long_ago_are_forgotten() {
    let mut rates = AddressRates::default();
    rates.publish(AddressRateLimits { default: Some(5), by_address: HashMap::new() });
    for number in 0..50_000_u32 {
        rates.add(&number.to_string(), f64::from(number / 1000));
    }
    assert!(rates.len() <= 2 * 12_000, "{}", rates.len());
}
