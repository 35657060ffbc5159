"""Generate ``python/kraftlog/config_facts.py`` from the facts about Kafka's configuration.

Definitions come from ``tests/golden/protocol-facts.json.gz``. What that file does not hold (which keys change while
a broker runs, which broker keys a topic key falls back to, which lists may not be empty) was read out of the classes
of Kafka 4.3.1 (``DynamicBrokerConfig``, ``ServerTopicConfigSynonyms``, ``ConfigDef.ValidList``, ``GroupConfig``) by
calling them, and stands here.

    python .ci/generate_config_table.py            write the file
    python .ci/generate_config_table.py --check    exit 1 when the committed file differs
"""

from __future__ import annotations

import gzip
import json
import sys
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
FACTS = ROOT / "tests" / "golden" / "protocol-facts.json.gz"
TARGET = ROOT / "python" / "kraftlog" / "config_facts.py"

# kraftlog's own keys, in the form of the facts table.
OWN_BROKER_KEYS: list[dict[str, Any]] = [
    {
        "name": "controller.quorum.fetch.wait.max.ms",
        "type": "INT",
        "default": 500,
        "valid": "[1,...]",
        "importance": "MEDIUM",
    },
    {"name": "log.flush.on.ack", "type": "BOOLEAN", "default": True, "importance": "HIGH"},
]

GROUP_KEYS: list[dict[str, Any]] = [
    {"name": "consumer.assignment.interval.ms", "type": "INT", "default": 1000, "valid": "[0,...]"},
    {"name": "consumer.heartbeat.interval.ms", "type": "INT", "default": 5000, "valid": "[1,...]"},
    {"name": "consumer.session.timeout.ms", "type": "INT", "default": 45000, "valid": "[1,...]"},
    {"name": "share.assignment.interval.ms", "type": "INT", "default": 1000, "valid": "[0,...]"},
    {
        "name": "share.auto.offset.reset",
        "type": "STRING",
        "default": "latest",
        "valid": "[latest, earliest, by_duration:PnDTnHnMn.nS]",
    },
    {"name": "share.delivery.count.limit", "type": "INT", "default": 5, "valid": "[2,...]"},
    {"name": "share.heartbeat.interval.ms", "type": "INT", "default": 5000, "valid": "[1,...]"},
    {
        "name": "share.isolation.level",
        "type": "STRING",
        "default": "read_uncommitted",
        "valid": "[read_committed, read_uncommitted]",
    },
    {"name": "share.partition.max.record.locks", "type": "INT", "default": 2000, "valid": "[100,...]"},
    {"name": "share.record.lock.duration.ms", "type": "INT", "default": 30000, "valid": "[1000,...]"},
    {"name": "share.renew.acknowledge.enable", "type": "BOOLEAN", "default": True},
    {"name": "share.session.timeout.ms", "type": "INT", "default": 45000, "valid": "[1,...]"},
    {"name": "streams.assignment.interval.ms", "type": "INT", "default": 1000, "valid": "[0,...]"},
    {"name": "streams.heartbeat.interval.ms", "type": "INT", "default": 5000, "valid": "[1,...]"},
    {"name": "streams.initial.rebalance.delay.ms", "type": "INT", "default": 3000, "valid": "[0,...]"},
    {"name": "streams.num.standby.replicas", "type": "INT", "default": 0, "valid": "[0,...]"},
    {"name": "streams.session.timeout.ms", "type": "INT", "default": 45000, "valid": "[1,...]"},
]

# Lists that refuse to be empty.
NON_EMPTY_LISTS = frozenset(
    """
    advertised.listeners controller.listener.names group.consumer.assignors group.coordinator.rebalance.protocols
    group.share.assignors listeners log.dir log.dirs process.roles
    """.split()
)

