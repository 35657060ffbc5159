"""What the sender of one request may do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kraftlog.api.slices import LOOKUPS_PER_SLICE, Pauses, Slices
from kraftlog.security.operation import Operation, ResourceKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import TypeVar

    from kraftlog.controller.image import MetadataImage
    from kraftlog.security.authorizer import Authorizer
    from kraftlog.security.principal import Principal
    from kraftlog.types import Uuid

    Item = TypeVar("Item")

__all__ = ["CLUSTER_NAME", "Access"]

CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the one resource of kind CLUSTER."""

_OP = Operation
# As Kafka's AclEntry.supportedOperations.
_SUPPORTED: Final = {
    ResourceKind.TOPIC: (
        *(_OP.READ, _OP.WRITE, _OP.CREATE, _OP.DESCRIBE, _OP.DELETE, _OP.ALTER),
        *(_OP.DESCRIBE_CONFIGS, _OP.ALTER_CONFIGS),
    ),
    ResourceKind.GROUP: (_OP.READ, _OP.DESCRIBE, _OP.DELETE, _OP.DESCRIBE_CONFIGS, _OP.ALTER_CONFIGS),
    ResourceKind.CLUSTER: (
        *(_OP.CREATE, _OP.CLUSTER_ACTION, _OP.DESCRIBE_CONFIGS, _OP.ALTER_CONFIGS),
        *(_OP.IDEMPOTENT_WRITE, _OP.ALTER, _OP.DESCRIBE),
    ),
}


class Access:
    """The principal and host of a request, and the ACLs that decide about them.

    Args:
        authorizer: Decides.
        principal: The sender.
        host: Its address.
        image: The committed metadata, which names the topics of ids.
    """

    __slots__ = ("_authorizer", "_host", "_image", "_principal")

    def __init__(self, authorizer: Authorizer, principal: Principal, host: str, image: MetadataImage) -> None:
        self._authorizer = authorizer
        self._principal = principal
        self._host = host
        self._image = image

    def may(self, operation: Operation, kind: ResourceKind, name: str, *, log_denied: bool = True) -> bool:
        """Whether the operation is allowed on the resource of that name."""
        return self._authorizer.is_allowed(self._principal, self._host, operation, kind, name, log_denied=log_denied)

    def may_on_cluster(self, operation: Operation, *, log_denied: bool = True) -> bool:
        """Whether the operation is allowed on the cluster."""
        return self.may(operation, ResourceKind.CLUSTER, CLUSTER_NAME, log_denied=log_denied)

    def may_on_any(self, operation: Operation, kind: ResourceKind) -> bool:
        """Whether there is at least one resource of that kind, existing or not, on which it is allowed."""
        return self._authorizer.is_allowed_by_any_resource(self._principal, self._host, operation, kind)

    def operations(self, kind: ResourceKind, name: str) -> int:
        """The allowed operations as a bit field: bit n is the operation numbered n (KIP-430)."""
        return sum(
            1 << operation for operation in _SUPPORTED[kind] if self.may(operation, kind, name, log_denied=False)
        )

    def topic_name(self, topic_id: Uuid) -> str | None:
        """The topic with that id, None if there is none."""
        topic = self._image.topics.by_id(topic_id)
        return None if topic is None else topic.name

    def topic_id(self, name: str) -> Uuid | None:
        """The id of a topic, None if there is none of that name."""
        topic = self._image.topics.by_name(name)
        return None if topic is None else topic.topic_id

    def topic_names(self) -> Iterable[str]:
        """Every topic."""
        return (topic.name for topic in self._image.topics.all())

    def split(
        self,
        operation: Operation,
        kind: ResourceKind,
        items: Iterable[Item],
        name_of: Callable[[Item], str | None],
    ) -> Slices[tuple[list[Item], list[Item]]]:
        """Items on whose resource the operation is allowed, and the others, both in their order.

        Args:
            operation: What is asked to do.
            kind: Of the resources.
            items: Parts of a request.
            name_of: The resource of a part; parts without one count as allowed, their handler says what is wrong.
        """

        def is_allowed(item: Item) -> bool:
            name = name_of(item)
            return name is None or self.may(operation, kind, name)

        allowed: list[Item] = []
        refused: list[Item] = []
        pauses = Pauses(LOOKUPS_PER_SLICE // 8)
        for item in items:
            if pauses.is_due():
                yield None
            (allowed if is_allowed(item) else refused).append(item)
        return allowed, refused

    def may_on_all(self, operation: Operation, kind: ResourceKind, names: Sequence[str]) -> Slices[bool]:
        """Whether the operation is allowed on each of the resources."""
        _, refused = yield from self.split(operation, kind, names, lambda name: name)
        return not refused
