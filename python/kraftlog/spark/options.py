"""Options of the data source, checked before anything is read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass

__all__ = ["SPLIT_BYTES", "SourceOptions"]

SPLIT_BYTES = 64 << 20

_KNOWN = (
    "path",
    "paths",
    "topics",
    "subscribe",
    "columns",
    "includeHeaders",
    "splitBytes",
    "fromTimestamp",
    "toTimestamp",
    "verifyCrc",
    "controlRecords",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """What ``spark.read.format("kraftlog").option(...)`` can say; names are not case sensitive.

    Args:
        paths: ``path``, or ``paths`` as a JSON list: log directories, or directories of partitions.
        topics: ``topics`` or ``subscribe``, separated by commas; all but the internal ones when None.
        columns: ``columns``, separated by commas; Spark reads every column of the schema, needed or not.
        include_headers: ``includeHeaders``: the schema has the headers.
        split_bytes: ``splitBytes``: about how much of a segment one task reads.
        from_timestamp: ``fromTimestamp``: least record timestamp in milliseconds, inclusive.
        to_timestamp: ``toTimestamp``: exclusive.
        verify_crc: ``verifyCrc``: compare the checksum of each batch.
        control_records: ``controlRecords``: rows for transaction markers too.
    """

    paths: tuple[str, ...]
    topics: tuple[str, ...] | None = None
    columns: tuple[str, ...] | None = None
    include_headers: bool = False
    split_bytes: int = SPLIT_BYTES
    from_timestamp: int | None = None
    to_timestamp: int | None = None
    verify_crc: bool = True
    control_records: bool = False

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SourceOptions:
        """The options from Spark's text form.

        Raises:
            ValueError: An option that does not exist, a value that is none, or no path.
        """
        given = {name.lower(): value for name, value in options.items()}
        unknown = sorted(set(given) - {name.lower() for name in _KNOWN})
        if unknown:
            message = f"unknown option {', '.join(unknown)}: there are {', '.join(_KNOWN)}"
            raise ValueError(message)
        paths = [given["path"]] if "path" in given else []
        if "paths" in given:
            paths += json.loads(given["paths"])
        if not paths:
            raise ValueError("option path is missing: a log directory, or the directory of a partition")
        return cls(
            paths=tuple(paths),
            topics=_names(given.get("topics", given.get("subscribe"))),
            columns=_names(given.get("columns")),
            include_headers=_flag(given, "includeHeaders", default=False),
            split_bytes=_number(given, "splitBytes", least=1) or SPLIT_BYTES,
            from_timestamp=_number(given, "fromTimestamp"),
            to_timestamp=_number(given, "toTimestamp"),
            verify_crc=_flag(given, "verifyCrc", default=True),
            control_records=_flag(given, "controlRecords", default=False),
        )


def _names(text: str | None) -> tuple[str, ...] | None:
    if text is None:
        return None
    return tuple(name for name in (part.strip() for part in text.split(",")) if name)


def _flag(options: Mapping[str, str], name: str, *, default: bool) -> bool:
    value = options.get(name.lower())
    if value is None:
        return default
    if value.lower() not in {"true", "false"}:
        message = f"option {name} is true or false, not {value!r}"
        raise ValueError(message)
    return value.lower() == "true"


def _number(options: Mapping[str, str], name: str, *, least: int | None = None) -> int | None:
    value = options.get(name.lower())
    if value is None:
        return None
    try:
        number = int(value)
    except ValueError:
        message = f"option {name} is a whole number, not {value!r}"
        raise ValueError(message) from None
    if least is not None and number < least:
        message = f"option {name} is at least {least}, not {number}"
        raise ValueError(message)
    return number
