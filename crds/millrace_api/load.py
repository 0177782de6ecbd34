"""From the text of a manifest to a ConsumerPipeline, or to everything that is wrong with it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from pydantic import ValidationError

from millrace_api.document import Document, NotYaml, read_documents
from millrace_api.explain import nearest, problems_of, shown
from millrace_api.pipeline import API_VERSION, GROUP, KIND, ConsumerPipeline
from millrace_api.problems import InvalidManifest, PathParts, Problem, path_text, short
from millrace_api.rules import broken_rules

_EXAMPLE = f"a manifest begins with `apiVersion: {API_VERSION}` and `kind: {KIND}`"


@dataclass(frozen=True, slots=True)
class LoadedManifest:
    """What a manifest's file holds.

    Attributes:
        pipeline: the one ConsumerPipeline in it.
        config_maps: `data` of each ConfigMap in the pipeline's namespace, by name.
    """

    pipeline: ConsumerPipeline
    config_maps: Mapping[str, Mapping[str, str]]


def load(text: str, *, source: str = "<string>") -> LoadedManifest:
    """Read a manifest's text. Documents of other kinds may stand beside the pipeline; only ConfigMaps are read.

    Args:
        text: YAML (or JSON), one or more documents.
        source: what to call the text in messages, such as its file name.

    Raises:
        InvalidManifest: with every problem found. No other exception, whatever the text.
    """
    try:
        documents = read_documents(text)
    except NotYaml as error:
        raise InvalidManifest([error.problem], source=source) from error
    index, problems = _find_pipeline(documents)
    pipeline: ConsumerPipeline | None = None
    if index is not None:
        pipeline, found = _parse(documents[index])
        problems += found
    config_maps, found = _config_maps(documents, pipeline)
    problems += found
    if problems or pipeline is None:
        raise InvalidManifest(sorted(problems, key=lambda problem: problem.line), source=source)
    return LoadedManifest(pipeline, config_maps)


def parse(manifest: Mapping[str, object], *, source: str = "<object>") -> ConsumerPipeline:
    """A pipeline from plain data, as an API server gives it.

    Raises:
        InvalidManifest: with every problem found.
    """
    pipeline, problems = _parse(Document(manifest))
    if pipeline is None:
        raise InvalidManifest(problems, source=source)
    return pipeline


def _find_pipeline(documents: Sequence[Document]) -> tuple[int | None, list[Problem]]:
    """Index of the document that is the pipeline, or is meant to be; and what keeps it from being the only one."""
    if not documents:
        return None, [Problem("", "the manifest is empty", _EXAMPLE)]
    shapeless = [document for document in documents if not isinstance(document.value, Mapping)]
    problems = [problem for document in shapeless for problem in _shapeless(document)]
    pipelines = [index for index, document in enumerate(documents) if _is_ours(document)]
    if len(pipelines) > 1:
        lines = [documents[index].line_of(()) for index in pipelines]
        problems.append(
            Problem(
                "",
                f"the file has {len(pipelines)} pipelines, on lines {', '.join(map(str, lines))}",
                f"keep one {KIND} in a file",
                line=lines[1],
            )
        )
        return None, problems
    if pipelines:
        return pipelines[0], problems
    if not problems and len(documents) == 1 and _may_be_ours(documents[0]):
        return 0, problems
    if not problems:
        kinds = sorted({shown(_value(document, "kind")) for document in documents})
        problems.append(Problem("", f"there is no {KIND} in the file, only {', '.join(kinds)}", _EXAMPLE))
    return None, problems


def _is_ours(document: Document) -> bool:
    group = str(_value(document, "apiVersion")).partition("/")[0]
    return _value(document, "kind") == KIND or group == GROUP


def _may_be_ours(document: Document) -> bool:
    kind = _value(document, "kind")
    return not isinstance(kind, str) or nearest(kind, [KIND]) is not None


def _shapeless(document: Document) -> Sequence[Problem]:
    return document.problems or [
        Problem(
            "", f"the document is {shown(document.value)}, not a mapping", _EXAMPLE, line=document.line_of(())
        )
    ]


def _parse(document: Document) -> tuple[ConsumerPipeline | None, list[Problem]]:
    if not isinstance(document.value, Mapping):
        return None, list(_shapeless(document))
    # The status is the operator's; a manifest taken from a cluster has one, and applying it ignores it.
    manifest = {key: value for key, value in document.value.items() if key != "status"}
    unreadable = {problem.path for problem in document.problems}
    problems = list(document.problems)
    pipeline: ConsumerPipeline | None = None
    try:
        pipeline = ConsumerPipeline.model_validate(manifest)
    except ValidationError as error:
        problems += [
            _with_line(problem, document, parts)
            for parts, problem in problems_of(error, manifest)
            if problem.path not in unreadable
        ]
    problems += [
        problem if problem.line else replace(problem, line=_line_at(document, problem.path))
        for problem in broken_rules(manifest)
        if problem.path not in unreadable
    ]
    return (None if problems else pipeline), problems


def _config_maps(
    documents: Sequence[Document], pipeline: ConsumerPipeline | None
) -> tuple[dict[str, Mapping[str, str]], list[Problem]]:
    """The ConfigMaps in the pipeline's namespace; one that names no namespace goes where the pipeline goes."""
    config_maps: dict[str, Mapping[str, str]] = {}
    problems: list[Problem] = []
    for document in documents:
        if _value(document, "kind") != "ConfigMap" or _is_ours(document):
            continue
        metadata = _value(document, "metadata")
        name = metadata.get("name") if isinstance(metadata, Mapping) else None
        namespace = metadata.get("namespace") if isinstance(metadata, Mapping) else None
        if not isinstance(name, str) or not name:
            problems.append(
                Problem(
                    "metadata.name", "the ConfigMap has no name", "give it one", line=document.line_of(())
                )
            )
            continue
        if pipeline is not None and namespace not in (None, pipeline.metadata.namespace):
            continue
        problems += [
            replace(problem, message=f"{_of(name)}: {problem.message}") for problem in document.problems
        ]
        data, found = _texts(document, name)
        problems += found
        if name in config_maps:
            problems.append(
                Problem(
                    "metadata.name",
                    f'there are two ConfigMaps "{short(name, 60)}"',
                    "keep one",
                    line=document.line_of(("metadata", "name")),
                )
            )
        config_maps[name] = data
    return config_maps, problems


def _texts(document: Document, name: str) -> tuple[Mapping[str, str], list[Problem]]:
    data = _value(document, "data")
    if data is None:
        return {}, []
    if not isinstance(data, Mapping):
        line = document.line_of(("data",))
        return {}, [Problem("data", f"{_of(name)}: {shown(data)} is not a mapping", "use one", line=line)]
    unreadable = {problem.path for problem in document.problems}
    problems = [
        Problem(
            path_text(("data", key)),
            f"{_of(name)}: {shown(value)} is not a string",
            "put it in quotes, or write it as a block after '|'",
            line=document.line_of(("data", key)),
        )
        for key, value in data.items()
        if not isinstance(value, str) and path_text(("data", key)) not in unreadable
    ]
    return {key: value for key, value in data.items() if isinstance(value, str)}, problems


def _of(name: str) -> str:
    return f'in the ConfigMap "{short(name, 60)}"'


def _value(document: Document, key: str) -> object:
    return document.value.get(key) if isinstance(document.value, Mapping) else None


def _with_line(problem: Problem, document: Document, parts: PathParts) -> Problem:
    return problem.at_line(document.line_of(parts))


def _line_at(document: Document, path: str) -> int:
    for parts, line in document.lines.items():
        if path_text(parts) == path:
            return line
    return 0
