"""What is shipped, without Spark: the two files work alone, and say what does not fit."""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

import kraftlog
from kraftlog.spark import shim, shipment


@pytest.fixture
def files(tmp_path: Path) -> Path:
    """A directory as Spark's files are on an executor."""
    library, archive = shipment._stage(None)
    (tmp_path / library.name).symlink_to(library)
    (tmp_path / archive.name).write_bytes(archive.read_bytes())
    return tmp_path


def archive_of(files: Path) -> Path:
    (archive,) = files.glob("*.zip")
    return archive


def run(files: Path, code: str) -> subprocess.CompletedProcess[str]:
    """In an interpreter that has nothing but what was shipped, and the standard library."""
    return subprocess.run(
        [sys.executable, "-I", "-S", "-c", f"import sys; sys.path.insert(0, {str(archive_of(files))!r})\n{code}"],
        capture_output=True,
        text=True,
        check=False,
    )


def rewrite(files: Path, name: str, old: str, new: str) -> None:
    archive = archive_of(files)
    with zipfile.ZipFile(archive) as source:
        members = {member: source.read(member) for member in source.namelist()}
    assert old.encode() in members[name]
    members[name] = members[name].replace(old.encode(), new.encode())
    with zipfile.ZipFile(archive, "w") as target:
        for member, data in members.items():
            target.writestr(member, data)


def test_what_is_shipped_reads_logs_without_anything_installed(files: Path) -> None:
    done = run(
        files,
        "import kraftlog.reading, kraftlog._kraftlog as native\n"
        "print(kraftlog.__file__, native.__file__, native.__name__, native.crc32c.__module__)\n"
        "print(native.crc32c(b'123456789'))",
    )
    assert done.returncode == 0, done.stderr
    package, library, *rest = done.stdout.split()
    assert package == f"{archive_of(files)}/kraftlog/__init__.py"
    assert library == str(files / shim.LIBRARY)
    assert rest == ["kraftlog._kraftlog", "kraftlog._kraftlog", str(0xE3069283)]


def test_the_library_is_importable_alone(files: Path) -> None:
    done = run(files, f"sys.path[0] = {str(files)!r}\nimport _kraftlog; print(_kraftlog.crc32c(b'123456789'))")
    assert done.stdout.strip() == str(0xE3069283), done.stderr


@pytest.mark.parametrize(
    ("name", "old", "new", "reason"),
    [
        ("kraftlog/spark/shipped_facts.py", "MACHINE = ", "MACHINE = 'sparc64' or ", "is for Linux on sparc64"),
        ("kraftlog/_kraftlog.py", "(3, 11)", "(3, 99)", "is for CPython 3.99 and later"),
        ("kraftlog/_kraftlog.py", "_kraftlog.abi3.so", "_other.abi3.so", "_other.abi3.so is not among Spark's files"),
    ],
)
def test_what_does_not_fit_names_both_sides(files: Path, name: str, old: str, new: str, reason: str) -> None:
    rewrite(files, name, old, new)
    done = run(files, "import kraftlog.reading")
    assert f"ImportError: {'the shipped library ' if new != '_other.abi3.so' else ''}{reason}" in done.stderr
    assert f"Shipped: kraftlog {shipment._version()} for Linux on " in done.stderr
    assert f"from a driver on {shim.this_process()}" in done.stderr
    assert f"This process: {sys.executable} on " in done.stderr


def test_a_library_that_does_not_load_says_why(files: Path) -> None:
    (files / shim.LIBRARY).unlink()
    (files / shim.LIBRARY).write_bytes(b"\x7fELF")
    assert "the shipped library does not load" in run(files, "import kraftlog.reading").stderr


def test_the_same_package_makes_the_same_zip(files: Path) -> None:
    shipment._stage.cache_clear()
    assert shipment._stage(None)[1].read_bytes() == archive_of(files).read_bytes()


def test_machines_are_read_from_the_library(tmp_path: Path) -> None:
    library = Path(str(kraftlog._kraftlog.__file__))
    header = bytearray(library.read_bytes()[:64])
    file = tmp_path / "library"
    for number, machine in shipment.MACHINES.items():
        header[18:20] = number.to_bytes(2, "little")
        file.write_bytes(header)
        assert shipment.machine_of(file) == machine
    header[18:20] = (243).to_bytes(2, "little")  # RISC-V
    for content in (bytes(header), b"", b"MZ" + bytes(100), b"\xcf\xfa\xed\xfe" + bytes(60)):
        file.write_bytes(content)
        with pytest.raises(shipment.ShipError, match="not a library for Linux on x86_64 or aarch64"):
            shipment.machine_of(file)


def test_a_wheel_can_be_shipped_and_has_to_be_of_the_same_version(tmp_path: Path) -> None:
    version = shipment._version()
    wheel = tmp_path / f"kraftlog-{version}-cp311-abi3-manylinux_2_28_x86_64.whl"
    with zipfile.ZipFile(wheel, "w") as out:
        for name, data in shipment._installed():
            out.writestr(name, data)
        out.writestr(f"kraftlog-{version}.dist-info/METADATA", "")
    library, archive = shipment._stage(str(wheel))
    ours = shipment._stage(None)
    assert library.read_bytes() == ours[0].read_bytes()
    with zipfile.ZipFile(archive) as one, zipfile.ZipFile(ours[1]) as other:
        assert sorted(one.namelist()) == sorted(other.namelist())
    older = wheel.rename(tmp_path / "kraftlog-0.0.1-cp311-abi3-manylinux_2_28_x86_64.whl")
    with pytest.raises(shipment.ShipError, match=r"is of version 0\.0\.1, but this is kraftlog"):
        shipment._stage(str(older))
    other_abi = tmp_path / f"kraftlog-{version}-cp314-cp314t-manylinux_2_28_x86_64.whl"
    with zipfile.ZipFile(other_abi, "w") as out:
        out.writestr("kraftlog/_kraftlog.cpython-314t-x86_64-linux-gnu.so", "")
    with pytest.raises(shipment.ShipError, match=r"has no _kraftlog\.abi3\.so"):
        shipment._stage(str(other_abi))
