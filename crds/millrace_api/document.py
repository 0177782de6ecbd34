"""YAML as kubectl reads it, made strict: one reading on a laptop and on a cluster, or an error.

kubectl reads YAML 1.1 (an unquoted `on` is the boolean true, 010 is eight), other tools read 1.2. What the two would
read differently is refused and must be quoted. Duplicate keys, keys that are no strings, aliases that explode and
tags of a language's own are refused too. Each value's line is kept for the messages.
"""

from __future__ import annotations

import re
from collections.abc import Hashable, Iterator
from dataclasses import dataclass, field
from typing import Final

import yaml
from yaml.nodes import MappingNode, Node, ScalarNode, SequenceNode

from millrace_api.problems import PathParts, Problem, path_text, short

# An etcd object has at most 1.5 MB; a file may have a pipeline and its code.
MAX_CHARACTERS: Final = 2_000_000
MAX_VALUES: Final = 10_000
MAX_DEPTH: Final = 50

_TAG: Final = "tag:yaml.org,2002:"
_AMBIGUOUS_TAG: Final = "tag:millrace.dev,2026:ambiguous"


@dataclass(slots=True)
class Document:
    """One document of a file, as plain data, with the line of each of its values."""

    value: object
    lines: dict[PathParts, int] = field(default_factory=dict)
    problems: list[Problem] = field(default_factory=list)

    def line_of(self, parts: PathParts) -> int:
        """Line of the value at a path, or of the nearest one around it; 0 if none is known."""
        for length in range(len(parts), -1, -1):
            if parts[:length] in self.lines:
                return self.lines[parts[:length]]
        return 0


class NotYaml(Exception):
    """The text can't be read as YAML at all."""

    def __init__(self, problem: Problem) -> None:
        super().__init__(str(problem))
        self.problem = problem


def read_documents(text: str) -> list[Document]:
    """The documents of a text, less the empty ones.

    Raises:
        NotYaml: with line and column of what is no YAML.
    """
    if len(text) > MAX_CHARACTERS:
        raise NotYaml(
            Problem(
                "",
                f"the text has {len(text):,} characters",
                f"a manifest has at most {MAX_CHARACTERS:,}; is this the right file?",
            )
        )
    try:
        # SafeLoader's C twin reads faster, but words its errors otherwise.
        nodes = list(yaml.compose_all(text, Loader=_Loader))
    except yaml.YAMLError as error:
        raise NotYaml(_syntax_problem(error, text)) from error
    documents = []
    for node in nodes:
        document = _Reading(node).document
        if document.value is not None or document.problems:
            documents.append(document)
    return documents


