"""What the operator needs of an API server, and what it may count on."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol

from millrace.errors import MillraceError
from millrace_api.tree import Tree
from millrace_operator.objects import Kind


class ClusterError(MillraceError):
    """The API server did not do what it was asked, or did not answer. Trying again later may help."""


class Conflict(ClusterError):
    """The object is there already, or is another one than expected: look again and decide anew."""


class Refused(ClusterError):
    """The API server will not do it: forbidden, over quota, or the object is not valid."""


class Expired(ClusterError):
    """A watch can't go on from where it was: list again."""


@dataclass(frozen=True, slots=True)
class Listing:
    """Objects of a kind, and the version of the list, from which a watch can go on."""

    items: Sequence[Tree]
    version: str


@dataclass(frozen=True, slots=True)
class Change:
    """What a watch tells. A bookmark (`object` has only a version) says how far it has come."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
    object: Tree


class Cluster(Protocol):
    """All methods raise ClusterError, in the forms above. Objects are plain data, with apiVersion and kind."""

    async def get(self, kind: Kind, namespace: str, name: str) -> Tree | None:
        """None if it is not there."""

    async def list(
        self,
        kind: Kind,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        only_metadata: bool = False,
    ) -> Listing:
        """namespace "": all. labels, fields: selectors, "" for all. A kind that the API server does not know is Refused.
        only_metadata: of each object nothing but its metadata, which costs a fraction.
        """

    def watch(
        self, kind: Kind, *, namespace: str = "", labels: str = "", since: str, only_metadata: bool = False
    ) -> AsyncIterator[Change]:
        """Changes after a version, until the API server ends it (minutes). Raises Expired."""

    async def apply(self, tree: Tree) -> Tree:
        """Server-side apply as our field manager, by force: what we say wins, what we no longer say goes, and what
        others say beside it stays. The live object is returned.
        """

    async def create(self, tree: Tree) -> Tree:
        """Raises Conflict if it is there."""

    async def replace(self, tree: Tree) -> Tree:
        """Raises Conflict unless the live object has the resourceVersion of this one."""

    async def patch(
        self, kind: Kind, namespace: str, name: str, changes: Tree, *, status: bool = False
    ) -> Tree | None:
        """JSON merge patch of the object or of its status; a resourceVersion in it is a precondition (Conflict). None if
        the object is not there.
        """

    async def delete(
        self, kind: Kind, namespace: str, name: str, *, uid: str, grace: int | None = None
    ) -> None:
        """If it is there and is that one; else nothing. grace: seconds, None: the object's own."""

    async def close(self) -> None: ...
