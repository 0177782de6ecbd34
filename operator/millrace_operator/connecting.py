"""Kafka clients for what a manifest and its Secret say, and who is the same as who."""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from millrace.connectivity.confluent import ConfluentCluster
from millrace.connectivity.credentials import Credentials
from millrace.connectivity.ports import Cluster
from millrace.connectivity.settings import refused
from millrace.errors import ExitCode, ManifestError, MillraceError
from millrace_api.spec import Kafka


def identity(kafka: Kafka, secret: Mapping[str, str] | None) -> str:
    """Of a way to a cluster: the same for two pipelines only if they reach the same brokers with the very same credentials
    and properties. It tells nothing of these.
    """
    way = [kafka.bootstrap_servers, sorted(kafka.properties.items()), kafka.credentials is not None]
    known = None if secret is None else sorted(secret.items())
    return hashlib.sha256(json.dumps([way, known]).encode()).hexdigest()


def connect(kafka: Kafka, secret: Mapping[str, str] | None, client_id: str) -> Cluster:
    """`secret`: the texts of the Secret that it names. Nothing is contacted yet. Raises MillraceError (MANIFEST,
    CREDENTIALS).
    """
    for key, reason in refused(kafka.properties).items():
        raise ManifestError(
            f"{key} can't be set in kafka.properties", where=f"spec.kafka.properties.{key}", remedy=reason
        )
    if kafka.credentials is not None and secret is None:
        name = kafka.credentials.secret_ref.name
        raise MillraceError(f"there is no Secret {name}", remedy="make it", code=ExitCode.CREDENTIALS)
    return ConfluentCluster(
        kafka.bootstrap_servers,
        credentials=_credentials(secret) if kafka.credentials is not None and secret is not None else None,
        properties=kafka.properties,
        client_id=client_id,
    )


def _credentials(secret: Mapping[str, str]) -> Credentials:
    """By way of a directory that only we can read, and only for this moment: one reading of what keys mean."""
    with tempfile.TemporaryDirectory(prefix="millrace-") as directory:
        for key, value in secret.items():
            if key == os.path.basename(key) and key not in ("", ".", ".."):
                (Path(directory) / key).write_text(value)
        return Credentials.from_directory(Path(directory))
