"""What any test may ask for by name. The broker fixtures are in kafka_fixture.py, those of Spark in spark_fixture.py
and spark_session.py, those of Kubernetes in plane_fixture.py and kind_fixture.py.
"""

import hypothesis
import pytest

from java_client import java_client
from kafka_fixture import kafka, kafka_tls, make_topic, topic
from kind_fixture import Together, kube, pods
from plane_fixture import namespace, plane, start_plane
from spark_fixture import spark
from spark_session import session

# no test of ours fails for the time that it took
hypothesis.settings.register_profile("millrace", deadline=None)
hypothesis.settings.load_profile("millrace")


def pytest_xdist_make_scheduler(config: pytest.Config, log: object) -> Together | None:
    return Together(config, log) if config.getvalue("dist") == "loadgroup" else None


__all__ = [
    "java_client",
    "kafka",
    "kafka_tls",
    "kube",
    "make_topic",
    "namespace",
    "plane",
    "pods",
    "session",
    "spark",
    "start_plane",
    "topic",
]
