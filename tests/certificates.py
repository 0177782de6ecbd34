"""Certificates for tests, made on the spot: an authority, and what it signs, as PEM."""

from __future__ import annotations

import datetime
import ipaddress
from collections.abc import Sequence

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID


class Authority:
    """Args:
    name: of the authority.
    days: how long what it signs is valid.
    """

    def __init__(self, name: str, *, days: int = 2) -> None:
        self._days = days
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        self._certificate = self._sign(self._name, self._key.public_key())

    @property
    def certificate_pem(self) -> bytes:
        return _pem(self._certificate)

    def issue(self, name: str, *others: str) -> bytes:
        """Private key (PKCS#8), certificate for these names (and 127.0.0.1), and the authority's certificate."""
        key, certificate = self.issue_apart(name, *others)
        return key.encode() + certificate.encode() + self.certificate_pem

    def issue_apart(self, name: str, *others: str) -> tuple[str, str]:
        """Private key (PKCS#8) and certificate."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        certificate = self._sign(subject, key.public_key(), hosts=(name, *others))
        private = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
        return private.decode(), _pem(certificate).decode()

    def _sign(
        self, subject: x509.Name, key: ec.EllipticCurvePublicKey, *, hosts: Sequence[str] = ()
    ) -> x509.Certificate:
        now = datetime.datetime.now(datetime.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - datetime.timedelta(days=1))
            .not_valid_after(now + datetime.timedelta(days=self._days))
            .add_extension(x509.BasicConstraints(ca=not hosts, path_length=None), critical=True)
        )
        if hosts:
            names: list[x509.GeneralName] = [
                *(x509.DNSName(host) for host in hosts),
                x509.IPAddress(ipaddress.ip_address("127.0.0.1")),
            ]
            builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
        return builder.sign(self._key, hashes.SHA256())


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)
