"""Connection, transport and dispatch over real sockets, with a node that only knows its features."""

from __future__ import annotations

import asyncio
import logging
import socket
from types import SimpleNamespace

import pytest

from kraftlog.api.dispatcher import Dispatcher
from kraftlog.errors import ErrorCode, NodeClosedError
from kraftlog.security.principal import ANONYMOUS
from kraftlog.transport.connection import MAX_IN_FLIGHT, MAX_IN_FLIGHT_BYTES, Connection
from kraftlog.transport.exchange import PeerContext
from kraftlog.transport.frame_reader import FrameReader
from kraftlog.transport.peer_log import PeerLog
from kraftlog.transport.scheduler import Scheduler
from kraftlog.wire.frame import decode_response, encode_request
from kraftlog.wire.messages.api_versions import ApiVersionsRequest
from kraftlog.wire.messages.list_groups import ListGroupsRequest
from kraftlog.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from waiting import settle, until

FEATURES = {"metadata.version": 30, "group.version": 1, "transaction.version": 0}


class Peer:
    """The client's end, with helpers; everything runs on one loop."""

    def __init__(self, loop, sock, connection, lost):
        self.loop, self.sock, self.connection, self.lost = loop, sock, connection, lost

    async def send(self, *requests):
        data = b"".join(b"".join(map(bytes, request)) if isinstance(request, list) else request for request in requests)
        await self.loop.sock_sendall(self.sock, data)

    async def receive(self):
        size = int.from_bytes(await self._exactly(4), "big")
        return await self._exactly(size)

    async def at_end(self):
        return await asyncio.wait_for(self.loop.sock_recv(self.sock, 1), 5) == b""

    async def _exactly(self, count):
        data = b""
        while len(data) < count:
            got = await asyncio.wait_for(self.loop.sock_recv(self.sock, count - len(data)), 5)
            assert got, "closed"
            data += got
        return data


def run(scenario, *, handlers=None, listener="broker", max_frame_bytes=1000):
    async def main():
        loop = asyncio.get_running_loop()
        services = SimpleNamespace(
            cluster=SimpleNamespace(kraft_version=1, image=SimpleNamespace(offset=9, features=FEATURES))
        )
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        theirs.setblocking(False)
        lost = []
        connection = Connection(
            loop,
            ours,
            FrameReader(memoryview(bytearray(65536)), max_frame_bytes),
            Dispatcher(services, listener, handlers=handlers),
            PeerContext(
                listener_name="PLAINTEXT",
                is_controller_listener=listener == "controller",
                principal=ANONYMOUS,
                client_host="test",
                peer="test:1",
            ),
            on_lost=lost.append,
            peer_log=PeerLog(loop, logging.getLogger("kraftlog.transport")),
            scheduler=Scheduler(loop),
        )
        try:
            await scenario(Peer(loop, theirs, connection, lost))
        finally:
            connection.close(None)
            theirs.close()

    asyncio.run(main())


def api_versions_request(version=3, correlation_id=1, name="x"):
    return encode_request(
        18, version, correlation_id, "c", ApiVersionsRequest(client_software_name=name, client_software_version="1")
    )


@pytest.mark.parametrize("version", range(5))
def test_api_versions_lists_what_is_served(version):
    async def scenario(peer):
        await peer.send(api_versions_request(version, 77))
        correlation_id, response = decode_response(18, version, await peer.receive())
        assert correlation_id == 77
        ranges = {api_key.api_key: (api_key.min_version, api_key.max_version) for api_key in response.api_keys}
        assert ranges[0] == (0, 13)
        assert ranges[1] == (4, 18)
        assert ranges[18] == (0, 4)
        supported = {supported_feature.name for supported_feature in response.supported_features}
        finalized = {
            finalized_feature.name: finalized_feature.max_version_level
            for finalized_feature in response.finalized_features
        }
        if version >= 3:
            assert response.finalized_features_epoch == 9
            assert finalized == {"metadata.version": 30, "group.version": 1, "kraft.version": 1}
            assert ("kraft.version" in supported) == (version >= 4)
            assert "metadata.version" in supported

    run(scenario)


