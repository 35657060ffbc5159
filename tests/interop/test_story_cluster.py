"""docs/how-to/cluster.md, command by command: three machines, rolling restart, reassignment, a replaced broker."""

from __future__ import annotations

from pathlib import Path

import pytest

from interop.harness import Java
from interop.story import story


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_three_machines_from_formatting_to_a_replaced_broker(tmp_path: Path, java: Java) -> None:
    with story(tmp_path / "story", java) as told:
        told.read("cluster.md")
        # Every replica of what is left has the same bytes.
        told.run("for id in 1 2 3; do kill $(cat n$id/pid); done; wait\n")
        for index in range(3):
            logs = [
                b"".join(map(Path.read_bytes, sorted(told.home.glob(f"n{number}/data/orders-{index}/*.log"))))
                for number in (1, 2, 3)
            ]
            assert logs[0] == logs[1] == logs[2]
