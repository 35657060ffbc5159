"""What a handler learns about a request besides the message itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kraftlog.security.principal import Principal
from kraftlog.transport.exchange import PeerContext

if TYPE_CHECKING:
    from kraftlog.api.guards.access import Access
    from kraftlog.api.request_quota import RequestQuota
    from kraftlog.quota.mutation_quota import MutationCharge

__all__ = ["RequestContext"]


class RequestContext(NamedTuple):
    """Header and sender of one request; a named tuple, as one is made per request.

    Attributes:
        access: What the sender may do; None on a node without an authorizer, where everybody may do everything. The
            request was judged already: this is for what a handler looks at beyond it.
        quota: What the request uses of its client's quotas; None while there are no quotas.
    """

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    peer: PeerContext
    access: Access | None = None
    quota: RequestQuota | None = None

    def mutation_charge(self, strict_from: int) -> MutationCharge | None:
        """What the changes that this request asks of the controller are charged to; None if no quota applies.

        Args:
            strict_from: The first version whose clients know THROTTLING_QUOTA_EXCEEDED.
        """
        return None if self.quota is None else self.quota.charge_mutations(is_strict=self.api_version >= strict_from)

    @property
    def principal(self) -> Principal:
        """The principal of the request; for a forwarded request the client, not the broker that forwarded it."""
        return self.peer.principal

    @property
    def client_host(self) -> str:
        """The client's address."""
        return self.peer.client_host

    @property
    def listener_name(self) -> str:
        """The listener the request came in on."""
        return self.peer.listener_name

    @property
    def is_controller_listener(self) -> bool:
        """Whether that listener is named in controller.listener.names."""
        return self.peer.is_controller_listener
