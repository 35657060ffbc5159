"""Who a node is to the controllers: its id, its cluster and the listeners it registers."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["NodeIdentity", "RegisteredListener"]


@dataclass(frozen=True, slots=True)
class RegisteredListener:
    """One listener as this node advertises it; ``security_protocol`` is Kafka's number."""

    name: str
    host: str
    port: int
    security_protocol: int


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeIdentity:
    """What a registration says of a node in one of its roles."""

    node_id: int
    cluster_id: str
    listeners: tuple[RegisteredListener, ...]
