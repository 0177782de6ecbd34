"""The objects that a pipeline should have, one module a kind of concern. Pure: from the pipeline to plain data.

Each object carries a hash of itself as an annotation, so that a field which is no longer wanted is noticed too: the
live object alone would not tell.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from millrace_api import ConsumerPipeline
from millrace_api.tree import Tree
from millrace_operator import names
from millrace_operator.children import availability, content, network, stateful_set
from millrace_operator.objects import digest, mapping
from millrace_operator.observed import Resource, Settings

__all__ = ["base", "finished", "owner_of", "workers"]


def base(resource: Resource, settings: Settings) -> Sequence[Tree]:
    """What does not depend on code or credentials."""
    name = resource.name
    found: list[Tree] = [
        network.service_account(),
        network.service(name),
        network.policy(name),
        availability.budget(name),
    ]
    if settings.service_monitors:
        found.append(availability.monitor(name))
    return [finished(resource, tree) for tree in found]


def workers(
    resource: Resource,
    pipeline: ConsumerPipeline,
    *,
    image: str,
    replicas: int,
    code: Mapping[str, str] | None,
    credentials: str,
) -> Sequence[Tree]:
    """The ConfigMaps that the workers mount and the StatefulSet, in the order in which they must be made.

    `credentials`: mark of the Secret, "" without one.
    """
    manifest = content.manifest(resource, pipeline)
    maps = [manifest] if code is None else [manifest, content.code(pipeline, code)]
    stateful = stateful_set.stateful_set(
        pipeline,
        image,
        replicas=replicas,
        manifest=_name(manifest),
        code=_name(maps[1]) if code is not None else None,
        credentials=credentials,
    )
    return [finished(resource, tree) for tree in (*maps, stateful)]


def owner_of(resource: Resource) -> Tree:
    """The owner reference of every child."""
    return {
        "apiVersion": "millrace.dev/v1alpha1",
        "kind": "ConsumerPipeline",
        "name": resource.name,
        "uid": resource.uid,
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _name(tree: Tree) -> str:
    return str(mapping(tree, "metadata")["name"])


def finished(resource: Resource, tree: Tree) -> Tree:
    """With what all of them have: name, labels, owner, hash."""
    own = mapping(tree, "metadata")
    metadata: dict[str, object] = {
        "name": own.get("name", resource.name),
        "namespace": resource.namespace,
        "labels": {**names.labels(resource.name), **mapping(own, "labels")},
        "ownerReferences": [owner_of(resource)],
    }
    whole = {**tree, "metadata": metadata}
    # without replicas: those change by R4, and are compared by themselves
    spec = {key: value for key, value in mapping(whole, "spec").items() if key != "replicas"}
    annotations = {names.APPLIED: digest({**whole, "spec": spec})}
    return {**whole, "metadata": {**metadata, "annotations": annotations}}
