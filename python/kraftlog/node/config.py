"""Node configuration: Kafka's keys, Kafka's defaults, checked before anything is opened."""

from __future__ import annotations

import logging
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Self

from kraftlog.config_table import ConfigValue, broker_config, cordoned_log_dirs, is_dynamic_only, parse_value
from kraftlog.errors import KafkaError
from kraftlog.node.quorum_keys import check_quorum_keys
from kraftlog.security.principal import Principal
from kraftlog.storage.files import as_path
from kraftlog.storage.properties import PropertiesError, parse_properties
from kraftlog.transport.listener import DEFAULT_BIND_HOST, ConfigError, EndPoint, parse_end_points, parse_protocol_map

if TYPE_CHECKING:
    from ssl import SSLContext

    from kraftlog.node.sasl_settings import SaslSettings
    from kraftlog.transport.peer_security import PeerSecurity

__all__ = [
    "AUTHORIZER_KEYS",
    "METRICS_LISTENER",
    "OWN_KEYS",
    "ConfigError",
    "ConfigValue",
    "NodeConfig",
    "is_known_key",
    "parse_super_users",
]

logger = logging.getLogger(__name__)

SECURITY_PROTOCOLS = {"PLAINTEXT": 0, "SSL": 1, "SASL_PLAINTEXT": 2, "SASL_SSL": 3}
_TLS_PROTOCOLS = ("SSL", "SASL_SSL")
_SASL_PROTOCOLS = ("SASL_PLAINTEXT", "SASL_SSL")
BROKER_MECHANISM = "sasl.mechanism.inter.broker.protocol"
CONTROLLER_MECHANISM = "sasl.mechanism.controller.protocol"
DEFAULT_PROTOCOL_MAP = "PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL"
# A key that Kafka does not have: where metrics are served to Prometheus, as host:port.
METRICS_LISTENER = "kraftlog.metrics.listener"
# Another: who owns the sockets of clients without TLS.
DATA_PATH = "kraftlog.data.path"
_DATA_PATHS = ("native", "python")
DEFAULT_DATA_PATH = "native"
# Another: who answers the followers of this broker's partitions, if the data path is native.
FOLLOWER_FETCHES = "kraftlog.follower.fetches"
DEFAULT_FOLLOWER_FETCHES = "native"
MAX_PORT = 65535
OWN_KEYS = frozenset({METRICS_LISTENER, DATA_PATH, FOLLOWER_FETCHES})
STANDARD_AUTHORIZER = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SUPER_USERS = "super.users"
ALLOW_EVERYONE = "allow.everyone.if.no.acl.found"
# Kafka's authorizer reads them itself; no table of Kafka lists them.
AUTHORIZER_KEYS = frozenset({SUPER_USERS, ALLOW_EVERYONE})
# Prefixes under which Kafka accepts keys no table lists (per listener settings, plug-ins, client settings).
_FREE_PREFIXES = (
    "listener.name.",
    "metric.reporters",
    "metrics.",
    "remote.log.",
    "client.quota.",
    "group.coordinator.",
)


