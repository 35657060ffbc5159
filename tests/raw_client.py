"""A client that speaks raw frames: one blocking socket, typed messages in and out."""

from __future__ import annotations

import socket
from typing import Any, Self

from kraftlog.wire.frame import decode_response, encode_request
from kraftlog.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from kraftlog.wire.messages.sasl_handshake import SaslHandshakeRequest
from kraftlog.wire.registry import API_BY_KEY


class RawClient:
    """Sends requests of any version and reads the responses in order."""

    def __init__(self, bootstrap_servers: str, *, timeout_s: float = 30.0, source: str = "") -> None:
        host, _, port = bootstrap_servers.partition(":")
        # With a source the server sees the client at that address: any of 127.0.0.0/8 on Linux.
        self.sock = socket.create_connection((host, int(port)), timeout=timeout_s, source_address=(source, 0))
        self.sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._correlation_id = 0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.sock.close()

    def send(self, request: Any, version: int, client_id: str | None = "raw") -> int:
        self._correlation_id += 1
        parts = encode_request(request.API_KEY, version, self._correlation_id, client_id, request)
        self.sock.sendall(b"".join(map(bytes, parts)))
        return self._correlation_id

    def receive(self, api_key: int, version: int) -> tuple[int, Any]:
        size = int.from_bytes(self._exactly(4), "big")
        return decode_response(api_key, version, self._exactly(size))

    def call(self, request: Any, version: int | None = None, client_id: str | None = "raw") -> Any:
        used = API_BY_KEY[request.API_KEY].max_version if version is None else version
        sent = self.send(request, used, client_id)
        received, response = self.receive(request.API_KEY, used)
        assert received == sent
        return response

    def authenticate(self, user: str, password: str) -> Any:
        """Authenticate with PLAIN; the answer to the token."""
        assert self.call(SaslHandshakeRequest(mechanism="PLAIN")).error_code == 0
        return self.call(SaslAuthenticateRequest(auth_bytes=f"\0{user}\0{password}".encode()))

    def is_closed_by_peer(self) -> bool:
        try:
            return self.sock.recv(1) == b""
        except ConnectionResetError:
            return True

    def _exactly(self, count: int) -> bytes:
        data = bytearray()
        while len(data) < count:
            got = self.sock.recv(count - len(data))
            if not got:
                raise ConnectionError("closed by the node")
            data += got
        return bytes(data)
