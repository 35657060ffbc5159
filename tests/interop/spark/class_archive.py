"""Archive the classes that Spark loads, once: for `.ci/dev jars`.

With the archive (JEP 350) a JVM of Spark needs half the processor time until its first rows. It serves every JVM whose
class path begins with that of Spark, under whatever name its home is; other ones ignore it, and work without.
"""

from __future__ import annotations

import os
import shlex
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from pyspark.sql import SparkSession

import kraftlog.spark
from batch_rows import GOLDEN
from interop.spark.jvm import ARCHIVE, PLAIN_FLAGS


def work(session: SparkSession, directory: Path) -> None:
    """What most tests do: scan, map and group rows, write and read files."""
    kraftlog.spark.register(session)
    options = {"path": str(GOLDEN / "topics" / "node-1"), "subscribe": "g-none"}
    rows = session.read.format("kraftlog").options(**options).load()
    rows.groupBy("topic").count().collect()
    rows.select("offset").mapInArrow(lambda batches: batches, "offset long").collect()
    rows.write.parquet(str(directory / "rows"))
    session.read.parquet(str(directory / "rows")).createOrReplaceTempView("rows")
    session.sql("SELECT topic, max(offset) FROM rows WHERE offset >= 0 GROUP BY topic").collect()


def main() -> None:
    """Write the archive beside the jars."""
    ARCHIVE.unlink(missing_ok=True)
    os.environ["PYSPARK_PYTHON"] = sys.executable
    os.environ["SPARK_LOCAL_IP"] = "127.0.0.1"
    beside = ARCHIVE.with_suffix(".new")
    flags = f"{PLAIN_FLAGS} -Xlog:disable {shlex.quote(f'-XX:ArchiveClassesAtExit={beside}')}"
    with tempfile.TemporaryDirectory() as directory:
        session = (
            SparkSession.builder.master("local[2]")
            .config("spark.driver.host", "127.0.0.1")
            .config("spark.driver.bindAddress", "127.0.0.1")
            .config("spark.driver.extraJavaOptions", flags)
            .config("spark.ui.enabled", "false")
            .config("spark.ui.showConsoleProgress", "false")
            .config("spark.sql.shuffle.partitions", "2")
            .getOrCreate()
        )
        session.sparkContext.setLogLevel("ERROR")
        jvm = session.sparkContext._gateway.proc
        work(session, Path(directory))
        session.stop()
        session.sparkContext._gateway.shutdown()
        jvm.stdin.close()
        jvm.wait(120)
    beside.replace(ARCHIVE)
    print(f"{ARCHIVE}: {ARCHIVE.stat().st_size / 1e6:.0f} MB")


if __name__ == "__main__":
    main()
