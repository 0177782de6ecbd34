"""A driver in client mode: takes a topic with a Python function on executors, says what it found, and stays."""

import json
import os
import socket
import sys
import time
from glob import glob

from pyspark.sql import SparkSession
from pyspark.sql.functions import col, udf

here = os.environ
jars = glob(f"{here['MILLRACE_CACHE']}/spark-kafka-*/jars")[0] + "/*"
settings = {
    "spark.master": "k8s://https://kubernetes.default.svc",
    "spark.kubernetes.namespace": here["NAMESPACE"],
    # executors are owned by it, and go with it
    "spark.kubernetes.driver.pod.name": here["POD_NAME"],
    "spark.kubernetes.container.image": here["IMAGE"],
    "spark.kubernetes.container.image.pullPolicy": "IfNotPresent",
    "spark.kubernetes.executor.podTemplateFile": "/job/executor.yaml",
    "spark.kubernetes.executor.podTemplateContainerName": "executor",
    "spark.kubernetes.executor.request.cores": "100m",
    "spark.driver.host": f"driver.{here['NAMESPACE']}.svc",
    "spark.driver.bindAddress": "0.0.0.0",
    "spark.driver.port": "7078",
    "spark.driver.blockManager.port": "7079",
    "spark.driver.memory": "512m",
    "spark.executor.instances": "2",
    "spark.executor.cores": "1",
    "spark.executor.memory": "512m",
    "spark.driver.extraClassPath": jars,
    "spark.executor.extraClassPath": jars,
    "spark.ui.enabled": "false",
}
builder = SparkSession.builder
for key, value in settings.items():
    builder = builder.config(key, value)
spark = builder.getOrCreate()


@udf("string")
def place(value: bytes) -> str:
    return socket.gethostname()


records = (
    spark.read.format("kafka")
    .option("kafka.bootstrap.servers", here["BOOTSTRAP"])
    .option("subscribe", here["TOPIC"])
    .load()
)
found = (
    records.select(place("value").alias("place"), col("value").cast("string").cast("long").alias("number"))
    .groupBy("place")
    .agg({"number": "sum", "*": "count"})
    .collect()
)
total = {"count": sum(row["count(1)"] for row in found), "sum": sum(row["sum(number)"] for row in found)}
sys.stdout.write(
    json.dumps({"driver": socket.gethostname(), "places": [row["place"] for row in found], **total}) + "\n"
)
sys.stdout.flush()
time.sleep(600)
