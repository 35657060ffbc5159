"""Which interpreter Spark starts for the Python workers of a local session."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["use_driver_python"]


def use_driver_python(spark: SparkSession | None) -> None:
    """Let the workers of a local session be started with the driver's interpreter unless the user names another one.

    PySpark starts ``python3`` of the PATH, which is the system's and has no kraftlog if the driver runs in a virtual
    environment that is not activated. Sessions of a cluster are left alone: the driver's path may not exist there.
    Those of Spark Connect have no context, and their server decides.

    Args:
        spark: The session; None does nothing.
    """
    context = getattr(spark, "_sc", None)
    if context is None or "PYSPARK_PYTHON" in os.environ or not context.master.startswith("local"):
        return
    if context.getConf().get("spark.pyspark.python") is None:
        context.pythonExec = sys.executable
