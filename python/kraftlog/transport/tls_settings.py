"""TLS from Kafka's ``ssl.*`` keys: PEM certificates and keys, in files or inline, with ``listener.name.X.`` prefixes.

JKS and PKCS12 stores are refused with the key that asks for them, as are the keys that choose parts of Java's own TLS:
nothing is accepted and then ignored.
"""

from __future__ import annotations

import re
import ssl
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from kraftlog.transport.listener import ConfigError

__all__ = ["TlsSettings", "distinguished_name"]

_CLIENT_AUTH = {"none": ssl.CERT_NONE, "requested": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
_VERSIONS = {"TLSv1.2": ssl.TLSVersion.TLSv1_2, "TLSv1.3": ssl.TLSVersion.TLSv1_3}
# Only the defaults of these can be kept: they name classes, providers and algorithms of Java.
_JAVA_ONLY = {
    "ssl.cipher.suites": {""},
    "ssl.engine.factory.class": {""},
    "ssl.keymanager.algorithm": {"SunX509"},
    "ssl.principal.mapping.rules": {"DEFAULT"},
    "ssl.provider": {""},
    "ssl.secure.random.implementation": {""},
    "ssl.trustmanager.algorithm": {"PKIX"},
}
_PEM = re.compile(r"-----BEGIN ([A-Z0-9 ]+)-----([^-]+)-----END \1-----")
_NAMES = {
    "commonName": "CN",
    "countryName": "C",
    "domainComponent": "DC",
    "emailAddress": "EMAILADDRESS",
    "localityName": "L",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "stateOrProvinceName": "ST",
    "streetAddress": "STREET",
    "userId": "UID",
}


class TlsSettings:
    """The ``ssl.*`` settings of one listener, or of a client.

    Args:
        properties: Kafka's dotted keys to their text.
        listener_name: Settings under ``listener.name.<this>.`` win over the bare ones; None for a client.

    Raises:
        ConfigError: A setting has no such value, or is one of Java's own TLS.
    """

    def __init__(self, properties: Mapping[str, str], listener_name: str | None = None) -> None:
        self._properties = properties
        self._prefix = "" if listener_name is None else f"listener.name.{listener_name.lower()}."
        for key, allowed in _JAVA_ONLY.items():
            if self._get(key) not in {None, *allowed}:
                raise ConfigError(
                    f"{self._named(key)}={self._get(key)}: only Java's TLS supports this setting; remove it"
                )

    def _named(self, key: str) -> str:
        """The key as the configuration has it."""
        return self._prefix + key if self._prefix + key in self._properties else key

    def _get(self, key: str) -> str | None:
        value = self._properties.get(self._named(key))
        return None if value is None else value.strip()

    def server_context(self) -> ssl.SSLContext:
        """For connections that come in.

        Raises:
            ConfigError: There is no key and certificate, or they cannot be read.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        self._limit_versions(context)
        if not self._load_identity(context):
            raise ConfigError(
                "ssl.keystore.location (or ssl.keystore.certificate.chain with ssl.keystore.key) must be set for a"
                " listener with SSL"
            )
        asked = self._get("ssl.client.auth") or "none"
        if asked not in _CLIENT_AUTH:
            raise ConfigError(f"{self._named('ssl.client.auth')}={asked} must be required, requested or none")
        if asked != "none":
            self._load_trusted(context)
            context.verify_mode = _CLIENT_AUTH[asked]
        return context

    def client_context(self) -> ssl.SSLContext:
        """For connections to other servers; they are checked, their names too unless the algorithm is empty.

        Raises:
            ConfigError: Keys or certificates cannot be read.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        self._limit_versions(context)
        algorithm = self._get("ssl.endpoint.identification.algorithm")
        if (algorithm or "").lower() not in {"", "https"}:
            key = self._named("ssl.endpoint.identification.algorithm")
            raise ConfigError(f"{key}={algorithm} is neither https nor empty")
        context.check_hostname = algorithm != ""
        self._load_trusted(context)
        self._load_identity(context)
        return context

    def _limit_versions(self, context: ssl.SSLContext) -> None:
        text = self._get("ssl.enabled.protocols") or "TLSv1.2,TLSv1.3"
        names = [name.strip() for name in text.split(",") if name.strip()]
        highest = self._get("ssl.protocol") or "TLSv1.3"
        for key, wrong in (
            ("ssl.enabled.protocols", [name for name in names if name not in _VERSIONS]),
            ("ssl.protocol", [highest] if highest not in {"TLS", *_VERSIONS} else []),
        ):
            if wrong:
                raise ConfigError(f"{self._named(key)}: {wrong[0]} is not supported, TLSv1.2 and TLSv1.3 are")
        versions = [_VERSIONS[name] for name in names]
        context.minimum_version = min(versions)
        context.maximum_version = min(max(versions), _VERSIONS.get(highest, ssl.TLSVersion.TLSv1_3))

    def _require_pem(self, what: str) -> None:
        kind = (self._get(f"ssl.{what}.type") or "JKS").upper()
        if kind != "PEM":
            key = self._named(f"ssl.{what}.type")
            raise ConfigError(
                f"{key}={kind} is not supported: convert the store to PEM and set {key}=PEM (the default is JKS)"
            )

    def _read(self, key: str) -> str | None:
        path = self._get(key)
        if not path:
            return None
        try:
            return Path(path).read_text("latin-1")
        except OSError as error:
            raise ConfigError(f"{self._named(key)}={path}: {error.strerror}") from error

    def _load_identity(self, context: ssl.SSLContext) -> bool:
        """Load key and certificates; False when none are set."""
        chain, key = self._get("ssl.keystore.certificate.chain"), self._get("ssl.keystore.key")
        stored = self._read("ssl.keystore.location")
        if not chain and not key and stored is None:
            return False
        self._require_pem("keystore")
        if stored is not None and (chain or key):
            raise ConfigError("ssl.keystore.location and ssl.keystore.certificate.chain or .key cannot be set together")
        if stored is None and not (chain and key):
            raise ConfigError("ssl.keystore.certificate.chain and ssl.keystore.key must be set together")
        text = stored if stored is not None else f"{key}\n{chain}"
        blocks = _pem_blocks(text)
        keys = [body for name, body in blocks if name.endswith("PRIVATE KEY")]
        certificates = [body for name, body in blocks if name == "CERTIFICATE"]
        where = self._named("ssl.keystore.key" if stored is None else "ssl.keystore.location")
        if len(keys) != 1 or not certificates:
            raise ConfigError(
                f"{where}: expected one private key and its certificates, found {len(keys)} and {len(certificates)}"
            )
        password = self._get("ssl.key.password")
        if "ENCRYPTED" in keys[0] and not password:
            raise ConfigError(f"{where}: the private key is encrypted, and ssl.key.password is not set")
        # The ssl module reads files only; this one is the process's own, and is gone at once.
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as file:
            file.write("".join([*keys, *certificates]))
            file.flush()
            try:
                context.load_cert_chain(file.name, password=password or None)
            except (ssl.SSLError, OSError) as error:
                raise ConfigError(f"{where}: key and certificates cannot be used: {error}") from error
        return True

    def _load_trusted(self, context: ssl.SSLContext) -> None:
        inline, stored = self._get("ssl.truststore.certificates"), self._read("ssl.truststore.location")
        if not inline and stored is None:
            context.load_default_certs(
                ssl.Purpose.SERVER_AUTH if context.protocol == ssl.PROTOCOL_TLS_CLIENT else ssl.Purpose.CLIENT_AUTH
            )
            return
        self._require_pem("truststore")
        if inline and stored is not None:
            raise ConfigError("ssl.truststore.location and ssl.truststore.certificates cannot be set together")
        where = self._named("ssl.truststore.location" if stored is not None else "ssl.truststore.certificates")
        certificates = [body for name, body in _pem_blocks(stored or inline or "") if name == "CERTIFICATE"]
        if not certificates:
            raise ConfigError(f"{where}: no certificate in it")
        try:
            context.load_verify_locations(cadata="".join(certificates))
        except ssl.SSLError as error:
            raise ConfigError(f"{where}: {error}") from error


def _pem_blocks(text: str) -> list[tuple[str, str]]:
    """Name and normalised text of each PEM block: inline values come with any blanks as line ends."""
    blocks: list[tuple[str, str]] = []
    for name, body in _PEM.findall(text):
        packed = "".join(body.split())
        lines = "\n".join(packed[at : at + 64] for at in range(0, len(packed), 64))
        blocks.append((name, f"-----BEGIN {name}-----\n{lines}\n-----END {name}-----\n"))
    return blocks


def distinguished_name(subject: Sequence[Sequence[tuple[str, str]]]) -> str:
    """The name of a certificate's owner as Kafka's principals have it (RFC 2253: the last part first).

    Args:
        subject: As ``ssl.SSLObject.getpeercert`` gives it.
    """
    parts = [
        "+".join(f"{_NAMES.get(name, name)}={_escaped(value)}" for name, value in relative)
        for relative in reversed(subject)
    ]
    return ",".join(parts)


def _escaped(value: str) -> str:
    text = re.sub(r'([,+"\\<>;])', r"\\\1", value)
    if text.startswith(("#", " ")):
        text = "\\" + text
    return text[:-1] + "\\ " if text.endswith(" ") else text
