"""From objects of the API server to what `reconcile` reads."""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping

from millrace_api import ConsumerPipeline, InvalidManifest, Problem, parse
from millrace_api.tree import Tree
from millrace_operator.objects import entries, mapping, number, text
from millrace_operator.observed import Claim, Resource, Secret
from millrace_operator.seal import Seal
from millrace_operator.times import unix


def resource_of(tree: Tree) -> Resource:
    """A ConsumerPipeline. One that can't be used is told of by its `problems`."""
    pipeline: ConsumerPipeline | None
    problems: tuple[Problem, ...] = ()
    try:
        pipeline = parse({key: value for key, value in tree.items() if key != "status"})
    except InvalidManifest as error:
        pipeline, problems = None, error.problems
    ended = text(tree, "metadata", "deletionTimestamp")
    return Resource(
        name=text(tree, "metadata", "name"),
        namespace=text(tree, "metadata", "namespace"),
        uid=text(tree, "metadata", "uid"),
        generation=number(tree, "metadata", "generation"),
        version=text(tree, "metadata", "resourceVersion"),
        pipeline=pipeline,
        problems=problems,
        deleted=unix(ended) if ended else None,
        finalizers=tuple(str(one) for one in entries(tree, "metadata", "finalizers")),
        status=mapping(tree, "status"),
        spec=mapping(tree, "spec"),
    )


def code_of(tree: Tree | None) -> Mapping[str, str] | None:
    """`data` of the user's ConfigMap."""
    if tree is None:
        return None
    return {key: value for key, value in mapping(tree, "data").items() if isinstance(value, str)}


def secret_of(tree: Tree | None, seal: Seal) -> Secret | None:
    if tree is None:
        return None
    namespace, name = (text(tree, "metadata", part) for part in ("namespace", "name"))
    return Secret(name, seal.mark(namespace, name, mapping(tree, "data")))


def claim_of(tree: Tree | None) -> Claim | None:
    if tree is None or text(tree, "metadata", "deletionTimestamp"):
        return None
    return Claim(text(tree, "metadata", "name"), "ReadWriteMany" in entries(tree, "spec", "accessModes"))


def secret_values(tree: Tree | None) -> Mapping[str, str]:
    """The Secret's texts, for a Kafka client and nobody else."""
    found = {}
    for key, value in mapping(tree, "data").items():
        try:
            found[key] = base64.b64decode(str(value)).decode().strip()
        except (binascii.Error, UnicodeDecodeError):
            continue  # not a key of credentials, all of which are text
    return found
