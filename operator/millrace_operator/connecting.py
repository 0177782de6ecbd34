"""Kafka clients of a pipeline, with what its Secret says."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path

from millrace.connectivity.confluent import ConfluentCluster
from millrace.connectivity.credentials import Credentials
from millrace.connectivity.ports import Cluster
from millrace.connectivity.settings import refused
from millrace.errors import ExitCode, ManifestError, MillraceError
from millrace_api import ConsumerPipeline


def connect(pipeline: ConsumerPipeline, secret: Mapping[str, str] | None) -> Cluster:
    """Nothing is contacted yet. Raises MillraceError (MANIFEST, CREDENTIALS)."""
    kafka = pipeline.spec.kafka
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
        client_id=f"{pipeline.group_id}-op",
    )


def _credentials(secret: Mapping[str, str]) -> Credentials:
    """By way of a directory that only we can read, and only for this moment: one reading of what keys mean."""
    with tempfile.TemporaryDirectory(prefix="millrace-") as directory:
        for key, value in secret.items():
            if key == os.path.basename(key) and key not in ("", ".", ".."):
                (Path(directory) / key).write_text(value)
        return Credentials.from_directory(Path(directory))
