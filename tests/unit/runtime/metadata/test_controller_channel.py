"""The way to the active controller: in this process for operations, always over a listener for envelopes."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace

import pytest

from kraftlog.errors import KafkaError
from kraftlog.raft.voter_set import Endpoint
from kraftlog.runtime.metadata import controller_channel
from kraftlog.runtime.metadata.controller_channel import ControllerChannel
from kraftlog.runtime.metadata.settings import ChannelSettings
from kraftlog.wire.messages.broker_heartbeat import BrokerHeartbeatRequest
from kraftlog.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse

SETTINGS = ChannelSettings(node_id=1, listener_name="CONTROLLER", socket_timeout_ms=1000, connect_timeout_ms=1000)


class Connection:
    """One connection; ``asked`` has what was sent over all of them."""

    is_closed = False

    def __init__(self, asked: list[object], after: object) -> None:
        self._asked, self._after = asked, after

    async def request(self, message: object, *, timeout_s: float) -> EnvelopeResponse:
        self._asked.append(message)
        if callable(self._after):
            self._after()
        return EnvelopeResponse(error_code=41 if len(self._asked) == 1 else 0)

    def close(self) -> None:
        self.is_closed = True


@pytest.mark.parametrize("leads_at_once", [True, False])
def test_an_envelope_goes_to_the_listener_of_the_controller_even_if_that_is_this_node(monkeypatch, leads_at_once):
    """A node that was elected while it forwarded a request handed the envelope to its controller, which serves none."""

    async def check() -> None:
        asked: list[object] = []
        addresses: list[tuple[str, int]] = []
        replica = SimpleNamespace(
            is_leader=leads_at_once, leader_endpoints=(Endpoint("CONTROLLER", "127.0.0.1", 9093),)
        )

        async def connect(_loop: object, host: str, port: int, **_: object) -> Connection:
            addresses.append((host, port))
            return Connection(asked, lambda: setattr(replica, "is_leader", True))

        monkeypatch.setattr(controller_channel.RpcConnection, "open", connect)
        monkeypatch.setattr(controller_channel, "_RETRY_S", 0)
        submitted: list[object] = []

        def submit_request(message: object, *, timeout_s: float | None = None) -> asyncio.Future[object]:
            submitted.append(message)
            future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
            future.set_result("done")
            return future

        channel = ControllerChannel(SETTINGS, replica, SimpleNamespace(submit_request=submit_request))
        envelope = EnvelopeRequest(request_data=b"x", client_host_address=b"\x7f\0\0\1")
        assert (await channel.request(envelope)).error_code == 0
        assert asked == [envelope, envelope], "the first answer was NOT_CONTROLLER"
        assert addresses == [("127.0.0.1", 9093)]
        assert submitted == []
        replica.is_leader = True
        assert await channel.request(BrokerHeartbeatRequest()) == "done"
        assert len(submitted) == 1

    asyncio.run(check())


@pytest.mark.parametrize("is_opening", [True, False])
def test_a_channel_that_is_stopped_opens_no_connection_and_keeps_none(monkeypatch, is_opening):
    """A heartbeat that was sent as the node stopped connected again, and the connection outlived the node."""

    async def run() -> None:
        connection = Connection([], None)
        opened: list[Connection] = []
        wait = asyncio.Event()

        async def open_(*_args: object, **_options: object) -> Connection:
            opened.append(connection)
            await wait.wait()
            return connection

        monkeypatch.setattr(controller_channel.RpcConnection, "open", open_)
        replica = SimpleNamespace(is_leader=False, leader_endpoints=(Endpoint("CONTROLLER", "h", 1),))
        channel = ControllerChannel(SETTINGS, replica, SimpleNamespace())
        if not is_opening:
            channel.stop()
        asked = asyncio.ensure_future(channel.request(BrokerHeartbeatRequest()))
        await asyncio.sleep(0)
        channel.stop()
        wait.set()
        with pytest.raises(KafkaError, match="is being stopped"):
            await asked
        assert len(opened) == is_opening
        assert connection.is_closed is is_opening

    asyncio.run(run())
