"""Pipelines for tests, made of as little as a manifest allows."""

from __future__ import annotations

from collections.abc import Mapping

import yaml

from millrace_api import ConsumerPipeline, load


def pipeline_of(*stages: Mapping[str, object], **spec: object) -> ConsumerPipeline:
    """A pipeline with these stages; `spec` adds further fields by their names in the manifest."""
    manifest = {
        "apiVersion": "millrace.dev/v1alpha1",
        "kind": "ConsumerPipeline",
        "metadata": {"name": "test"},
        "spec": {
            "kafka": {"bootstrapServers": "kafka:9092"},
            "source": {"topic": "source"},
            "stages": list(stages),
            **spec,
        },
    }
    return load(yaml.safe_dump(manifest)).pipeline
