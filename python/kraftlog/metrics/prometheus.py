"""Metrics as Prometheus reads them: text format 0.0.4, with names as the JMX exporter makes them from Kafka's beans."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator

from kraftlog.metrics.histogram import HistogramValue
from kraftlog.metrics.meter import MeterValue
from kraftlog.metrics.registry import MetricsSnapshot, Reading

__all__ = ["CONTENT_TYPE", "to_prometheus_text"]

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_NOT_IN_NAMES = re.compile(r"[^a-zA-Z0-9_]")


def to_prometheus_text(snapshot: MetricsSnapshot) -> str:
    """The text of a scrape.

    ``kafka.server``, ``raft-metrics``, ``current-leader`` becomes ``kafka_server_raft_metrics_current_leader``. A text
    becomes a label: with few choices there is one sample for each, of which one is 1.
    """
    lines: list[str] = []
    for group, readings in snapshot.groups:
        prefix = f"{group.domain}_{group.name}_"
        described = ""
        for reading in readings:
            name = _NOT_IN_NAMES.sub("_", prefix + reading.name).lower()
            if isinstance(reading.value, MeterValue):
                name += "_total"
            if name != described:
                lines.append(f"# HELP {name} {_escaped(reading.description, quote=False)}")
                lines.append(f"# TYPE {name} {_type_of(reading)}")
                described = name
            lines += _samples(name, reading)
    lines.append("")
    return "\n".join(lines)


def _type_of(reading: Reading) -> str:
    if isinstance(reading.value, HistogramValue):
        return "summary"
    return "counter" if reading.is_counter or isinstance(reading.value, MeterValue) else "gauge"


def _samples(name: str, reading: Reading) -> Iterator[str]:
    value = reading.value
    match value:
        case str():
            if reading.choices:
                label = reading.name.rpartition("-")[2]
                for choice in reading.choices:
                    yield f"{name}{_labels(reading, (label, choice))} {int(choice == value)}"
            else:
                label = _NOT_IN_NAMES.sub("_", reading.name).lower()
                yield f"{name}{_labels(reading, (label, value))} 1"
        case HistogramValue():
            for quantile, at in value.quantiles:
                yield f"{name}{_labels(reading, ('quantile', str(quantile)))} {_number(at)}"
            yield f"{name}_sum{_labels(reading)} {_number(value.total)}"
            yield f"{name}_count{_labels(reading)} {value.count}"
        case MeterValue():
            yield f"{name}{_labels(reading)} {value.count}"
        case _:
            yield f"{name}{_labels(reading)} {_number(value)}"


def _labels(reading: Reading, *more: tuple[str, str]) -> str:
    pairs = [(_NOT_IN_NAMES.sub("_", key), value) for key, value in (*reading.tags, *more)]
    return "{" + ",".join(f'{key}="{_escaped(value)}"' for key, value in pairs) + "}" if pairs else ""


def _escaped(text: str, *, quote: bool = True) -> str:
    text = text.replace("\\", "\\\\").replace("\n", "\\n")
    return text.replace('"', '\\"') if quote else text


def _number(value: float) -> str:
    if math.isnan(value):
        return "NaN"
    if math.isinf(value):
        return "+Inf" if value > 0 else "-Inf"
    return repr(value)
