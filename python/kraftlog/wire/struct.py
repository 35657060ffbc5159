"""What message classes are made of.

To a type checker the generated classes are dataclasses: frozen, slotted, keyword only. At run time the
metaclass here does what ``@dataclass`` would do, without compiling six functions a class: a node imports
several hundred of these classes, and 0.4 ms each would be most of its start.
``dataclasses.fields``, ``replace`` and ``asdict`` work on them.
"""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any, ClassVar, Self

from kraftlog.wire.codec import decode_message, encode_message

if TYPE_CHECKING:
    from dataclasses import dataclass

    from typing_extensions import Buffer
else:

    def dataclass(**_options):
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
        defaults = [namespace.pop(field) for field in names]
        namespace["__slots__"] = (*names, "unknown_tagged_fields")
        namespace["__match_args__"] = ()
        namespace["FIELDS"] = names
        namespace["DEFAULTS"] = defaults
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


def _dataclass_fields(cls: Any) -> dict[str, dataclasses.Field[Any]]:
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


class _StructBase(metaclass=_StructType):
    __slots__ = ()


if TYPE_CHECKING:

    @dataclass(frozen=True, slots=True, kw_only=True)
    class Struct:
        """Base of nested structs and of messages."""

        SCHEMA: ClassVar[str]
        FIELDS: ClassVar[tuple[str, ...]]
        DEFAULTS: ClassVar[list[Any]]

        unknown_tagged_fields: tuple[tuple[int, bytes], ...] = ()

else:

    class Struct(metaclass=_StructType):
        """Base of nested structs and of messages."""

        __slots__ = ()
        __dataclass_fields__ = _FieldsOfInstance()

        def __init__(self, **values):
            for name, default in zip(self.FIELDS, self.DEFAULTS):
                object.__setattr__(self, name, values.pop(name, default))
            object.__setattr__(self, "unknown_tagged_fields", values.pop("unknown_tagged_fields", ()))
            if values:
                raise TypeError(f"{type(self).__name__} has no field {next(iter(values))!r}")

        def __setattr__(self, name, value):
            raise dataclasses.FrozenInstanceError(f"cannot assign to field {name!r}")

        def __delattr__(self, name):
            raise dataclasses.FrozenInstanceError(f"cannot delete field {name!r}")

        def __eq__(self, other):
            if type(self) is not type(other):
                return NotImplemented
            return all(getattr(self, n) == getattr(other, n) for n in (*self.FIELDS, "unknown_tagged_fields"))

        def __hash__(self):
            return hash(tuple(getattr(self, n) for n in self.FIELDS))

        def __repr__(self):
            shown = [n for n, d in zip(self.FIELDS, self.DEFAULTS) if getattr(self, n) != d]
            return f"{type(self).__qualname__}({', '.join(f'{n}={getattr(self, n)!r}' for n in shown)})"


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
