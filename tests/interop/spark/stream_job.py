"""A streaming query as users run it, in a process of its own that can be killed: log directory to Parquet files.

python stream_job.py LOGS OUTPUT CHECKPOINT
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

import kraftlog.spark


def main(logs: str, output: str, checkpoint: str) -> None:
    spark = (
        SparkSession.builder.master("local[2,4]")  # a task may fail three times
        .appName("kraftlog-stream-job")
        .config("spark.driver.host", "127.0.0.1")
        .config("spark.driver.bindAddress", "127.0.0.1")
        .config("spark.driver.memory", "512m")
        .config("spark.sql.codegen.wholeStage", "false")
        .config("spark.ui.enabled", "false")
        .config("spark.ui.showConsoleProgress", "false")
        .config("spark.sql.streaming.fileSink.log.compactInterval", "5")
        .getOrCreate()
    )
    kraftlog.spark.register(spark)
    records = (
        spark.readStream.format("kraftlog")
        .option("path", logs)
        .option("subscribePattern", "killed.*")
        .option("startingOffsets", "earliest")
        .option("maxOffsetsPerTrigger", "20000")
        .option("minPartitions", "3")
        .load()
        .select("topic", "partition", "offset", "value")
    )
    query = (
        records.writeStream.format("parquet")
        .option("path", output)
        .option("checkpointLocation", checkpoint)
        .trigger(processingTime="200 milliseconds")
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])
