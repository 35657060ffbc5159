"""What message classes are made of.

To a type checker the generated classes are dataclasses: frozen, slotted, keyword only. At run time the
metaclass here does what ``@dataclass`` would do, without compiling six functions a class: a node imports
several hundred of these classes, and 0.4 ms each would be most of its start.
``dataclasses.fields``, ``replace`` and ``asdict`` work on them.
"""

from __future__ import annotations

import dataclasses
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Self

from kraftlog._kraftlog import StructBase, decode_message, encode_message

if TYPE_CHECKING:
    from dataclasses import dataclass

    from typing_extensions import Buffer
else:
    Buffer = Any

    def dataclass(**_options: Any) -> Any:
        """The metaclass has done the work already."""
        return lambda cls: cls


__all__ = ["DEFAULT", "Buffer", "Message", "Struct", "dataclass"]

# Stands for "a nested struct with all its defaults"; replaced when the message class is complete.
DEFAULT: Any = object()


class _StructType(type):
    """Turns annotated names into slots and remembers their defaults."""

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any]) -> _StructType:
        if not bases or "SCHEMA" not in namespace:
            return super().__new__(mcs, name, bases, namespace)
        names = tuple(field for field in namespace.get("__annotations__", ()) if not field.isupper())
        namespace["DEFAULTS"] = [namespace.pop(field) for field in names]
        namespace["FIELDS"] = names
        namespace["__slots__"] = (*names, "unknown_tagged_fields")
        namespace["__match_args__"] = ()
        cls = super().__new__(mcs, name, bases, namespace)
        if "API_KEY" in namespace:
            structs = {key: value for key, value in namespace.items() if isinstance(value, _StructType)}
            for struct in (cls, *structs.values()):
                _fill_defaults(struct, structs)
        return cls

    @property
    def __dataclass_fields__(cls) -> dict[str, dataclasses.Field[Any]]:
        return _dataclass_fields(cls)


def _fill_defaults(cls: Any, structs: dict[str, Any]) -> None:
    """Put real instances where DEFAULT stands, innermost first."""
    for index, default in enumerate(cls.DEFAULTS):
        if default is DEFAULT:
            kind = cls.SCHEMA.splitlines()[index].split()[1]
            _fill_defaults(structs[kind], structs)
            cls.DEFAULTS[index] = structs[kind]()


@cache
def _dataclass_fields(cls: Any) -> dict[str, dataclasses.Field[Any]]:
    """Made when ``dataclasses`` first asks for those of a class, which few do: an import would take longer."""
    fields = {}
    annotations = {**cls.__annotations__, "unknown_tagged_fields": "tuple[tuple[int, bytes], ...]"}
    for name, default in zip((*cls.FIELDS, "unknown_tagged_fields"), (*cls.DEFAULTS, ()), strict=True):
        field: dataclasses.Field[Any] = dataclasses.field(default=default, kw_only=True)
        field.name = name
        field.type = annotations[name]
        field._field_type = dataclasses._FIELD  # type: ignore[attr-defined]
        fields[name] = field
    return fields


class _FieldsOfInstance:
    """``__dataclass_fields__`` seen from an instance."""

    def __get__(self, instance: Any, owner: Any) -> dict[str, dataclasses.Field[Any]]:
        return _dataclass_fields(owner)


if TYPE_CHECKING:

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Struct(StructBase):
        """Base of nested structs and of messages."""

        SCHEMA: ClassVar[str]
        FIELDS: ClassVar[tuple[str, ...]]
        DEFAULTS: ClassVar[list[Any]]

        unknown_tagged_fields: tuple[tuple[int, bytes], ...] = ()

else:

    class Struct(StructBase, metaclass=_StructType):
        """Base of nested structs and of messages."""

        __slots__ = ()
        __dataclass_fields__ = _FieldsOfInstance()

        def __eq__(self, other: object) -> bool:
            if type(self) is not type(other):
                return NotImplemented
            return all(getattr(self, name) == getattr(other, name) for name in self.__slots__)

        def __hash__(self) -> int:
            return hash(tuple(getattr(self, name) for name in self.__slots__))

        def __repr__(self) -> str:
            values = [(name, getattr(self, name)) for name in self.__slots__]
            shown = [f"{n}={v!r}" for (n, v), default in zip(values, [*self.DEFAULTS, ()], strict=True) if v != default]
            return f"{type(self).__qualname__}({', '.join(shown)})"

        def __reduce__(self) -> tuple[Any, ...]:
            return _rebuild, (type(self), {name: getattr(self, name) for name in self.__slots__})


def _rebuild(cls: type[Any], values: dict[str, Any]) -> Any:
    """What ``copy`` and ``pickle`` call."""
    return cls(**values)


class Message(Struct):
    """A whole request, response, header or record value."""

    if TYPE_CHECKING:
        API_KEY: ClassVar[int]
        VERSIONS: ClassVar[tuple[int, int]]
        FLEXIBLE_VERSIONS: ClassVar[tuple[int, int] | None]
    else:
        __slots__ = ()

    @classmethod
    def decode(cls, buffer: Buffer, version: int) -> Self:
        """Read a whole body.

        Args:
            buffer: The bytes; fields of type records become memoryviews of it.
            version: The version to read it in.

        Raises:
            RemoteProtocolError: The bytes are not this message, or some are left over.
            LocalProtocolError: The message has no such version.
        """
        return decode_message(cls, buffer, version)

    def encode(self, version: int) -> bytes:
        """The body's bytes.

        Raises:
            LocalProtocolError: The message has no such version, or a value that the version cannot hold.
        """
        return encode_message(self, version)
