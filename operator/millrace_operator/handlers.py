"""What kopf does here: it watches the ConsumerPipelines and hands each event on. Nothing is decided in a handler.

Children, pods and nodes are watched by `cache`: kopf can't ask the API server for objects with a label only, and would
read every ConfigMap and pod of the cluster to leave nearly all of them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import kopf

from millrace_api.tree import Tree
from millrace_operator.objects import PIPELINES, mapping, text
from millrace_operator.selector import Selector
from millrace_operator.work_queue import Key

EVERYTHING: Final = Selector()


class Pipelines(dict[Key, Tree]):
    """The ConsumerPipelines as they were seen last."""


def registry(
    pipelines: Pipelines, changed: Callable[[Key], None], kubeconfig: Path | None, mine: Selector = EVERYTHING
) -> kopf.OperatorRegistry:
    """kopf's handlers, of this operator and no other. mine: what it does not select is another's, or nobody's."""
    handlers = kopf.OperatorRegistry()

    @kopf.on.startup(registry=handlers)
    async def _settle(settings: kopf.OperatorSettings, **_: Any) -> None:
        settings.networking.request_timeout = 30
        settings.networking.connect_timeout = 10
        settings.watching.server_timeout = 600
        settings.posting.enabled = False
        settings.peering.standalone = True
        settings.scanning.disabled = True
        logging.getLogger("kopf.objects").setLevel(logging.ERROR)

    @kopf.on.login(registry=handlers)
    def _login(**context: Any) -> kopf.ConnectionInfo | None:
        if kubeconfig is not None:
            return kopf.login_with_kubeconfig(**context)
        return kopf.login_with_service_account(**context)

    version = PIPELINES.api_version.partition("/")

    @kopf.on.event(version[0], version[2], PIPELINES.plural, registry=handlers)
    async def _seen(event: kopf.RawEvent, **_: Any) -> None:
        tree: Tree = dict(event["object"])
        key = (text(tree, "metadata", "namespace"), text(tree, "metadata", "name"))
        labels = {str(label): str(value) for label, value in mapping(tree, "metadata", "labels").items()}
        if event["type"] == "DELETED" or not mine.selects(labels):
            pipelines.pop(key, None)
        else:
            pipelines[key] = tree
        changed(key)

    return handlers
