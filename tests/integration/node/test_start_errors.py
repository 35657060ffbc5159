"""What keeps a node from starting is one line on stderr that names the file and the reason."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import kraftlog
from kraftlog.cli.__main__ import main
from kraftlog.node.node import StartError
from kraftlog.storage import files

METADATA = "__cluster_metadata-0"


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    data = tmp_path_factory.mktemp("stopped") / "data"
    with kraftlog.Broker(data, log_flush_on_ack=False):
        pass
    return data


def replaced(path: Path, *, by_file: bool) -> None:
    if path.is_dir():
        shutil.rmtree(path)
    else:
        path.unlink()
    if by_file:
        path.write_text("x")
    else:
        path.mkdir()


CASES: dict[str, tuple[Callable[[Path], Any], str, str]] = {
    # name: what is done to the directory, the file that is named, and the reason
    "metadata log": (
        lambda data: shutil.rmtree(data / METADATA),
        METADATA,
        "is missing: this node knows no voters",
    ),
    "recovery points": (
        lambda data: (data / "recovery-point-offset-checkpoint").write_text("garbage\n"),
        "recovery-point-offset-checkpoint",
        "line 1: checkpoint version 'garbage' is not 0",
    ),
    "high watermarks": (
        lambda data: (data / "replication-offset-checkpoint").write_bytes(b"\xff\x00"),
        "replication-offset-checkpoint",
        "not an offset checkpoint",
    ),
    "log starts": (
        lambda data: replaced(data / "log-start-offset-checkpoint", by_file=False),
        "log-start-offset-checkpoint",
        "Is a directory",
    ),
    "empty meta.properties": (
        lambda data: (data / "meta.properties").write_text(""),
        "meta.properties",
        "has no node.id",
    ),
    "meta.properties of another node": (
        lambda data: (data / "meta.properties").write_text("version=1\ncluster.id=a\nnode.id=77\n"),
        "meta.properties",
        "is of node.id=77",
    ),
    "garbage meta.properties": (
        lambda data: (data / "meta.properties").write_bytes(b"\x00\xff\\u12"),
        "meta.properties",
        "malformed",
    ),
    "a file in place of the data directory": (lambda data: replaced(data, by_file=True), "data", "is a file"),
    "a file in place of the metadata log": (
        lambda data: replaced(data / METADATA, by_file=True),
        METADATA,
        "File exists",
    ),
    "a directory in place of the lock": (
        lambda data: replaced(data / ".lock", by_file=False),
        ".lock",
        "Is a directory",
    ),
    "a directory in place of quorum-state": (
        lambda data: replaced(data / METADATA / "quorum-state", by_file=False),
        f"{METADATA}/quorum-state",
        "Is a directory",
    ),
    "a directory in place of the clean shutdown file": (
        lambda data: replaced(data / ".kafka_cleanshutdown", by_file=False),
        ".kafka_cleanshutdown",
        "Is a directory",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_node_that_cannot_start_says_which_file_and_why(stopped, tmp_path, capsys, name):
    damage, file, reason = CASES[name]
    data = tmp_path / "data"
    shutil.copytree(stopped, data)
    damage(data)
    assert main(["dev", "--port", "0", "--data-dir", str(data)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("kraftlog dev: ")
    assert f"{data}/{file}".removesuffix("/data") in line
    assert reason in line


class FullDisk:
    """The module os with a disk that is full."""

    def __getattr__(self, name: str) -> Any:
        return getattr(os, name)

    @staticmethod
    def write(_descriptor: int, _data: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_a_full_disk_at_the_restart_is_one_line(stopped, tmp_path, capsys, monkeypatch):
    data = tmp_path / "data"
    shutil.copytree(stopped, data)
    monkeypatch.setattr(files, "os", FullDisk())
    assert main(["dev", "--port", "0", "--data-dir", str(data)]) == 1
    (line,) = capsys.readouterr().err.splitlines()
    assert str(data) in line
    assert "No space left on device" in line


def test_an_embedded_node_on_a_file_raises_a_start_error(tmp_path):
    (tmp_path / "data").write_text("x")
    with pytest.raises(StartError, match=r"data is a file, but must be a directory"):
        kraftlog.Broker(tmp_path / "data").start()
    with pytest.raises(StartError, match=r"/data/below.*: Not a directory"):
        kraftlog.Broker(tmp_path / "data" / "below").start()
