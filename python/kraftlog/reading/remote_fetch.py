"""Ranges of objects fetched by threads, with retries, and compared with what was listed."""

from __future__ import annotations

import os
import random
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, replace
from threading import Lock
from typing import Any, Protocol, TypeVar

from kraftlog.errors import RemoteLogError
from kraftlog.reading.remote_files import RemoteLocation

__all__ = ["FetchCounts", "RangeFetcher", "RetryPolicy", "fetch_counts", "retried", "small_file"]

# Requests under way at once in this process. The threads only wait for the network.
THREADS_MAX = 16

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class FetchCounts:
    """Requests of this process so far; the difference of two is what was done in between.

    Args:
        lists: Listings asked for; a file system may need several pages for one.
        reads: Ranges and whole files that were read.
        bytes_read: Their bytes.
        checks: Looks at size and tag of a single object.
        retries: Of all of them, those that had failed before.
    """

    lists: int = 0
    reads: int = 0
    bytes_read: int = 0
    checks: int = 0
    retries: int = 0

    def __sub__(self, other: FetchCounts) -> FetchCounts:
        return FetchCounts(
            self.lists - other.lists,
            self.reads - other.reads,
            self.bytes_read - other.bytes_read,
            self.checks - other.checks,
            self.retries - other.retries,
        )


@dataclass(frozen=True, slots=True)
class RetryPolicy:
    """How often and how patiently to try again after an error that may pass.

    Args:
        attempts: Tries in all, at least 1.
        first_delay_s: Seconds before the second try; each further one waits twice as long, give or take a half.
        last_delay_s: Most seconds.
    """

    attempts: int = 5
    first_delay_s: float = 0.1
    last_delay_s: float = 5.0

    def delay_s(self, failures: int) -> float:
        """Seconds to wait after so many failures."""
        delay = min(self.first_delay_s * 2.0 ** (failures - 1), self.last_delay_s)
        return float(delay * random.uniform(0.5, 1.5))


class RemoteFile(Protocol):
    """An object as it was listed."""

    @property
    def location(self) -> RemoteLocation: ...
    @property
    def path(self) -> str: ...
    @property
    def size_bytes(self) -> int: ...
    @property
    def tag(self) -> str: ...
    @property
    def url(self) -> str: ...