def test_api_versions_of_a_future_version_is_answered_in_v0_form():
    async def scenario(peer):
        # The bytes Kafka 4.3.1 was asked and answered with, see golden/kraft/captures.jsonl.
        body = bytes.fromhex("00120063000000050003616263000461626304312e3000")
        await peer.send(len(body).to_bytes(4, "big") + body)
        assert (await peer.receive()).hex() == "00000005002300000001001200000004"

    run(scenario)


def test_api_versions_with_a_bad_software_name_is_an_invalid_request():
    async def scenario(peer):
        await peer.send(api_versions_request(3, 6, name="a b"))
        assert (await peer.receive()).hex() == "00000006002a010000000000"

    run(scenario)


@pytest.mark.parametrize(
    ("body_hex", "words"),
    [
        ("03e70000000000070003616263", "unknown or unsupported API key 999"),
        ("000000020000000a00036162630000000000000000000000000000000000000000", "Produce version 2 is outside 3..13"),
        ("001200", "3 bytes is too short"),
        ("00120000000000050063", "ApiVersions version 0 does not decode"),
    ],
)
def test_what_has_no_answer_closes_with_one_line(body_hex, words, caplog):
    async def scenario(peer):
        body = bytes.fromhex(body_hex)
        await peer.send(api_versions_request(0), len(body).to_bytes(4, "big") + body, api_versions_request(0))
        await peer.receive()
        assert await peer.at_end()
        assert peer.lost == [peer.connection]

    with caplog.at_level(logging.WARNING, logger="kraftlog"):
        run(scenario)
    (record,) = caplog.records
    assert "test:1" in record.getMessage()
    assert words in record.getMessage()


def test_oversized_frame_closes_with_one_line(caplog):
    async def scenario(peer):
        await peer.send((1001).to_bytes(4, "big"))
        assert await peer.at_end()

    with caplog.at_level(logging.WARNING, logger="kraftlog"):
        run(scenario)
    assert "1001" in caplog.text


def list_offsets_request(correlation_id, timeout_ms=0):
    return encode_request(2, 10, correlation_id, "c", ListOffsetsRequest(timeout_ms=timeout_ms))


def test_responses_keep_the_order_of_requests():
    futures = {}

    def handle(context, request):
        if request.timeout_ms:
            futures[context.correlation_id] = asyncio.get_running_loop().create_future()
            return futures[context.correlation_id]
        return ListOffsetsResponse(throttle_time_ms=context.correlation_id)

    async def scenario(peer):
        await peer.send(
            list_offsets_request(1, 1), list_offsets_request(2), list_offsets_request(3, 1), list_offsets_request(4)
        )
        while len(futures) < 2:  # noqa: ASYNC110
            await asyncio.sleep(0)
        futures[3].set_result(ListOffsetsResponse(throttle_time_ms=3))
        await asyncio.sleep(0)
        futures[1].set_result(ListOffsetsResponse(throttle_time_ms=1))
        received = [decode_response(2, 10, await peer.receive()) for _ in range(4)]
        assert [correlation_id for correlation_id, _ in received] == [1, 2, 3, 4]
        assert [response.throttle_time_ms for _, response in received] == [1, 2, 3, 4]

    run(scenario, handlers={2: handle})


def test_pending_requests_are_bounded_and_reading_goes_on_after():
    futures = []

    def handle(context, request):
        futures.append(asyncio.get_running_loop().create_future())
        return futures[-1]

    async def scenario(peer):
        count = MAX_IN_FLIGHT + 10
        await peer.send(*(list_offsets_request(number) for number in range(count)))
        for _ in range(20):
            await asyncio.sleep(0)
        assert len(futures) == MAX_IN_FLIGHT
        for index in range(count):
            while len(futures) <= index:  # noqa: ASYNC110
                await asyncio.sleep(0)
            futures[index].set_result(ListOffsetsResponse())
            correlation_id, _ = decode_response(2, 10, await peer.receive())
            assert correlation_id == index

    run(scenario, handlers={2: handle})