# DynamicBrokerConfig.dynamicConfigUpdateModes.
PER_BROKER_KEYS = frozenset(
    """
    cordoned.log.dirs listener.security.protocol.map listeners principal.builder.class sasl.enabled.mechanisms
    sasl.jaas.config sasl.kerberos.kinit.cmd sasl.kerberos.min.time.before.relogin
    sasl.kerberos.principal.to.local.rules sasl.kerberos.service.name sasl.kerberos.ticket.renew.jitter
    sasl.kerberos.ticket.renew.window.factor sasl.login.refresh.buffer.seconds sasl.login.refresh.min.period.seconds
    sasl.login.refresh.window.factor sasl.login.refresh.window.jitter sasl.mechanism.inter.broker.protocol
    ssl.cipher.suites ssl.client.auth ssl.enabled.protocols ssl.endpoint.identification.algorithm
    ssl.engine.factory.class ssl.key.password ssl.keymanager.algorithm ssl.keystore.certificate.chain
    ssl.keystore.key ssl.keystore.location ssl.keystore.password ssl.keystore.type ssl.protocol ssl.provider
    ssl.secure.random.implementation ssl.trustmanager.algorithm ssl.truststore.certificates ssl.truststore.location
    ssl.truststore.password ssl.truststore.type
    """.split()
)
CLUSTER_WIDE_KEYS = frozenset(
    """
    background.threads compression.gzip.level compression.lz4.level compression.type compression.zstd.level
    config.providers follower.fetch.last.tiered.offset.enable follower.replication.throttled.rate
    group.consumer.assignment.interval.ms group.coordinator.cached.buffer.max.bytes
    group.share.assignment.interval.ms group.streams.assignment.interval.ms leader.replication.throttled.rate
    log.cleaner.backoff.ms log.cleaner.dedupe.buffer.size log.cleaner.delete.retention.ms
    log.cleaner.io.buffer.load.factor log.cleaner.io.buffer.size log.cleaner.io.max.bytes.per.second
    log.cleaner.max.compaction.lag.ms log.cleaner.min.cleanable.ratio log.cleaner.min.compaction.lag.ms
    log.cleaner.threads log.cleanup.policy log.flush.interval.messages log.flush.interval.ms
    log.index.interval.bytes log.index.size.max.bytes log.local.retention.bytes log.local.retention.ms
    log.message.timestamp.after.max.ms log.message.timestamp.before.max.ms log.message.timestamp.type
    log.preallocate log.retention.bytes log.retention.ms log.roll.jitter.ms log.roll.ms log.segment.bytes
    log.segment.delete.delay.ms max.connection.creation.rate max.connections max.connections.per.ip
    max.connections.per.ip.overrides message.max.bytes metric.reporters min.insync.replicas num.io.threads
    num.network.threads num.recovery.threads.per.data.dir num.replica.fetchers producer.id.expiration.ms
    remote.fetch.max.wait.ms remote.list.offsets.request.timeout.ms remote.log.index.file.cache.total.size.bytes
    remote.log.manager.copier.thread.pool.size remote.log.manager.copy.max.bytes.per.second
    remote.log.manager.expiration.thread.pool.size remote.log.manager.fetch.max.bytes.per.second
    remote.log.manager.follower.thread.pool.size remote.log.reader.threads
    replica.alter.log.dirs.io.max.bytes.per.second share.coordinator.cached.buffer.max.bytes
    transaction.partition.verification.enable unclean.leader.election.enable
    """.split()
)

MINUTE_MS = 60_000
HOUR_MS = 3_600_000

# ServerTopicConfigSynonyms: topic key -> broker keys in order of precedence, with the factor to the topic key's unit.
TOPIC_SYNONYMS: dict[str, list[tuple[str, int]]] = {
    "cleanup.policy": [("log.cleanup.policy", 1)],
    "compression.gzip.level": [("compression.gzip.level", 1)],
    "compression.lz4.level": [("compression.lz4.level", 1)],
    "compression.type": [("compression.type", 1)],
    "compression.zstd.level": [("compression.zstd.level", 1)],
    "delete.retention.ms": [("log.cleaner.delete.retention.ms", 1)],
    "file.delete.delay.ms": [("log.segment.delete.delay.ms", 1)],
    "flush.messages": [("log.flush.interval.messages", 1)],
    "flush.ms": [("log.flush.interval.ms", 1), ("log.flush.scheduler.interval.ms", 1)],
    "index.interval.bytes": [("log.index.interval.bytes", 1)],
    "local.retention.bytes": [("log.local.retention.bytes", 1)],
    "local.retention.ms": [("log.local.retention.ms", 1)],
    "max.compaction.lag.ms": [("log.cleaner.max.compaction.lag.ms", 1)],
    "max.message.bytes": [("message.max.bytes", 1)],
    "message.timestamp.after.max.ms": [("log.message.timestamp.after.max.ms", 1)],
    "message.timestamp.before.max.ms": [("log.message.timestamp.before.max.ms", 1)],
    "message.timestamp.type": [("log.message.timestamp.type", 1)],
    "min.cleanable.dirty.ratio": [("log.cleaner.min.cleanable.ratio", 1)],
    "min.compaction.lag.ms": [("log.cleaner.min.compaction.lag.ms", 1)],
    "min.insync.replicas": [("min.insync.replicas", 1)],
    "preallocate": [("log.preallocate", 1)],
    "retention.bytes": [("log.retention.bytes", 1)],
    "retention.ms": [("log.retention.ms", 1), ("log.retention.minutes", MINUTE_MS), ("log.retention.hours", HOUR_MS)],
    "segment.bytes": [("log.segment.bytes", 1)],
    "segment.index.bytes": [("log.index.size.max.bytes", 1)],
    "segment.jitter.ms": [("log.roll.jitter.ms", 1), ("log.roll.jitter.hours", HOUR_MS)],
    "segment.ms": [("log.roll.ms", 1), ("log.roll.hours", HOUR_MS)],
    "unclean.leader.election.enable": [("unclean.leader.election.enable", 1)],
}

