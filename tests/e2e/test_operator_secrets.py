"""Credentials on a real cluster: workers and operator reach the broker by TLS and SCRAM with what a Secret says, keep
working when it is rotated, and tell nobody what is in it.
"""

from __future__ import annotations

import base64
import hashlib
import json
import secrets
from collections.abc import Iterator, Sequence

import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)

from cluster import kafka
from cluster.kind import Cluster
from flights_on_kind import Flights, worker_image
from installed_operator import Installed, eventually, installed

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]


class User:
    """A user of the broker, and its Secret under the key names of Strimzi's KafkaUser."""

    def __init__(self, flights: Flights) -> None:
        self.flights, self.name = flights, f"{flights.name}-user"
        self.passwords: list[str] = []
        self._admin = AdminClient({"bootstrap.servers": flights.bootstrap})

    def set_password(self) -> None:
        """A new one, at the broker and in the Secret; the former is worth nothing any more."""
        password = secrets.token_urlsafe(18)
        self.passwords.append(password)
        info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        upsertion = UserScramCredentialUpsertion(self.name, info, password.encode())
        self._admin.alter_user_scram_credentials([upsertion])[self.name].result(30)
        login = "org.apache.kafka.common.security.scram.ScramLoginModule"
        keys = {
            "password": password,
            "sasl.jaas.config": f'{login} required username="{self.name}" password="{password}";',
            "ca.crt": self._authority(),
        }
        made = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "kafka-user"}, "stringData": keys}
        self.flights.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=json.dumps(made))

    def allow(self) -> None:
        """What docs/credentials.md says, and no more."""
        flights, operations = self.flights, AclOperation
        output = (operations.DESCRIBE, operations.WRITE, operations.READ, operations.CREATE)
        wanted = [
            (ResourceType.TOPIC, flights.source, (operations.DESCRIBE, operations.READ, operations.CREATE)),
            (ResourceType.TOPIC, flights.scored, output),
            (ResourceType.TOPIC, flights.dead, output),
            (ResourceType.GROUP, flights.group, (operations.DESCRIBE, operations.READ)),
        ]
        prefixes = [
            (ResourceType.GROUP, f"{flights.group}.claims", (operations.DESCRIBE, operations.READ)),
            (ResourceType.TRANSACTIONAL_ID, f"{flights.uid}-", (operations.DESCRIBE, operations.WRITE)),
        ]
        self._create(self._bindings(wanted) + self._bindings(prefixes, ResourcePatternType.PREFIXED))

    def allow_deletion(self) -> None:
        """What deletionPolicy Delete needs beside."""
        flights = self.flights
        topics = [(ResourceType.TOPIC, name) for name in (flights.source, flights.scored, flights.dead)]
        named = [(*one, (AclOperation.DELETE,)) for one in (*topics, (ResourceType.GROUP, flights.group))]
        claims = [(ResourceType.GROUP, f"{flights.group}.claims", (AclOperation.DELETE,))]
        self._create(self._bindings(named) + self._bindings(claims, ResourcePatternType.PREFIXED))

    def _create(self, bindings: Sequence[AclBinding]) -> None:
        for done in self._admin.create_acls(list(bindings)).values():
            done.result(30)

    def _bindings(
        self,
        wanted: Sequence[tuple[ResourceType, str, Sequence[AclOperation]]],
        pattern: ResourcePatternType = ResourcePatternType.LITERAL,
    ) -> list[AclBinding]:
        return [
            self._binding(kind, name, pattern, operation) for kind, name, some in wanted for operation in some
        ]

    def _binding(
        self, kind: ResourceType, name: str, pattern: ResourcePatternType, operation: AclOperation
    ) -> AclBinding:
        return AclBinding(kind, name, pattern, f"User:{self.name}", "*", operation, AclPermissionType.ALLOW)

    def _authority(self) -> str:
        path = 'go-template={{index .data "ca.crt" | base64decode}}'
        where = ("-n", kafka.NAMESPACE, "kafka-alice")
        return self.flights.cluster.kubectl("get", "secret", *where, "-o", path, check=True).stdout


@pytest.fixture(scope="module")
def operator(kube: Cluster) -> Iterator[Installed]:
    with installed(kube) as found:
        yield found


