"""The rate of new connections, as Kafka's quota measures it."""

from __future__ import annotations

from kraftlog._kraftlog import Admission


class Rate:
    """Connections of one listener without other bounds."""

    def __init__(self) -> None:
        self.admission = Admission()

    def add(self, limit_per_s: int, now_s: float) -> float:
        self.admission.publish(
            max_connections=2**31 - 1,
            max_connections_per_ip=2**31 - 1,
            per_ip_overrides={},
            creation_rate=limit_per_s,
            max_connections_by_listener={},
            creation_rate_by_listener={},
            unlimited_listener=None,
        )
        return self.admission.arrived("PLAINTEXT", now_s)


def test_a_burst_of_ten_seconds_passes_and_what_follows_waits() -> None:
    rate = Rate()
    delays = [rate.add(2, 0.0) for _ in range(22)]
    assert delays[:20] == [0.0] * 20
    # 21 connections in ten seconds are 2.1 a second: a twentieth above the limit, over ten seconds.
    assert [round(delay, 6) for delay in delays[20:]] == [0.5, 1.0]


def test_no_connection_waits_longer_than_a_window() -> None:
    rate = Rate()
    assert max(rate.add(1, 0.0) for _ in range(500)) == 1.0
    assert rate.add(0, 0.0) == 1.0


def test_connections_are_forgotten_after_eleven_seconds() -> None:
    rate = Rate()
    for _ in range(100):
        rate.add(1, 0.0)
    assert rate.add(1, 10.9) > 0
    assert rate.add(1, 22.0) == 0.0


def test_a_steady_rate_below_the_limit_never_waits() -> None:
    rate = Rate()
    assert all(rate.add(5, number / 4) == 0.0 for number in range(500))
