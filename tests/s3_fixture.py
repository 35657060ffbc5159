"""A real server that speaks S3, for tests of remote directories."""

from __future__ import annotations

import contextlib
import logging
import urllib.request
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import fsspec
import pytest

from faulty_files import Request

BUCKET = "logs"
# Not real: the server takes any.
KEY, SECRET = "access-key-of-the-test", "secret-key-of-the-test"


@dataclass
class S3Server:
    """moto's server, which counts what it is asked."""

    port: int
    requests: list[Request] = field(default_factory=list)

    @property
    def endpoint(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def s3fs_options(self) -> dict[str, Any]:
        return {"key": KEY, "secret": SECRET, "client_kwargs": {"endpoint_url": self.endpoint}}

    @property
    def pyarrow_options(self) -> dict[str, Any]:
        return {
            "access_key": KEY,
            "secret_key": SECRET,
            "endpoint_override": f"127.0.0.1:{self.port}",
            "scheme": "http",
            "region": "us-east-1",
        }

    @property
    def environment(self) -> Mapping[str, str]:
        return {
            "AWS_ACCESS_KEY_ID": KEY,
            "AWS_SECRET_ACCESS_KEY": SECRET,
            "AWS_ENDPOINT_URL": self.endpoint,
            "AWS_DEFAULT_REGION": "us-east-1",
        }

    def upload(self, directory: Path, prefix: str) -> None:
        """All files below a directory, under a prefix of the bucket."""
        self._filesystem().put(f"{directory}/", f"{BUCKET}/{prefix}/", recursive=True)

    def upload_file(self, path: Path, key: str) -> None:
        """One file."""
        self._filesystem().put_file(str(path), f"{BUCKET}/{key}")

    def _filesystem(self) -> Any:
        filesystem = fsspec.filesystem("s3", **self.s3fs_options)
        if not filesystem.exists(BUCKET):
            filesystem.mkdir(BUCKET)
        return filesystem

    @contextlib.contextmanager
    def counted(self) -> Iterator[list[Request]]:
        """The requests of a block."""
        first = len(self.requests)
        seen: list[Request] = []
        yield seen
        seen += self.requests[first:]


class _Counting:
    """A WSGI application around the server's that notes methods, paths and bytes sent."""

    def __init__(self, application: Any, requests: list[Request]) -> None:
        self._application = application
        self._requests = requests

    def __call__(self, environment: dict[str, Any], start_response: Any) -> Any:
        one = Request(environment["REQUEST_METHOD"], environment["PATH_INFO"])
        if "list-type=2" in environment.get("QUERY_STRING", ""):
            one.method = "LIST"

        def start(status: str, headers: list[tuple[str, str]], *rest: Any) -> Any:
            sizes = [int(value) for name, value in headers if name.lower() == "content-length"]
            one.size_bytes = sum(sizes) if one.method != "HEAD" else 0
            self._requests.append(one)
            return start_response(status, headers, *rest)

        return self._application(environment, start)


@contextlib.contextmanager
def s3_server() -> Iterator[S3Server]:
    """A running server; it ends with the block."""
    moto_server = pytest.importorskip("moto.server")
    logging.getLogger("werkzeug").setLevel(logging.ERROR)  # a line for each request
    server = moto_server.ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    try:
        facts = S3Server(server._server.port)
        # What an earlier server of this process stored is there otherwise.
        urllib.request.urlopen(urllib.request.Request(f"{facts.endpoint}/moto-api/reset", method="POST")).close()
        server._server.app = _Counting(server._server.app, facts.requests)
        yield facts
    finally:
        server.stop()
