"""Settings of clients under Kafka's own names; one table for consumers and producers."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from kraftlog.client.state.assignors import ASSIGNORS
from kraftlog.client.state.core_context import ConsumerOptions
from kraftlog.client.state.position import ResetStrategy
from kraftlog.client.state.producer_topics import TopicOptions
from kraftlog.errors import KraftlogError

__all__ = [
    "CLIENT_KEYS",
    "ClientConfig",
    "ClientConfigError",
    "ClientKey",
    "consumer_options",
    "reset_strategy",
    "topic_options",
]

_HOST = re.compile(r"\[[0-9A-Fa-f:.%]+\]|[^\s/:\[\]]+")
_JAVA_ASSIGNORS = {
    f"org.apache.kafka.clients.consumer.{name}Assignor": short
    for name, short in (("Range", "range"), ("RoundRobin", "roundrobin"), ("CooperativeSticky", "cooperative-sticky"))
}
CONSUMER = "consumer"
PRODUCER = "producer"
BOTH = "client"


_WHOLE_NUMBER = re.compile(r"[+-]?\d{1,20}", re.ASCII)


class ClientConfigError(KraftlogError, ValueError):
    """A setting of a client is unknown, or has no such value."""


def _integer(low: int, high: int = 2**31 - 1) -> Callable[[str], int]:
    def read(text: str) -> int:
        if _WHOLE_NUMBER.fullmatch(text) is None:
            message = "must be a whole number"
            raise ValueError(message)
        number = int(text)
        if not low <= number <= high:
            message = f"must be between {low} and {high}"
            raise ValueError(message)
        return number

    return read


def _one_of(*names: str) -> Callable[[str], str]:
    def read(text: str) -> str:
        if text not in names:
            message = f"must be one of {', '.join(names)}"
            raise ValueError(message)
        return text

    return read


def _boolean(text: str) -> bool:
    return _one_of("true", "false")(text.lower()) == "true"


def _names(text: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in text.split(",") if name.strip())


def _servers(text: str) -> tuple[str, ...]:
    found = _names(text)
    for address in found:
        host, _, port = address.rpartition(":")
        if _HOST.fullmatch(host) is None or not port.isascii() or not port.isdigit() or not 0 < int(port[:6]) < 65536:
            message = f"{address!r} must have the form host:port"
            raise ValueError(message)
    return found


def _assignors(text: str) -> tuple[str, ...]:
    found = tuple(_JAVA_ASSIGNORS.get(name, name) for name in _names(text))
    unknown = [name for name in found if name not in ASSIGNORS]
    if unknown or not found:
        message = f"{', '.join(unknown) or 'nothing'} is no assignor; there are {', '.join(ASSIGNORS)}"
        raise ValueError(message)
    return found


def _acks(text: str) -> int:
    return -1 if text == "all" else int(_one_of("0", "1", "-1", "all")(text))


def _text(text: str) -> str:
    return text


@dataclass(frozen=True, slots=True)
class ClientKey:
    """One setting.

    Attributes:
        name: Kafka's.
        default: As text; None for none.
        read: From text to a value; raises ValueError.
        used_by: ``consumer``, ``producer``, or ``client`` for both.
        summary: One sentence.
    """

    name: str
    default: str | None
    read: Callable[[str], Any]
    used_by: str
    summary: str


_DURATION = re.compile(
    r"P(?:(?P<days>\d+)D)?(?:T(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)


def reset_strategy(text: str) -> ResetStrategy | None:
    """``auto.offset.reset``: earliest, latest, none, or by_duration with an ISO 8601 duration (KIP-1106).

    Raises:
        ValueError: Another text.
    """
    if text in {"earliest", "latest"}:
        return "earliest" if text == "earliest" else "latest"
    if text == "none":
        return None
    duration = _DURATION.fullmatch(text.removeprefix("by_duration:"))
    if not text.startswith("by_duration:") or duration is None or not any(duration.groups()):
        message = "must be earliest, latest, none or by_duration:<ISO 8601 duration, such as PT1H>"
        raise ValueError(message)
    parts = {name: float(number or 0) for name, number in duration.groupdict().items()}
    seconds = parts["days"] * 86_400 + parts["hours"] * 3_600 + parts["minutes"] * 60 + parts["seconds"]
    return int(seconds * 1000)


def _reset_text(text: str) -> str:
    reset_strategy(text)
    return text


_MS = _integer(0, 2**63 - 1)
_ROWS = (
    ("bootstrap.servers", None, _servers, BOTH, "Addresses, host:port separated by commas, to find the cluster by."),
    ("client.id", "", _text, BOTH, "A name that the broker logs and meters."),
    ("client.rack", "", _text, BOTH, "Rack of the client; brokers name a replica in it to fetch from (KIP-392)."),
    ("request.timeout.ms", "30000", _MS, BOTH, "Milliseconds to wait for an answer."),
    ("retry.backoff.ms", "100", _MS, BOTH, "Milliseconds before a failed request is sent again."),
    ("reconnect.backoff.ms", "50", _MS, BOTH, "Milliseconds before a node is connected to again."),
    ("reconnect.backoff.max.ms", "1000", _MS, BOTH, "Most milliseconds of the same, which doubles per failure."),
    ("socket.connection.setup.timeout.ms", "10000", _MS, BOTH, "Milliseconds to connect in."),
    ("metadata.max.age.ms", "300000", _MS, BOTH, "Milliseconds after which metadata is asked for again."),
    ("metadata.max.idle.ms", "300000", _integer(5000), PRODUCER,
     "Milliseconds without a record for a topic after which its metadata is forgotten (KIP-526)."),
    ("metadata.recovery.strategy", "rebootstrap", _one_of("rebootstrap", "none"), BOTH,
     "Whether to start again from bootstrap.servers when no known broker answers (KIP-899)."),
    ("metadata.recovery.rebootstrap.trigger.ms", "300000", _MS, BOTH, "Milliseconds without metadata before that."),
    ("security.protocol", "PLAINTEXT", _one_of("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"), BOTH,
     "How the brokers' listener is secured."),
    ("sasl.mechanism", "PLAIN", _one_of("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"), BOTH, "How to authenticate."),
    ("sasl.username", None, _text, BOTH, "User of SASL (librdkafka's name)."),
    ("sasl.password", None, _text, BOTH, "Its password (librdkafka's name)."),
    ("sasl.jaas.config", None, _text, BOTH, 'Both as Java has them: ... username="..." password="...";'),
    ("group.id", None, _text, CONSUMER, "The group whose offsets are committed and, with subscribe, shared."),
    ("group.instance.id", None, _text, CONSUMER, "Name of a static member (KIP-345)."),
    ("group.protocol", "auto", _one_of("auto", "classic", "consumer"), CONSUMER,
     "Who assigns partitions: auto takes the broker's assignor (KIP-848) where the broker offers it."),
    ("group.remote.assignor", None, _text, CONSUMER, "The broker's assignor, such as uniform or range."),
    ("partition.assignment.strategy", "range,cooperative-sticky", _assignors, CONSUMER,
     "Assignors of the classic protocol: range, roundrobin, cooperative-sticky, or their classes in Java."),
    ("session.timeout.ms", "45000", _integer(1), CONSUMER, "Milliseconds without a heartbeat before a member is out."),
    ("heartbeat.interval.ms", "3000", _integer(1), CONSUMER, "Milliseconds between heartbeats."),
    ("max.poll.interval.ms", "300000", _integer(1), CONSUMER, "Milliseconds that a member has to rejoin in."),
    ("enable.auto.commit", "true", _boolean, CONSUMER, "Commit positions by the clock and before leaving."),
    ("auto.commit.interval.ms", "5000", _MS, CONSUMER, "Milliseconds between automatic commits."),
    ("auto.offset.reset", "latest", _reset_text, CONSUMER,
     "Where to begin without an offset: earliest, latest, none, by_duration:PT1H (KIP-1106)."),
    ("exclude.internal.topics", "true", _boolean, CONSUMER,
     "Whether a pattern that the client matches leaves out internal topics, such as __consumer_offsets."),
    ("isolation.level", "read_uncommitted", _one_of("read_uncommitted", "read_committed"), CONSUMER,
     "Whether records of aborted transactions are left out."),
    ("fetch.min.bytes", "1", _MS, CONSUMER, "Bytes that the broker waits for."),
    ("fetch.max.bytes", "52428800", _integer(0), CONSUMER, "Bytes of an answer; one larger batch still comes."),
    ("fetch.max.wait.ms", "500", _integer(0), CONSUMER, "Milliseconds that the broker waits for them."),
    ("max.partition.fetch.bytes", "1048576", _integer(0), CONSUMER, "Bytes of a partition in an answer."),
    ("max.poll.records", "65536", _integer(1), CONSUMER,
     "Most rows of a poll; Kafka's default is 500, as its consumers make an object per record."),
    ("check.crcs", "true", _boolean, CONSUMER, "Compare the checksum of every batch."),
    ("allow.auto.create.topics", "true", _boolean, CONSUMER, "Whether asking for a topic may create it."),
    ("acks", "all", _acks, PRODUCER, "Replicas that have the records before they count as delivered: all, 1 or 0."),
    ("enable.idempotence", None, _boolean, PRODUCER, "No duplicates; true unless acks is not all."),
    ("compression.type", "none", _one_of("none", "gzip", "snappy", "lz4", "zstd"), PRODUCER, "Codec of batches."),
    ("compression.level", None, _integer(-(2**31)), PRODUCER, "Level of the codec; its default when absent."),
    ("compression.gzip.level", None, _integer(-(2**31)), PRODUCER, "Level of gzip; wins over compression.level."),
    ("compression.lz4.level", None, _integer(-(2**31)), PRODUCER, "Level of lz4, likewise (KIP-390)."),
    ("compression.zstd.level", None, _integer(-(2**31)), PRODUCER, "Level of zstd, likewise."),
    ("batch.size", "1048576", _integer(1, 2**30), PRODUCER,
     "Bytes of records in a batch before compression; Kafka's default is 16384."),
    ("linger.ms", "5", _MS, PRODUCER, "Milliseconds that a batch which is not full waits for more."),
    ("max.request.size", "1048576", _integer(1, 2**30), PRODUCER, "Largest batch that is sent."),
    ("buffer.memory", "33554432", _integer(1, 2**62), PRODUCER,
     "Bytes not yet acknowledged; further sends wait, for `max.block.ms` at most."),
    ("delivery.timeout.ms", "120000", _MS, PRODUCER, "Milliseconds after which a batch counts as failed."),
    ("transactional.id", None, _text, PRODUCER, "Name of the producer across restarts; a later one fences it."),
    ("transaction.timeout.ms", "60000", _integer(1), PRODUCER,
     "Milliseconds after which the coordinator aborts an open transaction."),
    ("max.block.ms", "60000", _MS, PRODUCER,
     "Milliseconds that a send waits for metadata of its topic, and for room in `buffer.memory`; and that the calls of "
     "transactions wait for coordinators."),
    ("max.in.flight.requests.per.connection", "5", _integer(1, 5), PRODUCER, "Produce requests under way per node."),
)  # fmt: skip

CLIENT_KEYS: Mapping[str, ClientKey] = {row[0]: ClientKey(*row) for row in _ROWS}
# Read by kraftlog.transport.tls_settings, which refuses what only Java's TLS has.
_TLS_KEYS = frozenset(
    """ssl.truststore.location ssl.truststore.certificates ssl.truststore.type ssl.truststore.password
    ssl.keystore.location ssl.keystore.certificate.chain ssl.keystore.key ssl.keystore.type ssl.keystore.password
    ssl.key.password ssl.endpoint.identification.algorithm ssl.enabled.protocols ssl.protocol ssl.cipher.suites
    ssl.engine.factory.class ssl.keymanager.algorithm ssl.provider ssl.secure.random.implementation
    ssl.trustmanager.algorithm""".split()
)


# What other clients call a setting that exists here.
_OTHER_NAMES = {
    "auto.commit.enable": "enable.auto.commit",
    "bootstrap.server": "bootstrap.servers",
    "compression.codec": "compression.type",
    "fetch.wait.max.ms": "fetch.max.wait.ms",
    "message.max.bytes": "max.request.size",
    "message.timeout.ms": "delivery.timeout.ms",
    "metadata.broker.list": "bootstrap.servers",
    "queue.buffering.max.kbytes": "buffer.memory",
    "queue.buffering.max.ms": "linger.ms",
    "request.required.acks": "acks",
    "request.timeout": "request.timeout.ms",
    "sasl.mechanisms": "sasl.mechanism",
    "sasl.plain.password": "sasl.password",
    "sasl.plain.username": "sasl.username",
    "socket.timeout.ms": "request.timeout.ms",
    "ssl.ca.location": "ssl.truststore.location, with ssl.truststore.type=PEM",
    "ssl.certificate.location": "ssl.keystore.location, with ssl.keystore.type=PEM",
    "ssl.key.location": "ssl.keystore.location, with ssl.keystore.type=PEM",
}
_BYTES_KEYS = frozenset(f"{part}.{work}" for part in ("key", "value") for work in ("serializer", "deserializer"))


def _hint(key: str, kind: str) -> str:
    """A key that is not known, and what its writer may have meant."""
    if key in _BYTES_KEYS:
        return f"{key} (keys and values are bytes; remove it)"
    if key == "retries":
        return f"{key} (delivery.timeout.ms bounds them; remove it)"
    if key in CLIENT_KEYS:
        return f"{key} (a setting of a {CLIENT_KEYS[key].used_by})"
    known = [name for name, found in CLIENT_KEYS.items() if found.used_by in {kind, BOTH}]
    dotted = key.replace("_", ".")
    nearest = _OTHER_NAMES.get(dotted) or next(
        iter(get_close_matches(dotted, [*known, *_TLS_KEYS], n=1, cutoff=0.8)), None
    )
    return key if nearest is None else f"{key} (did you mean {nearest}?)"


class ClientConfig:
    """The settings of one client.

    Args:
        properties: Kafka's dotted keys to their text.
        kind: ``consumer`` or ``producer``.

    Raises:
        ClientConfigError: A key is unknown to this kind of client, or a value is not one of its values, or
            ``bootstrap.servers`` is missing.
    """

    def __init__(self, properties: Mapping[str, str], kind: str) -> None:
        self.tls_properties = {key: value for key, value in properties.items() if key in _TLS_KEYS}
        unknown = [
            key
            for key in properties
            if key not in _TLS_KEYS and (key not in CLIENT_KEYS or CLIENT_KEYS[key].used_by not in {kind, BOTH})
        ]
        if unknown:
            message = f"unknown settings of a {kind}: {'; '.join(_hint(key, kind) for key in sorted(unknown))}"
            raise ClientConfigError(message)
        self._values: dict[str, Any] = {}
        self.given = frozenset(properties)
        for key in CLIENT_KEYS.values():
            text = properties.get(key.name, key.default)
            try:
                self._values[key.name] = None if text is None else key.read(text.strip())
            except ValueError as error:
                message = f"{key.name}={text}: {error}"
                raise ClientConfigError(message) from error
        if not self["bootstrap.servers"]:
            message = "bootstrap.servers must be set: host:port of one broker or more"
            raise ClientConfigError(message)

    def __getitem__(self, key: str) -> Any:
        return self._values[key]

    @property
    def compression_level(self) -> int | None:
        """Level of ``compression.type``; None for the codec's default."""
        level: int | None = self._values.get(f"compression.{self['compression.type']}.level")
        return self["compression.level"] if level is None else level


