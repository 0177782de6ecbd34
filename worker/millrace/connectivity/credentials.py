"""Who we are to the broker: read from a directory that holds one file for each key, as Kubernetes mounts a Secret.

| file | meaning |
|---|---|
| `username`, `password` | SASL |
| `sasl.mechanism` | PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512 (default) |
| `security.protocol` | only to say SASL_PLAINTEXT; else SASL_SSL with a user name, SSL without one |
| `ca.crt` | PEM of the authority that signed the brokers' certificates; without it, the system's authorities |
| `user.crt`, `user.key` | PEM of our own certificate and its key (mutual TLS) |

Of Strimzi's KafkaUser Secret, `sasl.jaas.config` is understood too (it alone has the user name). Its `ca.crt` is the
authority of the *clients*; a Secret for Millrace needs the cluster's (`<cluster>-cluster-ca-cert`) under this name.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from millrace.errors import ExitCode, MillraceError

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
PROTOCOLS = ("SASL_PLAINTEXT", "SASL_SSL", "SSL")

_JAAS = re.compile(r'(\w+)\s*=\s*"((?:[^"\\]|\\.)*)"')


class CredentialsError(MillraceError):
    """The directory of credentials can't be read, or what it holds is not enough or contradicts itself."""

    code = ExitCode.CREDENTIALS


@dataclass(frozen=True, slots=True)
class Credentials:
    """Credentials, kept out of every repr, message and log.

    Attributes:
        protocol: SASL_SSL, SASL_PLAINTEXT or SSL.
        mechanism: of SASL; "" without it.
        ca, certificate, key: PEM texts; "" where there is none.
    """

    protocol: str
    mechanism: str = ""
    username: str = ""
    password: str = field(default="", repr=False)
    ca: str = field(default="", repr=False)
    certificate: str = field(default="", repr=False)
    key: str = field(default="", repr=False)

    @classmethod
    def from_directory(cls, path: Path) -> Credentials:
        """Raises CredentialsError."""
        found = _files(path)
        jaas = {
            name: re.sub(r"\\(.)", r"\1", value)
            for name, value in _JAAS.findall(found.get("sasl.jaas.config", ""))
        }
        username = found.get("username") or jaas.get("username", "")
        password = found.get("password") or jaas.get("password", "")
        certificate, key = found.get("user.crt", ""), found.get("user.key", "")
        _in_pairs(path, {"username": username, "password": password})
        _in_pairs(path, {"user.crt": certificate, "user.key": key})
        mechanism = _mechanism(path, found) if username else ""
        return cls(
            protocol=_protocol(path, found, username),
            mechanism=mechanism,
            username=username,
            password=password,
            ca=_pem(path, "ca.crt", found),
            certificate=_pem(path, "user.crt", found),
            key=_pem(path, "user.key", found),
        )

    def described(self) -> str:
        """What was tried, for a message: never a secret."""
        if self.username:
            return f"user {self.username} with {self.mechanism} over {self.protocol}"
        return f"{'our certificate' if self.certificate else 'no certificate of ours'} over {self.protocol}"


_KEYS = (
    "username", "password", "sasl.mechanism", "sasl.jaas.config", "security.protocol",
    "ca.crt", "user.crt", "user.key",
)  # fmt: skip


def _files(path: Path) -> dict[str, str]:
    if not path.is_dir():
        raise CredentialsError(
            f"{path} is not a directory",
            where=str(path),
            remedy="give --secrets a directory with one file for each key: username, password, ca.crt...",
        )
    found: dict[str, str] = {}
    for name in _KEYS:
        file = path / name
        try:
            if file.is_file():
                found[name] = file.read_text().strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "it is not text"
            raise CredentialsError(f"{file} can't be read: {reason}", where=str(file)) from None
    if not found:
        raise CredentialsError(
            f"{path} holds no credentials",
            where=str(path),
            remedy=f"put one file for each key there, of: {', '.join(_KEYS)}",
        )
    return found


def _in_pairs(path: Path, pair: dict[str, str]) -> None:
    (one, has_one), (other, has_other) = pair.items()
    if bool(has_one) != bool(has_other):
        missing, there = (other, one) if has_one else (one, other)
        raise CredentialsError(
            f"there is {there} and no {missing}", where=str(path / missing), remedy=f"add the file {missing}"
        )


def _mechanism(path: Path, found: dict[str, str]) -> str:
    given = found.get("sasl.mechanism", "")
    if not given and "PlainLoginModule" in found.get("sasl.jaas.config", ""):
        given = "PLAIN"
    mechanism = (given or "SCRAM-SHA-512").upper()
    if mechanism == "OAUTHBEARER":
        raise CredentialsError(
            "sasl.mechanism OAUTHBEARER is not available in this version",
            where=str(path / "sasl.mechanism"),
            remedy=f"use one of {', '.join(MECHANISMS)}, or a client certificate",
        )
    if mechanism not in MECHANISMS:
        raise CredentialsError(
            f"sasl.mechanism is {given!r}",
            where=str(path / "sasl.mechanism"),
            remedy=f"use one of {', '.join(MECHANISMS)}",
        )
    return mechanism


def _protocol(path: Path, found: dict[str, str], username: str) -> str:
    given = found.get("security.protocol", "").upper()
    if given and given not in PROTOCOLS:
        raise CredentialsError(
            f"security.protocol is {given!r}",
            where=str(path / "security.protocol"),
            remedy=f"use one of {', '.join(PROTOCOLS)}, or leave it out",
        )
    if given and given.startswith("SASL") != bool(username):
        raise CredentialsError(
            f"security.protocol is {given} and there is {'a' if username else 'no'} username",
            where=str(path / "security.protocol"),
            remedy="leave security.protocol out, or make the two agree",
        )
    return given or ("SASL_SSL" if username else "SSL")


def _pem(path: Path, name: str, found: dict[str, str]) -> str:
    text = found.get(name, "")
    if text and "-----BEGIN " not in text:
        raise CredentialsError(
            f"{name} is not PEM",
            where=str(path / name),
            remedy="convert it; PEM begins with -----BEGIN CERTIFICATE----- or -----BEGIN PRIVATE KEY-----",
        )
    return text
