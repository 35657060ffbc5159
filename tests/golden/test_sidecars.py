"""The small files of data directories that Kafka wrote: read, and written again to the same bytes."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from batch_rows import GOLDEN
from kraftlog.storage.checkpoints import format_offset_checkpoint, read_offset_checkpoint
from kraftlog.storage.election_store import ElectionStore
from kraftlog.storage.meta_properties import META_PROPERTIES_NAME, read_meta_properties, write_meta_properties
from kraftlog.types import NodeId


def different(pattern: str) -> list[Path]:
    """One file of each content: every write is an fsync."""
    return sorted({path.read_bytes(): path for path in sorted(GOLDEN.glob(pattern))}.values())


CHECKPOINTS = sorted(GOLDEN.glob("**/*-offset-checkpoint"))
PROPERTIES = different("**/meta.properties")
QUORUM_STATES = different("**/quorum-state")


@pytest.mark.spec("DISK-50")
def test_offset_checkpoints():
    names = {path.name for path in CHECKPOINTS}
    assert {"cleaner-offset-checkpoint", "recovery-point-offset-checkpoint"} <= names
    for path in CHECKPOINTS:
        text = path.read_text()
        # Kafka makes the file when it starts and writes into it later.
        assert text in ("", format_offset_checkpoint(read_offset_checkpoint(path))), path


def without_date(data: bytes) -> list[bytes]:
    return sorted(line for line in data.splitlines() if not line.startswith(b"#"))


@pytest.mark.parametrize("version", [0, 1])
def test_meta_properties(version, tmp_path):
    found = [path for path in PROPERTIES if f"version={version}" in path.read_text()]
    assert found or version == 0  # 4.3.1 writes version 1 only
    for path in found:
        properties = read_meta_properties(path.parent)
        assert properties is not None
        write_meta_properties(tmp_path, properties)
        assert without_date((tmp_path / META_PROPERTIES_NAME).read_bytes()) == without_date(path.read_bytes())


def test_meta_properties_of_version_0_are_kept(tmp_path):
    text = "#\n#Sat Nov 21 14:00:00 UTC 2026\nbroker.id=7\nversion=0\ncluster.id=abc\n"
    (tmp_path / META_PROPERTIES_NAME).write_text(text)
    properties = read_meta_properties(tmp_path)
    assert properties is not None
    assert (properties.version, properties.node_id, properties.cluster_id) == (0, 7, "abc")
    write_meta_properties(tmp_path, properties)
    assert without_date((tmp_path / META_PROPERTIES_NAME).read_bytes()) == without_date(text.encode())


@pytest.mark.spec("DISK-04", "DISK-13")
def test_quorum_states(tmp_path):
    versions = set()
    for path in QUORUM_STATES:
        work = tmp_path / "quorum-state"
        shutil.copy(path, work)
        data = json.loads(path.read_text())
        versions.add(data["data_version"])
        store = ElectionStore(tmp_path)
        state = store.read()
        assert state is not None
        voters = [NodeId(voter["voterId"]) for voter in data.get("currentVoters", ())]
        store.write(state, kraft_version=data["data_version"], voters=voters)
        assert work.read_bytes() == path.read_bytes(), path
    assert versions == {0, 1}
