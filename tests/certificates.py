"""Certificates for tests, made as they run: an authority, a server on the loopback interface, a client."""

from __future__ import annotations

import datetime as dt
import ipaddress
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


@dataclass(frozen=True)
class Identity:
    """A key and its certificate, PEM."""

    key: str
    certificate: str

    def write(self, path: Path) -> Path:
        """Both into one file, as ``ssl.keystore.location`` wants them."""
        path.write_text(self.key + self.certificate)
        return path


class Authority:
    """Signs certificates; its own is what others trust."""

    def __init__(self, name: str = "kraftlog tests") -> None:
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        usage = x509.KeyUsage(
            digital_signature=True, key_cert_sign=True, crl_sign=True, content_commitment=False,
            key_encipherment=False, data_encipherment=False, key_agreement=False, encipher_only=False,
            decipher_only=False,
        )  # fmt: skip
        made = self._builder(self._name, self._key.public_key())
        made = made.add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        made = made.add_extension(usage, critical=True)
        self.certificate = self._pem(made.sign(self._key, hashes.SHA256()))

    def _builder(self, subject: x509.Name, public_key: ec.EllipticCurvePublicKey) -> x509.CertificateBuilder:
        now = dt.datetime.now(dt.UTC)
        identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(self._key.public_key())
        return (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(public_key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(hours=1))
            .not_valid_after(now + dt.timedelta(days=1))
            .add_extension(x509.SubjectKeyIdentifier.from_public_key(public_key), critical=False)
            .add_extension(identifier, critical=False)
        )

    @staticmethod
    def _pem(certificate: x509.Certificate) -> str:
        return certificate.public_bytes(serialization.Encoding.PEM).decode()

    def issue(
        self, name: str, *, hosts: tuple[str, ...] = ("127.0.0.1", "localhost"), password: str | None = None
    ) -> Identity:
        """A key and a certificate for it, by this common name and for these hosts."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name(
            [
                x509.NameAttribute(NameOID.COUNTRY_NAME, "NO"),
                x509.NameAttribute(NameOID.ORGANIZATION_NAME, "Tests, Inc."),
                x509.NameAttribute(NameOID.COMMON_NAME, name),
            ]
        )
        names: list[x509.GeneralName] = [
            x509.IPAddress(ipaddress.ip_address(host)) if host[0].isdigit() else x509.DNSName(host) for host in hosts
        ]
        made = self._builder(subject, key.public_key())
        made = made.add_extension(x509.SubjectAlternativeName(names), critical=False)
        encryption: serialization.KeySerializationEncryption = serialization.NoEncryption()
        if password is not None:
            encryption = serialization.BestAvailableEncryption(password.encode())
        key_pem = key.private_bytes(serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, encryption)
        return Identity(key_pem.decode(), self._pem(made.sign(self._key, hashes.SHA256())))
