"""Stands for the compiled module in the zip that ``kraftlog.spark.ship`` sends, as ``kraftlog/_kraftlog.py`` there.

It loads the library that was sent along, under the name of the compiled module, and where that does not fit says
what came from where. Only the standard library is used, of any Python 3.
"""

from __future__ import annotations

import importlib.util
import os
import platform
import sys
import sysconfig
from collections.abc import Sequence
from typing import NoReturn

__all__ = ["LIBRARY", "OLDEST_PYTHON", "find_library", "misfit", "this_process"]

LIBRARY = "_kraftlog.abi3.so"
OLDEST_PYTHON = (3, 11)


def this_process() -> str:
    """System, machine, C library and Python of this process."""
    libc, libc_version = platform.libc_ver()
    python = f"{platform.python_implementation()} {platform.python_version()}"
    return f"{sys.platform} {platform.machine()}, {libc or 'another libc'} {libc_version}, {python}"


def misfit(machine: str) -> str | None:
    """Why a library for Linux on ``machine`` cannot serve this process; None when it can."""
    if sys.platform != "linux" or platform.machine() != machine:
        return f"the shipped library is for Linux on {machine}"
    if sys.implementation.name != "cpython" or sys.version_info < OLDEST_PYTHON:
        return "the shipped library is for CPython {}.{} and later".format(*OLDEST_PYTHON)
    if sysconfig.get_config_var("Py_GIL_DISABLED"):
        return "the shipped library does not serve a free-threaded Python"
    return None


def find_library(shim: str, path: Sequence[str]) -> str | None:
    """The library beside the zip that has the file ``shim``, which is the directory of Spark's files, or on a path."""
    beside = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(shim))))
    for directory in (beside, *path):
        found = os.path.join(directory, LIBRARY)
        if os.path.isfile(found):
            return found
    return None


def _load() -> None:
    from kraftlog.spark.shipped_facts import DRIVER, MACHINE, VERSION  # type: ignore[import-not-found]  # only in the zip

    def refuse(reason: str) -> NoReturn:
        message = (
            f"{reason}. Shipped: kraftlog {VERSION} for Linux on {MACHINE}, from a driver on {DRIVER}. "
            f"This process: {sys.executable} on {platform.node()}, {this_process()}. "
            "Install the kraftlog wheel there, or let driver and executors be alike."
        )
        raise ImportError(message)

    reason = misfit(MACHINE)
    if reason is not None:
        refuse(reason)
    library = find_library(__file__, sys.path)
    if library is None:
        refuse(f"{LIBRARY} is not among Spark's files")
    try:
        spec = importlib.util.spec_from_file_location(__name__, library)
        if spec is None or spec.loader is None:
            refuse(f"this Python takes no {LIBRARY}")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
    except ImportError as error:  # a C library that is too old, for one
        refuse(f"the shipped library does not load: {error}")
    sys.modules[__name__] = module


if __name__ == "kraftlog._kraftlog":
    _load()
