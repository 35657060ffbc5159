"""Packages that are optional: what each extra of the distribution installs, and the error if it is missing."""

from __future__ import annotations

from importlib.util import find_spec

__all__ = ["MODULES", "pip_command", "require"]

# Extra of pyproject.toml -> the modules that kraftlog itself imports of it.
MODULES: dict[str, tuple[str, ...]] = {
    "arrow": ("pyarrow",),
    "datafusion": ("datafusion", "pyarrow"),
    "demo": ("confluent_kafka", "pyarrow"),
    "duckdb": ("duckdb", "pyarrow"),
    "polars": ("polars",),
    "produce": ("confluent_kafka",),
    "remote": ("fsspec",),
    "spark": ("pyspark", "pyarrow"),
}


def pip_command(*extras: str) -> str:
    """The command that installs these extras."""
    return f"pip install 'kraftlog[{','.join(extras)}]'"


def require(extra: str, feature: str) -> None:
    """Raise if a module of an extra cannot be found; nothing is imported.

    Args:
        extra: A name of :data:`MODULES`.
        feature: What needs it, as the user wrote it: ``Scan.polars()``.

    Raises:
        ModuleNotFoundError: It names the missing modules and the command that installs them.
    """
    missing = [module for module in MODULES[extra] if find_spec(module) is None]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        message = f"{feature} needs {' and '.join(missing)}, which {verb} not installed: {pip_command(extra)}"
        raise ModuleNotFoundError(message, name=missing[0])
