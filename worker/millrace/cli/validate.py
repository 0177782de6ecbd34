"""`millrace validate`."""

from __future__ import annotations

import sys
from pathlib import Path

from millrace.cli.failure import explain
from millrace.errors import MillraceError


def validate(manifest: Path, code: Path | None, as_json: bool) -> None:
    from millrace_api import InvalidManifest

    if not as_json:
        sys.stdout.write(_check(manifest, code) + "\n")
        return
    import msgspec

    answer: dict[str, object] = {"manifest": str(manifest), "valid": True, "problems": []}
    exit_code = 0
    try:
        _check(manifest, code)
    except InvalidManifest as error:
        answer["problems"] = [
            {"path": p.path, "message": p.message, "remedy": p.remedy} for p in error.problems
        ]
        exit_code = int(explain(error)[1])
    except MillraceError as error:
        answer["problems"] = [{"path": error.where, "message": error.what, "remedy": error.remedy}]
        exit_code = int(error.code)
    answer["valid"] = not answer["problems"]
    sys.stdout.write(msgspec.json.encode(answer).decode() + "\n")
    if exit_code:
        sys.exit(exit_code)


def _check(manifest: Path, code: Path | None) -> str:
    """One line of praise. Raises what is wrong."""
    from millrace.chain.functions import load
    from millrace.collector import functions
    from millrace.worker.manifest import code_of, read

    loaded = read(manifest)
    with code_of(loaded, manifest, code) as directory:
        load(loaded.pipeline, directory, setup=False)
        for index, stage in enumerate(loaded.pipeline.spec.stages):
            if stage.collect is not None and stage.collect.function is not None:
                where = f"spec.stages[{index}].collect.function"
                functions.check(stage.collect.function, directory, where)
    spec = loaded.pipeline.spec
    stages = ", ".join(f"{stage.name} ({stage.kind})" for stage in spec.stages)
    return f"{manifest}: pipeline {loaded.pipeline.metadata.name} is valid: {spec.source.topic} to {stages}"
