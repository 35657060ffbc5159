"""The page of docs/how-to about following Apache Kafka's controllers, as its reader follows it."""

from __future__ import annotations

from pathlib import Path

import pytest

from interop.harness import Java
from interop.story import story


@pytest.mark.timeout(900)
@pytest.mark.slow
def test_a_broker_of_ours_follows_kafkas_controller_as_the_page_tells(tmp_path: Path, java: Java) -> None:
    with story(tmp_path / "story", java) as told:
        told.read("follow-kafka.md")
