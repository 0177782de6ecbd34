"""What the Spark job of a collect stage runs with: its settings; and on a cluster its image, and how large its pods are.

A cluster gives the job one pod, the driver, which does all the work unless executors are asked for. Everything about these
pods is a typed field here. Settings of Spark that would choose a service account, an image, a namespace or a template are
refused in `conf` (`is_kept`), with those that say where a job runs and what is on its class path.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Final, Literal

from pydantic import Field

from millrace_api.forms import Image, Quantity, SparkProperty
from millrace_api.model import Model

KEPT: Final = (
    "spark.app.name",
    "spark.archives",
    "spark.driver.bindAddress",
    "spark.driver.blockManager.port",
    "spark.driver.extraClassPath",
    "spark.driver.host",
    "spark.driver.port",
    "spark.executor.cores",
    "spark.executor.extraClassPath",
    "spark.executor.instances",
    "spark.executor.memory",
    "spark.executor.memoryOverhead",
    "spark.executor.memoryOverheadFactor",
    "spark.files",
    "spark.jars",
    "spark.master",
)
KEPT_BELOW: Final = ("spark.dynamicAllocation.", "spark.jars.", "spark.kubernetes.", "spark.submit.")
DEFAULT_MEMORY: Final = "2Gi"
MOST_EXECUTORS: Final = 1000


SHUFFLE_PARTITIONS: Final = "spark.sql.shuffle.partitions"
STATE_STORE: Final = "spark.sql.streaming.stateStore.providerClass"
ROCKS_DB: Final = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"


def is_kept(key: str) -> bool:
    """Whether this setting of Spark is Millrace's own."""
    return key in KEPT or key.startswith(KEPT_BELOW)


class _Pod(Model):
    """The size of a pod. Spark wants memory that is asked for and limited alike."""

    cpu: Quantity | None = Field(
        default=None,
        description='CPU that a node must have free for the pod, as a quantity in quotes, for example "500m" or "2". '
        "Default: cores.",
    )
    memory: Quantity = Field(
        default=DEFAULT_MEMORY,
        description="Memory of the whole pod, asked for and limit in one, for example 4Gi (default 2Gi). Six tenths are "
        "the JVM's heap, the rest is for Python and what the JVM has besides.",
    )


class Driver(_Pod):
    """The driver's pod."""

    cores: int = Field(
        default=2,
        ge=1,
        le=64,
        description="Tasks that it works on at once where there are no executors (1 to 64, default 2).",
    )


class Executors(_Pod):
    """Pods that do the driver's work: a number of them, or as many as there is work for between two bounds."""

    cores: int = Field(
        default=1, ge=1, le=64, description="Tasks that each works on at once (1 to 64, default 1)."
    )
    instances: int | None = Field(
        default=None,
        ge=1,
        le=MOST_EXECUTORS,
        description="How many (1 to 1000). Either this, or max.",
    )
    min: int | None = Field(
        default=None,
        ge=0,
        le=MOST_EXECUTORS,
        description="At least so many, with max (0 to 1000, default 0): those that have had no task for a minute go.",
    )
    max: int | None = Field(
        default=None,
        ge=1,
        le=MOST_EXECUTORS,
        description="At most so many (1 to 1000). Either this, or instances.",
    )


class Spark(Model):
    """What the Spark job runs with."""

    conf: Mapping[SparkProperty, Annotated[str, Field(max_length=4096)]] = Field(
        default_factory=dict,
        max_length=64,
        description="Spark properties of the job, for example spark.driver.memory. Values are strings. Where it runs, what "
        "is on its class path and all below spark.kubernetes. are Millrace's own, and refused.",
    )
    shuffle_partitions: int | None = Field(
        default=None,
        ge=1,
        le=10_000,
        description="Into how many parts the state is split, each a task of every batch (1 to 10000, default 4). "
        "It wins over spark.sql.shuffle.partitions in conf. Another number begins a new version of the checkpoint.",
    )
    state_store: Literal["Memory", "RocksDB"] | None = Field(
        default=None,
        description="Where the state of open windows is between batches: Memory (default), in the JVM's heap; RocksDB, "
        "on disk, for more groups than fit. Both keep it in the checkpoint. Another one begins a new version of it.",
    )
    image: Image | None = Field(
        default=None,
        description="Image of driver and executors. Default: the one that the operator was installed with. `millrace run` "
        "does not read it.",
    )
    driver: Driver = Field(
        default=Driver(), description="The driver's pod on a cluster. `millrace run` does not read it."
    )
    executors: Executors | None = Field(
        default=None,
        description="Executors on a cluster. Default: none, the driver does all the work. `millrace run` does not read "
        "it.",
    )

    @property
    def settings(self) -> Mapping[str, str]:
        """`conf`, with what other fields say of the job."""
        own = (
            {SHUFFLE_PARTITIONS: str(self.shuffle_partitions)} if self.shuffle_partitions is not None else {}
        )
        if self.state_store == "RocksDB":
            own[STATE_STORE] = ROCKS_DB
        return {**self.conf, **own}