def test_bytes_of_pending_requests_are_bounded():
    futures = []

    def handle(context, request):
        futures.append(asyncio.get_running_loop().create_future())
        return futures[-1]

    def large_request(correlation_id):
        topics = [ListOffsetsRequest.ListOffsetsTopic(name="x" * 30000) for _ in range(20)]
        return encode_request(2, 10, correlation_id, "c", ListOffsetsRequest(topics=topics))

    async def scenario(peer):
        frame_bytes = sum(map(len, large_request(0))) - 4  # without the length before it
        room = -(-MAX_IN_FLIGHT_BYTES // frame_bytes)  # the frame that passes the bound is the last
        count = room + 5
        sending = asyncio.create_task(peer.send(*(large_request(number) for number in range(count))))
        for index in range(count):
            while len(futures) <= index:  # noqa: ASYNC110
                await asyncio.sleep(0)
            if index == 0:
                await until(lambda: len(futures) == room)
                await settle()
                assert len(futures) == room
            futures[index].set_result(ListOffsetsResponse())
            assert decode_response(2, 10, await peer.receive())[0] == index
        await sending

    run(scenario, handlers={2: handle}, max_frame_bytes=1 << 20)


def test_peer_that_does_not_read_stops_being_served():
    handled = []

    def handle(context, request):
        handled.append(context.correlation_id)
        name = "x" * 30000
        topics = [ListOffsetsResponse.ListOffsetsTopicResponse(name=name) for _ in range(30)]
        return ListOffsetsResponse(topics=topics)

    async def scenario(peer):
        for correlation_id in range(100):
            await peer.send(list_offsets_request(correlation_id))
            await asyncio.sleep(0)
        for _ in range(20):
            await asyncio.sleep(0)
        before = len(handled)
        assert before < 30
        assert peer.connection.transport.unsent_bytes < 8 * 1024 * 1024
        for correlation_id in range(100):
            assert decode_response(2, 10, await peer.receive())[0] == correlation_id

    run(scenario, handlers={2: handle})


def test_handler_defect_closes_only_its_connection(caplog):
    def handle(context, request):
        raise ZeroDivisionError

    async def scenario(peer):
        await peer.send(list_offsets_request(1))
        assert await peer.at_end()

    run(scenario, handlers={2: handle})
    assert "ZeroDivisionError" in caplog.text


def test_no_response_for_none():
    def handle(context, request):
        return None if context.correlation_id == 1 else ListOffsetsResponse()

    async def scenario(peer):
        await peer.send(list_offsets_request(1), list_offsets_request(2))
        assert decode_response(2, 10, await peer.receive())[0] == 2

    run(scenario, handlers={2: handle})


def test_handler_defect_tells_the_client_nothing_of_this_machine(caplog):
    """CERR-31."""

    def handle(context, request):
        raise OSError(5, "broken", "/var/lib/secret/t-0/00000000000000000000.log")

    async def scenario(peer):
        await peer.send(encode_request(16, 4, 1, "c", ListGroupsRequest()))
        frame = await peer.receive()
        assert decode_response(16, 4, frame)[1].error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        assert b"secret" not in frame
        assert b"broken" not in frame

    run(scenario, handlers={16: handle})
    assert "/var/lib/secret" in caplog.text


def test_a_request_to_a_stopping_node_is_told_to_retry_and_no_defect_is_logged(caplog):
    def handle(context, request):
        raise NodeClosedError("the metadata log failed: /var/lib/secret")

    async def scenario(peer):
        await peer.send(encode_request(16, 4, 1, "c", ListGroupsRequest()))
        frame = await peer.receive()
        assert decode_response(16, 4, frame)[1].error_code == ErrorCode.REQUEST_TIMED_OUT
        assert b"secret" not in frame

    run(scenario, handlers={16: handle})
    assert not caplog.records
