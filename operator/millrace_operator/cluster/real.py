"""The port over kubernetes.aio: paths and plain data, without its generated models, which cost more time and memory than
all the rest.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from urllib.parse import urlencode

import aiohttp
from kubernetes.aio import client, config
from kubernetes.aio.client.rest import RESTResponse

from millrace_api.tree import Tree
from millrace_operator import names
from millrace_operator.cluster.port import Change, ClusterError, Conflict, Expired, Listing, Refused
from millrace_operator.objects import KINDS, Kind, entries, mapping, text

_TIMEOUT = 30.0  # seconds for an answer
_WATCH = 300  # seconds after which the API server ends a watch
_JSON = "application/json"
_METADATA = "application/json;as=PartialObjectMetadata{};g=meta.k8s.io;v=v1"
_TYPES = {"ADDED", "MODIFIED", "DELETED", "BOOKMARK"}


class RealCluster:
    """Make it with `connect`."""

    def __init__(self, api: client.ApiClient) -> None:
        self._api = api

    @classmethod
    async def connect(cls, kubeconfig: Path | None) -> RealCluster:
        """With a kubeconfig, or as the service account of the pod. Raises ClusterError."""
        settings = client.Configuration()
        try:
            if kubeconfig is not None:
                await config.load_kube_config(
                    str(kubeconfig), client_configuration=settings, persist_config=False
                )
            else:
                config.load_incluster_config(client_configuration=settings)
        except (config.ConfigException, OSError) as error:
            raise ClusterError(
                f"no way to a Kubernetes API server: {error}",
                remedy="give --kubeconfig FILE, or run in a pod with a service account",
            ) from error
        settings.connection_pool_maxsize = 64
        return cls(client.ApiClient(settings))

    async def get(self, kind: Kind, namespace: str, name: str) -> Tree | None:
        status, body = await self._ask("GET", kind.path(namespace, name))
        return None if status == 404 else _good(status, body)

    async def list(
        self,
        kind: Kind,
        *,
        namespace: str = "",
        labels: str = "",
        fields: str = "",
        only_metadata: bool = False,
    ) -> Listing:
        query = {"labelSelector": labels} if labels else {}
        query |= {"fieldSelector": fields} if fields else {}
        accept = _METADATA.format("List") if only_metadata else _JSON
        body = _good(*await self._ask("GET", kind.path(namespace), query, accept=accept))
        standing = {"apiVersion": kind.api_version, "kind": kind.name}  # a list's items come without
        items = [{**standing, **item} for item in entries(body, "items") if isinstance(item, Mapping)]
        return Listing(items, text(body, "metadata", "resourceVersion"))

    async def watch(
        self, kind: Kind, *, namespace: str = "", labels: str = "", since: str, only_metadata: bool = False
    ) -> AsyncIterator[Change]:
        query = {
            "watch": "1",
            "resourceVersion": since,
            "allowWatchBookmarks": "true",
            "timeoutSeconds": str(_WATCH),
        }
        query |= {"labelSelector": labels} if labels else {}
        accept = _METADATA.format("") if only_metadata else _JSON
        answer = await self._call(
            "GET", kind.path(namespace), query, timeout=_WATCH + _TIMEOUT, accept=accept
        )
        try:
            if answer.status != 200:
                _good(answer.status, _parsed(await answer.read() or b""))
            buffer = b""
            async for chunk in answer.response.content.iter_any():
                *lines, buffer = (buffer + chunk).split(b"\n")
                for line in lines:
                    yield _change(_parsed(line))
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ClusterError(f"a watch broke off: {error or type(error).__name__}") from error
        finally:
            answer.response.close()

    async def apply(self, tree: Tree) -> Tree:
        kind = KINDS[text(tree, "kind")]
        path = kind.path(text(tree, "metadata", "namespace"), text(tree, "metadata", "name"))
        query = {"fieldManager": names.FIELD_MANAGER, "force": "true"}
        return _good(*await self._ask("PATCH", path, query, tree, "application/apply-patch+yaml"))

    async def create(self, tree: Tree) -> Tree:
        kind = KINDS[text(tree, "kind")]
        path = kind.path(text(tree, "metadata", "namespace"))
        return _good(*await self._ask("POST", path, {"fieldManager": names.FIELD_MANAGER}, tree))

    async def replace(self, tree: Tree) -> Tree:
        kind = KINDS[text(tree, "kind")]
        path = kind.path(text(tree, "metadata", "namespace"), text(tree, "metadata", "name"))
        status, body = await self._ask("PUT", path, {"fieldManager": names.FIELD_MANAGER}, tree)
        return _good(409 if status == 404 else status, body)

    async def patch(
        self, kind: Kind, namespace: str, name: str, changes: Tree, *, status: bool = False
    ) -> Tree | None:
        path = kind.path(namespace, name) + ("/status" if status else "")
        query = {"fieldManager": names.FIELD_MANAGER}
        code, body = await self._ask("PATCH", path, query, changes, "application/merge-patch+json")
        return None if code == 404 else _good(code, body)

    async def delete(
        self, kind: Kind, namespace: str, name: str, *, uid: str, grace: int | None = None
    ) -> None:
        options: dict[str, object] = {"preconditions": {"uid": uid}, "propagationPolicy": "Background"}
        options |= {} if grace is None else {"gracePeriodSeconds": grace}
        status, body = await self._ask("DELETE", kind.path(namespace, name), {}, options)
        if status not in (404, 409):
            _good(status, body)

    async def close(self) -> None:
        await self._api.close()

    async def _ask(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None = None,
        body: Tree | None = None,
        kind: str = _JSON,
        accept: str = _JSON,
    ) -> tuple[int, Tree]:
        answer = await self._call(method, path, query or {}, body, kind, accept=accept)
        try:
            return answer.status, _parsed(await answer.read() or b"")
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ClusterError(f"the API server's answer broke off: {error}") from error

    async def _call(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: Tree | None = None,
        kind: str = _JSON,
        timeout: float = _TIMEOUT,
        accept: str = _JSON,
    ) -> RESTResponse:
        headers = {"Content-Type": kind, "Accept": accept}
        url = f"{self._api.configuration.host}{path}" + (f"?{urlencode(query)}" if query else "")
        try:
            await self._api.update_params_for_auth(headers, [], ["BearerToken"], path, method, body)
            return await self._api.call_api(
                method, url, header_params=headers, body=body, _request_timeout=timeout
            )
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            raise ClusterError(
                f"the API server does not answer: {error or type(error).__name__}", where=f"{method} {path}"
            ) from error


def _parsed(content: bytes) -> Tree:
    try:
        found = json.loads(content)
    except ValueError:
        return {"message": content[:200].decode(errors="replace")}
    return found if isinstance(found, dict) else {}


def _good(status: int, body: Tree) -> Tree:
    if 200 <= status < 300:
        return _trimmed(body)
    what = text(body, "message") or f"the API server answered {status}"
    if status == 409:
        raise Conflict(what)
    if status == 410:
        raise Expired(what)
    if status in (400, 401, 403, 404, 405, 422):
        raise Refused(what)
    raise ClusterError(what)


def _change(event: Tree) -> Change:
    kind, tree = text(event, "type"), mapping(event, "object")
    if kind == "ERROR":
        _good(int(str(tree.get("code", 500))), tree)
    if kind not in _TYPES:
        raise ClusterError(f"a watch told of {kind!r}")
    return Change(kind, _trimmed(tree))  # type: ignore[arg-type]


def _trimmed(tree: Tree) -> Tree:
    """Without the record of who set which field: half of an object, and nobody here reads it."""
    metadata = mapping(tree, "metadata")
    if "managedFields" not in metadata:
        return tree
    return {**tree, "metadata": {key: value for key, value in metadata.items() if key != "managedFields"}}