class NodeConfig:
    """The settings of one node; immutable once built.

    Args:
        properties: Kafka's dotted keys to their text, as server.properties has them.

    Raises:
        ConfigError: A value has the wrong type, or the combination cannot be started.
    """

    def __init__(self, properties: Mapping[str, str]) -> None:
        self.properties: dict[str, str] = dict(properties)
        self.unknown_keys = sorted(key for key in self.properties if not is_known_key(key))
        self._values: dict[str, ConfigValue] = {}
        self._server_tls: dict[str, SSLContext] = {}
        self._client_tls: dict[str, SSLContext] = {}
        self._sasl: dict[str, SaslSettings] = {}
        self._peers: dict[str, PeerSecurity] = {}
        self.process_roles = self._check_process_roles()
        self.node_id = self._check_node_id()
        self.controller_listener_names = [name.upper() for name in self.get_list("controller.listener.names")]
        self.protocol_by_listener = self._read_protocol_map()
        self.listeners = self._check_listeners()
        self._check_inter_broker_listener()
        self.advertised_listeners = self._check_advertised_listeners()
        self.log_dirs = self._check_log_dirs()
        self._check_cordoned_log_dirs()
        metadata_log_dir = self.get_optional_str("metadata.log.dir")
        self.metadata_log_dir = as_path(metadata_log_dir) if metadata_log_dir else self.log_dirs[0]
        self.metrics_listener = self._check_metrics_listener()
        self.data_path = self._check_path(DATA_PATH, DEFAULT_DATA_PATH)
        self.follower_fetches = self._check_path(FOLLOWER_FETCHES, DEFAULT_FOLLOWER_FETCHES)
        self._check_authorizer()
        if any(key.endswith(".class") for key in self.properties):
            from kraftlog.node.sasl_settings import check_java_classes

            check_java_classes(self)
        check_quorum_keys(self)
        for key in self.properties:
            self.get(key)  # a value that cannot be is refused now, not when somebody asks for it
        for name in self.controller_listener_names:
            # A broker alone connects to controller listeners that it does not have; both ends fail here, not later.
            self.client_tls(name)
        self._check_logins()

    @classmethod
    def load(cls, path: str | Path, overrides: Iterable[str] = ()) -> Self:
        """Read a server.properties file and lay ``key=value`` overrides over it.

        Raises:
            ConfigError: The file cannot be read, an override has no ``=``, or a value is wrong.
        """
        try:
            text = Path(path).read_text(encoding="latin-1")
        except OSError as error:
            msg = f"cannot read {path}: {error.strerror}"
            raise ConfigError(msg) from error
        try:
            properties = parse_properties(text)
        except PropertiesError as error:
            msg = f"{path}: {error}"
            raise ConfigError(msg) from error
        properties.update(parse_overrides(overrides))
        return cls(properties)

    @property
    def is_broker(self) -> bool:
        """Whether this node serves topics."""
        return "broker" in self.process_roles

    @property
    def is_controller(self) -> bool:
        """Whether this node is a voter or may become one."""
        return "controller" in self.process_roles

    @property
    def broker_listeners(self) -> tuple[EndPoint, ...]:
        """The listeners that are not controller listeners."""
        return tuple(
            listener for listener in self.listeners if listener.listener_name not in self.controller_listener_names
        )

    @property
    def has_listener_between_brokers(self) -> bool:
        """Whether brokers reach each other on a listener that is not the one of clients."""
        names = {listener.listener_name for listener in self.broker_listeners}
        return len(names) > 1 and self.inter_broker_listener_name in names

    @property
    def inter_broker_listener_name(self) -> str:
        """Where brokers reach each other: ``inter.broker.listener.name``, else ``security.inter.broker.protocol``."""
        name = self.get_optional_str("inter.broker.listener.name")
        return (name or self.get_str("security.inter.broker.protocol")).upper()

    def security_protocol(self, listener_name: str) -> int:
        """The code of a listener's protocol in registrations: see ``SECURITY_PROTOCOLS``."""
        return SECURITY_PROTOCOLS.get(self.protocol_by_listener.get(listener_name, "PLAINTEXT"), 0)

    def server_tls(self, listener_name: str) -> SSLContext | None:
        """What a listener with SSL or SASL_SSL needs; None for others.

        Raises:
            ConfigError: Keys or certificates are missing or cannot be used.
        """
        protocol = self.protocol_by_listener.get(listener_name)
        if protocol not in _TLS_PROTOCOLS:
            return None
        if listener_name not in self._server_tls:
            from kraftlog.transport.tls_settings import TlsSettings

            properties = dict(self.properties)
            if protocol == "SASL_SSL":
                # As in Kafka: clients have passwords, and certificates only if this listener itself asks for them.
                properties.pop("ssl.client.auth", None)
            self._server_tls[listener_name] = TlsSettings(properties, listener_name).server_context()
        return self._server_tls[listener_name]

    def sasl(self, listener_name: str) -> SaslSettings | None:
        """What a listener with SASL needs; None for others.

        Raises:
            ConfigError: A mechanism is not supported, or its users cannot be read.
        """
        if self.protocol_by_listener.get(listener_name) not in _SASL_PROTOCOLS:
            return None
        if listener_name not in self._sasl:
            from kraftlog.node.sasl_settings import SaslSettings

            self._sasl[listener_name] = SaslSettings.of(self, listener_name)
        return self._sasl[listener_name]

    def client_tls(self, listener_name: str) -> SSLContext | None:
        """What connections to that listener of another node need; None where it has no SSL.

        Raises:
            ConfigError: Keys or certificates cannot be used.
        """
        if self.protocol_by_listener.get(listener_name) not in _TLS_PROTOCOLS:
            return None
        if listener_name not in self._client_tls:
            from kraftlog.transport.tls_settings import TlsSettings

            self._client_tls[listener_name] = TlsSettings(self.properties, listener_name).client_context()
        return self._client_tls[listener_name]

    def peer_security(self, listener_name: str) -> PeerSecurity | None:
        """What connections to that listener of another node need; None where it is PLAINTEXT.

        Raises:
            ConfigError: Keys or certificates cannot be used, or there is no user to connect as.
        """
        protocol = self.protocol_by_listener.get(listener_name)
        if protocol not in _TLS_PROTOCOLS and protocol not in _SASL_PROTOCOLS:
            return None
        if listener_name not in self._peers:
            from kraftlog.transport.peer_security import PeerSecurity

            login = None
            if protocol in _SASL_PROTOCOLS:
                from kraftlog.node.sasl_settings import sasl_login

                is_controller = listener_name in self.controller_listener_names
                login = sasl_login(self, listener_name, CONTROLLER_MECHANISM if is_controller else BROKER_MECHANISM)
            self._peers[listener_name] = PeerSecurity(self.client_tls(listener_name), login)
        return self._peers[listener_name]

    @property
    def _is_alone(self) -> bool:
        """Whether nothing in the configuration says that there are other nodes."""
        others = max(
            len(self.get_list("controller.quorum.voters")), len(self.get_list("controller.quorum.bootstrap.servers"))
        )
        return self.is_broker and self.is_controller and others <= 1

    def _check_logins(self) -> None:
        """A node that connects to other nodes with SASL needs a user; one that is alone may do without."""
        for is_wanted, key, names in (
            (self.is_broker, BROKER_MECHANISM, [self.inter_broker_listener_name]),
            (True, CONTROLLER_MECHANISM, self.controller_listener_names),
        ):
            for name in names:
                has_sasl = self.protocol_by_listener.get(name) in _SASL_PROTOCOLS
                if not is_wanted or not has_sasl or (self._is_alone and key not in self.properties):
                    continue
                self.peer_security(name)
                self._check_mechanism(key, name)

    def _check_mechanism(self, key: str, listener_name: str) -> None:
        mechanism = self.get_str(key)
        own = self._sasl.get(listener_name)
        if own is not None and mechanism not in own.mechanisms:
            msg = f"{key}={mechanism} must be one of sasl.enabled.mechanisms={','.join(own.mechanisms)}"
            raise ConfigError(msg)
        if key == CONTROLLER_MECHANISM and self.is_controller and not self._is_alone and mechanism.startswith("SCRAM"):
            msg = (
                f"{key}={mechanism}: voters elect a leader before they know any SCRAM credential; "
                "use PLAIN between controllers"
            )
            raise ConfigError(msg)

    def get(self, key: str) -> ConfigValue:
        """The value of a key with its type, Kafka's default when it is not set.

        A key Kafka does not know gives its text, or None when it is not set.

        Raises:
            ConfigError: The text is not of the key's type.
        """
        try:
            return self._values[key]
        except KeyError:
            pass
        definition = broker_config(key)
        text = self.properties.get(key)
        value: ConfigValue
        if definition is None:
            value = text
        elif text is None:
            value = definition.default
        else:
            try:
                value = parse_value(definition, text)
            except KafkaError as error:
                raise ConfigError(str(error.message)) from error
        self._values[key] = value
        return value

    def get_int(self, key: str) -> int:
        """A key that is never null and holds an integer."""
        value = self.get(key)
        if isinstance(value, bool) or not isinstance(value, int):
            msg = f"{key}={value!r} is not an integer"
            raise ConfigError(msg)
        return value

    def get_bool(self, key: str) -> bool:
        """A key that is never null and holds true or false."""
        value = self.get(key)
        if not isinstance(value, bool):
            msg = f"{key}={value!r} is neither true nor false"
            raise ConfigError(msg)
        return value

    def get_str(self, key: str) -> str:
        """A key that is never null and holds text."""
        value = self.get(key)
        if not isinstance(value, str):
            msg = f"{key} must be set"
            raise ConfigError(msg)
        return value

    def get_optional_str(self, key: str) -> str | None:
        """A key that holds text or nothing; empty text counts as nothing."""
        value = self.get(key)
        return value if isinstance(value, str) and value else None

    def get_optional_int(self, key: str) -> int | None:
        """A key that holds an integer or null."""
        value = self.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    def get_list(self, key: str) -> list[str]:
        """A comma separated key; empty when it is null."""
        value = self.get(key)
        if value is None:
            return []
        if isinstance(value, tuple):
            return [entry for entry in value if entry]
        return [entry.strip() for entry in str(value).split(",") if entry.strip()]

    def warn_unknown_keys(self) -> None:
        """One log line that lists the keys no table of Kafka 4.3.1 has."""
        if self.unknown_keys:
            logger.warning("unknown configuration keys, ignored: %s", ", ".join(self.unknown_keys))

    def _check_process_roles(self) -> frozenset[str]:
        roles = self.get_list("process.roles")
        if not roles:
            msg = "process.roles is not set; use process.roles=broker,controller for a single node"
            raise ConfigError(msg)
        for role in roles:
            if role not in {"broker", "controller"}:
                msg = f"process.roles={','.join(roles)}: {role!r} is neither broker nor controller"
                raise ConfigError(msg)
        if len(set(roles)) != len(roles):
            msg = f"process.roles={','.join(roles)} names a role twice"
            raise ConfigError(msg)
        return frozenset(roles)

    def _check_authorizer(self) -> None:
        """A configuration with another authorizer must not run without it."""
        name = self.get_optional_str("authorizer.class.name")
        if name is not None and name != STANDARD_AUTHORIZER:
            msg = f"authorizer.class.name={name} is not supported; set {STANDARD_AUTHORIZER} or remove it"
            raise ConfigError(msg)
        self.has_authorizer = name is not None
        self.super_users = parse_super_users(self.properties.get(SUPER_USERS, ""))
        # As Java's Boolean.parseBoolean: anything but true is false.
        allow_everyone = self.properties.get(ALLOW_EVERYONE, "")
        self.allows_everyone_without_acls = allow_everyone.strip().lower() == "true"

    def _check_node_id(self) -> int:
        if "node.id" not in self.properties and "broker.id" not in self.properties:
            msg = "node.id is not set; it is required when process.roles is"
            raise ConfigError(msg)
        node_id = self.get_int("node.id" if "node.id" in self.properties else "broker.id")
        if node_id < 0:
            msg = f"node.id={node_id} must not be negative"
            raise ConfigError(msg)
        return node_id

    def _read_protocol_map(self) -> dict[str, str]:
        key = "listener.security.protocol.map"
        explicit = self.properties.get(key)
        protocols = parse_protocol_map(key, explicit or DEFAULT_PROTOCOL_MAP)
        if explicit is None:
            # As Kafka does in KRaft mode: controller listeners are PLAINTEXT unless something is said about them.
            for name in self.controller_listener_names:
                protocols.setdefault(name, "PLAINTEXT")
        return protocols

    def _check_listeners(self) -> tuple[EndPoint, ...]:
        listeners_text = ",".join(self.get_list("listeners"))
        listeners = parse_end_points("listeners", listeners_text)
        if not listeners:
            msg = "listeners is empty"
            raise ConfigError(msg)
        ports = [listener.port for listener in listeners if listener.port]
        if len(set(ports)) != len(ports):
            msg = f"listeners={listeners_text}: each listener must have a different port"
            raise ConfigError(msg)
        names = {listener.listener_name for listener in listeners}
        if self.is_controller and not self.controller_listener_names:
            msg = (
                "controller.listener.names is not set; "
                "it must name at least one of listeners when process.roles has controller"
            )
            raise ConfigError(msg)
        if self.is_controller and not names & set(self.controller_listener_names):
            msg = (
                f"controller.listener.names={','.join(self.controller_listener_names)} "
                f"names none of listeners={listeners_text}"
            )
            raise ConfigError(msg)
        if self.is_broker and not names - set(self.controller_listener_names):
            msg = f"listeners={listeners_text} has only controller listeners, but process.roles has broker"
            raise ConfigError(msg)
        for end_point in listeners:
            self._check_protocol(end_point)
        return tuple(
            EndPoint(listener.listener_name, listener.host or DEFAULT_BIND_HOST, listener.port)
            for listener in listeners
        )

    def _check_inter_broker_listener(self) -> None:
        keys = ("inter.broker.listener.name", "security.inter.broker.protocol")
        if all(self.properties.get(key, "").strip() for key in keys):
            msg = f"only one of {' and '.join(keys)} can be set"
            raise ConfigError(msg)

    def _check_protocol(self, end_point: EndPoint) -> None:
        protocol = self.protocol_by_listener.get(end_point.listener_name)
        if protocol is None:
            msg = (
                f"no security protocol defined for listener {end_point.listener_name}: "
                "add it to listener.security.protocol.map"
            )
            raise ConfigError(msg)
        if protocol not in SECURITY_PROTOCOLS:
            supported = " and ".join(SECURITY_PROTOCOLS)
            msg = f"listener {end_point.listener_name} asks for {protocol}; only {supported} are supported"
            raise ConfigError(msg)
        self.server_tls(end_point.listener_name)
        self.sasl(end_point.listener_name)

    def _check_advertised_listeners(self) -> tuple[EndPoint, ...]:
        text = ",".join(self.get_list("advertised.listeners"))
        if not text:
            advertised = self.listeners
        else:
            advertised = parse_end_points("advertised.listeners", text)
            known = {listener.listener_name for listener in self.listeners}
            for end_point in advertised:
                if end_point.listener_name not in known:
                    msg = f"advertised.listeners={text}: {end_point.listener_name} is not one of listeners"
                    raise ConfigError(msg)
            # A controller listener that is not advertised is reached where it listens.
            named = {end_point.listener_name for end_point in advertised}
            advertised += tuple(
                listener
                for listener in self.listeners
                if listener.listener_name in self.controller_listener_names and listener.listener_name not in named
            )
        for end_point in advertised:
            if end_point.host in {"0.0.0.0", "::"}:  # noqa: S104
                msg = (
                    f"advertised.listeners cannot use the nonroutable meta-address {end_point.host}: "
                    f"set advertised.listeners for listener {end_point.listener_name}"
                )
                raise ConfigError(msg)
        return advertised

    def _check_log_dirs(self) -> tuple[Path, ...]:
        text = self.properties.get("log.dirs") or self.get_optional_str("log.dir") or ""
        log_dirs = tuple(as_path(entry.strip()) for entry in text.split(",") if entry.strip())
        if not log_dirs:
            msg = "at least one log directory must be defined through log.dirs or log.dir"
            raise ConfigError(msg)
        if len(set(log_dirs)) != len(log_dirs):
            msg = f"log.dirs={text} names a directory twice"
            raise ConfigError(msg)
        return log_dirs

    def _check_cordoned_log_dirs(self) -> None:
        if self.is_broker:
            try:
                entries = self.get_list("cordoned.log.dirs")
                cordoned_log_dirs(",".join(entries), [str(path) for path in self.log_dirs])
            except KafkaError as error:
                raise ConfigError(error.message) from error

    def _check_metrics_listener(self) -> tuple[str, int] | None:
        """Host and port where Prometheus scrapes; None when it is not set: metrics are then read in process only."""
        text = self.get_optional_str(METRICS_LISTENER)
        if text is None:
            return None
        host, separator, port = text.strip().rpartition(":")
        if not separator or not port.isdecimal() or int(port) > MAX_PORT:
            msg = f"{METRICS_LISTENER}={text}: it has the form host:port, such as 127.0.0.1:9404"
            raise ConfigError(msg)
        return host.strip("[]") or DEFAULT_BIND_HOST, int(port)

    def _check_path(self, key: str, default: str) -> str:
        """``native`` for I/O threads, or ``python`` for the event loop."""
        text = self.get_optional_str(key)
        value = default if text is None else text.strip()
        if value not in _DATA_PATHS:
            msg = f"{key}={text}: it is one of {', '.join(_DATA_PATHS)}"
            raise ConfigError(msg)
        return value


