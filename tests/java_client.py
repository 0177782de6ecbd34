"""Java's Kafka client, the one of Spark's connector, in a JVM without Spark: what the collector's options do to it."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import pytest

from millrace.collector.jars import CONNECTOR
from millrace.host import jars

_DESERIALIZER = "org.apache.kafka.common.serialization.ByteArrayDeserializer"


class JavaClient:
    """`gateway`: py4j's, to a JVM with the connector's jars."""

    def __init__(self, gateway: Any) -> None:
        self._gateway = gateway

    def partitions(self, options: Mapping[str, str], topic: str) -> int:
        """How many partitions a topic has, as a consumer with these options (`kafka.*`) finds.

        Raises py4j's Py4JJavaError.
        """
        settings = self._gateway.jvm.java.util.HashMap()
        more = {
            "key.deserializer": _DESERIALIZER,
            "value.deserializer": _DESERIALIZER,
            "default.api.timeout.ms": "20000",
        }
        for name, value in {**options, **more}.items():
            settings[name.removeprefix("kafka.")] = value
        consumer = self._gateway.jvm.org.apache.kafka.clients.consumer.KafkaConsumer(settings)
        try:
            return int(consumer.partitionsFor(topic).size())
        finally:
            consumer.close()


@pytest.fixture(scope="session")
def java_client(spark: None) -> Iterator[JavaClient]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of pyspark's, about the pandas that is installed
        from pyspark import SparkConf
        from pyspark.java_gateway import launch_gateway
    conf = SparkConf(loadDefaults=False)
    conf.set("spark.driver.memory", "256m")
    conf.set("spark.driver.extraClassPath", ":".join(map(str, jars.ensure(CONNECTOR).glob("*.jar"))))
    conf.set("spark.driver.extraJavaOptions", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")
    gateway = launch_gateway(conf)
    yield JavaClient(gateway)
    gateway.shutdown()
    gateway.proc.stdin.close()  # the JVM ends with it
    gateway.proc.wait(20)
