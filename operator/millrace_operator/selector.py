"""Which pipelines are this operator's, by their labels: Kubernetes' own selectors, as `kubectl --selector` takes them. Pure.

Pipelines are watched all the same, and chosen here: one that loses its label must be noticed, too.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

_NAME: Final = r"(?:[a-z0-9](?:[a-z0-9.-]*[a-z0-9])?/)?[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?"
_VALUE: Final = r"(?:[A-Za-z0-9](?:[A-Za-z0-9_.-]*[A-Za-z0-9])?)?"
_TERM: Final = re.compile(
    rf"""\s*(?:
      (?P<absent>!)\s*(?P<no>{_NAME})
    | (?P<key>{_NAME}) (?:
        \s*(?P<sign>==|=|!=)\s*(?P<value>{_VALUE})
      | \s+(?P<set>in|notin)\s*\((?P<values>\s*{_VALUE}\s*(?:,\s*{_VALUE}\s*)*)\)
      )?
    )\s*(?:,|$)""",
    re.VERBOSE,
)


@dataclass(frozen=True, slots=True)
class Term:
    """`values` None: the label only has to be there. negated: the opposite holds; a label that is not there has no value."""

    key: str
    values: frozenset[str] | None
    negated: bool = False

    def holds(self, labels: Mapping[str, str]) -> bool:
        found = self.key in labels and (self.values is None or labels[self.key] in self.values)
        return found != self.negated


@dataclass(frozen=True, slots=True)
class Selector:
    """All of its terms hold. No term: everything is meant."""

    terms: tuple[Term, ...] = ()

    def selects(self, labels: Mapping[str, str]) -> bool:
        return all(term.holds(labels) for term in self.terms)

    @staticmethod
    def parse(text: str) -> Selector:
        """Raises ValueError, with what it could not read."""
        terms: list[Term] = []
        at = 0
        while at < len(text.rstrip()):
            found = _TERM.match(text, at)
            if found is None:
                raise ValueError(
                    f"{text[at:].strip()!r} is no selector of labels, such as team=air or team in (air, sea)"
                )
            terms.append(_term(found))
            at = found.end()
        if text.rstrip().endswith(","):
            raise ValueError(f"{text.strip()!r} ends in a comma")
        return Selector(tuple(terms))


def _term(found: re.Match[str]) -> Term:
    if found["absent"]:
        return Term(found["no"], None, negated=True)
    if found["sign"]:
        return Term(found["key"], frozenset({found["value"]}), negated=found["sign"] == "!=")
    if found["set"]:
        values = frozenset(value.strip() for value in found["values"].split(","))
        return Term(found["key"], values, negated=found["set"] == "notin")
    return Term(found["key"], None)
