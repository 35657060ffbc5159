"""SASL from Kafka's keys: the mechanisms of each listener, their users, and as whom the node connects to others.

Mechanisms, login modules and classes that only Java has are refused with the key that asks for them, as are options of
a login module that would have no effect.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from kraftlog.security.jaas import JaasEntry, JaasError, parse_jaas
from kraftlog.security.sasl_plain import PLAIN, PlainServer
from kraftlog.security.sasl_scram import ScramServer
from kraftlog.security.scram import MECHANISM_BY_NAME, ScramCredential, ScramMechanism
from kraftlog.transport.listener import ConfigError
from kraftlog.transport.sasl_exchange import SaslListener
from kraftlog.transport.sasl_login import MECHANISMS, SaslLogin, jaas_credentials, module_of

if TYPE_CHECKING:
    from kraftlog.controller import MetadataImage
    from kraftlog.security.sasl import SaslServer

__all__ = [
    "FindCredential",
    "SaslSettings",
    "check_java_classes",
    "credentials_in",
    "sasl_listener",
    "sasl_login",
]

FindCredential = Callable[[ScramMechanism, str], ScramCredential | None]
"""The SCRAM credential of a user."""

ENABLED_MECHANISMS: Final = "sasl.enabled.mechanisms"
JAAS_CONFIG: Final = "sasl.jaas.config"
MAX_REAUTH_MS: Final = "connections.max.reauth.ms"
MAX_RECEIVE_SIZE: Final = "sasl.server.max.receive.size"
FAILURE_DELAY_MS: Final = "connection.failed.authentication.delay.ms"
_USER: Final = "user_"
_PRINCIPAL_BUILDER: Final = "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder"
# With any prefix of a listener or a mechanism.
_JAVA_CLASSES: Final = (
    "sasl.server.callback.handler.class",
    "sasl.client.callback.handler.class",
    "sasl.login.callback.handler.class",
    "sasl.login.class",
)


class _Config(Protocol):
    """What is read of a ``NodeConfig``."""

    properties: dict[str, str]

    def get_list(self, key: str) -> list[str]: ...

    def get_int(self, key: str) -> int: ...

    def get_str(self, key: str) -> str: ...


@dataclass(frozen=True, slots=True, kw_only=True)
class SaslSettings:
    """SASL of one listener, as the configuration has it.

    Attributes:
        mechanisms: Those that are enabled, in the order of the configuration.
        passwords: Of the users of PLAIN.
        max_reauth_ms: By mechanism, where it is positive.
    """

    mechanisms: tuple[str, ...]
    passwords: Mapping[str, str]
    max_reauth_ms: Mapping[str, int]
    max_receive_bytes: int
    failure_delay_ms: int

    @classmethod
    def of(cls, config: _Config, listener_name: str) -> SaslSettings:
        """The settings of a listener.

        Raises:
            ConfigError: A mechanism is not supported, or its users cannot be read.
        """
        mechanisms = _enabled_mechanisms(config, listener_name)
        passwords: dict[str, str] = {}
        max_reauth_ms: dict[str, int] = {}
        for mechanism in mechanisms:
            found = _jaas(config, listener_name, mechanism)
            if mechanism == PLAIN:
                if found is None:
                    key = _jaas_key(listener_name, mechanism)
                    raise ConfigError(
                        f'{key} must be set, for example to: {module_of(PLAIN)} required user_alice="...";'
                    )
                passwords = _passwords(*found)
            elif found is not None:
                _check_options(*found, is_known=lambda _: False)
            milliseconds = _max_reauth_ms(config, listener_name, mechanism)
            if milliseconds > 0:
                max_reauth_ms[mechanism] = milliseconds
        return cls(
            mechanisms=mechanisms,
            passwords=passwords,
            max_reauth_ms=max_reauth_ms,
            max_receive_bytes=_integer(config, MAX_RECEIVE_SIZE, listener_name, at_least=1),
            failure_delay_ms=_integer(config, FAILURE_DELAY_MS, listener_name, at_least=0),
        )


def sasl_listener(settings: SaslSettings, find_credential: FindCredential) -> SaslListener:
    """What the connections of a listener need."""
    servers: dict[str, Callable[[], SaslServer]] = {}
    for name in settings.mechanisms:
        if name == PLAIN:
            servers[name] = partial(PlainServer, settings.passwords)
        else:
            mechanism = MECHANISM_BY_NAME[name]
            servers[name] = partial(ScramServer, mechanism, partial(find_credential, mechanism))
    return SaslListener(
        servers=servers,
        max_reauth_ms=settings.max_reauth_ms,
        max_receive_bytes=settings.max_receive_bytes,
        failure_delay_ms=settings.failure_delay_ms,
    )


def credentials_in(image: Callable[[], MetadataImage]) -> FindCredential:
    """The credentials of the metadata image, as it is when a client comes."""

    def find(mechanism: ScramMechanism, user: str) -> ScramCredential | None:
        record = image().security.scram.get((mechanism.code, user))
        if record is None:
            return None
        return ScramCredential(
            bytes(record.salt), bytes(record.stored_key), bytes(record.server_key), record.iterations
        )

    return find


def sasl_login(config: _Config, listener_name: str, mechanism_key: str) -> SaslLogin:
    """As whom the node connects to that listener of other nodes.

    Args:
        config: Checked settings.
        listener_name: Upper case.
        mechanism_key: sasl.mechanism.inter.broker.protocol or sasl.mechanism.controller.protocol.

    Raises:
        ConfigError: The mechanism is not supported, or there is no user for it.
    """
    mechanism = config.get_str(mechanism_key)
    if mechanism not in MECHANISMS:
        raise ConfigError(_unsupported(config, mechanism_key, mechanism))
    for key in (_jaas_key(listener_name, mechanism), JAAS_CONFIG):
        if key in config.properties:
            try:
                return SaslLogin(mechanism, jaas_credentials(config.properties[key], mechanism))
            except JaasError as error:
                raise ConfigError(f"{key}: {error}") from error
    key = _jaas_key(listener_name, mechanism)
    raise ConfigError(
        f"{key} must be set, with username and password: the node connects to listener {listener_name} of other nodes"
    )


def check_java_classes(config: _Config) -> None:
    """Refuse settings that name a class of Java.

    Raises:
        ConfigError: One is set.
    """
    for key, text in config.properties.items():
        if text.strip() and key.endswith(_JAVA_CLASSES):
            raise ConfigError(f"{key}={text}: classes of Java are not supported; remove it")
        if key.endswith("principal.builder.class") and text.strip() not in {"", _PRINCIPAL_BUILDER}:
            raise ConfigError(f"{key}={text} is not supported; set {_PRINCIPAL_BUILDER} or remove it")


def _enabled_mechanisms(config: _Config, listener_name: str) -> tuple[str, ...]:
    key = _listener_key(config, ENABLED_MECHANISMS, listener_name)
    text = config.properties.get(key)
    names = config.get_list(ENABLED_MECHANISMS) if text is None else [name.strip() for name in text.split(",")]
    mechanisms = tuple(dict.fromkeys(filter(None, names)))
    if not mechanisms:
        raise ConfigError(f"{key} is empty, and listener {listener_name} has SASL")
    for name in mechanisms:
        if name not in MECHANISMS:
            raise ConfigError(_unsupported(config, key, name))
    return mechanisms


def _unsupported(config: _Config, key: str, mechanism: str) -> str:
    how = f"{key}={config.properties[key]}" if key in config.properties else f"{key} is not set"
    return f"{how}: mechanism {mechanism} is not supported; supported are {', '.join(MECHANISMS)}"


def _listener_prefix(listener_name: str) -> str:
    return f"listener.name.{listener_name.lower()}."


def _jaas_key(listener_name: str, mechanism: str) -> str:
    return f"{_listener_prefix(listener_name)}{mechanism.lower()}.{JAAS_CONFIG}"


def _listener_key(config: _Config, key: str, listener_name: str) -> str:
    """The key with the listener's prefix if the configuration has that, else the bare one."""
    prefixed = _listener_prefix(listener_name) + key
    return prefixed if prefixed in config.properties else key


