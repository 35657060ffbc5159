"""Runs queries on a Sail server in this process, for the tests: Sail 0.7 refuses the PySpark of the others.

Standard input has one JSON object: ``path`` and ``queries``, each with ``name``, ``options`` and perhaps ``schema``,
``where`` and ``columns``. Each answer is an Arrow file ``name.arrow`` in ``path``, or ``name.error`` with the text of
the error.
"""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa
from pysail.spark import SparkConnectServer
from pyspark.sql import SparkSession

import kraftlog.spark


def answer(spark: SparkSession, query: dict[str, Any]) -> pa.Table:
    reader = spark.read.format("kraftlog").options(**query["options"])
    if "schema" in query:
        reader = reader.schema(query["schema"])
    frame = reader.load()
    if "where" in query:
        frame = frame.where(query["where"])
    if "columns" in query:
        frame = frame.selectExpr(*query["columns"])
    return frame.toArrow()


def main() -> None:
    task = json.load(sys.stdin)
    out = Path(task["path"])
    server = SparkConnectServer("127.0.0.1", 0)
    server.start(background=True)
    _, port = server.listening_address
    spark = SparkSession.builder.remote(f"sc://127.0.0.1:{port}").getOrCreate()
    spark.conf.set("spark.sql.session.timeZone", "UTC")
    kraftlog.spark.register(spark)
    for query in task["queries"]:
        started = os.times()
        begun = time.monotonic()
        try:
            table = answer(spark, query)
        except Exception as error:  # noqa: BLE001 - the text is the answer
            (out / f"{query['name']}.error").write_text(str(error))
            continue
        used = os.times()
        with (
            pa.OSFile(str(out / f"{query['name']}.arrow"), "wb") as file,
            pa.ipc.new_file(file, table.schema) as writer,
        ):
            writer.write_table(table)
        cpu = used.user - started.user + used.system - started.system
        print(json.dumps({"name": query["name"], "cpu_s": cpu, "wall_s": time.monotonic() - begun}), flush=True)
    spark.stop()
    server.stop()


if __name__ == "__main__":
    main()
