"""The version of this package; pyproject.toml and Cargo.toml have the same (tests/unit/test_package.py)."""

from __future__ import annotations

__all__ = ["VERSION"]

VERSION = "0.1.0"
