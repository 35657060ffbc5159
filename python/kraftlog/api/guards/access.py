"""What the sender of one request may do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kraftlog.api.slices import LOOKUPS_PER_SLICE, Pauses, Slices
from kraftlog.security.operation import CLUSTER_NAME, Operation, ResourceKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence
    from typing import TypeVar

    from kraftlog.controller.image import MetadataImage
    from kraftlog.security.authorizer import Authorizer
    from kraftlog.security.grants import Grants
    from kraftlog.security.principal import Principal
    from kraftlog.types import Uuid

    Item = TypeVar("Item")

__all__ = ["Access"]

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
        grants: Of the I/O threads, if the next requests of the sender may be served by them.
    """

    __slots__ = ("_authorizer", "_grants", "_host", "_image", "_principal")

    def __init__(
        self,
        authorizer: Authorizer,
        principal: Principal,
        host: str,
        image: MetadataImage,
        grants: Grants | None = None,
    ) -> None:
        self._grants = grants
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

    def split_topics(
        self, operation: Operation, topics: Iterable[Item], key_of: Callable[[Item], str | Uuid], *, is_plain: bool
    ) -> Slices[tuple[list[Item], list[Item]]]:
        """As ``split``, for the topics of a request that I/O threads serve if all that it needs is granted.

        Args:
            operation: READ or WRITE.
            topics: Parts of the request.
            key_of: How a part names its topic: by name or by id. Without a topic of that id it counts as allowed, and
                nothing is granted for the id.
            is_plain: Whether the threads serve this version of the request.
        """
        grants = self._grants if is_plain else None
        generation = self._authorizer.generation
        judged: list[Uuid] = []

        def name_of(item: Item) -> str | None:
            key = key_of(item)
            name: str | None
            topic_id: Uuid | None
            if isinstance(key, str):
                name, topic_id = key, None if grants is None else self.topic_id(key)
            else:
                name, topic_id = self.topic_name(key), key
            if name is not None and topic_id is not None:
                judged.append(topic_id)
            return name

        allowed, refused = yield from self.split(operation, ResourceKind.TOPIC, topics, name_of)
        if grants is not None and not refused:
            grants.allow_topics(generation, self._principal, self._host, operation, judged)
        return allowed, refused

    def may_write_in_transaction(self, transactional_id: str, *, is_plain: bool) -> bool:
        """Whether WRITE is allowed on a transactional id; ``is_plain`` as in ``split_topics``."""
        is_allowed = self.may(Operation.WRITE, ResourceKind.TRANSACTIONAL_ID, transactional_id)
        if is_allowed and is_plain and self._grants is not None:
            generation = self._authorizer.generation
            self._grants.allow_transactional_id(generation, self._principal, self._host, transactional_id)
        return is_allowed

    def may_replicate(self, *, is_plain: bool) -> bool:
        """Whether CLUSTER_ACTION is allowed; ``is_plain`` as in ``split_topics``."""
        is_allowed = self.may_on_cluster(Operation.CLUSTER_ACTION)
        if is_allowed and is_plain and self._grants is not None:
            self._grants.allow_replication(self._authorizer.generation, self._principal, self._host)
        return is_allowed

    def may_on_all(self, operation: Operation, kind: ResourceKind, names: Sequence[str]) -> Slices[bool]:
        """Whether the operation is allowed on each of the resources."""
        _, refused = yield from self.split(operation, kind, names, lambda name: name)
        return not refused
