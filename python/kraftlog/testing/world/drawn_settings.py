"""Settings that an operator changes in drawn runs; every rule that is checked holds with each of them."""

from __future__ import annotations

from random import Random
from typing import Final

__all__ = ["DEFAULT", "draw_broker_setting", "draw_topic_setting"]

# Takes a setting back.
DEFAULT: Final = "default"

_CODECS: Final = ("producer", "uncompressed", "gzip", "snappy", "lz4", "zstd")
_NEVER: Final = 2**63 - 1
_ROLLS_MS: Final = (300, 3_000, 604_800_000)
# Bytes per second. What drawn runs write is caught up with within some seconds.
_RATES: Final = (20_000, 1_000_000)
_TOPIC: Final[dict[str, tuple[str | int | float, ...]]] = {
    "compression.type": _CODECS,
    "file.delete.delay.ms": (0, 1_000),
    "flush.messages": (1, 20, _NEVER),
    "flush.ms": (10, 1_000),
    "follower.replication.throttled.replicas": ("*",),
    "index.interval.bytes": (0, 200),
    "leader.replication.throttled.replicas": ("*",),
    "max.message.bytes": (500_000, 2_000_000),
    "message.timestamp.type": ("CreateTime", "LogAppendTime"),
    "min.cleanable.dirty.ratio": (0.01, 0.9),
    "min.insync.replicas": (1, 2, 3),
    "segment.bytes": (1_048_576,),
    "segment.index.bytes": (200,),
    "segment.jitter.ms": (200,),
    "segment.ms": _ROLLS_MS,
}
_BROKER: Final[dict[str, tuple[str | int | float, ...]]] = {
    "compression.type": _CODECS,
    "follower.replication.throttled.rate": _RATES,
    "leader.replication.throttled.rate": _RATES,
    "log.cleaner.backoff.ms": (200, 2_000),
    "log.cleaner.threads": (1, 2),
    "log.flush.interval.messages": (1, 20),
    "log.index.interval.bytes": (200,),
    "log.roll.ms": _ROLLS_MS,
    "message.max.bytes": (500_000, 2_000_000),
    "num.replica.fetchers": (1, 2),
}


def draw_topic_setting(rng: Random) -> dict[str, str | int | float]:
    """A setting of a topic and its value, ``DEFAULT`` among them."""
    return _draw(rng, _TOPIC)


def draw_broker_setting(rng: Random) -> dict[str, str | int | float]:
    """A setting of one broker or of all, and its value, ``DEFAULT`` among them."""
    return _draw(rng, _BROKER)


def _draw(rng: Random, settings: dict[str, tuple[str | int | float, ...]]) -> dict[str, str | int | float]:
    name = rng.choice(sorted(settings))
    return {"name": name, "value": rng.choice((*settings[name], DEFAULT))}
