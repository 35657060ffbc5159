"""Dynamic settings of topics, brokers, groups and the cluster as the metadata log has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from kraftlog.controller.delta import MetadataDelta
from kraftlog.wire.messages.metadata_records import ConfigRecord

__all__ = ["ConfigsImage"]


@dataclass(slots=True)
class ConfigsImage:
    """Settings by resource; the broker named "" holds the cluster-wide defaults."""

    _resources: dict[tuple[int, str], dict[str, str]] = field(default_factory=dict)

    def get(self, resource_type: int, name: str) -> Mapping[str, str]:
        """Settings of one resource; empty when it has none."""
        return self._resources.get((resource_type, name), {})

    def resources(self) -> Iterator[tuple[int, str]]:
        """Every (type, name) that has settings."""
        return iter(self._resources)

    def copy(self) -> ConfigsImage:
        """The same settings with maps of their own."""
        return ConfigsImage({resource: dict(values) for resource, values in self._resources.items()})

    def replay(self, record: ConfigRecord, delta: MetadataDelta) -> None:
        """A setting gets a value, or with a null value goes away."""
        resource = (record.resource_type, record.resource_name)
        delta.changed_configs.add(resource)
        if record.value is not None:
            self._resources.setdefault(resource, {})[record.name] = record.value
            return
        values = self._resources.get(resource)
        if values is not None:
            values.pop(record.name, None)
            if not values:
                del self._resources[resource]

    def remove(self, resource_type: int, name: str) -> None:
        """A resource is gone, its settings with it."""
        self._resources.pop((resource_type, name), None)

    def records(self) -> Iterator[ConfigRecord]:
        """Records that make these settings."""
        for (resource_type, resource_name), values in self._resources.items():
            for name, value in values.items():
                yield ConfigRecord(resource_type=resource_type, resource_name=resource_name, name=name, value=value)
