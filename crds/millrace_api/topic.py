"""Topics that a pipeline may make."""

from __future__ import annotations

from pydantic import Field

from millrace_api.model import Model


class NewTopic(Model):
    """How a topic is made if it is not there. A topic that exists is used as it is."""

    partitions: int = Field(
        ge=1,
        le=10_000,
        description="Number of partitions of the topic when it is made (1 to 10000). It has the cluster's default "
        "replication. A topic that exists already is used as it is, with the partitions it has.",
    )
