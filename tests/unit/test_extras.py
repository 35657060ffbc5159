"""A package that is not installed: each use of an extra names the command that installs it."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import kraftlog
from engine_logs import write_logs
from kraftlog.cli.__main__ import main


@pytest.fixture(scope="module")
def log_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_logs(tmp_path_factory.mktemp("logs"))


@pytest.fixture
def hide(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Makes packages look as if they were not installed; modules that imported them are imported again."""

    def hide_all(*packages: str) -> None:
        # fsspec keeps the classes of the drivers that it found once.
        forgotten = {*packages, "fsspec"} if "s3fs" in packages else set(packages)
        for name in list(sys.modules):
            if name.partition(".")[0] in forgotten:
                monkeypatch.delitem(sys.modules, name)
        for package in packages:
            monkeypatch.setitem(sys.modules, package, None)

    return hide_all


USES: list[tuple[str, str, Callable[[kraftlog.reading.Scan], object]]] = [
    ("pyarrow", "arrow", lambda scan: scan.dataset()),
    ("polars", "polars", lambda scan: scan.polars()),
    ("duckdb", "duckdb", lambda scan: scan.duckdb(None)),
    ("pyarrow", "duckdb", lambda scan: scan.duckdb(None)),
    ("datafusion", "datafusion", lambda scan: scan.datafusion(None, "logs")),
    ("pyspark", "spark", lambda _: kraftlog.spark.register(None)),
    ("pyarrow", "spark", lambda _: kraftlog.spark.scan(None, "logs")),
]


@pytest.mark.parametrize(("package", "extra", "use"), USES, ids=[f"{extra}-{package}" for package, extra, _ in USES])
def test_a_missing_package_names_the_pip_command(log_dir, hide, package, extra, use):
    import kraftlog.spark

    scan = kraftlog.scan(log_dir)
    hide(package)
    with pytest.raises(ModuleNotFoundError, match=re.escape(f"pip install 'kraftlog[{extra}]'")) as caught:
        use(scan)
    assert package in str(caught.value)
    assert caught.value.name == package


def test_producing_from_spark_names_the_pip_command(hide):
    from kraftlog.spark import write_produce

    hide("confluent_kafka")
    with pytest.raises(ModuleNotFoundError, match=r"confluent_kafka.*pip install 'kraftlog\[produce\]'"):
        write_produce._import_client()


@pytest.mark.parametrize(
    ("hidden", "url", "options", "expected"),
    [
        (
            ("fsspec", "pyarrow"),
            "s3://bucket/logs",
            None,
            "reading s3:// needs s3fs or pyarrow, which are not installed: "
            "pip install 'kraftlog[remote]' s3fs, or pip install 'kraftlog[arrow]'",
        ),
        (
            ("s3fs",),
            "s3://bucket/logs",
            {"anon": True},
            "reading s3:// needs s3fs or pyarrow, which are not installed: "
            "pip install 'kraftlog[remote]' s3fs, or pip install 'kraftlog[arrow]'",
        ),
        (
            ("fsspec", "pyarrow"),
            "memory://logs",
            None,
            "reading memory:// needs fsspec, which is not installed: pip install 'kraftlog[remote]'",
        ),
        (
            ("pyarrow",),
            "hdfs://host/logs",
            None,
            "reading hdfs:// needs pyarrow, which is not installed: pip install 'kraftlog[arrow]'",
        ),
    ],
)
def test_a_missing_library_of_a_url_names_the_pip_command(hide, hidden, url, options, expected):
    hide(*hidden)
    with pytest.raises(ModuleNotFoundError, match=re.escape(expected) + r"\Z"):
        kraftlog.scan(url, storage_options=options)


def test_commands_name_the_pip_command(log_dir, hide, tmp_path, capsys):
    hide("pyarrow", "confluent_kafka")
    assert main(["demo"]) == 1
    assert capsys.readouterr().err == (
        "kraftlog demo needs confluent_kafka and pyarrow, which are not installed: pip install 'kraftlog[demo]'\n"
    )
    assert main(["dump-log", str(log_dir), "--parquet", str(tmp_path / "records.parquet")]) == 1
    assert "--parquet needs pyarrow, which is not installed: pip install 'kraftlog[arrow]'" in capsys.readouterr().err


def test_the_command_says_its_version(capsys):
    with pytest.raises(SystemExit) as ended:
        main(["--version"])
    assert ended.value.code == 0
    assert capsys.readouterr().out == f"kraftlog {kraftlog.__version__}\n"