def parse_overrides(overrides: Iterable[str]) -> dict[str, str]:
    """Read ``key=value`` arguments.

    Raises:
        ConfigError: An argument has no ``=``.
    """
    properties: dict[str, str] = {}
    for override in overrides:
        key, separator, value = override.partition("=")
        if not separator or not key.strip():
            msg = f"--override {override}: expected key=value"
            raise ConfigError(msg)
        properties[key.strip()] = value.strip()
    return properties


def environment_overrides(environment: Mapping[str, str] | None = None) -> dict[str, str]:
    """Settings from ``KAFKA_*`` variables, as the official container image reads them.

    ``KAFKA_LOG_DIRS`` is log.dirs; ``__`` stands for an underscore and ``___`` for a dash. Names that Kafka's
    scripts use for themselves (``KAFKA_HEAP_OPTS`` and the like) give keys nobody knows, so only known keys count.
    """
    properties: dict[str, str] = {}
    for name, value in (os.environ if environment is None else environment).items():
        if not name.startswith("KAFKA_"):
            continue
        marked = name[6:].lower().replace("___", "-").replace("__", "\0").replace("_", ".").replace("\0", "_")
        if is_known_key(marked):
            properties[marked] = value
    return properties


def is_known_key(key: str) -> bool:
    """Whether a node has a setting of that name, or takes any under its prefix."""
    known = OWN_KEYS | AUTHORIZER_KEYS
    definition = broker_config(key)
    return (definition is not None and not is_dynamic_only(key)) or key in known or key.startswith(_FREE_PREFIXES)


def parse_super_users(text: str) -> frozenset[Principal]:
    """Principals separated by semicolons, as in ``User:alice;User:CN=broker,O=example``; blank parts count for nothing.

    Raises:
        ConfigError: A part is not ``Type:name``.
    """
    principals = set()
    for part in filter(None, map(str.strip, text.split(";"))):
        kind, colon, name = part.partition(":")
        if not (kind and colon and name):
            msg = f"{SUPER_USERS}={text}: {part!r} is no principal; write it as User:name"
            raise ConfigError(msg)
        principals.add(Principal(kind, name))
    return frozenset(principals)
