"""The Kafka cluster that a manifest means, with the credentials that go with it: the same for worker and parent."""

from __future__ import annotations

from pathlib import Path

from millrace.connectivity.confluent import ConfluentCluster
from millrace.connectivity.credentials import Credentials
from millrace.connectivity.ports import Cluster
from millrace.errors import ExitCode, MillraceError
from millrace_api import ConsumerPipeline


def connect(
    pipeline: ConsumerPipeline, *, bootstrap: str | None, secrets: Path | None, client_id: str
) -> Cluster:
    """Clients are made when asked for; nothing is contacted yet.

    Args:
        bootstrap: instead of the manifest's. A broker named so is spoken to without credentials unless `secrets`
            says otherwise: it is another one than the manifest's Secret is for.
        secrets: a directory with the key names of the Secret.

    Raises: MillraceError (CREDENTIALS) if the manifest names a Secret and there are none, or they can't be read.
    """
    kafka = pipeline.spec.kafka
    if secrets is None and bootstrap is None and kafka.credentials is not None:
        raise MillraceError(
            f"the manifest takes credentials from the Secret {kafka.credentials.secret_ref.name}, "
            "and on this machine there are none",
            where="spec.kafka.credentials.secretRef",
            remedy="give --secrets DIR, a directory with a file for each key of the Secret (username, password, ...)",
            code=ExitCode.CREDENTIALS,
        )
    credentials = Credentials.from_directory(secrets) if secrets is not None else None
    return ConfluentCluster(
        bootstrap or kafka.bootstrap_servers,
        credentials=credentials,
        properties=kafka.properties,
        client_id=client_id,
    )
