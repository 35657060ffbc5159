"""What the administrative commands need of a cluster: one connection, found from a list of addresses."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Self

from kraftlog.errors import ErrorCode, KafkaError, KraftlogError
from kraftlog.security.jaas import JaasError
from kraftlog.storage.properties import parse_properties
from kraftlog.transport.listener import EndPoint
from kraftlog.transport.peer_security import PeerSecurity
from kraftlog.transport.rpc_client import RpcConnection
from kraftlog.transport.sasl_login import MECHANISMS, SaslLogin, jaas_credentials
from kraftlog.transport.tls_settings import TlsSettings
from kraftlog.wire.messages.describe_cluster import DescribeClusterRequest, DescribeClusterResponse
from kraftlog.wire.struct import Message

__all__ = [
    "CONNECT_TIMEOUT_S",
    "AdminClient",
    "add_connection_arguments",
    "client_from",
    "parse_servers",
    "security_of",
]

CONTROLLERS = 2  # endpoint type of DescribeCluster (KIP-919)
CONNECT_TIMEOUT_S = 10.0
_PROTOCOLS = ("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL")
RETRY_S = 0.1
RETRY_MAX_S = 1.0
# Another controller has to be asked; a broker finds it, of controllers this client looks for the active one again.
_MOVED = frozenset({ErrorCode.NOT_CONTROLLER, ErrorCode.NOT_LEADER_OR_FOLLOWER})


class AdminClient:
    """Asks a broker, which forwards what it has to, or the active controller itself.

    Args:
        servers: Brokers, or with ``is_controller`` controllers; the first that answers is asked.
        is_controller: What ``servers`` are.
        node_id: Ask this server of the cluster; without, the first broker that answers, or the active controller.
        security: For servers whose listeners have SSL or SASL.
        timeout_s: For each request, with what is tried again of it; Java's ``default.api.timeout.ms``.
    """

    def __init__(
        self,
        servers: Sequence[EndPoint],
        *,
        is_controller: bool,
        node_id: int | None = None,
        security: PeerSecurity | None = None,
        timeout_s: float = 60.0,
    ) -> None:
        self._security = security
        self._servers = servers
        self._is_controller = is_controller
        self._node_id = node_id
        self._timeout_s = timeout_s
        self._connection: RpcConnection | None = None
        self.cluster_id = ""

    async def __aenter__(self) -> Self:
        self._connection = await self._find()
        return self

    async def _find(self) -> RpcConnection:
        connection = await self._connect(self._servers)
        found = await connection.request(
            DescribeClusterRequest(endpoint_type=CONTROLLERS) if self._is_controller else DescribeClusterRequest()
        )
        if not isinstance(found, DescribeClusterResponse) or found.error_code:
            raise KafkaError(
                getattr(found, "error_code", ErrorCode.UNKNOWN_SERVER_ERROR), "the cluster is not described"
            )
        self.cluster_id = found.cluster_id
        wanted = self._node_id
        if wanted is None and self._is_controller:
            wanted = found.controller_id
        node = next((broker for broker in found.brokers if broker.broker_id == wanted), None)
        if node is not None:
            connection.close()
            connection = await self._connect([EndPoint("", node.host, node.port)])
        elif self._node_id is not None:
            connection.close()
            raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, f"the cluster has no server {self._node_id}")
        return connection

    async def _connect(self, servers: Sequence[EndPoint]) -> RpcConnection:
        failure: KraftlogError = KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "no server is named")
        for server in servers:
            try:
                return await RpcConnection.open(
                    asyncio.get_running_loop(),
                    server.host,
                    server.port,
                    client_id="kraftlog-admin",
                    timeout_s=CONNECT_TIMEOUT_S,
                    security=self._security,
                )
            except KraftlogError as error:
                failure = error
        raise failure

    async def __aexit__(self, *_: object) -> None:
        if self._connection is not None:
            self._connection.close()

    async def request(
        self, message: Message, error_of: Callable[[Any], int] = lambda answer: getattr(answer, "error_code", 0)
    ) -> Any:
        """Ask; again while the answer is that another controller is the active one, as long as there is time.

        Args:
            message: The request.
            error_of: Finds the error code that an answer has for the whole request.

        Raises:
            KafkaError: The connection ended, or the server does not speak this API.
            TimeoutError: No answer came in time.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + self._timeout_s
        pause_s = RETRY_S
        while True:
            if self._connection is None:
                raise KafkaError(ErrorCode.BROKER_NOT_AVAILABLE, "not connected")
            async with asyncio.timeout_at(deadline):
                answer = await self._connection.request(message)
            if error_of(answer) not in _MOVED or loop.time() + pause_s > deadline:
                return answer
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, RETRY_MAX_S)
            if self._is_controller and self._node_id is None:
                self._connection.close()
                async with asyncio.timeout_at(deadline):
                    self._connection = await self._find()


