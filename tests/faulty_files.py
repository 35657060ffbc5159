"""The files of this machine as a remote file system that counts its requests and fails on purpose."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fsspec.implementations.local import LocalFileSystem


@dataclass
class Request:
    """A request as a file system or a server saw it."""

    method: str
    path: str
    size_bytes: int = 0


class FaultyFiles(LocalFileSystem):
    """The files of this machine, through ``cat_file`` that may be told to do something else first."""

    protocol = "faulty"
    cachable = False

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.requests: list[Request] = []
        self.on_read: Callable[[str, int, int], bytes | None] = lambda _path, _start, _end: None

    def cat_file(self, path: str, start: int | None = None, end: int | None = None, **options: Any) -> bytes:
        first, stop = start or 0, os.path.getsize(path) if end is None else end
        self.requests.append(Request("GET", path, stop - first))
        answer = self.on_read(path, first, stop)
        return super().cat_file(path, start=start, end=end) if answer is None else answer

    def info(self, path: str, **options: Any) -> dict[str, Any]:
        self.requests.append(Request("HEAD", path))
        return super().info(path, **options)

    def reads_of(self, suffix: str) -> list[Request]:
        return [request for request in self.requests if request.method == "GET" and request.path.endswith(suffix)]
