"""Elections that a client asks for (KIP-183, KIP-460), and those that the controller looks for now and then."""

from __future__ import annotations

from typing import Final

from kraftlog.controller.config_control import ConfigControl
from kraftlog.controller.image import MetadataImage, VersionedRecord
from kraftlog.controller.partition_change import Election
from kraftlog.controller.partition_changes import SCANNED_PER_STEP, PartitionChanges, check_record_count
from kraftlog.controller.result import ControllerResult
from kraftlog.controller.steps import STEP_ITEMS, Steps
from kraftlog.controller.topic_image import PartitionImage
from kraftlog.errors import ErrorCode, KafkaError
from kraftlog.wire.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse

__all__ = ["MAX_ELECTIONS_PER_ROUND", "ElectionControl", "refuse_elections"]

MAX_ELECTIONS_PER_ROUND: Final = 1000
"""Elections of one periodic round; if there are more, the next round follows at once."""

PREFERRED: Final = 0
UNCLEAN: Final = 1
_ELECTIONS: Final = {PREFERRED: Election.PREFERRED, UNCLEAN: Election.UNCLEAN}
_NOT_NEEDED: Final = "Leader election not needed for topic partition."
_PREFERRED_NOT_AVAILABLE: Final = "The preferred leader was not available."
_ELIGIBLE_NOT_AVAILABLE: Final = "Eligible topic partition leaders are not available."

_Topic = ElectLeadersResponse.ReplicaElectionResult
_Partition = ElectLeadersResponse.PartitionResult


class ElectionControl:
    """The elections; they read the image and answer with records.

    Args:
        image: The controller's image.
        configs: Settings of topics.
    """

    def __init__(self, image: MetadataImage, configs: ConfigControl) -> None:
        self._image = image
        self._configs = configs

    def elect_leaders(self, request: ElectLeadersRequest) -> Steps[ControllerResult[ElectLeadersResponse]]:
        """Elect leaders of the partitions named, or of all; each partition gets its own result.

        A request for all partitions leaves those out whose leader is the wanted one already.

        Raises:
            KafkaError: INVALID_REQUEST, unknown type of election; POLICY_VIOLATION, too many elections.
        """
        if request.election_type not in _ELECTIONS:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}")
        election = _ELECTIONS[request.election_type]
        changes = PartitionChanges(self._image, self._configs)
        records: list[VersionedRecord] = []
        results: list[_Topic] = []
        is_all = request.topic_partitions is None
        if request.topic_partitions is None:
            wanted = [(topic.name, list(topic.partitions)) for topic in self._image.topics.all()]
        else:
            wanted = [(topic.topic, list(topic.partitions)) for topic in request.topic_partitions]
        for name, indexes in wanted:
            yield
            outcomes: list[_Partition] = []
            for number, index in enumerate(indexes, 1):
                if number % STEP_ITEMS == 0:
                    yield
                code, message = self._elect(changes, name, index, election, records)
                check_record_count(len(records))
                if not is_all or code != ErrorCode.ELECTION_NOT_NEEDED:
                    outcomes.append(_Partition(partition_id=index, error_code=code, error_message=message))
            results.append(_Topic(topic=name, partition_result=outcomes))
        response = ElectLeadersResponse(replica_election_results=results)
        return ControllerResult(response, records, is_atomic=False)

    def _elect(
        self, changes: PartitionChanges, name: str, index: int, election: Election, records: list[VersionedRecord]
    ) -> tuple[int, str | None]:
        topic = self._image.topics.by_name(name)
        if topic is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}"
        partition = topic.partitions.get(index)
        if partition is None:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{index}"
        is_preferred = election is Election.PREFERRED
        if partition.has_preferred_leader if is_preferred else partition.has_leader:
            return ErrorCode.ELECTION_NOT_NEEDED, _NOT_NEEDED
        record = changes.record(topic, index, changes.rules(topic), election=election)
        if record is not None:
            records.append((record, changes.record_version))
            return ErrorCode.NONE, None
        if is_preferred:
            return ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, _PREFERRED_NOT_AVAILABLE
        return ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, _ELIGIBLE_NOT_AVAILABLE

    def balance_leaders(self) -> Steps[ControllerResult[bool]]:
        """Give partitions their preferred leaders back, at most ``MAX_ELECTIONS_PER_ROUND``.

        The response says whether there may be more.
        """
        return self._elect_where(Election.PREFERRED)

    def elect_unclean_leaders(self) -> Steps[ControllerResult[bool]]:
        """Elect any live replica for partitions without a leader whose topics allow that, as ``balance_leaders``."""
        return self._elect_where(Election.UNCLEAN)

    def _elect_where(self, election: Election) -> Steps[ControllerResult[bool]]:
        changes = PartitionChanges(self._image, self._configs)
        records: list[VersionedRecord] = []
        scanned = 0
        for topic in self._image.topics.all():
            rules = changes.rules(topic) if topic.partitions else None
            for index, partition in list(topic.partitions.items()):
                scanned += 1
                if scanned >= SCANNED_PER_STEP:
                    scanned = 0
                    yield
                if rules is None or not _is_wanted(election, partition):
                    continue
                if election is Election.UNCLEAN and not rules.is_unclean_election_allowed:
                    continue
                scanned += SCANNED_PER_STEP // STEP_ITEMS
                record = changes.record(topic, index, rules, election=election)
                if record is not None:
                    records.append((record, changes.record_version))
                if len(records) >= MAX_ELECTIONS_PER_ROUND:
                    return ControllerResult(True, records, is_atomic=False)
            scanned += SCANNED_PER_STEP // STEP_ITEMS
        return ControllerResult(False, records, is_atomic=False)


def _is_wanted(election: Election, partition: PartitionImage) -> bool:
    return not (partition.has_preferred_leader if election is Election.PREFERRED else partition.has_leader)


def refuse_elections(request: ElectLeadersRequest, error: KafkaError) -> ElectLeadersResponse:
    """The response that has ``error`` at the top and at each partition named."""
    results = [
        _Topic(
            topic=topic.topic,
            partition_result=[
                _Partition(partition_id=index, error_code=error.code, error_message=error.message)
                for index in topic.partitions
            ],
        )
        for topic in request.topic_partitions or ()
    ]
    return ElectLeadersResponse(error_code=error.code, replica_election_results=results)
