"""What a handler learns about a request besides the message itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from kraftlog.security.principal import Principal
from kraftlog.transport.exchange import PeerContext

if TYPE_CHECKING:
    from kraftlog.api.guards.access import Access

__all__ = ["RequestContext"]


class RequestContext(NamedTuple):
    """Header and sender of one request; a named tuple, as one is made per request.

    Attributes:
        access: What the sender may do; None on a node without an authorizer, where everybody may do everything. The
            request was judged already: this is for what a handler looks at beyond it.
    """

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    peer: PeerContext
    access: Access | None = None

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
