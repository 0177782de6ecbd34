"""How the operator reads Kafka for many pipelines, on real brokers: few clients, however many pipelines, and none of them
serves a pipeline with other credentials, or is troubled by what is refused to another.
"""

from __future__ import annotations

import gc
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import psutil
import pytest
from confluent_kafka.admin import (
    AclBinding,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from kafka_fixture import SecureKafka, start_or_skip
from millrace.clock import Deadline, SystemClock
from millrace.connectivity import settings
from millrace.connectivity.confluent import ConfluentCluster
from millrace.connectivity.confluent.many_groups import ManyGroups
from millrace.connectivity.credentials import Credentials
from millrace.connectivity.ports import (
    AuthorizationFailed,
    Cluster,
    KafkaError,
    OffsetAndMetadata,
)
from millrace.connectivity.survey import Progress
from millrace.local.broker.embedded import EmbeddedBroker
from millrace.ownership.claim import Claim
from millrace.ownership.epoch import Epoch
from millrace.ownership.epoch_store import MemoryEpochs
from millrace_api import parse
from millrace_operator.connecting import connect, identity
from millrace_operator.kafka import PipelineKafka
from millrace_operator.observed import KafkaView, Resource
from millrace_operator.readings import Question, Reading, Watches

pytestmark = [
    pytest.mark.integration,
    pytest.mark.timeout(900),
    # kafka-python leaves a socket that gets no connection to the garbage collector
    pytest.mark.filterwarnings("ignore:unclosed .socket:ResourceWarning"),
]

PIPELINES, PARTITIONS = 30, 4
CLOCK = SystemClock()


@pytest.fixture
def watches() -> Iterator[Watches]:
    found = Watches(CLOCK)
    yield found
    found.close()
    deadline = Deadline.after(CLOCK, 200)
    while any(thread.name.startswith(("kafka readings", "kafka-io")) for thread in threading.enumerate()):
        assert not deadline.expired(), threading.enumerate()
        CLOCK.sleep(0.05)
    gc.collect()  # see above: not in another test


def sources(bootstrap: str, prefix: str, count: int) -> list[str]:
    """Topics that are there when this returns."""
    names = [f"{prefix}-{n}" for n in range(count)]
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in names]).values():
        future.result(120)
    return names


def insist(attempt: Callable[[], object], seconds: float = 200.0) -> None:
    """Again and again: a broker that has just started refuses much."""
    deadline = Deadline.after(CLOCK, seconds)
    while True:
        try:
            attempt()
            return
        except KafkaError:
            if deadline.expired():
                raise
            CLOCK.sleep(0.2)


def pipeline(bootstrap: str, topic: str, secret: Mapping[str, str] | None, watches: Watches) -> PipelineKafka:
    """As the operator makes it, with an epoch that says that all partitions are seeded."""
    tree = {
        "apiVersion": "millrace.dev/v1alpha1",
        "kind": "ConsumerPipeline",
        "metadata": {"name": topic, "namespace": "air"},
        "spec": {
            "kafka": {
                "bootstrapServers": bootstrap,
                **({"credentials": {"secretRef": {"name": "s"}}} if secret is not None else {}),
            },
            "source": {"topic": topic},
            "stages": [{"name": "same", "map": {"function": "code:same"}}],
            "worker": {"image": "w:1"},
        },
    }
    parsed = parse(tree)
    of_kafka, who = parsed.spec.kafka, object()
    epochs = MemoryEpochs()
    epochs.publish(Epoch(topic, 1, PARTITIONS, 1, 1), None)

    def ask(question: Question, within: float) -> Reading:
        reader = partial(connect, of_kafka, secret, "millrace-operator")
        return watches.ask(who, identity(of_kafka, secret), reader, question, within)

    def writer(_: object) -> Cluster:
        return connect(of_kafka, secret, f"{topic}-op")

    resource = Resource(topic, "air", topic, 1, "1", parsed)
    return PipelineKafka(resource, writer, ask, epochs, CLOCK)


