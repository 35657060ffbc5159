"""Directories of these tests are in memory: most of their time was the disk's."""

from __future__ import annotations

from memory_path import tmp_path

__all__ = ["tmp_path"]
