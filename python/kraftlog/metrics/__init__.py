"""Metrics of a node under Kafka's names: read in process, or as Prometheus text over HTTP.

Nothing here knows where events come from: the server hands them in.
"""

from kraftlog.metrics.histogram import HistogramValue
from kraftlog.metrics.meter import MeterValue
from kraftlog.metrics.prometheus import to_prometheus_text
from kraftlog.metrics.registry import Metrics, MetricsSnapshot, MetricValue

__all__ = ["HistogramValue", "MeterValue", "MetricValue", "Metrics", "MetricsSnapshot", "to_prometheus_text"]
