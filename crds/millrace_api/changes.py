"""What an update of a pipeline may not change. The API server has the same as transition rules in CEL (`rules`); this
is for a local run, whose state directory holds the pipeline that it was begun with.
"""

from __future__ import annotations

from collections.abc import Sequence

from millrace_api.pipeline import ConsumerPipeline
from millrace_api.problems import Problem


def refused_changes(before: ConsumerPipeline, after: ConsumerPipeline) -> Sequence[Problem]:
    """What an update of a pipeline changes that can't be changed. The same as the transition rules in CEL."""
    problems = []
    was, now = before.spec.source, after.spec.source
    if now.topic != was.topic:
        problems.append(
            Problem(
                "spec.source.topic",
                f'it was "{was.topic}" and can\'t be changed to "{now.topic}"',
                "make a new pipeline, with a name of its own, for the other topic",
            )
        )
    if now.group_id != was.group_id:
        remedy = f'write groupId: "{was.group_id}"' if was.group_id else "leave groupId out"
        what = (
            f'it can\'t be added later (now "{now.group_id}")'
            if was.group_id is None
            else f'it was "{was.group_id}" and can\'t be removed'
            if now.group_id is None
            else f'it was "{was.group_id}" and can\'t be changed to "{now.group_id}"'
        )
        problems.append(
            Problem("spec.source.groupId", what, f"{remedy}, or make a new pipeline with a name of its own")
        )
    return problems
