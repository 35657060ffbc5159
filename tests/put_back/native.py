"""Compiles the extension with a bug, from a copy of the sources, and runs the test that has to notice it."""

from __future__ import annotations

import os
import resource
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from put_back.bug import PYTHON, ROOT, NativeBug
from put_back.notice import TESTS, Notice

__all__ = ["NativeTree"]


class NativeTree:
    """A copy of the sources, compiled without optimization in a directory of its own.

    Args:
        home: Kept between runs, so that only what a bug changes is compiled anew.
    """

    def __init__(self, home: Path = ROOT / "target" / "put-back") -> None:
        self._home, self._sources = home, home / "sources"
        self._sources.mkdir(parents=True, exist_ok=True)
        for name in ("Cargo.toml", "Cargo.lock"):
            shutil.copy2(ROOT / name, self._sources / name)
        for path in (ROOT / "rust").rglob("*"):
            if path.is_file():
                self._write(path, path.read_text())
        package = home / "python" / "kraftlog"
        shutil.rmtree(package, ignore_errors=True)
        shutil.copytree(PYTHON / "kraftlog", package, ignore=shutil.ignore_patterns("*.so", "__pycache__"))
        self._extension = package / "_kraftlog.abi3.so"

    def _write(self, path: Path, text: str) -> None:
        """Put a source into the copy, unless it is there: cargo looks at the times of files."""
        copy = self._sources / path.relative_to(ROOT)
        if not copy.exists() or copy.read_text() != text:
            copy.parent.mkdir(parents=True, exist_ok=True)
            copy.write_text(text)

    def notice(self, bug: NativeBug) -> Notice:
        """Whether the bug's test fails with the bug.

        Raises:
            RuntimeError: The bug does not compile, or the test did not run.
        """
        self._write(bug.path, bug.source())
        try:
            self._build()
        finally:
            self._write(bug.path, bug.path.read_text())
        began = resource.getrusage(resource.RUSAGE_CHILDREN)
        command = [sys.executable, "-m", "pytest", bug.test, "-x", "-q", "-p", "no:cacheprovider"]
        environment = {**os.environ, "PYTHONPATH": f"{self._home / 'python'}{os.pathsep}{TESTS}"}
        try:
            done = subprocess.run(
                command, cwd=TESTS, env=environment, capture_output=True, text=True, timeout=600, check=False
            )
        except subprocess.TimeoutExpired:
            return Notice(f"{bug.test} (it does not end)")
        if done.returncode not in {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.INTERRUPTED}:
            raise RuntimeError(f"{bug.name}: pytest ended with {done.returncode}\n{done.stdout[-2000:]}")
        ended = resource.getrusage(resource.RUSAGE_CHILDREN)
        cpu_s = ended.ru_utime + ended.ru_stime - began.ru_utime - began.ru_stime
        return Notice(bug.test if done.returncode else "", cpu_s=cpu_s)

    def _build(self) -> None:
        target = self._home / "build"
        command = ["cargo", "build", "--locked", "--quiet", "-p", "kraftlog-py"]
        environment = {**os.environ, "CARGO_TARGET_DIR": str(target), "PYO3_PYTHON": sys.executable}
        environment.setdefault("CARGO_PROFILE_DEV_DEBUG", "none")
        done = subprocess.run(command, cwd=self._sources, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(done.stderr[-4000:])
        self._extension.unlink(missing_ok=True)
        shutil.copy2(target / "debug" / "lib_kraftlog.so", self._extension)
