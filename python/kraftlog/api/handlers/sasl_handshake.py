"""SaslHandshake (key 17), versions 0-1, where authentication is not due.

A listener with SASL answers it before requests are dispatched (``transport.sasl_session``). What comes here is a
request on a listener without SASL, or a second one on a connection whose session does not end; Kafka's ``KafkaApis``
and ``ControllerApis`` answer these.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraftlog.errors import ErrorCode
from kraftlog.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse

if TYPE_CHECKING:
    from kraftlog.api.context import RequestContext

__all__ = ["handle"]


def handle(context: RequestContext, request: SaslHandshakeRequest) -> SaslHandshakeResponse:
    """Refuse; the connection stays as it is."""
    return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
