"""``kraftlog produce``: lines of standard input, or the rows of a Parquet file, to a topic."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from kraftlog.cli.client_options import add_client_arguments, client_properties
from kraftlog.client import BatchDelivery, Producer
from kraftlog.extras import require

__all__ = ["add_arguments", "run"]


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the arguments."""
    add_client_arguments(parser)
    parser.add_argument("--topic", required=True, help="the topic")
    parser.add_argument("--key-separator", metavar="TEXT", help="what stands between key and value in a line")
    parser.add_argument(
        "--input",
        type=Path,
        metavar="FILE.parquet",
        help="a Parquet file with the columns value and maybe key, headers, timestamp and partition (needs pyarrow)",
    )


def run(args: argparse.Namespace) -> int:
    """Send everything, and say how much that was.

    Raises:
        KraftlogError: A batch was not delivered.
    """
    count = 0

    def delivered(batch: BatchDelivery) -> None:
        nonlocal count
        count += batch.record_count

    with Producer(client_properties(args), on_delivery=delivered) as producer:
        if args.input is not None:
            require("arrow", "kraftlog produce --input")
            import pyarrow.parquet as pq

            for batch in pq.ParquetFile(args.input).iter_batches():
                producer.send_table(args.topic, batch)
        else:
            for line in sys.stdin.buffer:
                text = line.rstrip(b"\r\n")
                key = None
                if args.key_separator is not None:
                    key, found, rest = text.partition(args.key_separator.encode())
                    key, text = (key, rest) if found else (None, text)
                producer.send(args.topic, text, key=key)
        producer.flush()
    print(f"{count} records delivered", file=sys.stderr)
    return 0
