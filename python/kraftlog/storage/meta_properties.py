"""``meta.properties``: which cluster and node a log directory belongs to.

The text is what ``java.util.Properties.store`` writes, so that Kafka's tools and kraftlog read each other's files.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from kraftlog import host
from kraftlog.errors import LogError
from kraftlog.storage.atomic_file import replace_file
from kraftlog.storage.properties import PropertiesError, parse_properties
from kraftlog.types import NodeId, Uuid

__all__ = [
    "META_PROPERTIES_NAME",
    "MetaProperties",
    "ensure_directory_id",
    "random_uuid",
    "read_meta_properties",
    "write_meta_properties",
]

META_PROPERTIES_NAME = "meta.properties"

_RESERVED_UUID_COUNT = 100


def random_uuid() -> Uuid:
    """A type 4 uuid as Kafka draws them: never a reserved one, and its text never begins with ``-``."""
    while True:
        data = bytearray(host.random_bits(128).to_bytes(16, "big"))
        data[6] = data[6] & 0x0F | 0x40
        data[8] = data[8] & 0x3F | 0x80
        uuid = Uuid(bytes(data))
        if int.from_bytes(uuid, "big") >= _RESERVED_UUID_COUNT and not str(uuid).startswith("-"):
            return uuid


@dataclass(frozen=True, slots=True, kw_only=True)
class MetaProperties:
    """The content of one ``meta.properties``; version 0 had ``broker.id`` instead of ``node.id``."""

    cluster_id: str | None = None
    node_id: NodeId | None = None
    directory_id: Uuid | None = None
    version: int = 1
    other: Mapping[str, str] = field(default_factory=dict)

    def to_properties(self) -> dict[str, str]:
        """Keys and values, in the order Kafka 4.3.1 writes them."""
        result: dict[str, str] = {}
        if self.node_id is not None:
            result["broker.id" if self.version == 0 else "node.id"] = str(self.node_id)
        if self.directory_id is not None:
            result["directory.id"] = str(self.directory_id)
        result["version"] = str(self.version)
        if self.cluster_id is not None:
            result["cluster.id"] = self.cluster_id
        return result | dict(self.other)

    def __str__(self) -> str:
        pairs = ", ".join(f"{key}={value}" for key, value in sorted(self.to_properties().items()))
        return f"{{{pairs}}}"


def _escape(text: str, *, is_key: bool) -> str:
    result: list[str] = []
    for position, char in enumerate(text):
        if char in "=:#!\\" or (char == " " and (is_key or position == 0)):
            result.append("\\" + char)
        elif char in "\t\n\r\f":
            result.append("\\" + "tnrf"["\t\n\r\f".index(char)])
        elif not " " <= char <= "~":
            result.extend(f"\\u{unit:04X}" for unit in _utf16_units(char))
        else:
            result.append(char)
    return "".join(result)


def _utf16_units(char: str) -> list[int]:
    data = char.encode("utf-16-be", "surrogatepass")
    return [int.from_bytes(data[index : index + 2], "big") for index in range(0, len(data), 2)]


def read_meta_properties(directory: Path) -> MetaProperties | None:
    """Read ``meta.properties`` of a log directory; None when the file does not exist.

    Raises:
        LogError: The file is there but its content is not that of version 0 or 1.
    """
    path = directory / META_PROPERTIES_NAME
    try:
        text = path.read_text("latin-1")
    except FileNotFoundError:
        return None
    return parse_meta_properties(text, origin=str(path))


def parse_meta_properties(text: str, *, origin: str) -> MetaProperties:
    """The text of a ``meta.properties``, which ``origin`` names in errors.

    Raises:
        LogError: It is not that of version 0 or 1.
    """
    path = origin
    try:
        properties = parse_properties(text)
    except PropertiesError as error:
        msg = f"{path}: {error}"
        raise LogError(msg) from error
    try:
        version = int(properties.pop("version", "0"))
        if version not in (0, 1):
            msg = f"{path}: unknown version number {version} (0 and 1 are known)"
            raise LogError(msg)
        node = properties.pop("broker.id" if version == 0 else "node.id", None)
        directory_id = properties.pop("directory.id", None)
        cluster_id = properties.pop("cluster.id", None)
        if version == 1 and (cluster_id is None or node is None):
            msg = f"{path}: {'cluster.id' if cluster_id is None else 'node.id'} was not found"
            raise LogError(msg)
        return MetaProperties(
            cluster_id=cluster_id,
            node_id=None if node is None else NodeId(int(node)),
            directory_id=None if directory_id is None else Uuid.parse(directory_id),
            version=version,
            other=properties,
        )
    except ValueError as error:
        msg = f"{path}: {error}"
        raise LogError(msg) from error


def write_meta_properties(directory: Path, properties: MetaProperties, *, written_at_s: float | None = None) -> None:
    """Write ``meta.properties`` durably.

    Args:
        directory: The log directory; it must exist.
        properties: The content.
        written_at_s: Unix time for the comment line (seconds); now when absent.

    Raises:
        OSError: The file could not be made durable; the old one, if any, is intact.
    """
    moment = time.localtime(host.wall_ms() / 1000 if written_at_s is None else written_at_s)
    day = ("Mon", "Tue", "Wed", "Thu", "Fri", "Sat", "Sun")[moment.tm_wday]
    month = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")[moment.tm_mon - 1]
    clock = time.strftime("%H:%M:%S", moment)
    lines = ["#", f"#{day} {month} {moment.tm_mday:02} {clock} {moment.tm_zone} {moment.tm_year}"]
    lines += [
        f"{_escape(key, is_key=True)}={_escape(value, is_key=False)}"
        for key, value in properties.to_properties().items()
    ]
    replace_file(directory / META_PROPERTIES_NAME, ("\n".join(lines) + "\n").encode("latin-1"))


def ensure_directory_id(directory: Path) -> Uuid:
    """The id in meta.properties; one is drawn and stored where an older format left none (KIP-853).

    Raises:
        LogError: The directory is not formatted.
    """
    properties = read_meta_properties(directory)
    if properties is None:
        raise LogError(f"{directory} is not formatted")
    if properties.directory_id is not None:
        return properties.directory_id
    directory_id = random_uuid()
    write_meta_properties(directory, replace(properties, directory_id=directory_id))
    return directory_id
