"""``id@host:port:directory``: one voter as ``--initial-controllers`` names it."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from ipaddress import IPv6Address
from typing import Self

from kraftlog.types import NodeId, Uuid
from kraftlog.wire.messages.control_records import VotersRecord

__all__ = ["DynamicVoter", "from_kip_spelling", "parse_dynamic_voters", "voters_record"]

_MAX_PORT = 65535
_KIP_ENTRY = re.compile(r"(?P<id>\d+)-(?P<directory>[\w-]{22})@(?P<address>.+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class DynamicVoter:
    """A voter's identity and the one end point known at format time."""

    node_id: NodeId
    host: str
    port: int
    directory_id: Uuid

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read one voter.

        Raises:
            ValueError: What is wrong, in Kafka's words.
        """
        text = text.strip()
        at = text.find("@")
        if at < 0:
            msg = "No @ found in dynamic voter string."
            raise ValueError(msg)
        node_id = _integer(text[:at], "node id")
        if node_id < 0:
            msg = f"Invalid negative node id {node_id} in dynamic voter string."
            raise ValueError(msg)
        rest = text[at + 1 :]
        if not rest:
            msg = "No hostname found after node id."
            raise ValueError(msg)
        if rest.startswith("["):
            end = rest.find("]")
            if end < 0:
                msg = "Hostname began with left bracket, but no right bracket was found."
                raise ValueError(msg)
            host, rest = rest[1:end], rest[end + 1 :]
        else:
            end = rest.find(":")
            if end < 0:
                msg = "No colon following hostname could be found."
                raise ValueError(msg)
            host, rest = rest[:end], rest[end:]
        if not rest.startswith(":"):
            msg = "Port section must start with a colon."
            raise ValueError(msg)
        rest = rest[1:]
        end = rest.find(":")
        if end < 0:
            msg = "No colon following port could be found."
            raise ValueError(msg)
        port = _integer(rest[:end], "port")
        if not 0 <= port <= _MAX_PORT:
            msg = f"Invalid port {port} in dynamic voter string."
            raise ValueError(msg)
        try:
            directory_id = Uuid.parse(rest[end + 1 :])
        except ValueError as error:
            msg = "Failed to parse directory ID in dynamic voter string."
            raise ValueError(msg) from error
        return cls(node_id=NodeId(node_id), host=host, port=port, directory_id=directory_id)

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.node_id}@{host}:{self.port}:{self.directory_id}"


def from_kip_spelling(text: str) -> str:
    """``id-directory@host:port``, as KIP-853 has it, as ``id@host:port:directory``; anything else stays as it is."""
    return ",".join(_KIP_ENTRY.sub(r"\g<id>@\g<address>:\g<directory>", entry.strip()) for entry in text.split(","))


def _integer(text: str, what: str) -> int:
    digits = text.removeprefix("-").removeprefix("+")
    if not (digits.isascii() and digits.isdigit()):
        msg = f"Failed to parse {what} in dynamic voter string."
        raise ValueError(msg)
    return int(text)


def parse_dynamic_voters(text: str) -> tuple[DynamicVoter, ...]:
    """Read a comma-separated list, sorted by id.

    Raises:
        ValueError: The list is empty, an entry is malformed or an id comes twice.
    """
    voters: dict[NodeId, DynamicVoter] = {}
    for part in text.strip().split(",") if text.strip() else ():
        voter = DynamicVoter.parse(part)
        if voter.node_id in voters:
            msg = f"Node id {voter.node_id} was specified more than once."
            raise ValueError(msg)
        voters[voter.node_id] = voter
    if not voters:
        msg = "No voters given."
        raise ValueError(msg)
    return tuple(voters[node_id] for node_id in sorted(voters))


def _host_text(host: str) -> str:
    """As Kafka writes it: a name stays a name, an IPv6 address has all its eight groups."""
    try:
        address = IPv6Address(host)
    except ValueError:
        return host
    return ":".join(f"{int(group, 16):x}" for group in address.exploded.split(":"))


def voters_record(voters: Sequence[DynamicVoter], *, listener_name: str) -> VotersRecord:
    """The Voters control record a format writes: one end point each, kraft.version 0 to 1."""
    return VotersRecord(
        version=0,
        voters=tuple(
            VotersRecord.Voter(
                voter_id=voter.node_id,
                voter_directory_id=voter.directory_id,
                endpoints=(VotersRecord.Endpoint(name=listener_name, host=_host_text(voter.host), port=voter.port),),
                k_raft_version_feature=VotersRecord.KRaftVersionFeature(
                    min_supported_version=0, max_supported_version=1
                ),
            )
            for voter in voters
        ),
    )
