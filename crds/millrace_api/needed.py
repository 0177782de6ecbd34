"""The topics that a pipeline needs, and those that its workers write in transactions."""

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


def transactional(pipeline: ConsumerPipeline) -> Sequence[str]:
    """The topics that workers write in the transactions that commit their claims: outputs of `produce` with ExactlyOnce,
    channels, dead letters.
    """
    spec = pipeline.spec
    found = [
        stage.produce.topic
        for stage in spec.stages
        if stage.produce is not None and spec.delivery == "ExactlyOnce"
    ]
    found += [pipeline.channel(stage.name) for stage in spec.stages if stage.collect is not None]
    if spec.dead_letter is not None:
        found.append(spec.dead_letter.topic)
    return list(dict.fromkeys(found))
