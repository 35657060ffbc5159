"""Ports of the nodes of a cluster."""

from __future__ import annotations

import itertools
import random

import pytest

from kraftlog.cluster.layout import NodeAddresses, take_ports
from kraftlog.errors import ClusterError


def test_no_port_is_taken_twice_although_the_first_node_does_not_listen_yet(monkeypatch):
    drawn = itertools.cycle(numbers_of(take_ports(6)))
    monkeypatch.setattr(random, "choice", lambda _ports: next(drawn))
    first = NodeAddresses(1, True, *numbers_of(take_ports(4)))
    others = take_ports(2, first.ports)
    with pytest.raises(ClusterError, match="no free port"):
        take_ports(1, first.ports)  # the two others are bound
    assert set(first.ports).isdisjoint(numbers_of(others))


def numbers_of(sockets):
    """Their ports, which are free again afterwards."""
    numbers = [bound.getsockname()[1] for bound in sockets]
    for bound in sockets:
        bound.close()
    return numbers
