"""Where the clients of one cluster come from."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from millrace.connectivity import settings
from millrace.connectivity.confluent.administration import ConfluentAdmin
from millrace.connectivity.confluent.errors import Connection
from millrace.connectivity.confluent.reader import ConfluentConsumer
from millrace.connectivity.confluent.transactional import ConfluentTransactionalProducer
from millrace.connectivity.confluent.writer import ConfluentProducer
from millrace.connectivity.credentials import Credentials

if TYPE_CHECKING:
    from millrace.connectivity.confluent.survey import ConfluentSurvey


class ConfluentCluster:
    """Implements `ports.Cluster`.

    Args:
        bootstrap: HOST:PORT, several separated by commas.
        credentials: None: plain, unless `properties` say otherwise.
        properties: the user's `spec.kafka.properties`, already found to hold none of `settings.OWNED_KEYS`.
        client_id: names us in the broker's logs, quotas and metrics.
        transaction_timeout: seconds after which the broker aborts a transaction; None: as workers need it.
    """

    def __init__(
        self,
        bootstrap: str,
        *,
        credentials: Credentials | None = None,
        properties: Mapping[str, str] | None = None,
        client_id: str,
        transaction_timeout: float | None = None,
    ) -> None:
        self._bootstrap, self._properties = bootstrap, dict(properties or {})
        self._transaction_timeout = transaction_timeout or settings.TRANSACTION_TIMEOUT_SECONDS
        self._common = settings.common(bootstrap, client_id, credentials)
        protocol = self._properties.get("security.protocol", "PLAINTEXT").upper()
        self._tried = credentials.described() if credentials else f"no credentials over {protocol}"

    def __repr__(self) -> str:
        return f"ConfluentCluster({self._bootstrap!r}, {self._tried})"

    def consumer(self, topic: str, *, group: str, read_committed: bool = True) -> ConfluentConsumer:
        chosen = settings.consumer(self._common, self._properties, group, read_committed=read_committed)
        return ConfluentConsumer(chosen, topic, self._connection())

    def producer(self) -> ConfluentProducer:
        return ConfluentProducer(settings.producer(self._common, self._properties), self._connection())

    def transactional_producer(self, transactional_id: str) -> ConfluentTransactionalProducer:
        chosen = settings.transactional(
            self._common, self._properties, transactional_id, self._transaction_timeout
        )
        return ConfluentTransactionalProducer(chosen, transactional_id, self._connection())

    def admin(self) -> ConfluentAdmin:
        return ConfluentAdmin(settings.admin(self._common, self._properties), self._connection())

    def survey(self) -> ConfluentSurvey:
        from millrace.connectivity.confluent.survey import ConfluentSurvey  # no worker needs it

        return ConfluentSurvey(settings.admin(self._common, self._properties), self._connection())

    def _connection(self) -> Connection:
        return Connection(self._bootstrap, self._tried)
