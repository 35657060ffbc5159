"""The admission of connections in Rust decides as its oracle in Python, whatever arrives, ends and changes."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from kraftlog._kraftlog import Admission
from oracle.connection_admission import ConnectionAdmission

LISTENERS = ("PLAINTEXT", "SSL", "BROKERS")
HOSTS = ("127.0.0.1", "10.0.0.7", "::1")

bounds = st.integers(0, 6) | st.just(2**31 - 1)
limits = st.fixed_dictionaries(
    {
        "max_connections": bounds,
        "max_connections_per_ip": bounds,
        "per_ip_overrides": st.dictionaries(st.sampled_from(HOSTS), bounds),
        "creation_rate": bounds,
        "max_connections_by_listener": st.dictionaries(st.sampled_from([name.lower() for name in LISTENERS]), bounds),
        "creation_rate_by_listener": st.dictionaries(st.sampled_from([name.lower() for name in LISTENERS]), bounds),
        "unlimited_listener": st.sampled_from((None, *LISTENERS)),
    }
)
# Seconds since the step before: within a window, at its edges, and beyond all windows.
pauses = st.floats(0, 1.5) | st.sampled_from([0.0, 0.5, 1.0, 10.0, 11.0, 30.0])
arrivals = st.tuples(st.just("arrive"), st.sampled_from(LISTENERS), st.sampled_from(HOSTS), pauses, st.integers(1, 12))
steps = st.one_of(
    arrivals,
    arrivals,
    st.tuples(st.just("end"), st.integers(0, 100)),
    st.tuples(st.just("publish"), limits),
    st.tuples(st.just("quota"), st.none() | bounds, st.dictionaries(st.sampled_from(HOSTS), bounds)),
)


@given(start=limits, sequence=st.lists(steps, max_size=60))
def test_admission_decides_as_its_oracle(start, sequence):
    native, oracle = Admission(), ConnectionAdmission()
    native.publish(**start)
    oracle.publish(**start)
    now_s = 1000.0
    admitted = []
    for what, *fields in sequence:
        if what == "publish":
            native.publish(**fields[0])
            oracle.publish(**fields[0])
        elif what == "quota":
            native.publish_address_rates(*fields)
            oracle.publish_address_rates(*fields)
        elif what == "end" and admitted:
            listener, host = admitted.pop(fields[0] % len(admitted))
            native.ended(listener, host)
            oracle.ended(listener, host)
        elif what == "arrive":
            listener, host, pause_s, count = fields
            now_s += pause_s
            for _ in range(count):
                assert native.arrived(listener, now_s) == oracle.arrived(listener, now_s)
                assert native.has_slot(listener) == oracle.has_slot(listener)
                held_s = oracle.held_for(host, now_s)
                assert native.held_for(host, now_s) == held_s
                if held_s:
                    continue
                refusal = oracle.admit(listener, host)
                assert native.admit(listener, host) == refusal
                if refusal is None:
                    admitted.append((listener, host))
        assert native.open == oracle.open == len(admitted)


@given(limit=st.integers(1, 5), pauses=st.lists(st.floats(0, 0.3) | st.sampled_from([0.0, 1.0, 9.99]), max_size=200))
def test_no_address_is_admitted_more_often_than_its_quota_and_none_is_held_for_good(limit, pauses):
    admission = Admission()
    admission.publish_address_rates(limit, {})
    now_s = 5.0
    admitted = []
    for pause_s in pauses:
        now_s += pause_s
        held_s = admission.held_for("192.0.2.1", now_s)
        assert 0 <= held_s <= 1
        if not held_s:
            admitted.append(now_s)
    for began_s in admitted:
        # Ten seconds are measured as ten to eleven.
        assert sum(began_s <= at_s <= began_s + 10 for at_s in admitted) <= 11 * limit
    assert not admission.held_for("192.0.2.1", now_s + 11)
