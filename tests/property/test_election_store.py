"""Any state that can be promised is read back as it was written, by either version of the file."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraftlog.errors import LogError
from kraftlog.storage.election_store import ElectionStore
from kraftlog.types import ElectionState, ReplicaKey, Uuid

ids = st.integers(0, 2**31 - 1)
uuids = st.binary(min_size=16, max_size=16).map(Uuid)
states = st.builds(
    ElectionState, epoch=ids, leader_id=st.none() | ids, voted_key=st.none() | st.builds(ReplicaKey, ids, uuids)
)


@pytest.mark.spec("DISK-04")
@given(state=states)
def test_version_1_reads_back_what_was_written(state):
    with tempfile.TemporaryDirectory() as folder:
        store = ElectionStore(Path(folder))
        store.write(state, kraft_version=1)
        assert store.read() == state


@pytest.mark.spec("DISK-04", "DISK-12")
@given(state=states, voters=st.lists(ids, max_size=5))
def test_version_0_reads_back_all_but_the_directory_id(state, voters):
    with tempfile.TemporaryDirectory() as folder:
        store = ElectionStore(Path(folder))
        store.write(state, kraft_version=0, voters=voters)
        read = store.read()
        assert (read.epoch, read.leader_id) == (state.epoch, state.leader_id)
        expected = None if state.voted_key is None else ReplicaKey(state.voted_key.node_id)
        assert read.voted_key == expected


@given(data=st.binary(max_size=200) | st.text(max_size=200).map(str.encode))
def test_any_other_content_is_an_error_with_the_path(data):
    with tempfile.TemporaryDirectory() as folder:
        (Path(folder) / "quorum-state").write_bytes(data)
        with pytest.raises(LogError, match="quorum-state"):
            ElectionStore(Path(folder)).read()
