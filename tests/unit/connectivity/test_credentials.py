"""Credentials as they lie in a directory."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from millrace.connectivity.credentials import Credentials, CredentialsError
from millrace.errors import ExitCode

pytestmark = pytest.mark.unit

PEM = "-----BEGIN CERTIFICATE-----\nabc\n-----END CERTIFICATE-----"
KEY = "-----BEGIN PRIVATE KEY-----\nabc\n-----END PRIVATE KEY-----"
JAAS = 'org.apache.kafka.common.security.scram.ScramLoginModule required username="my-user" password="p;w=1";'


def directory(tmp_path: Path, files: dict[str, str]) -> Path:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ({"username": "a", "password": "p\n"}, Credentials("SASL_SSL", "SCRAM-SHA-512", "a", "p")),
        (
            {"username": "a", "password": "p", "sasl.mechanism": "plain", "ca.crt": PEM},
            Credentials("SASL_SSL", "PLAIN", "a", "p", ca=PEM),
        ),
        (
            {"username": "a", "password": "p", "security.protocol": "SASL_PLAINTEXT"},
            Credentials("SASL_PLAINTEXT", "SCRAM-SHA-512", "a", "p"),
        ),
        ({"ca.crt": PEM}, Credentials("SSL", ca=PEM)),
        (
            {"ca.crt": PEM, "user.crt": PEM, "user.key": KEY},
            Credentials("SSL", ca=PEM, certificate=PEM, key=KEY),
        ),
        (  # Strimzi's KafkaUser: no user name but here
            {"password": "p;w=1", "sasl.jaas.config": JAAS, "ca.crt": PEM},
            Credentials("SASL_SSL", "SCRAM-SHA-512", "my-user", "p;w=1", ca=PEM),
        ),
        (
            {"sasl.jaas.config": 'org.apache...PlainLoginModule required username="u" password="p";'},
            Credentials("SASL_SSL", "PLAIN", "u", "p"),
        ),
    ],
)
def test_a_directory_is_understood(tmp_path: Path, files: dict[str, str], expected: Credentials) -> None:
    assert Credentials.from_directory(directory(tmp_path, files)) == expected


@pytest.mark.parametrize(
    ("files", "what"),
    [
        ({}, "holds no credentials"),
        ({"unrelated": "x"}, "holds no credentials"),
        ({"username": "a"}, "no password"),
        ({"password": "s3cret"}, "no username"),
        ({"user.crt": PEM}, "no user.key"),
        ({"user.key": KEY}, "no user.crt"),
        ({"username": "a", "password": "s3cret", "sasl.mechanism": "GSSAPI"}, "GSSAPI"),
        (
            {"username": "a", "password": "s3cret", "sasl.mechanism": "OAUTHBEARER"},
            "not available in this version",
        ),
        ({"username": "a", "password": "s3cret", "security.protocol": "SSL"}, "security.protocol"),
        ({"username": "a", "password": "s3cret", "security.protocol": "PLAIN"}, "security.protocol"),
        ({"ca.crt": PEM, "security.protocol": "SASL_SSL"}, "no username"),
        ({"ca.crt": "garbage"}, "not PEM"),
    ],
)
def test_what_is_wrong_with_a_directory_is_said_without_secrets(
    tmp_path: Path, files: dict[str, str], what: str
) -> None:
    with pytest.raises(CredentialsError, match=what) as error:
        Credentials.from_directory(directory(tmp_path, files))
    assert error.value.code is ExitCode.CREDENTIALS
    assert str(tmp_path) in error.value.where
    assert error.value.remedy
    assert "s3cret" not in str(error.value)


def test_a_directory_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(CredentialsError, match="not a directory"):
        Credentials.from_directory(tmp_path / "none")


def test_a_file_that_is_no_text_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "password").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(CredentialsError, match="can't be read"):
        Credentials.from_directory(tmp_path)


def test_secrets_are_in_no_repr() -> None:
    credentials = Credentials("SASL_SSL", "PLAIN", "alice", "s3cret", ca="CA-PEM", key="KEY-PEM")
    assert "alice" in repr(credentials)
    for secret in ("s3cret", "CA-PEM", "KEY-PEM"):
        assert secret not in repr(credentials)
        assert secret not in credentials.described()
    assert pickle.loads(pickle.dumps(credentials)) == credentials
