"""Large answers as they come out of a socket."""

from __future__ import annotations

import asyncio
import sys

import pytest

from kraftlog.transport.rpc_client import RpcConnection
from kraftlog.wire.frame import FrameReader, decode_request, encode_response
from kraftlog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux wakes by SO_RCVLOWAT")
def test_large_answer_wakes_the_loop_for_many_bytes_at_a_time(monkeypatch):
    """Each segment of 16 KiB woke it: 256 times for these 4 MiB."""
    size, piece = 4 << 20, 16 << 10
    calls, served = [], []
    updated = RpcConnection.buffer_updated

    def counted(self, nbytes):
        calls.append(nbytes)
        updated(self, nbytes)

    monkeypatch.setattr(RpcConnection, "buffer_updated", counted)

    async def serve(reader, writer):
        frames = FrameReader(1 << 20)
        served.append(writer)
        while data := await reader.read(65536):
            for frame in frames.feed(data):
                header, _ = decode_request(frame)
                parts = encode_response(18, header.request_api_version, header.correlation_id, ApiVersionsResponse())
                answer = b"".join(parts)[4:]
                if header.correlation_id > 0:
                    answer += bytes(size)
                answer = len(answer).to_bytes(4, "big") + answer
                for start in range(0, len(answer), piece):
                    writer.write(answer[start : start + piece])
                    await writer.drain()
                    await asyncio.sleep(0.0005)

    async def run():
        server = await asyncio.start_server(serve, "127.0.0.1", 0)
        host, port = server.sockets[0].getsockname()
        loop = asyncio.get_running_loop()
        connection = await RpcConnection.open(loop, host, port, client_id="c", timeout_s=30)
        calls.clear()
        for _ in range(2):
            request = ApiVersionsRequest(client_software_name="a", client_software_version="1")
            await asyncio.wait_for(connection.ask(request, 3), 20)
        connection.close()
        for writer in served:
            writer.close()
            await asyncio.wait([asyncio.create_task(writer.wait_closed())])
        server.close()

    asyncio.run(run())
    assert sum(calls) > 2 * size
    assert len(calls) < 100
