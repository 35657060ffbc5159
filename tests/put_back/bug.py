"""One bug: a piece of the product's source, what stands there with the bug, and the test that has to fail then."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, PathFinder, SourceFileLoader
from pathlib import Path
from types import CodeType, ModuleType

ROOT = Path(__file__).parents[2]
PYTHON = ROOT / "python"


@dataclass(frozen=True, slots=True)
class Bug:
    """A bug in one module.

    Args:
        name: The id of a known bug, or a few words.
        module: Its dotted name below ``kraftlog``.
        right: A piece of the module's source that is there exactly once.
        wrong: What stands there with the bug.
        test: The file below ``tests``, and ``::name`` of a test, that fails with the bug; empty while none does.
    """

    name: str
    module: str
    right: str
    wrong: str
    test: str

    @property
    def path(self) -> Path:
        """The module's source."""
        return PYTHON.joinpath("kraftlog", *self.module.split(".")).with_suffix(".py")

    def source(self) -> str:
        """The module's source with the bug.

        Raises:
            ValueError: The right piece is not there, or more than once.
        """
        return _changed(self.name, self.path, self.right, self.wrong)

    def install(self) -> None:
        """Have the module imported with the bug from now on in this process.

        Raises:
            RuntimeError: The module is imported already.
        """
        name = f"kraftlog.{self.module}"
        if name in sys.modules:
            msg = f"{name} is imported already"
            raise RuntimeError(msg)
        sys.meta_path.insert(0, _Finder(name, self))


@dataclass(frozen=True, slots=True)
class NativeBug:
    """A bug in the native code.

    Args:
        name: The id of a known bug, or a few words.
        file: Its source below ``rust``.
        right: A piece of the source that is there exactly once.
        wrong: What stands there with the bug.
        test: As of a :class:`Bug`, run with the extension compiled anew.
    """

    name: str
    file: str
    right: str
    wrong: str
    test: str

    @property
    def path(self) -> Path:
        """The source."""
        return ROOT / "rust" / self.file

    def source(self) -> str:
        """The source with the bug.

        Raises:
            ValueError: The right piece is not there, or more than once.
        """
        return _changed(self.name, self.path, self.right, self.wrong)


def _changed(name: str, path: Path, right: str, wrong: str) -> str:
    text = path.read_text()
    count = text.count(right)
    if count != 1:
        msg = f"{name}: {path} has its piece {count} times"
        raise ValueError(msg)
    return text.replace(right, wrong)


class _Loader(SourceFileLoader):
    def __init__(self, name: str, bug: Bug) -> None:
        super().__init__(name, str(bug.path))
        self._bug = bug

    def get_code(self, fullname: str) -> CodeType:
        del fullname
        return compile(self._bug.source(), self.path, "exec", dont_inherit=True)


class _Finder(MetaPathFinder):
    def __init__(self, name: str, bug: Bug) -> None:
        self._name = name
        self._bug = bug

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname != self._name:
            return None
        spec = PathFinder.find_spec(fullname, path, target)
        assert spec is not None
        spec.loader = _Loader(fullname, self._bug)
        return spec