def commit_claims(bootstrap: str, topics: list[str]) -> None:
    admin = ConfluentCluster(bootstrap, client_id="workers").admin()
    for topic in topics:
        described = admin.describe_topic(topic, 20)
        assert described is not None
        claim = Claim(topic, described.id, 1, 0, None).encode()
        held = {p: OffsetAndMetadata(0, claim) for p in range(PARTITIONS)}
        bare = {p: OffsetAndMetadata(0) for p in held}
        insist(partial(admin.commit_offsets, f"air.{topic}.claims", topic, held, 20))
        insist(partial(admin.commit_offsets, f"air.{topic}", topic, bare, 20))
    admin.close()


def used() -> tuple[int, int]:
    """Threads and connections of this process."""
    process = psutil.Process()
    return process.num_threads(), sum(c.status == "ESTABLISHED" for c in process.net_connections())


def test_clients_threads_and_connections_do_not_grow_with_pipelines(
    kafka: EmbeddedBroker, topic: str, watches: Watches
) -> None:
    topics = sources(kafka.bootstrap, topic, PIPELINES)
    commit_claims(kafka.bootstrap, topics)
    all_of_them = [pipeline(kafka.bootstrap, name, None, watches) for name in topics]

    def look(some: list[PipelineKafka]) -> list[KafkaView]:
        """As the operator does: many at once."""
        with ThreadPoolExecutor(16) as pool:
            return list(pool.map(PipelineKafka.look, some))

    threads, connections = used()
    assert [view.failure for view in look(all_of_them[:1])] == [None]
    for_one = used()
    views = look(all_of_them)
    for_all = used()

    assert [view.failure for view in views] == [None] * PIPELINES
    for name, view in zip(topics, views, strict=True):
        assert view.lag == dict.fromkeys(range(PARTITIONS), 0)
        held = [Claim.decode(record.metadata) for record in view.claims.values()]
        assert {claim.uid for claim in held if claim is not None} == {name}
        assert len(view.mirror) == len(held) == PARTITIONS
    assert len(watches) == 1
    assert for_all[0] - for_one[0] <= 2, (for_one, for_all)  # librdkafka's may still come and go
    assert for_all[1] - for_one[1] <= 2, (for_one, for_all)
    assert for_all[0] - threads <= 12
    assert for_all[1] - connections <= 8


@pytest.fixture
def restarted(tmp_path: Path) -> Iterator[EmbeddedBroker]:
    broker = EmbeddedBroker(tmp_path / "broker")
    start_or_skip(broker)
    yield broker
    broker.stop()


def test_a_broker_that_is_killed_is_told_of_and_read_again_when_it_is_back(
    restarted: EmbeddedBroker, watches: Watches
) -> None:
    topics = sources(restarted.bootstrap, "t", 5)
    commit_claims(restarted.bootstrap, topics)
    several = [pipeline(restarted.bootstrap, name, None, watches) for name in topics]
    assert all(one.look().failure is None for one in several)
    before = used()
    restarted.kill()
    with ThreadPoolExecutor(len(several)) as pool:
        failures = [view.failure for view in pool.map(PipelineKafka.look, several)]
    assert all(failure is not None and "no broker answers" in failure.what for failure in failures), failures
    assert used()[0] <= before[0] + 8
    restarted.start()
    deadline = Deadline.after(CLOCK, 200)
    while any(one.look().failure is not None for one in several):
        assert not deadline.expired(), [one.view.failure for one in several]
        CLOCK.sleep(0.5)
    assert all(len(one.view.claims) == PARTITIONS for one in several)


def secret(kafka: SecureKafka, user: str, password: str = "") -> Mapping[str, str]:
    return {
        "username": user,
        "password": password or kafka.users[user],
        "ca.crt": kafka.ca.read_text(),
    }