@pytest.fixture(scope="module")
def flights(kube: Cluster, pods: str, operator: Installed) -> Iterator[Flights]:
    kube.kubectl("label", "namespace", pods, "pod-security.kubernetes.io/enforce=restricted", check=True)
    secure = {"bootstrapServers": kafka.SECURE, "credentials": {"secretRef": {"name": "kafka-user"}}}
    found = Flights(kube, pods, worker_image(kube), kafka=secure, replicas=2, deletionPolicy="Delete")
    yield found
    found.close()


@pytest.fixture(scope="module")
def user(flights: Flights) -> User:
    return User(flights)


def test_a_pipeline_waits_for_its_secret_and_for_its_rights_and_says_so(flights: Flights, user: User) -> None:
    flights.apply()
    eventually(
        lambda: flights.condition("Ready") == ("False", "SecretMissing"), "no Secret yet", flights.told
    )
    user.set_password()
    eventually(
        lambda: flights.condition("Ready") == ("False", "CredentialsRejected"), "no rights yet", flights.told
    )
    user.allow()

    flights.await_running(2)
    flights.feed(20_000)
    flights.exact()


def test_a_rotated_password_rolls_the_workers_and_nothing_is_lost(flights: Flights, user: User) -> None:
    before = {pod["metadata"]["uid"] for pod in flights.pods()}
    with flights.flowing():
        user.set_password()
        eventually(
            lambda: flights.runs(2) and not before & {pod["metadata"]["uid"] for pod in flights.pods()},
            "all workers have the new one",
            flights.told,
        )

    flights.exact()
    eventually(lambda: flights.condition("SourceReady")[0] == "True", "and the operator", flights.told)


def test_a_secret_whose_content_is_the_same_rolls_nobody(flights: Flights, operator: Installed) -> None:
    before = {pod["metadata"]["uid"] for pod in flights.pods()}
    done = operator.reconciles()
    flights.kubectl("annotate", "secret", "kafka-user", "note=looked-at")
    flights.kubectl("annotate", "cpl", flights.name, "note=looked-at")
    eventually(lambda: operator.reconciles() > done, "the operator has looked again")

    assert {pod["metadata"]["uid"] for pod in flights.pods()} == before


def test_what_is_secret_is_told_to_nobody(flights: Flights, user: User, operator: Installed) -> None:
    kinds = "cpl,pods,statefulsets,controllerrevisions,configmaps,serviceaccounts,events"
    objects = flights.kubectl("get", kinds, "-o", "json")
    logs = [flights.kubectl("logs", pod["metadata"]["name"]) for pod in flights.pods()]
    environments = [
        flights.kubectl("exec", pod["metadata"]["name"], "--", "cat", "/proc/1/environ")
        for pod in flights.pods()
    ]
    everything = "\n".join([objects, operator.logs(), *logs, *environments])

    assert user.name in everything or flights.name in everything
    for password in user.passwords:
        for form in (password, base64.b64encode(password.encode()).decode().rstrip("=")):
            assert form not in everything
    # nor what could be tried against it: a plain hash of the Secret's content
    data = json.loads(flights.kubectl("get", "secret", "kafka-user", "-o", "json"))["data"]
    plain = hashlib.sha256(json.dumps(data, sort_keys=True, separators=(",", ":")).encode()).hexdigest()
    assert plain[:16] not in everything


def test_deleted_for_good_it_leaves_nothing_in_kafka(flights: Flights, user: User) -> None:
    admin = AdminClient({"bootstrap.servers": flights.bootstrap})
    topics, groups = (
        {flights.source, flights.scored, flights.dead},
        {flights.group, f"{flights.group}.claims"},
    )
    assert topics <= set(admin.list_topics(timeout=30).topics)
    assert groups <= _groups(admin)
    user.allow_deletion()

    flights.kubectl("delete", "cpl", flights.name, "--timeout=240s")

    assert not topics & set(admin.list_topics(timeout=30).topics)
    assert not groups & _groups(admin)


def _groups(admin: AdminClient) -> set[str]:
    return {group.group_id for group in admin.list_consumer_groups().result(30).valid}
