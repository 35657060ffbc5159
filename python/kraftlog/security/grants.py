"""What the authorizer has allowed, told to the threads that serve requests without asking it.

The I/O threads of the data path hold no ACLs. What a guard allowed to an identity is written into a table that they
read; each request that needs more than the table has comes to the guards. A change of the ACLs empties the table before
anything else follows from the change.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from kraftlog.security.operation import CLUSTER_NAME, Operation, ResourceKind

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kraftlog.security.authorizer import Authorizer
    from kraftlog.security.principal import Principal
    from kraftlog.types import Uuid

__all__ = ["GrantTable", "Grants"]

_MAX_REPLICAS: Final = 1000


class GrantTable(Protocol):
    """Grants by identity; see ``kraftlog._kraftlog.GrantTable``."""

    def revoke(self, generation: int) -> None:
        """Forget all grants; only decisions of this generation grant anything from now on."""

    def allow_topics(self, generation: int, principal: str, host: str, topic_ids: bytes, *, to_write: bool) -> bool:
        """Grant READ or WRITE on topics, whose ids of 16 bytes follow each other."""

    def allow_transactional_id(self, generation: int, principal: str, host: str, transactional_id: str) -> bool:
        """Grant WRITE on a transactional id."""

    def allow_replication(self, generation: int, principal: str, host: str) -> bool:
        """Grant fetches as a replica."""


class Grants:
    """Keeps a table at what the authorizer allows.

    Args:
        authorizer: From now on each change of its ACLs revokes all grants.
        table: What other threads read.
    """

    def __init__(self, authorizer: Authorizer, table: GrantTable) -> None:
        self._authorizer = authorizer
        self._table = table
        # Identities that fetch as replicas, and the generation in which they were last judged.
        self._replicas: dict[tuple[Principal, str], None] = {}
        self._renewed_in = authorizer.generation
        authorizer.on_change = table.revoke
        table.revoke(authorizer.generation)

    def allow_topics(
        self, generation: int, principal: Principal, host: str, operation: Operation, topic_ids: Iterable[Uuid]
    ) -> None:
        """The principal may do this to these topics, by the ACLs of a generation; nothing happens if they changed.

        Args:
            generation: Of the authorizer when the first of the topics was judged.
            principal: Identity of the client.
            host: Its address.
            operation: READ or WRITE.
            topic_ids: Each of a topic whose name was judged.
        """
        to_write = operation is Operation.WRITE
        self._table.allow_topics(generation, str(principal), host, b"".join(topic_ids), to_write=to_write)

    def allow_transactional_id(self, generation: int, principal: Principal, host: str, transactional_id: str) -> None:
        """The principal may write in transactions of this id; otherwise as ``allow_topics``."""
        self._table.allow_transactional_id(generation, str(principal), host, transactional_id)

    def allow_replication(self, generation: int, principal: Principal, host: str) -> None:
        """The principal may fetch as a replica; otherwise as ``allow_topics``."""
        self._table.allow_replication(generation, str(principal), host)
        if len(self._replicas) < _MAX_REPLICAS:
            self._replicas[principal, host] = None

    def renew(self) -> None:
        """The ACLs changed, and the authorizer has all of them: judge the known replicas anew.

        Their fetch sessions thus outlive changes that do not concern them.
        """
        generation = self._authorizer.generation
        if generation == self._renewed_in:
            return
        self._renewed_in = generation
        replicas, self._replicas = self._replicas, {}
        for principal, host in replicas:
            if self._authorizer.is_allowed(
                principal, host, Operation.CLUSTER_ACTION, ResourceKind.CLUSTER, CLUSTER_NAME, log_denied=False
            ):
                self.allow_replication(generation, principal, host)
