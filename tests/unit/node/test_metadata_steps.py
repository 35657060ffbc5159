"""In which order the parts of a broker follow one committed change of the metadata."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

import kraftlog
from kraftlog.node.dynamic_settings import DynamicSettings
from kraftlog.runtime.coordinator.shard_registry import ShardRegistry
from kraftlog.runtime.replica.replica_manager import ReplicaManager
from waiting import until_true


def test_replicas_follow_before_coordinators_and_settings_last(tmp_path: Path) -> None:
    """RDLT-15: each sees the image with the change; three coordinators, for groups, transactions and share groups."""
    seen: list[tuple[str, bool]] = []
    with kraftlog.Broker(tmp_path) as broker:
        node = broker._embedded.running
        publisher = node.metadata.replica._publisher

        def record(listener: Any, image: Any, delta: Any) -> None:
            if delta.created_topics:
                has_topic = node.metadata.image.topics.by_name("t") is not None
                seen.append((type(listener.__self__).__name__, has_topic and image is node.metadata.image))
            listener(image, delta)

        # In place, so that a change that is being published goes on with the same list.
        publisher._listeners[:] = [partial(record, listener) for listener in publisher._listeners]
        broker.create_topic("t")
        until_true(lambda: len(seen) >= len(publisher._listeners))
    assert all(is_new for _, is_new in seen)
    steps = [name for name, _ in seen]
    wanted = [ReplicaManager.__name__, *[ShardRegistry.__name__] * 3, DynamicSettings.__name__]
    assert [name for name in steps if name in wanted] == wanted
