"""The JSON schema that editors check a manifest against as it is typed.

    python -m millrace_api.editor [FILE]

prints it, or writes it to FILE. With yaml-language-server a manifest names it in its first line:
`# yaml-language-server: $schema=<path or URL>`. It knows the shape and the forms; rules across fields it leaves to
`millrace validate`, but for the one kind of a stage.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from millrace_api.pipeline import KIND, SERVER_METADATA, ConsumerPipeline
from millrace_api.schema import Json, Schema, resolved
from millrace_api.stages import KINDS, RESERVED_STAGE_NAMES


def editor_schema() -> Schema:
    """JSON schema, draft 2020-12, that refuses unknown keys."""
    root = _closed(resolved(ConsumerPipeline))
    properties = _object(root["properties"])
    metadata = _object(_object(properties["metadata"])["properties"])
    metadata.update(dict.fromkeys(sorted(SERVER_METADATA), True))
    properties["status"] = {"type": "object", "description": "Written by the operator; not read."}
    stages = _object(_object(_object(properties["spec"])["properties"])["stages"])
    stage = _object(stages["items"])
    stage["oneOf"] = [{"required": [kind]} for kind in KINDS]
    name = _object(_object(stage["properties"])["name"])
    name["not"] = {"enum": list(RESERVED_STAGE_NAMES)}
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": KIND, **root}


def editor_json() -> str:
    """The text of the committed file."""
    return json.dumps(editor_schema(), indent=2) + "\n"


def main(arguments: Sequence[str]) -> None:
    if arguments:
        Path(arguments[0]).write_text(editor_json(), encoding="utf-8")
    else:
        sys.stdout.write(editor_json())


def _closed(node: Schema) -> Schema:
    out: Schema = {}
    for key, value in node.items():
        if key == "properties":
            out[key] = {name: _closed(_object(inside)) for name, inside in _object(value).items()}
            out["additionalProperties"] = False
        elif key in ("items", "additionalProperties"):
            out[key] = _closed(_object(value))
        elif not key.startswith("x-kubernetes-"):
            out[key] = value
    return out


def _object(node: Json) -> Schema:
    if not isinstance(node, dict):
        raise TypeError(f"not an object: {node!r}")
    return node


if __name__ == "__main__":
    main(sys.argv[1:])
