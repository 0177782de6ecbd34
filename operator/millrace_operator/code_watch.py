"""Tells of changes to ConfigMaps with users' code, so that workers roll within a second and not at the next look.

Which they are only the manifests say, so all ConfigMaps are watched that are not our own; but of each only the metadata,
and nothing of it is kept. Secrets are not: who may watch them may read them all, and the operator has no more rights than
to get one by its name. Theirs are noticed at the next look.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Final

import structlog

from millrace_api.tree import Tree
from millrace_operator import names
from millrace_operator.cluster import Cluster, ClusterError, Expired
from millrace_operator.objects import CONFIG_MAPS, text
from millrace_operator.work_queue import Key

_NOT_OURS: Final = f"{names.MANAGED_BY}!=millrace"
_AGAIN: Final = 2.0  # seconds after which a watch that broke off is tried again


async def watch_code(
    cluster: Cluster, pipelines: Mapping[Key, Tree], changed: Callable[[Key], None], *, namespace: str = ""
) -> None:
    """Until cancelled: `changed` is called with each pipeline whose code has changed, come or gone.

    namespace: "": all of them.
    """
    log = structlog.get_logger("millrace.operator")
    since = ""
    while True:
        try:
            if not since:
                listing = await cluster.list(
                    CONFIG_MAPS, namespace=namespace, labels=_NOT_OURS, only_metadata=True
                )
                since = listing.version
                for key in pipelines:  # what changed while nobody watched
                    changed(key)
            watch = cluster.watch(
                CONFIG_MAPS, namespace=namespace, labels=_NOT_OURS, since=since, only_metadata=True
            )
            async for change in watch:
                since = text(change.object, "metadata", "resourceVersion") or since
                if change.type != "BOOKMARK":
                    for key in using(pipelines, change.object):
                        changed(key)
        except Expired:
            since = ""
        except ClusterError as error:
            log.warning("watch broke off", kind="ConfigMap, of code", what=error.what[:300])
            await asyncio.sleep(_AGAIN)


def using(pipelines: Mapping[Key, Tree], config_map: Tree) -> list[Key]:
    """The pipelines whose code is in this ConfigMap."""
    namespace, name = (text(config_map, "metadata", part) for part in ("namespace", "name"))
    return [
        key
        for key, tree in pipelines.items()
        if key[0] == namespace and text(tree, "spec", "worker", "code", "configMapRef", "name") == name
    ]