class _Shared:
    """The threads and counters of a process; a forked one makes its own."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.lock = Lock()
        self.counts = FetchCounts()
        self.pool = ThreadPoolExecutor(THREADS_MAX, thread_name_prefix="kraftlog-fetch")


_shared: _Shared | None = None
_shared_lock = Lock()


def _process() -> _Shared:
    global _shared  # noqa: PLW0603 - one for the process
    with _shared_lock:
        if _shared is None or _shared.pid != os.getpid():
            _shared = _Shared()
        return _shared


os.register_at_fork(after_in_child=lambda: globals().update(_shared=None, _shared_lock=Lock()))


def fetch_counts() -> FetchCounts:
    """The requests of this process so far."""
    shared = _process()
    with shared.lock:
        return shared.counts


def _count(**more: int) -> None:
    shared = _process()
    with shared.lock:
        shared.counts = replace(
            shared.counts, **{name: getattr(shared.counts, name) + number for name, number in more.items()}
        )


class RangeFetcher:
    """What the engine asks for the ranges of the objects of one partition.

    Args:
        objects: The objects, which the engine names by their index.
        retry: After errors that may pass.
    """

    def __init__(self, objects: Sequence[RemoteFile], retry: RetryPolicy) -> None:
        self._objects = tuple(objects)
        self._retry = retry

    def begin(self, index: int, start: int, end: int, check: bool) -> Future[Any]:
        """A future of the bytes from ``start`` up to ``end``; with ``check`` the object is the one that was listed."""
        return _process().pool.submit(self._fetch, self._objects[index], start, end, check)

    def _fetch(self, one: RemoteFile, start: int, end: int, check: bool) -> Any:
        def read() -> Any:
            data = one.location.files.read(one.path, start, end)
            size = memoryview(data).nbytes
            _count(reads=1, bytes_read=size)
            if size != end - start:
                check_unchanged(one)
                message = f"{size} bytes came of the {end - start} from {start} on"
                raise ShortReadError(message)
            if check:
                check_unchanged(one)
            return data

        return retried(read, one.location, self._retry)


class ShortReadError(OSError):
    """Fewer bytes came than the object has."""


def check_unchanged(one: RemoteFile) -> None:
    """Compares an object with what was listed.

    Raises:
        RemoteLogError: It is another one.
        FileNotFoundError: It is gone.
    """
    version = one.location.files.version(one.path)
    _count(checks=1)
    if version.size_bytes != one.size_bytes or (version.tag and one.tag and version.tag != one.tag):
        message = (
            f"the object is not the one that was listed: {one.size_bytes} bytes, tag {one.tag}, "
            f"now {version.size_bytes} bytes, tag {version.tag}"
        )
        raise RemoteLogError(message)


def small_file(one: RemoteFile, retry: RetryPolicy) -> bytes:
    """All bytes of a small object.

    Raises:
        RemoteLogError: It cannot be read; names it.
        FileNotFoundError: It is gone.
    """

    def read() -> bytes:
        data = bytes(one.location.files.read(one.path, 0, one.size_bytes)) if one.size_bytes else b""
        _count(reads=1, bytes_read=len(data))
        if len(data) != one.size_bytes:
            message = f"{len(data)} bytes came of {one.size_bytes}"
            raise ShortReadError(message)
        return data

    try:
        return retried(read, one.location, retry)
    except RemoteLogError as error:
        message = f"{one.url}: {error}"
        raise RemoteLogError(message) from error


def listed(location: RemoteLocation, path: str, retry: RetryPolicy) -> list[Any]:
    """One listing of all that is below a path.

    Raises:
        FileNotFoundError: There is nothing.
        RemoteLogError: It cannot be listed; names the URL.
    """

    def find() -> list[Any]:
        _count(lists=1)
        return location.files.find(path)

    try:
        found = retried(find, location, retry)
    except FileNotFoundError:
        found = []
    except RemoteLogError as error:
        message = f"{location.url_of(path)}: {error}"
        raise RemoteLogError(message) from error
    if not found:
        message = f"no files in {location.url_of(path)}"
        raise FileNotFoundError(message)
    return found


def retried(work: Callable[[], T], location: RemoteLocation, retry: RetryPolicy) -> T:
    """What ``work`` gives, tried again after errors that may pass.

    Raises:
        FileNotFoundError: As ``work`` raised it, without secrets in its text.
        RemoteLogError: Any other failure; says how often it was tried. Secrets are not in its text.
    """
    failures = 0
    while True:
        try:
            return work()
        except RemoteLogError:
            raise
        except FileNotFoundError as error:
            raise FileNotFoundError(location.hide(str(error) or "not found")) from None
        except Exception as error:  # noqa: BLE001 - each library has errors of its own
            failures += 1
            if failures >= retry.attempts or not _may_pass(error):
                tries = "" if failures == 1 else f" ({failures} attempts)"
                text = location.hide(f"{type(error).__name__}: {error}")
                raise RemoteLogError(text + tries) from None
            _count(retries=1)
            time.sleep(retry.delay_s(failures))


_PERMANENT = (
    PermissionError,
    IsADirectoryError,
    NotADirectoryError,
    ImportError,
    TypeError,
    ValueError,
    AttributeError,
    NotImplementedError,
    KeyError,
)
_PASSING_NAMES = (
    "timeout",
    "timedout",
    "connection",
    "incompleteread",
    "slowdown",
    "throttl",
    "responsestream",
    "payloaderror",
    "disconnected",
    "httpclienterror",
    "temporar",
)
# What pyarrow and botocore say of denials inside general errors.
_PERMANENT_TEXTS = ("ACCESS_DENIED", "AccessDenied", "NoSuchBucket", "InvalidAccessKeyId", "SignatureDoesNotMatch")


def _may_pass(error: Exception) -> bool:
    """Whether to try again: errors of the network and the server, not those of the request."""
    if isinstance(error, _PERMANENT):
        return False
    if any(text in str(error) for text in _PERMANENT_TEXTS):
        return False
    if isinstance(error, OSError | TimeoutError | EOFError):
        return True
    response = getattr(error, "response", None)
    if isinstance(response, dict):  # botocore
        status = response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0)
        return bool(status >= 500 or status == 429)
    names = " ".join(kind.__name__.lower() for kind in type(error).__mro__)
    return any(name in names for name in _PASSING_NAMES)
