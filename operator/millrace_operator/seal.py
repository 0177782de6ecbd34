"""What of a Secret may be written where others read: whether it is still the same, and nothing else.

The workers' template bears a mark of the credentials, so that other ones roll the workers. Whoever may see pods may see
it; a plain hash would let them try passwords against it, at the rate of their own machine. So it is an HMAC (RFC 2104)
under a random key that only the operator has, in a Secret beside its Lease: without the key a mark tells nothing, not even
that two pipelines have the same password. If that Secret is lost the operator makes another one when it starts, and the
workers of pipelines with credentials roll once.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import hmac
import json
import secrets
from collections.abc import Mapping
from typing import Final

from millrace_api.tree import Tree
from millrace_operator.cluster import Cluster, ClusterError, Conflict
from millrace_operator.names import MANAGED_BY
from millrace_operator.objects import SECRETS, text

_KEY: Final = "key"
_BYTES: Final = 32


class Seal:
    def __init__(self, key: bytes) -> None:
        self._key = key

    def mark(self, namespace: str, name: str, data: Mapping[str, object]) -> str:
        """Of a Secret with this content; 16 hexadecimal digits."""
        content = json.dumps([namespace, name, data], sort_keys=True, separators=(",", ":"))
        return hmac.new(self._key, content.encode(), hashlib.sha256).hexdigest()[:16]


async def load(cluster: Cluster, namespace: str, name: str) -> Seal:
    """The operator's own, made at its first start. Raises ClusterError."""
    found = await cluster.get(SECRETS, namespace, name)
    if found is None:
        key = base64.b64encode(secrets.token_bytes(_BYTES)).decode()
        try:
            found = await cluster.create(
                {
                    "apiVersion": "v1",
                    "kind": "Secret",
                    "metadata": {"name": name, "namespace": namespace, "labels": {MANAGED_BY: "millrace"}},
                    "type": "Opaque",
                    "immutable": True,
                    "data": {_KEY: key},
                }
            )
        except Conflict:  # another operator was faster
            found = await cluster.get(SECRETS, namespace, name)
    return Seal(_key(found, f"Secret {namespace}/{name}"))


def _key(secret: Tree | None, where: str) -> bytes:
    try:
        key = base64.b64decode(text(secret, "data", _KEY), validate=True)
    except binascii.Error:
        key = b""
    if len(key) < _BYTES:
        raise ClusterError(
            f"it has no key of {_BYTES} bytes",
            where=where,
            remedy="delete it: the operator makes another one, and workers of pipelines with credentials roll once",
        )
    return key