class _Loader(yaml.SafeLoader):
    """Resolves plain scalars as YAML 1.2 does where 1.1 agrees, and marks them where it does not."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - the base's own manner

    def __init__(self, text: str) -> None:
        super().__init__(text)
        self._nodes = 0
        self._depth = 0

    def compose_node(self, parent: Node | None, index: int) -> Node | None:
        """Stops early at what is too large for a manifest, where it would take PyYAML seconds to read it all."""
        self._nodes += 1
        self._depth += 1
        if self._depth > MAX_DEPTH:
            raise NotYaml(_too_large(f"it is nested more than {MAX_DEPTH} levels deep", self.line + 1))
        if self._nodes > 2 * MAX_VALUES:  # keys and values
            raise NotYaml(_too_large(f"it has more than {MAX_VALUES:,} values", self.line + 1))
        node = super().compose_node(parent, index)
        self._depth -= 1
        return node


def _resolver(tag: str, pattern: str, first: str) -> None:
    _Loader.add_implicit_resolver(tag, re.compile(rf"^(?:{pattern})$"), list(first))


_resolver(_TAG + "bool", "true|True|TRUE|false|False|FALSE", "tTfF")
_resolver(_AMBIGUOUS_TAG, "y|Y|yes|Yes|YES|n|N|no|No|NO|on|On|ON|off|Off|OFF", "yYnNoO")
_resolver(
    _AMBIGUOUS_TAG, r"[-+]?0[0-9_]+|[-+]?0[bo][0-9_]+|[-+]?[0-9][0-9_]*_[0-9_]*(?:\.[0-9_]*)?", "-+0123456789"
)
_resolver(_TAG + "int", r"[-+]?(?:0|[1-9][0-9]*)|0x[0-9a-fA-F]+", "-+0123456789")
_resolver(
    _TAG + "float",
    r"[-+]?(?:[0-9]+\.[0-9]*|\.[0-9]+|[0-9]+(?=[eE]))(?:[eE][-+]?[0-9]+)?|[-+]?\.(?:inf|Inf|INF)|\.(?:nan|NaN|NAN)",
    "-+0123456789.",
)
_resolver(_TAG + "merge", "<<", "<")
_Loader.add_implicit_resolver(_TAG + "null", re.compile(r"^(?:~|null|Null|NULL|)$"), ["~", "n", "N", ""])


class _Reading:
    """Turns the nodes of one document into plain data."""

    def __init__(self, root: Node) -> None:
        self.document = Document(None)
        self._values = 0
        self._open: set[int] = set()
        try:
            self.document.value = self._value(root, ())
        except _TooMuch as error:
            self.document.value = None
            self.document.problems = [_too_large(str(error), root.start_mark.line + 1)]

    def _value(self, node: Node, parts: PathParts) -> object:
        self._values += 1
        if self._values > MAX_VALUES:
            raise _TooMuch(f"it has more than {MAX_VALUES:,} values once its aliases are followed")
        if len(parts) > MAX_DEPTH:
            raise _TooMuch(f"it is nested more than {MAX_DEPTH} levels deep")
        if id(node) in self._open:
            raise _TooMuch("it contains itself, by an alias")
        self.document.lines.setdefault(parts, node.start_mark.line + 1)
        self._open.add(id(node))
        try:
            if isinstance(node, MappingNode) and node.tag == _TAG + "map":
                return self._mapping(node, parts)
            if isinstance(node, SequenceNode) and node.tag == _TAG + "seq":
                return [self._value(item, (*parts, index)) for index, item in enumerate(node.value)]
            if isinstance(node, ScalarNode):
                return self._scalar(node, parts)
            self._refuse_tag(node, parts)
            return None
        finally:
            self._open.discard(id(node))

    def _mapping(self, node: MappingNode, parts: PathParts) -> dict[str, object]:
        own: dict[str, object] = {}
        merged: dict[str, object] = {}
        for key_node, value_node in node.value:
            if key_node.tag == _TAG + "merge":
                for values in self._merged(value_node, parts):
                    merged = {**values, **merged}
                continue
            key = self._key(key_node, parts)
            if key is None:
                continue
            path = (*parts, key)
            if key in own:
                self._problem(
                    path,
                    f'the key "{short(key, 60)}" is there twice, first on line {self.document.lines[path]}',
                    "keep one of them",
                    key_node,
                )
                continue
            self.document.lines[path] = key_node.start_mark.line + 1
            own[key] = self._value(value_node, path)
        return {**merged, **own}

    def _merged(self, node: Node, parts: PathParts) -> Iterator[dict[str, object]]:
        for source in node.value if isinstance(node, SequenceNode) else [node]:
            if isinstance(source, MappingNode):
                if id(source) in self._open:
                    raise _TooMuch("it contains itself, by an alias")
                self._values += 1
                if self._values > MAX_VALUES:
                    raise _TooMuch(f"it has more than {MAX_VALUES:,} values once its aliases are followed")
                self._open.add(id(source))
                try:
                    yield self._mapping(source, parts)
                finally:
                    self._open.discard(id(source))
            else:
                self._problem(parts, "<< merges only mappings", "name a mapping, as in <<: *anchor", source)

    def _key(self, node: Node, parts: PathParts) -> str | None:
        if isinstance(node, ScalarNode) and node.tag == _TAG + "str":
            return str(node.value)
        if isinstance(node, ScalarNode):
            shown = short(str(node.value), 60)
            why = "kubectl reads it as a boolean or as another number" if node.tag == _AMBIGUOUS_TAG else ""
            self._problem(
                parts,
                f"the key {shown or 'that is empty'} is not a string" + (f": {why}" if why else ""),
                f'put it in quotes: "{shown}"' if shown else "give the key a name",
                node,
            )
        else:
            self._problem(parts, "a key is a mapping or a list", "use a string as key", node)
        return None

    def _scalar(self, node: ScalarNode, parts: PathParts) -> object:
        text = str(node.value)
        kind = node.tag.removeprefix(_TAG)
        if node.tag == _AMBIGUOUS_TAG:
            self._refuse_ambiguous(node, text, parts)
            return None
        try:
            match kind:
                case "str":
                    return text
                case "null":
                    return None
                case "bool":
                    return {"true": True, "false": False}[text.lower()]
                case "int":
                    return int(text, 16) if text.lower().startswith("0x") else int(text)
                case "float":
                    return _float(text)
        except (ValueError, KeyError):
            self._problem(
                parts,
                f"{short(text, 60)} can't be read as {'true or false' if kind == 'bool' else 'a number'}",
                "leave the tag out, if there is one; a number has at most 4000 digits",
                node,
            )
            return None
        self._refuse_tag(node, parts)
        return None

    def _refuse_ambiguous(self, node: ScalarNode, text: str, parts: PathParts) -> None:
        if text[0] in "yYnNoO":
            meant = "true" if text.lower() in ("y", "yes", "on") else "false"
            message, remedy = (
                f"{text} without quotes is the boolean {meant} to kubectl and a string to others",
                f'write {meant}, or "{text}" in quotes for the string',
            )
        else:
            message, remedy = (
                f"{short(text, 60)} without quotes is one number to kubectl and something else to others",
                f'write the number in plain decimal digits, or "{short(text, 60)}" in quotes for the string',
            )
        self._problem(parts, message, remedy, node)

    def _refuse_tag(self, node: Node, parts: PathParts) -> None:
        self._problem(
            parts,
            f"the tag {short(str(node.tag), 60)} is not allowed",
            "leave the tag out: a manifest has mappings, lists, strings, numbers and booleans",
            node,
        )

    def _problem(self, parts: PathParts, message: str, remedy: str, node: Node) -> None:
        self.document.problems.append(
            Problem(path_text(parts), message, remedy, line=node.start_mark.line + 1)
        )


class _TooMuch(Exception):
    """A document that aliases or nesting make too large to be a manifest."""


def _too_large(message: str, line: int) -> Problem:
    return Problem(
        "", message, "a manifest is smaller and plainer than that; is this the right file?", line=line
    )


def _float(text: str) -> float:
    special: dict[Hashable, str] = {".inf": "inf", "+.inf": "inf", "-.inf": "-inf", ".nan": "nan"}
    return float(special.get(text.lower(), text))


def _syntax_problem(error: yaml.YAMLError, text: str) -> Problem:
    if isinstance(error, yaml.MarkedYAMLError):
        mark = error.problem_mark or error.context_mark
        message = ": ".join(part for part in (error.context, error.problem) if part)
        line, column = (mark.line + 1, mark.column + 1) if mark is not None else (0, 0)
        return Problem("", f"not YAML: {message}", _syntax_remedy(message), line=line, column=column)
    if isinstance(error, yaml.reader.ReaderError):
        before = text[: error.position]
        code = error.character if isinstance(error.character, int) else ord(str(error.character)[:1] or "\0")
        return Problem(
            "",
            f"not YAML: the character U+{code:04X} is not allowed",
            "remove it, or write it as an escape in double quotes",
            line=before.count("\n") + 1,
            column=len(before) - (before.rfind("\n") + 1) + 1,
        )
    return Problem("", f"not YAML: {short(str(error), 200)}", "")


def _syntax_remedy(message: str) -> str:
    if r"'\t'" in message:
        return "indent with spaces, not with tabs"
    if "mapping values are not allowed" in message:
        return "put a value that has ': ' in it in quotes, or check the indentation"
    if "undefined alias" in message:
        return "define the anchor (&name) before the alias (*name)"
    return "check quotes, brackets and indentation at this place and just before it"
