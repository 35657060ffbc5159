"""The objects of one partition, as a value that stands where a directory's path does."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Literal, TypeAlias

from kraftlog._kraftlog import RemoteDirectory
from kraftlog.reading.remote_fetch import RangeFetcher, RetryPolicy
from kraftlog.reading.remote_files import RemoteLocation

__all__ = ["ObjectKind", "RemoteObject", "RemotePartition"]

ObjectKind: TypeAlias = Literal["log", "index", "timeindex", "txnindex", "snapshot", "other"]

WINDOW_BYTES = 8 << 20


@dataclass(frozen=True, slots=True)
class RemoteObject:
    """An object as it was listed.

    Args:
        location: Where it is.
        path: Its path in that file system.
        size_bytes: Its size.
        tag: ETag or time of the last change; what is read has to have the same.
        kind: What it is to its partition.
        offset: Base offset of its segment; of a snapshot the offset that it is of.
        end_offset: Of a segment: offsets from here on are read from another one. None for all that it has.
    """

    location: RemoteLocation
    path: str
    size_bytes: int
    tag: str
    kind: ObjectKind = "other"
    offset: int = 0
    end_offset: int | None = None

    @property
    def url(self) -> str:
        """Its URL, for people."""
        return self.location.url_of(self.path)


@dataclass(slots=True)
class _Handle:
    """What the engine made of a partition in this process."""

    directory: RemoteDirectory | None = None

    def __reduce__(self) -> tuple[type[_Handle], tuple[()]]:
        return _Handle, ()


@dataclass(frozen=True, slots=True)
class RemotePartition:
    """The segments and indexes of one partition that are not files of this machine. It can be pickled.

    Its text is its URL. What is read is what was listed when it was made: objects that appear later are not seen, and
    one that has changed is an error.

    Args:
        url: Where it is, for people.
        objects: Its objects.
        hint: Base offset of a segment, byte position at which to begin in it, and byte position at which to end.
        window_bytes: Most bytes of a range that is fetched at once; three of them are held for each thread.
        retry: After errors that may pass.
    """

    url: str
    objects: tuple[RemoteObject, ...] = field(repr=False)
    hint: tuple[int, int, int] | None = None
    window_bytes: int = WINDOW_BYTES
    retry: RetryPolicy = field(default_factory=RetryPolicy)
    _handle: _Handle = field(default_factory=_Handle, repr=False, compare=False)

    def __kraftlog_directory__(self) -> RemoteDirectory:
        handle = self._handle
        if handle.directory is None:
            objects = [stored for stored in self.objects if stored.kind != "other"]
            handle.directory = RemoteDirectory(
                RangeFetcher(objects, self.retry),
                self.url,
                [(stored.kind, stored.offset, stored.end_offset, stored.url, stored.size_bytes) for stored in objects],
                hint=self.hint,
                window_bytes=self.window_bytes,
            )
        return handle.directory

    @property
    def segments(self) -> tuple[RemoteObject, ...]:
        """The ``.log`` objects by rising base offset."""
        return tuple(sorted((stored for stored in self.objects if stored.kind == "log"), key=lambda one: one.offset))

    def part(self, base_offset: int, position: int, size_bytes: int) -> RemotePartition:
        """What a split of one segment needs, with the byte positions that the plan found for it."""
        later = [segment.offset for segment in self.segments if segment.offset > base_offset]
        # The next segment says that this one is not the last, which may end within a batch.
        next_offset = min(later, default=None)
        objects = tuple(
            stored
            for stored in self.objects
            if (stored.offset == base_offset and stored.kind in {"log", "index", "timeindex"})
            or (stored.offset == next_offset and stored.kind == "log")
        )
        return replace(self, objects=objects, hint=(base_offset, position, position + size_bytes), _handle=_Handle())

    def without_hint(self) -> RemotePartition:
        """The same, whose byte positions are looked up in the index."""
        return replace(self, hint=None, _handle=_Handle())

    def __str__(self) -> str:
        return self.url
