"""A voter that a test plays: it listens, notes what it is asked and answers what the test says.

Each connection has a thread of its own. A request is given to ``answer``; what that returns is sent, and None leaves
the asker without an answer, as a silent voter would. ApiVersions is answered by itself.
"""

from __future__ import annotations

import contextlib
import queue
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from kraftlog.features import supported_ranges
from kraftlog.types import Uuid
from kraftlog.wire.frame import decode_request, encode_response
from kraftlog.wire.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from kraftlog.wire.registry import API_BY_KEY

__all__ = ["Asked", "ScriptedPeer"]

Answer = Callable[["Asked"], Any]


@dataclass(frozen=True)
class Asked:
    """One request as it came."""

    request: Any
    version: int
    client_id: str | None

    @property
    def partition(self) -> Any:
        """Of a request about the one metadata partition: what it says of it."""
        return self.request.topics[0].partitions[0]


def silent(_: Asked) -> None:
    """Answer nothing."""


class ScriptedPeer:
    """Listens on a port of its own as replica ``(node_id, directory_id)``."""

    def __init__(self, node_id: int, directory_id: Uuid) -> None:
        self.node_id = node_id
        self.directory_id = directory_id
        self.answer: Answer = silent
        self.api_versions: Callable[[], ApiVersionsResponse] = everything
        self.asked: queue.SimpleQueue[Asked] = queue.SimpleQueue()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._links: set[socket.socket] = set()
        self._is_open = True
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        self._is_open = False
        self._listener.close()
        self.drop_connections()

    def drop_connections(self) -> None:
        for link in list(self._links):
            with contextlib.suppress(OSError):
                link.shutdown(socket.SHUT_RDWR)  # wakes the thread that reads

    def forget(self) -> None:
        """Leave out what was asked so far."""
        while not self.asked.empty():
            self.asked.get_nowait()

    def next(self, kind: type, timeout_s: float = 30, *, where: Callable[[Asked], bool] = lambda _: True) -> Asked:
        """The next request of a kind; others before it are left out."""
        deadline = time.monotonic() + timeout_s
        others: list[Any] = []
        while True:
            try:
                one = self.asked.get(timeout=max(0.01, deadline - time.monotonic()))
            except queue.Empty:
                reason = f"peer {self.node_id} was not asked the {kind.__name__} in {timeout_s} s, but {others[-3:]}"
                raise AssertionError(reason) from None
            if isinstance(one.request, kind) and where(one):
                return one
            others.append(one.request)

    def _accept(self) -> None:
        while self._is_open:
            try:
                link, _ = self._listener.accept()
            except OSError:
                return
            link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            self._links.add(link)
            threading.Thread(target=self._serve, args=(link,), daemon=True).start()

    def _serve(self, link: socket.socket) -> None:
        try:
            while True:
                size = int.from_bytes(_exactly(link, 4), "big")
                header, request = decode_request(_exactly(link, size))
                asked = Asked(request, header.request_api_version, header.client_id)
                self.asked.put(asked)
                response = self.api_versions() if isinstance(request, ApiVersionsRequest) else self.answer(asked)
                if response is not None:
                    parts = encode_response(request.API_KEY, asked.version, header.correlation_id, response)
                    link.sendall(b"".join(map(bytes, parts)))
        except (OSError, EOFError):
            pass
        finally:
            self._links.discard(link)
            link.close()


def everything() -> ApiVersionsResponse:
    """What a controller of Kafka's advertises."""
    return ApiVersionsResponse(
        api_keys=[
            ApiVersionsResponse.ApiVersion(api_key=key, min_version=api.min_version, max_version=api.max_version)
            for key, api in sorted(API_BY_KEY.items())
            if "controller" in api.listeners
        ],
        supported_features=[
            ApiVersionsResponse.SupportedFeatureKey(name=name, min_version=low, max_version=high)
            for name, (low, high) in supported_ranges().items()
        ],
    )


def _exactly(link: socket.socket, count: int) -> bytes:
    data = bytearray()
    while len(data) < count:
        got = link.recv(count - len(data))
        if not got:
            raise EOFError
        data += got
    return bytes(data)
