"""A data directory: lock, partition directories, marks, clean-shutdown file."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from kraftlog.errors import LogError
from kraftlog.storage.log_dir import LogDir
from kraftlog.types import TopicPartition

GOLDEN = Path(__file__).parents[2] / "golden" / "topics"


@pytest.fixture
def log_dir(tmp_path):
    one = LogDir(tmp_path)
    yield one
    one.release()


def test_directory_is_locked_until_released(tmp_path, log_dir):
    with pytest.raises(LogError, match=r"\.lock"):
        LogDir(tmp_path)
    log_dir.release()
    LogDir(tmp_path).release()


def test_partition_directories_are_told_from_everything_else(tmp_path, log_dir):
    for name in ("a-0", "a-b.c_d-12", "__cluster_metadata-0", "a-1." + "0" * 32 + "-delete", "plain", "a-x"):
        (tmp_path / name).mkdir()
    (tmp_path / "file-0").touch()
    found = [partition_directory.topic_partition for partition_directory in log_dir.partition_directories()]
    assert found == [TopicPartition("a", 0), TopicPartition("a-b.c_d", 12)]
    assert [path.name for path in log_dir.deleted_directories()] == ["a-1." + "0" * 32 + "-delete"]


def test_marked_directory_has_kafkas_form_and_fits_the_file_system(tmp_path, log_dir):
    topic = "t" * 249
    (tmp_path / f"{topic}-7").mkdir()
    marked = log_dir.mark_directory(tmp_path / f"{topic}-7", "delete")
    assert marked.is_dir()
    assert len(marked.name) == 255
    assert marked.name.rpartition(".")[0].endswith("t-7")
    assert log_dir.deleted_directories() == [marked]


def test_state_of_kafkas_directory(tmp_path):
    """RDLT-58."""
    for path in (GOLDEN / "node-1").iterdir():
        if path.is_file():
            shutil.copy(path, tmp_path)
    one = LogDir(tmp_path)
    one.read_state()
    assert one.was_clean_shutdown
    assert one.previous_broker_epoch == 321
    assert one.recovery_points[TopicPartition("g-none", 0)] == 1141
    assert one.log_start_offsets == {TopicPartition("g-deleterecords", 0): 289}
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    one.write_clean_shutdown(321)
    assert (tmp_path / ".kafka_cleanshutdown").read_bytes() == (GOLDEN / "node-1" / ".kafka_cleanshutdown").read_bytes()
    one.release()


def test_clean_shutdown_file_that_cannot_be_written_is_a_warning(tmp_path, log_dir, caplog):
    log_dir.read_state()
    (tmp_path / ".kafka_cleanshutdown" / "in the way").mkdir(parents=True)
    log_dir.write_clean_shutdown(1)
    (warning,) = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert str(tmp_path / ".kafka_cleanshutdown") in warning
    assert not (tmp_path / ".kafka_cleanshutdown.tmp").exists()


def test_empty_clean_shutdown_file_of_an_older_release_counts(tmp_path, log_dir):
    (tmp_path / ".kafka_cleanshutdown").touch()
    log_dir.read_state()
    assert log_dir.was_clean_shutdown
    assert log_dir.previous_broker_epoch == -1
