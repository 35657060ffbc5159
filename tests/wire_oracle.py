"""A second codec, to hold against the one in Rust.

For each version of each message it writes out straight-line Python from the facts table and compiles that. It
shares no code with the interpreter: not the schema text in the classes, not the merge of the two releases.
"""

from __future__ import annotations

import struct
from functools import cache
from typing import Any

from kraftlog.types import Uuid
from wire_facts import Version, generator, message_classes

FIXED = {
    "bool": "?",
    "int8": "b",
    "int16": "h",
    "uint16": "H",
    "int32": "i",
    "uint32": "I",
    "int64": "q",
    "float64": "d",
}


class Source:
    """Lines of a function under construction."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.names = 0

    def add(self, depth: int, line: str) -> None:
        self.lines.append("    " * depth + line)

    def name(self, prefix: str) -> str:
        self.names += 1
        return f"{prefix}{self.names}"


def python_name(field: dict[str, Any]) -> str:
    name: str = generator().snake(field["name"])
    return name


# --- reading ---------------------------------------------------------------------------------------------------


def read_uvarint(data: Any, position: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = data[position]
        position += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value, position


def is_nullable_tagged_struct(version: Version, field: dict[str, Any]) -> bool:
    """Null is 0 in a tagged field, where elsewhere it is -1; 1 stands before the fields in both."""
    is_struct = field["type"] not in {*FIXED, "uuid", "string", "bytes", "records"}
    return is_struct and version.has(field.get("tagged")) and version.has(field.get("nullable"))


def emit_read(source: Source, depth: int, version: Version, field: dict[str, Any], target: str) -> None:
    compact = version.flexible and not ("flexible" in field and field["flexible"] is None)
    kind = field["type"]
    if not kind.startswith("[]"):
        if is_nullable_tagged_struct(version, field):
            source.add(depth, "p += 1")
            source.add(depth, f"if d[p - 1] == 0: {target} = None")
            source.add(depth, "else:")
            emit_read_struct(source, depth + 1, version, kind, target)
            return
        emit_read_value(source, depth, version, kind, target, compact, version.has(field.get("nullable")))
        return
    count, items, item, index = (source.name(prefix) for prefix in ("count", "items", "item", "index"))
    if compact:
        source.add(depth, f"{count}, p = uvarint(d, p)")
        source.add(depth, f"{count} -= 1")
    else:
        source.add(depth, f"{count}, p = unpack('>i', d, p)[0], p + 4")
    source.add(depth, f"if {count} < 0:")
    source.add(depth + 1, f"{target} = None")
    source.add(depth, "else:")
    source.add(depth + 1, f"{items} = []")
    source.add(depth + 1, f"for {index} in range({count}):")
    emit_read_value(source, depth + 2, version, kind[2:], item, compact, False)
    source.add(depth + 2, f"{items}.append({item})")
    source.add(depth + 1, f"{target} = tuple({items})")


def emit_read_value(
    source: Source, depth: int, version: Version, kind: str, target: str, compact: bool, nullable: bool
) -> None:
    if kind in FIXED:
        width = struct.calcsize(">" + FIXED[kind])
        source.add(depth, f"{target}, p = unpack('>{FIXED[kind]}', d, p)[0], p + {width}")
    elif kind == "uuid":
        source.add(depth, f"{target}, p = Uuid(d[p:p + 16]), p + 16")
    elif kind in {"string", "bytes", "records"}:
        size = source.name("size")
        if compact:
            source.add(depth, f"{size}, p = uvarint(d, p)")
            source.add(depth, f"{size} -= 1")
        else:
            code, width = ("h", 2) if kind == "string" else ("i", 4)
            source.add(depth, f"{size}, p = unpack('>{code}', d, p)[0], p + {width}")
        source.add(depth, f"if {size} < 0: {target} = None")
        convert = ".decode()" if kind == "string" else ""
        source.add(depth, f"else: {target}, p = d[p:p + {size}]{convert}, p + {size}")
    else:
        if nullable:
            source.add(depth, "p += 1")
            source.add(depth, "if d[p - 1] >= 128:")
            source.add(depth + 1, f"{target} = None")
            source.add(depth, "else:")
            depth += 1
        emit_read_struct(source, depth, version, kind, target)


def emit_read_struct(source: Source, depth: int, version: Version, name: str, target: str) -> None:
    values = source.name("values")
    source.add(depth, f"{values} = {{}}")
    tagged = {}
    for field in version.fields(name):
        if version.has(field.get("tagged")):
            tagged[field["tag"]] = field
        else:
            variable = source.name("v")
            emit_read(source, depth, version, field, variable)
            source.add(depth, f"{values}[{python_name(field)!r}] = {variable}")
    if version.flexible:
        count, tag, size, unknown, index = (source.name(p) for p in ("count", "tag", "size", "unknown", "index"))
        source.add(depth, f"{unknown} = []")
        source.add(depth, f"{count}, p = uvarint(d, p)")
        source.add(depth, f"for {index} in range({count}):")
        source.add(depth + 1, f"{tag}, p = uvarint(d, p)")
        source.add(depth + 1, f"{size}, p = uvarint(d, p)")
        source.add(depth + 1, "if False: pass")
        for number, field in tagged.items():
            variable = source.name("v")
            source.add(depth + 1, f"elif {tag} == {number}:")
            source.add(depth + 2, f"if {size} == 1 and d[p] == 0 and {version.has(field.get('nullable'))}:")
            source.add(depth + 3, f"{variable}, p = None, p + 1")
            source.add(depth + 2, "else:")
            emit_read(source, depth + 3, version, field, variable)
            source.add(depth + 2, f"{values}[{python_name(field)!r}] = {variable}")
        source.add(depth + 1, "else:")
        source.add(depth + 2, f"{unknown}.append(({tag}, d[p:p + {size}]))")
        source.add(depth + 2, f"p += {size}")
        source.add(depth, f"{values}['unknown_tagged_fields'] = tuple({unknown})")
    path = "top" if name == version.name else f"top.{name}"
    source.add(depth, f"{target} = {path}(**{values})")


# --- writing ---------------------------------------------------------------------------------------------------


def write_uvarint(out: bytearray, value: int) -> None:
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    out.append(value)


def emit_write(source: Source, depth: int, version: Version, field: dict[str, Any], value: str, out: str) -> None:
    compact = version.flexible and not ("flexible" in field and field["flexible"] is None)
    kind = field["type"]
    if not kind.startswith("[]"):
        if is_nullable_tagged_struct(version, field):
            source.add(depth, f"if {value} is None:")
            source.add(depth + 1, f"{out}.append(0)")
            source.add(depth, "else:")
            source.add(depth + 1, f"{out}.append(1)")
            emit_write_struct(source, depth + 1, version, kind, value, out)
            return
        emit_write_value(source, depth, version, kind, value, out, compact, version.has(field.get("nullable")))
        return
    item = source.name("item")
    source.add(depth, f"if {value} is None:")
    source.add(depth + 1, f"uvarint({out}, 0)" if compact else f"{out} += pack('>i', -1)")
    source.add(depth, "else:")
    source.add(depth + 1, f"uvarint({out}, len({value}) + 1)" if compact else f"{out} += pack('>i', len({value}))")
    source.add(depth + 1, f"for {item} in {value}:")
    emit_write_value(source, depth + 2, version, kind[2:], item, out, compact, False)


def emit_write_value(
    source: Source, depth: int, version: Version, kind: str, value: str, out: str, compact: bool, nullable: bool
) -> None:
    if kind in FIXED:
        source.add(depth, f"{out} += pack('>{FIXED[kind]}', {value})")
    elif kind == "uuid":
        source.add(depth, f"{out} += {value}")
    elif kind in {"string", "bytes", "records"}:
        data = source.name("data")
        code = "h" if kind == "string" else "i"
        source.add(depth, f"if {value} is None:")
        source.add(depth + 1, f"uvarint({out}, 0)" if compact else f"{out} += pack('>{code}', -1)")
        source.add(depth, "else:")
        source.add(depth + 1, f"{data} = {value}.encode()" if kind == "string" else f"{data} = {value}")
        length = f"len({data})"
        source.add(depth + 1, f"uvarint({out}, {length} + 1)" if compact else f"{out} += pack('>{code}', {length})")
        source.add(depth + 1, f"{out} += {data}")
    else:
        if nullable:
            source.add(depth, f"if {value} is None:")
            source.add(depth + 1, f"{out}.append(255)")
            source.add(depth, "else:")
            depth += 1
            source.add(depth, f"{out}.append(1)")
        emit_write_struct(source, depth, version, kind, value, out)


def emit_write_struct(source: Source, depth: int, version: Version, name: str, value: str, out: str) -> None:
    tagged = []
    source.add(depth, "pass")
    for field in version.fields(name):
        if version.has(field.get("tagged")):
            tagged.append(field)
            continue
        variable = source.name("v")
        source.add(depth, f"{variable} = {value}.{python_name(field)}")
        emit_write(source, depth, version, field, variable, out)
    if not version.flexible:
        return
    tags = source.name("tags")
    source.add(depth, f"{tags} = [(tag, bytes(data)) for tag, data in {value}.unknown_tagged_fields]")
    for field in tagged:
        variable, body = source.name("v"), source.name("body")
        source.add(depth, f"{variable} = {value}.{python_name(field)}")
        source.add(depth, f"if {variable} != {default_source(field, version)}:")
        source.add(depth + 1, f"{body} = bytearray()")
        source.add(depth + 1, f"if {variable} is None: {body}.append(0)")
        source.add(depth + 1, "else:")
        emit_write(source, depth + 2, version, field, variable, body)
        source.add(depth + 1, f"{tags}.append(({field['tag']}, bytes({body})))")
    source.add(depth, f"uvarint({out}, len({tags}))")
    tag, data = source.name("tag"), source.name("data")
    source.add(depth, f"for {tag}, {data} in sorted({tags}):")
    source.add(depth + 1, f"uvarint({out}, {tag})")
    source.add(depth + 1, f"uvarint({out}, len({data}))")
    source.add(depth + 1, f"{out} += {data}")


def default_source(field: dict[str, Any], version: Version) -> str:
    """Kafka's default of a tagged field, as source."""
    kind, default = field["type"], field.get("default")
    if default == "null":
        return "None"
    if kind.startswith("[]"):
        return "()"
    if kind == "string":
        return repr(default or "")
    if kind in {"bytes", "records"}:
        return "b''"
    if kind == "uuid":
        return "Uuid(bytes(16))"
    if kind == "bool":
        return repr(default in {"true", True})
    if kind in FIXED:
        return str(int(str(default or 0), 0))
    return f"top.{kind}()"


