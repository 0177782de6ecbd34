"""Options of Spark's Kafka clients: references to the files of credentials, never what is in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from millrace.collector import kafka
from millrace.connectivity.credentials import Credentials, CredentialsError
from millrace.errors import ExitCode

pytestmark = pytest.mark.unit

CERTIFICATE = "-----BEGIN CERTIFICATE-----\nQUJD\n-----END CERTIFICATE-----\n"
KEY = "-----BEGIN PRIVATE KEY-----\nS0VZ\n-----END PRIVATE KEY-----\n"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"


def options(tmp_path: Path, files: dict[str, str], **properties: str) -> dict[str, str]:
    for name, text in files.items():
        (tmp_path / name).write_text(text)
    given = {name.replace("_", "."): value for name, value in properties.items()}
    return {
        name.removeprefix("kafka."): value
        for name, value in kafka.options("kafka:9093", tmp_path, given).items()
    }


def test_without_credentials_there_is_only_the_address_and_what_the_user_set() -> None:
    assert kafka.options("kafka:9092", None, {"client.rack": "a"}) == {
        "kafka.bootstrap.servers": "kafka:9092",
        "kafka.client.rack": "a",
    }


def test_user_and_password_are_looked_up_by_the_client(tmp_path: Path) -> None:
    found = options(tmp_path, {"username": "alice\n", "password": "s3cret\n", "ca.crt": CERTIFICATE})
    assert found == {
        "bootstrap.servers": "kafka:9093",
        "security.protocol": "SASL_SSL",
        "sasl.mechanism": "SCRAM-SHA-512",
        "sasl.jaas.config": f'{SCRAM} username="${{dir:{tmp_path}:username}}\n'
        f'password="${{dir:{tmp_path}:password}}\n;',
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": f"{tmp_path}/ca.crt",
        "config.providers": "dir",
        "config.providers.dir.class": "org.apache.kafka.common.config.provider.DirectoryConfigProvider",
        "config.providers.dir.param.allowed.paths": str(tmp_path),
    }


def test_certificate_and_key_are_looked_up_by_the_client(tmp_path: Path) -> None:
    found = options(tmp_path, {"ca.crt": CERTIFICATE, "user.crt": CERTIFICATE, "user.key": KEY})
    assert found["security.protocol"] == "SSL"
    assert found["ssl.keystore.type"] == "PEM"
    assert found["ssl.keystore.key"] == f"${{dir:{tmp_path}:user.key}}"
    assert found["ssl.keystore.certificate.chain"] == f"${{dir:{tmp_path}:user.crt}}"
    assert "sasl.mechanism" not in found


@pytest.mark.parametrize(
    ("files", "jaas"),
    [
        # Strimzi's Secret of a user has the name only in the line
        (
            {"password": "s3cret", "sasl.jaas.config": f'{SCRAM} username="al\\"ice" password="s3cret";'},
            f'{SCRAM} username="al\\"ice"\npassword="${{dir:DIR:password}}\n;',
        ),
        (
            {"sasl.jaas.config": f'{SCRAM} username="alice" password="s3\\\\cret";'},
            "${dir:DIR:sasl.jaas.config}",
        ),
        # a quotation mark in the password: the other one stands around it
        (
            {"username": "alice", "password": 's3"cret'},
            f"{SCRAM} username=\"${{dir:DIR:username}}\npassword='${{dir:DIR:password}}\n;",
        ),
    ],
    ids=["the name in the line", "all in the line", "a quotation mark"],
)
def test_the_login_line_never_has_the_password(tmp_path: Path, files: dict[str, str], jaas: str) -> None:
    found = options(tmp_path, files)
    assert found["sasl.jaas.config"] == jaas.replace("DIR", str(tmp_path))
    assert "cret" not in "".join(found.values())


def test_a_backslash_in_the_login_line_stands_for_what_follows(tmp_path: Path) -> None:
    (tmp_path / "sasl.jaas.config").write_text(f'{SCRAM} username="alice" password="s3\\\\cr\\"et";')
    assert Credentials.from_directory(tmp_path).password == 's3\\cr"et'


@pytest.mark.parametrize(
    ("files", "file", "said"),
    [
        ({"username": "a", "password": "back\\slash"}, "password", "backslash"),
        ({"username": "a", "password": "q1\"'s3cret"}, "password", "quotation marks"),
        ({"username": "a", "password": " blank"}, "password", "blank"),
        ({"username": "a", "password": "li\nne"}, "password", "control character"),
        ({"username": "a\\", "password": "p-s3cret"}, "username", "backslash"),
        (
            {"username": "a", "sasl.jaas.config": f'{SCRAM} username="b" password="p-s3cret";'},
            "sasl.jaas.config",
            "no file username",
        ),
        (
            {"sasl.jaas.config": 'JndiLoginModule required username="b" password="p-s3cret";'},
            "sasl.jaas.config",
            "ScramLoginModule",
        ),
        (
            {"user.crt": CERTIFICATE, "user.key": KEY.replace("PRIVATE", "EC PRIVATE")},
            "user.key",
            "PKCS#8",
        ),
        (
            {"user.crt": CERTIFICATE, "user.key": KEY.replace("PRIVATE", "ENCRYPTED PRIVATE")},
            "user.key",
            "unencrypted",
        ),
    ],
)
def test_what_javas_client_can_not_take_is_refused_at_the_start_without_saying_it(
    tmp_path: Path, files: dict[str, str], file: str, said: str
) -> None:
    with pytest.raises(CredentialsError, match=said) as refusal:
        options(tmp_path, files)
    assert refusal.value.where == str(tmp_path / file)
    assert refusal.value.remedy
    assert not any(part in str(refusal.value) for part in ("slash\\", "q1", "s3cret", "S0VZ"))


def test_oauthbearer_is_refused_as_it_is_to_workers(tmp_path: Path) -> None:
    with pytest.raises(CredentialsError, match="OAUTHBEARER is not available in this version") as refusal:
        options(tmp_path, {"username": "a", "password": "p", "sasl.mechanism": "OAUTHBEARER"})
    assert refusal.value.code is ExitCode.CREDENTIALS


def test_a_path_that_a_reference_can_not_have_is_refused(tmp_path: Path) -> None:
    odd = tmp_path / "a:b"
    odd.mkdir()
    with pytest.raises(CredentialsError, match="path"):
        options(odd, {"username": "a", "password": "p"})


def test_the_credentials_win_over_what_the_user_set(tmp_path: Path) -> None:
    found = options(
        tmp_path,
        {"username": "a", "password": "p", "ca.crt": CERTIFICATE},
        security_protocol="plaintext",
        ssl_ca_location="/etc/other.pem",
    )
    assert found["security.protocol"] == "SASL_SSL"
    assert found["ssl.truststore.location"] == f"{tmp_path}/ca.crt"