def test_each_has_the_rights_of_its_own_credentials_and_no_others(
    kafka_tls: SecureKafka, topic: str, watches: Watches
) -> None:
    (name,) = sources(kafka_tls.broker.bootstrap, topic, 1)
    commit_claims(kafka_tls.broker.bootstrap, [name])
    ways = {
        "alice": secret(kafka_tls, "alice"),
        "bob": secret(kafka_tls, "bob"),
        "nobody": secret(kafka_tls, "alice", "not her password"),
    }
    asked = {
        who: pipeline(kafka_tls.bootstrap, name, credentials, watches) for who, credentials in ways.items()
    }
    with ThreadPoolExecutor(3) as pool:
        views = dict(zip(asked, pool.map(PipelineKafka.look, asked.values()), strict=True))
    assert views["alice"].failure is None
    assert len(views["alice"].claims) == PARTITIONS
    for who in ("bob", "nobody"):
        failure = views[who].failure
        assert failure is not None
        assert failure.code.name == "CREDENTIALS", failure
        assert not views[who].claims
        assert "not her password" not in repr(failure)
    assert len(watches) == 3


def test_what_is_refused_to_one_group_is_no_affair_of_the_others(kafka_tls: SecureKafka, topic: str) -> None:
    topics = sources(kafka_tls.broker.bootstrap, topic, 2)
    commit_claims(kafka_tls.broker.bootstrap, topics)
    allowed, denied = (f"air.{name}" for name in topics)
    grants = [
        _grant(ResourceType.TOPIC, topics[0]),
        _grant(ResourceType.TOPIC, topics[1]),
        _grant(ResourceType.GROUP, allowed),
    ]
    admin = AdminClient({"bootstrap.servers": kafka_tls.broker.bootstrap})
    for future in admin.create_acls(grants).values():
        future.result(120)
    bob = Credentials("SASL_SSL", "SCRAM-SHA-512", "bob", kafka_tls.users["bob"], ca=kafka_tls.ca.read_text())
    asked = [Progress(allowed, topics[0], PARTITIONS), Progress(denied, topics[1], PARTITIONS)]

    survey = ConfluentCluster(kafka_tls.bootstrap, credentials=bob, client_id="bob").survey()
    try:
        found = {}

        def answered() -> None:
            found.update(survey.committed(asked, 20))
            if isinstance(found[asked[0]], KafkaError):  # what was granted is not known everywhere at once
                raise found[asked[0]]

        insist(answered)
    finally:
        survey.close()
    assert found[asked[0]] == dict.fromkeys(range(PARTITIONS), OffsetAndMetadata(0))
    assert isinstance(found[asked[1]], AuthorizationFailed), found


def _grant(kind: ResourceType, name: str) -> AclBinding:
    return AclBinding(
        kind,
        name,
        ResourcePatternType.LITERAL,
        "User:bob",
        "*",
        AclOperation.READ,
        AclPermissionType.ALLOW,
    )


def test_many_groups_are_read_over_tls_with_a_password_and_with_a_certificate(
    kafka_tls: SecureKafka, topic: str
) -> None:
    """That is without the detour by a client for each group, which `Unusable` would be."""
    (name,) = sources(kafka_tls.broker.bootstrap, topic, 1)
    commit_claims(kafka_tls.broker.bootstrap, [name])
    ca, asked = kafka_tls.ca.read_text(), Progress(f"air.{name}", name, PARTITIONS)
    ways = [
        (
            kafka_tls.bootstrap,
            Credentials("SASL_SSL", "SCRAM-SHA-512", "alice", kafka_tls.users["alice"], ca=ca),
        ),
        (kafka_tls.mutual, Credentials("SSL", ca=ca, certificate=kafka_tls.certificate, key=kafka_tls.key)),
    ]
    for address, credentials in ways:
        groups = ManyGroups(settings.admin(settings.common(address, "test", credentials), {}), "", CLOCK)
        found = groups.read([asked], Deadline.after(CLOCK, 200))
        groups.close()
        assert found == {asked: dict.fromkeys(range(PARTITIONS), OffsetAndMetadata(0))}


def test_a_broker_that_nobody_reaches_costs_one_thread_and_all_are_told(watches: Watches) -> None:
    several = [pipeline("127.0.0.1:1", f"t{n}", None, watches) for n in range(8)]
    before = used()
    with ThreadPoolExecutor(8) as pool:
        failures = [view.failure for view in pool.map(PipelineKafka.look, several)]
    assert all(failure is not None for failure in failures)
    assert used()[0] <= before[0] + 12
    began = CLOCK.monotonic()
    assert several[0].look().failure is not None  # it was tried just now
    assert CLOCK.monotonic() - began < 5.0