def topic_options(config: ClientConfig) -> TopicOptions:
    """The settings that say when a producer asks about its topics."""
    return TopicOptions(
        metadata_max_age_ms=config["metadata.max.age.ms"],
        metadata_max_idle_ms=config["metadata.max.idle.ms"],
        retry_backoff_ms=config["retry.backoff.ms"],
        rebootstrap_after_ms=_rebootstrap_after_ms(config),
    )


def _rebootstrap_after_ms(config: ClientConfig) -> int | None:
    after_ms: int = config["metadata.recovery.rebootstrap.trigger.ms"]
    return after_ms if config["metadata.recovery.strategy"] == "rebootstrap" else None


def consumer_options(config: ClientConfig) -> ConsumerOptions:
    """The settings that the core of a consumer uses."""
    return ConsumerOptions(
        reset=reset_strategy(config["auto.offset.reset"]),
        is_read_committed=config["isolation.level"] == "read_committed",
        fetch_min_bytes=config["fetch.min.bytes"],
        fetch_max_bytes=config["fetch.max.bytes"],
        fetch_max_wait_ms=config["fetch.max.wait.ms"],
        max_partition_fetch_bytes=config["max.partition.fetch.bytes"],
        client_rack=config["client.rack"],
        retry_backoff_ms=config["retry.backoff.ms"],
        request_timeout_ms=config["request.timeout.ms"],
        metadata_max_age_ms=config["metadata.max.age.ms"],
        rebootstrap_after_ms=_rebootstrap_after_ms(config),
        allow_auto_create_topics=config["allow.auto.create.topics"],
    )
