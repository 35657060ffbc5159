"""A scan as a DataFusion table: a pyarrow data set whose fragments are the partitions of a plan."""

from __future__ import annotations

import datafusion

from kraftlog.reading.arrow_dataset import LogDataset
from kraftlog.reading.arrow_scan import ArrowScan

__all__ = ["table"]


def table(
    scan: ArrowScan, context: datafusion.SessionContext, name: str, *, splits: int | None
) -> datafusion.DataFrame:
    """As :meth:`Scan.datafusion` says."""
    dataset = LogDataset(scan.narrowed(threads=1), splits=splits)
    if context.table_exist(name):
        context.deregister_table(name)
    context.register_dataset(name, dataset)
    return context.table(name)