HEADER = '''"""Facts about every configuration key; read through :mod:`kraftlog.config_table`.

Generated by ``.ci/generate_config_table.py``; do not edit. One line a key, fields parted by tabs:
name, type, default (absent when null), valid values, importance, flags (``i`` internal, ``r`` required, ``e`` a list that may
not be empty, ``b`` may change for one broker while it runs, ``c`` may change for one or all).
"""

from __future__ import annotations

__all__ = ["BROKER", "GROUP", "TOPIC", "TOPIC_SYNONYMS"]
'''


def java_double(value: float) -> str:
    """The text Java's ``Double.toString`` gives, for the magnitudes that occur here."""
    if 1e-3 <= abs(value) < 1e7:
        return repr(value)
    mantissa, exponent = repr(value).split("e")
    return f"{mantissa if '.' in mantissa else mantissa + '.0'}E{int(exponent)}"


def default_text(entry: dict[str, Any]) -> str:
    """The default as ``ConfigDef.convertToString`` prints it; ``\\N`` for null."""
    value = entry.get("default")
    if value is None:
        return "\\N"
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, list):
        return ",".join(value)
    if entry["type"] == "DOUBLE":
        return java_double(float(value))
    return str(value)


def line(entry: dict[str, Any], *, broker: bool) -> str:
    name = entry["name"]
    flags = "i" * bool(entry.get("internal")) + "r" * bool(entry.get("required"))
    flags += "e" * (name in NON_EMPTY_LISTS)
    if broker:
        flags += "b" * (name in PER_BROKER_KEYS) + "c" * (name in CLUSTER_WIDE_KEYS)
    fields = [
        name,
        entry["type"],
        default_text(entry),
        entry.get("valid", ""),
        entry.get("importance", "MEDIUM"),
        flags,
    ]
    text = "\t".join(fields)
    if "\n" in text or text.count("\t") != 5:
        msg = f"cannot hold {entry!r} on one line"
        raise ValueError(msg)
    return text


def block(name: str, entries: list[dict[str, Any]], *, broker: bool) -> str:
    lines = "".join(f"{line(entry, broker=broker)}\n" for entry in sorted(entries, key=lambda entry: entry["name"]))
    return f'\n{name} = r"""\n{lines}"""\n'


def generate() -> str:
    configs = json.loads(gzip.decompress(FACTS.read_bytes()))["configs"]
    known = {entry["name"] for entry in configs["broker"]}
    missing = {key for synonyms in TOPIC_SYNONYMS.values() for key, _ in synonyms} - known
    if missing:
        msg = f"the facts do not know {sorted(missing)}"
        raise ValueError(msg)
    synonyms = "".join(
        f"{name}\t{' '.join(f'{key}*{factor}' for key, factor in keys)}\n"
        for name, keys in sorted(TOPIC_SYNONYMS.items())
    )
    return (
        HEADER
        + block("BROKER", configs["broker"] + OWN_BROKER_KEYS, broker=True)
        + block("TOPIC", configs["topic"], broker=False)
        + block("GROUP", GROUP_KEYS, broker=False)
        + f'\nTOPIC_SYNONYMS = """\n{synonyms}"""\n'
    )


def main() -> int:
    text = generate()
    if "--check" in sys.argv[1:]:
        if TARGET.read_text(encoding="utf-8") != text:
            print(f"{TARGET.relative_to(ROOT)} is not what .ci/generate_config_table.py makes", file=sys.stderr)
            return 1
        return 0
    TARGET.write_text(text, encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main())