# --- the face ----------------------------------------------------------------------------------------------------


@cache
def compiled(version: Version) -> tuple[Any, Any]:
    """The functions ``decode(data) -> (message, position)`` and ``encode(message, out)`` of one version."""
    reader, writer = Source(), Source()
    reader.add(0, "def decode(d):")
    reader.add(1, "p = 0")
    emit_read_struct(reader, 1, version, version.name, "message")
    reader.add(1, "return message, p")
    writer.add(0, "def encode(message, out):")
    emit_write_struct(writer, 1, version, version.name, "message", "out")
    top = message_classes()[version.name]
    place = f"<oracle {version.name} v{version.version}>"
    reading = {"top": top, "Uuid": Uuid, "unpack": struct.unpack_from, "uvarint": read_uvarint}
    writing = {"top": top, "Uuid": Uuid, "pack": struct.pack, "uvarint": write_uvarint}
    exec(compile("\n".join(reader.lines), place, "exec"), reading)
    exec(compile("\n".join(writer.lines), place, "exec"), writing)
    return reading["decode"], writing["encode"]


def decode(version: Version, data: bytes) -> Any:
    """The message that fills ``data``."""
    message, position = compiled(version)[0](data)
    assert position == len(data)
    return message


def encode(version: Version, message: Any) -> bytes:
    """The bytes of a message."""
    out = bytearray()
    compiled(version)[1](message, out)
    return bytes(out)
