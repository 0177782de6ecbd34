"""The topics that a pipeline needs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from millrace_api.pipeline import ConsumerPipeline


@dataclass(frozen=True, slots=True)
class NeededTopic:
    """A topic, the path of the manifest that names it, and how many partitions to create it with (None: don't)."""

    name: str
    path: str
    partitions: int | None


def needed(pipeline: ConsumerPipeline) -> Sequence[NeededTopic]:
    """All topics that the manifest names, the source first."""
    spec = pipeline.spec
    source = spec.source
    found = [NeededTopic(source.topic, "spec.source", source.create.partitions if source.create else None)]
    for at, stage in enumerate(spec.stages):
        if stage.produce is not None:
            create = stage.produce.create
            path = f"spec.stages[{at}].produce"
            found.append(NeededTopic(stage.produce.topic, path, create.partitions if create else None))
        if (
            stage.collect is not None
            and stage.collect.sink is not None
            and stage.collect.sink.kafka is not None
        ):
            results = stage.collect.sink.kafka
            path = f"spec.stages[{at}].collect.sink.kafka"
            found.append(
                NeededTopic(results.topic, path, results.create.partitions if results.create else None)
            )
    if spec.dead_letter is not None:
        create = spec.dead_letter.create
        found.append(
            NeededTopic(spec.dead_letter.topic, "spec.deadLetter", create.partitions if create else None)
        )
    return found
