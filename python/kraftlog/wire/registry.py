"""Every API of the protocol by key; its message module is imported when it is first asked for."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from importlib import import_module
from types import MappingProxyType

from kraftlog.wire.api_table import APIS
from kraftlog.wire.struct import Message

__all__ = ["API_BY_KEY", "API_VERSIONS_KEY", "Api"]

API_VERSIONS_KEY = 18
CONTROLLED_SHUTDOWN_KEY = 7


@dataclass(frozen=True)
class Api:
    """One API.

    Args:
        key: Its number.
        name: Kafka's name, ``Produce``.
        module: The module under ``kraftlog.wire.messages``.
        min_version: The lowest version that Kafka 4.3.1 serves.
        max_version: The highest stable one; lower than ``min_version`` for an API that 4.x removed.
        listeners: ``broker``, ``controller``: where Kafka serves it.
    """

    key: int
    name: str
    module: str
    min_version: int
    max_version: int
    listeners: tuple[str, ...] = field(default=())

    @cached_property
    def request(self) -> type[Message]:
        """The request's class."""
        cls: type[Message] = getattr(import_module(f"kraftlog.wire.messages.{self.module}"), self.name + "Request")
        return cls

    @cached_property
    def response(self) -> type[Message]:
        """The response's class."""
        cls: type[Message] = getattr(import_module(f"kraftlog.wire.messages.{self.module}"), self.name + "Response")
        return cls

    @property
    def is_removed(self) -> bool:
        """Whether Kafka 4.x removed it."""
        return self.max_version < self.min_version

    def serves(self, version: int) -> bool:
        """Whether Kafka 4.3.1 serves this version."""
        return self.min_version <= version <= self.max_version

    def request_header_version(self, version: int) -> int:
        """The version of the header before a request; flexible requests have a flexible header."""
        flexible = self.request.FLEXIBLE_VERSIONS
        if flexible is not None and version >= flexible[0]:
            return 2
        return 0 if self.key == CONTROLLED_SHUTDOWN_KEY and version == 0 else 1

    def response_header_version(self, version: int) -> int:
        """The version of the header before a response; that of ApiVersions is always 0 (KIP-511)."""
        flexible = self.response.FLEXIBLE_VERSIONS
        return int(self.key != API_VERSIONS_KEY and flexible is not None and version >= flexible[0])


API_BY_KEY: Mapping[int, Api] = MappingProxyType({row[0]: Api(*row) for row in APIS})
