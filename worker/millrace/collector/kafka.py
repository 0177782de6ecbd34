"""How Spark's Kafka clients reach the broker: options of its Kafka source and sink. They are Java's clients, while all
others of Millrace are librdkafka's: `properties` translates what the user set for those.

Options of a query can be seen: in Spark's logs and event log, on its pages, in a plan that is explained. So no secret is
one. Java's client looks it up itself, in each process that connects (KIP-297, KIP-421): an option names a file of the
directory of credentials, `${dir:<directory>:<file>}`, and DirectoryConfigProvider, which is allowed this one directory
(KIP-993), reads it when a client is made. PEM files are named by their paths, or in the same way.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from millrace.collector import properties
from millrace.connectivity.credentials import Credentials, CredentialsError

_MODULES = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_PROVIDER = "org.apache.kafka.common.config.provider.DirectoryConfigProvider"
_IN_JAAS = "sasl.jaas.config"


def options(bootstrap: str, secrets: Path | None, given: Mapping[str, str]) -> Mapping[str, str]:
    """Options `kafka.*` that all clients of a cluster share: where it is, who we are, what the user set.

    Args:
        secrets: directory of credentials, see `connectivity.credentials`; None: there are none.
        given: `spec.kafka.properties`.

    Raises: CredentialsError: they can't be read, or are of a form that Java's client can't take.
    """
    shared = {**properties.translated(given).options, "bootstrap.servers": bootstrap}
    if secrets is not None:
        shared.update(_credentials(secrets.absolute()))
    return {f"kafka.{name}": value for name, value in shared.items()}


def check(secrets: Path | None) -> None:
    """See that the credentials are of a form that Java's client can take. Raises CredentialsError."""
    if secrets is not None:
        _credentials(secrets.absolute())


def _credentials(secrets: Path) -> dict[str, str]:
    known = Credentials.from_directory(secrets)
    if any(letter in str(secrets) for letter in ":,{}"):
        raise CredentialsError(
            "the path of the credentials has one of : , { } in it, which the collector can't take",
            where=str(secrets),
            remedy="give them another place, or a symbolic link",
        )
    chosen = {"security.protocol": known.protocol}
    if known.username:
        chosen["sasl.mechanism"] = known.mechanism
        chosen["sasl.jaas.config"] = _jaas(secrets, known)
    if known.ca:
        chosen["ssl.truststore.type"] = "PEM"
        chosen["ssl.truststore.location"] = str(secrets / "ca.crt")
    if known.certificate:
        _check_key(secrets / "user.key", known.key)
        chosen["ssl.keystore.type"] = "PEM"
        # as a file it would have to be one for both
        chosen["ssl.keystore.key"] = _look_up(secrets, "user.key")
        chosen["ssl.keystore.certificate.chain"] = _look_up(secrets, "user.crt")
    if any(value.count("${dir:") for value in chosen.values()):
        chosen["config.providers"] = "dir"
        chosen["config.providers.dir.class"] = _PROVIDER
        chosen["config.providers.dir.param.allowed.paths"] = str(secrets)
    return chosen


def _look_up(secrets: Path, name: str) -> str:
    return f"${{dir:{secrets}:{name}}}"


def _jaas(secrets: Path, known: Credentials) -> str:
    """The login line, with references for what is secret; the file of that name where it alone has the password."""
    module = _MODULES[known.mechanism]
    if not (secrets / "password").is_file():
        if module not in _text(secrets / _IN_JAAS) or (secrets / "username").is_file():
            raise CredentialsError(
                f"the collector can't take the password from {_IN_JAAS}: it must be a whole line for {module}, and "
                "there must be no file username beside it",
                where=str(secrets / _IN_JAAS),
                remedy="put the password into a file of its own, password",
            )
        return _look_up(secrets, _IN_JAAS)
    username = (
        f"username={_quoted(secrets, 'username')}"
        if (secrets / "username").is_file()
        else 'username="{}"'.format(known.username.replace("\\", "\\\\").replace('"', '\\"'))
    )
    return f"{module} required {username}\npassword={_quoted(secrets, 'password')}\n;"


def _quoted(secrets: Path, name: str) -> str:
    """A reference to a file, in quotes for a JAAS line.

    The closing quote is left out on purpose: what stands in a file often ends with a line end, as editors and
    `kubectl create secret --from-file` leave it; a line end also closes a quotation, and the caller adds one.
    """
    text = _text(secrets / name).rstrip("\r\n")
    marks = [mark for mark in "\"'" if mark not in text]
    if not marks or "\\" in text or text != text.strip() or not text.isprintable():
        raise CredentialsError(
            f"the collector can't take this {name}: there is a backslash in it, both kinds of quotation marks, a blank "
            "at an end or a control character",
            where=str(secrets / name),
            remedy="choose another; or instead of username and password give sasl.jaas.config, a whole line in which "
            "a backslash stands before each backslash and quotation mark",
        )
    return f"{marks[0]}{_look_up(secrets, name)}"


def _check_key(file: Path, key: str) -> None:
    if "-----BEGIN PRIVATE KEY-----" not in key:
        raise CredentialsError(
            "the collector takes a private key only as unencrypted PKCS#8",
            where=str(file),
            remedy="convert it: openssl pkcs8 -topk8 -nocrypt -in user.key; PKCS#8 begins with "
            "-----BEGIN PRIVATE KEY----- (cert-manager: privateKey.encoding: PKCS8)",
        )


def _text(file: Path) -> str:
    """Of a file that `Credentials` has read just now; "" if there is none."""
    try:
        return file.read_text()
    except FileNotFoundError:
        return ""
    except (OSError, UnicodeDecodeError):
        raise CredentialsError(f"{file} can't be read", where=str(file)) from None