def add_connection_arguments(parser: argparse.ArgumentParser, *, required: bool) -> None:
    """Declare where the cluster is; with ``required`` argparse refuses when neither is given."""
    where = parser.add_mutually_exclusive_group(required=required)
    where.add_argument("--bootstrap-server", metavar="HOST:PORT,...", help="brokers of the cluster")
    where.add_argument("--bootstrap-controller", metavar="HOST:PORT,...", help="controllers of the cluster")
    parser.add_argument("--command-config", metavar="FILE", help="settings of the connection, such as ssl.* and sasl.*")


def client_from(args: argparse.Namespace, *, node_id: int | None = None) -> AdminClient:
    """The client that those arguments ask for; with ``node_id`` one that asks this server.

    Raises:
        KraftlogError: An address, or the file with the settings, cannot be read.
    """
    where = args.bootstrap_server or args.bootstrap_controller
    if where is None:
        raise KraftlogError("You must specify either --bootstrap-controller or --bootstrap-server.")
    try:
        servers = parse_servers(where)
    except ValueError as error:
        raise KraftlogError(str(error)) from error
    return AdminClient(
        servers,
        is_controller=args.bootstrap_controller is not None,
        node_id=node_id,
        security=security_of(args.command_config),
    )


def security_of(path: str | None) -> PeerSecurity | None:
    """What the connection needs by ``security.protocol``, ``ssl.*`` and ``sasl.*`` of the file.

    Raises:
        KraftlogError: The file cannot be read, or asks for another protocol.
    """
    if path is None:
        return None
    try:
        properties = parse_properties(Path(path).read_text("latin-1"))
    except OSError as error:
        raise KraftlogError(f"{path}: {error.strerror}") from error
    protocol = properties.get("security.protocol", "PLAINTEXT").strip()
    if protocol not in _PROTOCOLS:
        raise KraftlogError(f"security.protocol={protocol} is not supported; {', '.join(_PROTOCOLS)} are")
    if protocol == "PLAINTEXT":
        return None
    return PeerSecurity(
        TlsSettings(properties).client_context() if protocol.endswith("SSL") else None,
        _login(properties) if protocol.startswith("SASL") else None,
    )


def _login(properties: Mapping[str, str]) -> SaslLogin:
    mechanism = properties.get("sasl.mechanism", "GSSAPI").strip()
    if mechanism not in MECHANISMS:
        raise KraftlogError(f"sasl.mechanism={mechanism} is not supported; {', '.join(MECHANISMS)} are")
    text = properties.get("sasl.jaas.config")
    if text is None:
        raise KraftlogError("sasl.jaas.config must be set")
    try:
        return SaslLogin(mechanism, jaas_credentials(text, mechanism))
    except JaasError as error:
        raise KraftlogError(f"sasl.jaas.config: {error}") from error


def parse_servers(text: str) -> list[EndPoint]:
    """Read ``host:port,host:port``.

    Raises:
        ValueError: An entry is not of that form.
    """
    servers: list[EndPoint] = []
    for entry in text.split(","):
        host, colon, port = entry.strip().rpartition(":")
        if not colon or not port.isdigit():
            msg = f"cannot read {entry!r}; each entry has the form host:port"
            raise ValueError(msg)
        servers.append(EndPoint("", host.strip("[]"), int(port)))
    return servers
