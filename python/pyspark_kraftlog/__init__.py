"""What PySpark finds by itself: ``spark.read.format("kraftlog")`` and ``USING kraftlog`` without ``register()``.

Spark looks for top-level packages whose names begin with ``pyspark_`` and takes their ``DefaultSource``, under the name
that the source itself gives.
"""

from __future__ import annotations

from kraftlog.spark.data_source import KraftlogDataSource as DefaultSource

__all__ = ["DefaultSource"]
