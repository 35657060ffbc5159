"""What the keys of the metadata quorum must be to each other."""

from __future__ import annotations

from typing import Protocol

from kraftlog.transport.listener import ConfigError

__all__ = ["FETCH_WAIT_MS", "QuorumKeys", "check_quorum_keys"]

FETCH_WAIT_MS = "controller.quorum.fetch.wait.max.ms"
_MAX_PORT = 65535


class QuorumKeys(Protocol):
    """The configuration of a node, as far as it is asked here."""

    node_id: int
    process_roles: frozenset[str]
    properties: dict[str, str]

    @property
    def is_controller(self) -> bool:
        """Whether this node is a voter or may become one."""
        ...

    def get_int(self, key: str) -> int:
        """A key that holds an integer."""
        ...

    def get_list(self, key: str) -> list[str]:
        """A comma separated key; empty when it is null."""
        ...


def check_quorum_keys(config: QuorumKeys) -> None:
    """Refuse keys of the quorum that contradict each other or the roles of the node.

    Raises:
        ConfigError: It names the key and what is expected.
    """
    voters = config.get_list("controller.quorum.voters")
    if not voters and not config.get_list("controller.quorum.bootstrap.servers"):
        msg = "set controller.quorum.bootstrap.servers (or controller.quorum.voters for a static quorum)"
        raise ConfigError(msg)
    _check_voters(config, voters)
    for server in config.get_list("controller.quorum.bootstrap.servers"):
        if not _is_address(server):
            msg = f"controller.quorum.bootstrap.servers: cannot read {server!r}; each entry has the form host:port"
            raise ConfigError(msg)
    _check_fetch_wait(config)


def _check_voters(config: QuorumKeys, voters: list[str]) -> None:
    for voter in voters:
        node_id, separator, address = voter.partition("@")
        if not separator or not node_id.isdigit() or not _is_address(address):
            msg = f"controller.quorum.voters: cannot read {voter!r}; each entry has the form id@host:port"
            raise ConfigError(msg)
        if address.rpartition(":")[0] in {"0.0.0.0", "[::]"}:  # noqa: S104
            msg = f"controller.quorum.voters: {voter!r} cannot use the nonroutable meta-address"
            raise ConfigError(msg)
    if len({voter.partition("@")[0] for voter in voters}) != len(voters):
        msg = f"controller.quorum.voters={','.join(voters)} names a node twice"
        raise ConfigError(msg)
    is_voter = config.node_id in {int(voter.partition("@")[0]) for voter in voters}
    if voters and is_voter != config.is_controller:
        wanted, roles = ("name" if config.is_controller else "not name"), ",".join(sorted(config.process_roles))
        msg = f"controller.quorum.voters must {wanted} node.id={config.node_id}, as process.roles={roles}"
        raise ConfigError(msg)


def _check_fetch_wait(config: QuorumKeys) -> None:
    """A fetch that waits longer than these is given up before its answer comes; Kafka's own keys are not compared."""
    if FETCH_WAIT_MS not in config.properties:
        return
    wait_ms = config.get_int(FETCH_WAIT_MS)
    for key in ("controller.quorum.fetch.timeout.ms", "controller.quorum.request.timeout.ms"):
        if wait_ms >= config.get_int(key):
            msg = f"{FETCH_WAIT_MS}={wait_ms} must be less than {key}={config.get_int(key)}"
            raise ConfigError(msg)


def _is_address(text: str) -> bool:
    """Whether this is host:port; ``rpartition`` of an IPv6 address keeps its brackets with the host."""
    host, _, port = text.rpartition(":")
    return bool(host) and port.isdigit() and int(port) <= _MAX_PORT
