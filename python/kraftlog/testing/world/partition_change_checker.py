"""Invariants of one change of a partition's metadata (docs/behaviours, area 29): elections, and moves that end."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kraftlog.vocabulary import ConfigResourceType

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import Mapping

    from kraftlog.testing.world.node_machine import NodeMachine

__all__ = ["PartitionChangeChecker"]

_RECOVERING: Final = 1  # of a partition whose leader was elected uncleanly (KIP-704)
_UNCLEAN_ELECTION: Final = "unclean.leader.election.enable"
_TRUE: Final = "true"
_DEFAULTS: Final = ""  # the broker whose settings are those of all


class PartitionChangeChecker:
    """Compares two states of a partition that follow each other.

    Args:
        nodes: Of the cluster, by node id.
        looked: Gets how often each rule had something to look at.
    """

    def __init__(self, nodes: Mapping[int, NodeMachine], looked: Counter[str]) -> None:
        self._nodes = nodes
        self._looked = looked
        # Topics for which unclean elections were allowed at any time, and whether an operator asked for one.
        self._lax: set[Any] = set()
        self._is_unclean_asked = False
        # The leader epoch of each partition's last leader that was neither in sync nor eligible.
        self._unclean: dict[tuple[Any, int], int] = {}

    def note_unclean_request(self) -> None:
        """An operator asked for an unclean election (ElectLeaders of type 1)."""
        self._is_unclean_asked = True

    def was_unclean(self, topic_id: Any, index: int) -> bool:
        """Whether a partition ever had a leader that was neither in sync nor eligible."""
        return (topic_id, index) in self._unclean

    def lost_epoch(self, topic_id: Any, index: int) -> int:
        """The leader epoch of the last such leader that a partition had by the operator's leave; -1 if it had none.

        What was committed in earlier epochs may be gone.
        """
        is_allowed = self._is_unclean_asked or topic_id in self._lax
        return self._unclean.get((topic_id, index), -1) if is_allowed else -1

    def note_settings(self, image: Any) -> None:
        """An image is new: it may allow unclean elections."""
        defaults = [image.configs.get(ConfigResourceType.BROKER, _DEFAULTS)]
        defaults += [machine.properties for machine in self._nodes.values()]
        is_default = any(settings.get(_UNCLEAN_ELECTION) == _TRUE for settings in defaults)
        for topic in image.topics:
            own = image.configs.get(ConfigResourceType.TOPIC, topic.name).get(_UNCLEAN_ELECTION)
            if own == _TRUE or (is_default and own is None):
                self._lax.add(topic.topic_id)

    def broken(self, topic_id: Any, index: int, was: Any, now: Any) -> tuple[str, str] | None:
        """The rule that a new state breaks and how; None if it breaks none.

        Args:
            topic_id: Of the topic.
            index: Of the partition.
            was: Its metadata before this one change; None if it is not known.
            now: Its metadata.
        """
        key = (topic_id, index)
        if now.leader_recovery_state == _RECOVERING and (
            was is None or was.leader_recovery_state != _RECOVERING or now.leader != was.leader
        ):
            self._unclean[key] = now.leader_epoch
        if was is None:
            return None
        is_completed = was.is_reassigning and not now.is_reassigning
        if now.has_leader and now.leader != was.leader and now.leader not in {*was.isr, *was.elr}:
            # One change may add a replica to the in-sync set, end the move with that, and elect the replica: its leader
            # says that it is in sync. It need not be a new one.
            has_joined = is_completed and was.has_leader and now.leader in was.replicas
            problem = None if has_joined else self._unclean_problem(key, was, now)
            if problem is not None:
                return "RINV-29", f"{problem}: {was} became {now}"
        if not set(was.replicas) <= set(now.replicas):
            self._looked["RINV-33"] += 1
            problem = self._drop_problem(topic_id, was, now)
            if problem is not None:
                return "RINV-33", f"{problem}: {was} became {now}"
        return None

    def _drop_problem(self, topic_id: Any, was: Any, now: Any) -> str | None:
        """A partition has lost replicas: enough others have what was acknowledged."""
        has_ended = not now.is_reassigning
        dropped = set(was.replicas) - set(now.replicas)
        if has_ended and not dropped <= set(was.adding_replicas):
            missing = set(was.adding_replicas).intersection(now.replicas) - set(now.isr)
            return f"a move ends, and {sorted(missing)} are not in sync" if missing else None
        # It was cancelled, or another one took its place.
        has_joined = not set(now.isr) <= set(was.isr)
        return "a move is given up, with a new replica in sync" if has_joined and topic_id not in self._lax else None

    def _unclean_problem(self, key: tuple[Any, int], was: Any, now: Any) -> str | None:
        topic_id = key[0]
        self._looked["RINV-29"] += 1
        is_cancelled = bool(set(was.adding_replicas) - set(now.replicas)) and not now.is_reassigning
        if topic_id in self._lax and is_cancelled:
            self._unclean[key] = now.leader_epoch
            return None  # a cancelled move of which no original replica is in sync: the first one leads, as in Kafka
        # The eligible replicas that there were may have lost data within the same change.
        is_last_known = not was.isr and not now.elr and now.leader in was.last_known_elr
        if not (is_last_known or self._is_unclean_asked or topic_id in self._lax):
            return "who was neither in sync nor eligible leads, and unclean elections are not allowed"
        if now.leader_recovery_state != _RECOVERING or now.isr != (now.leader,):
            return "an unclean leader is not alone in sync, or does not recover"
        return None
