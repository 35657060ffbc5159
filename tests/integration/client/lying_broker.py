"""A broker that answers what a test wants it to."""

from __future__ import annotations

import contextlib
import socket
import threading

from kraftlog.wire.frame import FrameReader, decode_request, encode_response
from kraftlog.wire.messages.api_versions import ApiVersionsResponse
from kraftlog.wire.messages.metadata import MetadataResponse

__all__ = ["LyingBroker"]


class LyingBroker:
    """Answers ApiVersions and Metadata; what comes after is up to ``lie``, which gets the socket and each request.

    Args:
        lie: Called with the socket, the header and each request.
        lie_from_start: Whether it gets those two as well.
        lie_about: Key of an API that it gets as well.
        versions: Further APIs that the broker has: key, lowest and highest version.
    """

    def __init__(self, lie, *, lie_from_start=False, lie_about=None, versions=()):
        self._versions = [(1, 4, 12), (2, 1, 6), (3, 4, 9), (18, 0, 3), *versions]
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.bootstrap_servers = f"127.0.0.1:{self._listener.getsockname()[1]}"
        self._lie = lie
        self._lie_from_start = lie_from_start
        self._lie_about = lie_about
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self):
        self._listener.close()

    def _accept(self):
        with contextlib.suppress(OSError):
            while True:
                link, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(link,), daemon=True).start()

    def _serve(self, link):
        frames = FrameReader(1 << 20)
        with contextlib.suppress(OSError), link:
            while data := link.recv(65536):
                for frame in frames.feed(data):
                    self._answer(link, *decode_request(frame))

    def _answer(self, link, header, request):
        key, version, correlation = header.request_api_key, header.request_api_version, header.correlation_id
        if self._lie_from_start or key not in {18, 3} or key == self._lie_about:
            self._lie(link, header, request)
            return
        host, port = self.bootstrap_servers.split(":")
        if key == 18:
            response = ApiVersionsResponse(
                api_keys=[
                    ApiVersionsResponse.ApiVersion(api_key=api, min_version=low, max_version=high)
                    for api, low, high in self._versions
                ]
            )
        else:
            response = MetadataResponse(
                brokers=[MetadataResponse.MetadataResponseBroker(node_id=1, host=host, port=int(port))],
                topics=[
                    MetadataResponse.MetadataResponseTopic(
                        name="orders",
                        partitions=[MetadataResponse.MetadataResponsePartition(leader_id=1, leader_epoch=0)],
                    )
                ],
            )
        for buffer in encode_response(key, version, correlation, response):
            link.sendall(buffer)
