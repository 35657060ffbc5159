"""Send kraftlog to executors that have only pyspark and pyarrow.

Two files go: the compiled library, which serves every CPython from 3.11 on (abi3), and a zip of the Python part. A zip
cannot hold the library, since Python loads no shared objects from one; so the zip has ``shim.py`` in the library's
place, which loads the file beside the zip.
"""

from __future__ import annotations

import atexit
import os
import shutil
import sys
import tempfile
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from kraftlog.errors import KraftlogError
from kraftlog.spark import shim

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["ShipError", "Shipped", "ship"]

PACKAGES = ("kraftlog", "pyspark_kraftlog")
# e_machine of an ELF header, by the names of platform.machine().
MACHINES = {62: "x86_64", 183: "aarch64"}


class ShipError(KraftlogError):
    """What is installed here cannot be sent, or does not fit this driver."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Shipped:
    """What a session was given.

    Args:
        session: ``classic`` (files of a SparkContext) or ``connect`` (artifacts of a Spark Connect session).
        files: Names of the files, as they stand on the executors.
        size_bytes: Of all files together.
        version: Of kraftlog.
        machine: What the library was compiled for, ``x86_64`` or ``aarch64``; the system is Linux.
    """

    session: Literal["classic", "connect"]
    files: tuple[str, ...]
    size_bytes: int
    version: str
    machine: str


_shipped: dict[str, Shipped] = {}  # by SparkContext or Connect session


def ship(spark: SparkSession, *, wheel: str | os.PathLike[str] | None = None) -> Shipped:
    """Gives the executors of a session kraftlog, and registers our formats.

    The executors need pyarrow, Linux and CPython 3.11 or later, and no kraftlog; what is shipped goes before what is
    installed there, so that driver and executors run the same version. Call it before any frame or function of
    kraftlog is made: it has no effect on earlier ones. A second call only registers again.

    A streaming query over Spark Connect does not see the artifacts of its session: there the wheel has to be installed
    on the server and the executors.

    Args:
        spark: A classic or a Spark Connect session.
        wheel: Take library and Python part from this wheel file, of the version that is installed here: for a client
            on another system than the server, which only Spark Connect allows.

    Raises:
        ShipError: There is no library for Linux on x86-64 or aarch64, it does not fit the driver of a classic session,
            or the wheel is of another version.
    """
    from kraftlog.spark.data_source import register

    session: Any = spark
    is_connect = type(spark).__module__.startswith("pyspark.sql.connect.")
    key = session.session_id if is_connect else session.sparkContext.applicationId
    found = _shipped.get(key)
    if found is None:
        library, archive = _stage(None if wheel is None else os.path.abspath(wheel))
        machine = machine_of(library)
        if is_connect:
            _add_artifacts(session, library, archive)
        else:
            _add_files(session.sparkContext, library, archive, machine)
        found = _shipped[key] = Shipped(
            session="connect" if is_connect else "classic",
            files=(library.name, archive.name),
            size_bytes=library.stat().st_size + archive.stat().st_size,
            version=_version(),
            machine=machine,
        )
    register(spark)
    if is_connect:
        session.dataSource.register(_source_of_connect())
    return found


def machine_of(library: Path) -> str:
    """What a Linux library was compiled for, by its ELF header (e_machine; 64 bits, little-endian).

    Raises:
        ShipError: It is none for Linux on x86-64 or aarch64.
    """
    with library.open("rb") as file:
        header = file.read(20)
    if len(header) == 20 and header[:6] == b"\x7fELF\x02\x01":
        machine = MACHINES.get(int.from_bytes(header[18:20], "little"))
        if machine is not None:
            return machine
    message = (
        f"{library.name} is not a library for Linux on {' or '.join(MACHINES.values())}, which executors need: "
        "give the wheel for Linux with ship(spark, wheel=...)"
    )
    raise ShipError(message)


def _add_files(context: Any, library: Path, archive: Path, machine: str) -> None:
    reason = shim.misfit(machine)
    if reason is not None:
        message = (
            f"{reason}; this driver, which plans reads with it, is {shim.this_process()}: use Spark Connect, or a "
            "driver like the executors"
        )
        raise ShipError(message)
    context.addFile(str(library))
    with _unchanged_path():
        context.addPyFile(str(archive))
    # The process that plans a streaming query on the driver gets the environment, but not the files, of the context.
    # Executors have no such path, which Python passes over.
    environment: dict[str, str] = context.environment
    environment["PYTHONPATH"] = os.pathsep.join(filter(None, [environment.get("PYTHONPATH"), str(archive)]))


def _add_artifacts(session: Any, library: Path, archive: Path) -> None:
    session.addArtifacts(str(library), file=True)
    with _unchanged_path():
        session.addArtifacts(str(archive), pyfile=True)


def _source_of_connect() -> type:
    """The format ``kraftlog`` in a class that is sent by value, so that it can speak where kraftlog is not.

    That is in a streaming query of Spark Connect, whose processes see no artifacts of the session.
    """
    from pyspark.sql.datasource import DataSource

    class ShippedDataSource(DataSource):  # type: ignore[misc]  # pyspark is not typed
        @classmethod
        def name(cls) -> str:
            return "kraftlog"

        def _source(self) -> Any:
            try:
                from kraftlog.spark.data_source import KraftlogDataSource
            except ModuleNotFoundError as error:
                message = (
                    f"{error}: streaming queries of Spark Connect do not see what kraftlog.spark.ship sent to their "
                    "session; install the kraftlog wheel on the server and on the executors"
                )
                raise ImportError(message) from error
            return KraftlogDataSource(self.options)

        def schema(self) -> Any:
            return self._source().schema()

        def reader(self, schema: Any) -> Any:
            return self._source().reader(schema)

        def writer(self, schema: Any, overwrite: bool) -> Any:
            return self._source().writer(schema, overwrite)

        def streamReader(self, schema: Any) -> Any:  # noqa: N802 - Spark's name
            return self._source().streamReader(schema)

        def streamWriter(self, schema: Any, overwrite: bool) -> Any:  # noqa: N802 - Spark's name
            return self._source().streamWriter(schema, overwrite)

    return ShippedDataSource


@contextmanager
def _unchanged_path() -> Iterator[None]:
    """Spark puts py-files on the path of the driver too, whose kraftlog is the installed one."""
    before = list(sys.path)
    try:
        yield
    finally:
        sys.path[:] = before


@cache
def _stage(wheel: str | None) -> tuple[Path, Path]:
    """Library and zip in a directory that lives as long as this process: executors fetch them when they start."""
    directory = Path(tempfile.mkdtemp(prefix="kraftlog-ship-"))
    atexit.register(shutil.rmtree, directory, ignore_errors=True)
    version = _version()
    members = dict(_installed() if wheel is None else _of_wheel(Path(wheel), version))
    library, archive = directory / shim.LIBRARY, directory / f"kraftlog-{version}.zip"
    binary, shim_text = members.get(f"kraftlog/{shim.LIBRARY}"), members.get("kraftlog/spark/shim.py")
    if binary is None or shim_text is None:
        lacking = shim.LIBRARY if binary is None else "Python part in a directory"
        message = f"{wheel or 'the kraftlog that runs here'} has no {lacking}: install the abi3 wheel on the driver"
        raise ShipError(message)
    library.write_bytes(binary)
    facts = {"VERSION": version, "MACHINE": machine_of(library), "DRIVER": shim.this_process()}
    members["kraftlog/_kraftlog.py"] = shim_text
    members["kraftlog/spark/shipped_facts.py"] = "".join(
        f"{name} = {value!r}\n" for name, value in facts.items()
    ).encode()
    with zipfile.ZipFile(archive, "w") as out:
        for name, data in members.items():
            if name.endswith(".py"):
                # Without the date: the same files make the same zip, and Spark Connect compares contents.
                out.writestr(zipfile.ZipInfo(name), data, compress_type=zipfile.ZIP_DEFLATED)
    return library, archive


def _installed() -> Iterator[tuple[str, bytes]]:
    from importlib.util import find_spec

    from kraftlog import _kraftlog

    library = Path(str(_kraftlog.__file__))
    yield f"kraftlog/{library.name}", library.read_bytes()
    for package in PACKAGES:
        spec = find_spec(package)
        for root in (spec.submodule_search_locations or ()) if spec else ():
            for path in sorted(Path(root).rglob("*.py")):
                yield f"{package}/{path.relative_to(root).as_posix()}", path.read_bytes()


def _of_wheel(path: Path, version: str) -> Iterator[tuple[str, bytes]]:
    of_wheel = path.name.split("-")[1:2]
    if of_wheel != [version]:
        message = f"{path} is of version {''.join(of_wheel) or 'unknown'}, but this is kraftlog {version}"
        raise ShipError(message)
    with zipfile.ZipFile(path) as wheel:
        for name in sorted(wheel.namelist()):
            if name.split("/")[0] in PACKAGES:
                yield name, wheel.read(name)


def _version() -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version("kraftlog")
    except PackageNotFoundError:  # a source tree that is only on PYTHONPATH
        return "0+source"