def _jaas(config: _Config, listener_name: str, mechanism: str) -> tuple[str, JaasEntry] | None:
    """The login module of a mechanism and the key that has it; the bare key counts if its module is the mechanism's."""
    for key in (_jaas_key(listener_name, mechanism), JAAS_CONFIG):
        text = config.properties.get(key)
        if text is None:
            continue
        try:
            entry = parse_jaas(text)
        except JaasError as error:
            raise ConfigError(f"{key}: {error}") from error
        if entry.module == module_of(mechanism):
            return key, entry
        if key != JAAS_CONFIG:
            raise ConfigError(
                f"{key}: {entry.module} is not the login module of {mechanism}, which is {module_of(mechanism)}"
            )
    return None


def _check_options(key: str, entry: JaasEntry, *, is_known: Callable[[str], bool]) -> None:
    for option in entry.options:
        if option not in {"username", "password"} and not is_known(option):
            raise ConfigError(f"{key}: {entry.module} has no option {option} that is supported")


def _passwords(key: str, entry: JaasEntry) -> dict[str, str]:
    """The users of PLAIN: user_alice="secret"."""
    _check_options(key, entry, is_known=lambda option: option.startswith(_USER) and option != _USER)
    return {option.removeprefix(_USER): value for option, value in entry.options.items() if option.startswith(_USER)}


def _max_reauth_ms(config: _Config, listener_name: str, mechanism: str) -> int:
    """A value for the mechanism wins over one for the listener, and that over the bare one (SaslChannelBuilder)."""
    of_mechanism = f"{mechanism.lower()}.{MAX_REAUTH_MS}"
    prefixed = _listener_prefix(listener_name) + of_mechanism
    if prefixed in config.properties:
        return _parsed(prefixed, config.properties[prefixed], at_least=None)
    return _integer(config, MAX_REAUTH_MS, listener_name, at_least=None)


def _integer(config: _Config, key: str, listener_name: str, *, at_least: int | None) -> int:
    found = _listener_key(config, key, listener_name)
    return _parsed(found, config.properties[found] if found != key else str(config.get_int(key)), at_least=at_least)


def _parsed(key: str, text: str, *, at_least: int | None) -> int:
    try:
        value = int(text.strip())
    except ValueError:
        raise ConfigError(f"{key}={text} must be an integer") from None
    if at_least is not None and value < at_least:
        raise ConfigError(f"{key}={text} must be at least {at_least}")
    return value
