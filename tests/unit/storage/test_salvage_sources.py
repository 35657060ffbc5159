"""Directories that are named like partitions and hold no log."""

from __future__ import annotations

from pathlib import Path

import pytest

from kraftlog._kraftlog import salvage_files
from kraftlog.errors import LogError


def test_salvage_names_directories_that_only_look_like_partitions(tmp_path: Path) -> None:
    source = tmp_path / "etc"
    (source / "dbus-1").mkdir(parents=True)
    (source / "dbus-1" / "session.conf").write_text("x")
    with pytest.raises(LogError, match=r"no partition directories.*dbus-1"):
        salvage_files(source, tmp_path / "out")
