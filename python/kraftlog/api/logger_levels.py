"""Levels of this process's loggers, for DescribeConfigs and IncrementalAlterConfigs of broker loggers (KIP-412)."""

from __future__ import annotations

import logging
from typing import Final

__all__ = ["LEVELS", "logger_levels", "set_logger_level", "unset_logger_level"]

ROOT: Final = "root"

# log4j's names, which the protocol uses, for Python's levels.
LEVELS: Final = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": logging.DEBUG,
}


def _level_name(level: int) -> str:
    return next((name for name, number in LEVELS.items() if level >= number), "DEBUG")


def logger_levels() -> dict[str, str]:
    """Every logger of kraftlog and the root, with the level in force."""
    names = sorted(name for name in logging.root.manager.loggerDict if name.split(".")[0] == "kraftlog")
    levels = {name: _level_name(logging.getLogger(name).getEffectiveLevel()) for name in names}
    return {**levels, ROOT: _level_name(logging.root.level)}


def set_logger_level(name: str, level: str) -> None:
    """Set the level of one logger; ``level`` is a name of :data:`LEVELS`."""
    logging.getLogger(None if name == ROOT else name).setLevel(LEVELS[level])


def unset_logger_level(name: str) -> None:
    """Let a logger have its parent's level again."""
    logging.getLogger(name).setLevel(logging.NOTSET)
