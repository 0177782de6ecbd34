"""`kubectl millrace status`."""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import msgspec
from rich.console import Console, RenderableType

from millrace.cli.kubectl import shown
from millrace.cli.kubectl.client import PIPELINES, Kubectl, KubectlFailed
from millrace.cli.kubectl.view import Pipeline, PodView, pipeline_of, pods_of
from millrace.clock import SystemClock
from millrace.worker import status as worker_status
from millrace.worker.status import WorkerStatus

EVERY = 2.0  # seconds between two looks of --watch
_AT_ONCE = 8  # workers that are asked at the same time
_WIDE = 200  # columns, where nobody cuts lines


def status(
    kubectl: Kubectl, name: str | None, *, everywhere: bool, watch: bool, ask: bool, as_json: bool
) -> None:
    """Raises KubectlFailed; with `watch` only at the first look."""
    if as_json:
        words = ("get", PIPELINES, *([name] if name else []), *(["--all-namespaces"] if everywhere else []))
        sys.stdout.write(
            msgspec.json.format(msgspec.json.encode(_told(kubectl, words, name, ask))).decode() + "\n"
        )
        return
    look = _listing(kubectl, everywhere) if name is None else _detail(kubectl, name, ask)
    terminal = sys.stdout.isatty()
    console = Console(width=None if terminal else _WIDE, soft_wrap=not terminal, highlight=False)
    if not watch:
        console.print(look())
        return
    _keep_looking(look, console)


def pipeline(kubectl: Kubectl, name: str) -> Pipeline:
    return pipeline_of(kubectl.json("get", PIPELINES, name))


def pods_of_workers(kubectl: Kubectl, one: Pipeline) -> list[PodView]:
    """Empty as long as no operator has looked at the pipeline."""
    if not one.status.selector:
        return []
    found = kubectl.json("get", "pods", "--selector", one.status.selector)
    return pods_of(_items(found))


def _listing(kubectl: Kubectl, everywhere: bool) -> Callable[[], RenderableType]:
    words = ("get", PIPELINES, *(["--all-namespaces"] if everywhere else []))

    def look() -> RenderableType:
        found = [pipeline_of(tree) for tree in _items(kubectl.json(*words)) if isinstance(tree, dict)]
        return shown.listing(found, SystemClock().time(), namespaces=everywhere)

    return look


def _detail(kubectl: Kubectl, name: str, ask: bool) -> Callable[[], RenderableType]:
    def look() -> RenderableType:
        one = pipeline(kubectl, name)
        pods = pods_of_workers(kubectl, one)
        told = _asked(kubectl, one, pods) if ask else {}
        return shown.detail(one, pods, told, SystemClock().time())

    return look


def _keep_looking(look: Callable[[], RenderableType], console: Console) -> None:
    from rich.live import Live

    clock = SystemClock()
    first = look()
    if not console.is_terminal:
        console.print(first)
        while True:
            clock.sleep(EVERY)
            console.print()
            console.print(look())
    with Live(first, console=console, auto_refresh=False, vertical_overflow="crop") as live:
        while True:
            clock.sleep(EVERY)
            try:
                live.update(look(), refresh=True)
            except (
                KubectlFailed
            ) as failure:  # it may pass: a login that is renewed, an API server that is restarted
                live.update(f"{failure.what}\n{failure.remedy}", refresh=True)


def _told(kubectl: Kubectl, words: Sequence[str], name: str | None, ask: bool) -> object:
    tree = kubectl.json(*words)
    if name is None or not ask:
        return tree
    one = pipeline_of(tree)
    return {"pipeline": tree, "workers": _asked(kubectl, one, pods_of_workers(kubectl, one))}


def _asked(kubectl: Kubectl, one: Pipeline, pods: Sequence[PodView]) -> Mapping[str, WorkerStatus]:
    """What workers that run say of themselves, by pod, through the API server's proxy.

    Raises KubectlFailed if none answers, with the reason of the first.
    """
    asked = [pod for pod in pods if pod.state == "Running"]
    with ThreadPoolExecutor(_AT_ONCE) as several:
        answers = list(several.map(lambda pod: _ask(kubectl, one.metadata.namespace, pod), asked))
    told = {
        pod.name: answer
        for pod, answer in zip(asked, answers, strict=True)
        if isinstance(answer, WorkerStatus)
    }
    failures = [answer for answer in answers if isinstance(answer, KubectlFailed)]
    if failures and not told:
        raise failures[0]
    return told


def _ask(kubectl: Kubectl, namespace: str, pod: PodView) -> WorkerStatus | KubectlFailed | None:
    path = f"/api/v1/namespaces/{namespace}/pods/{pod.name}/proxy/status"  # of its first port, the only one
    try:
        return worker_status.decode(kubectl.run("get", "--raw", path, "--request-timeout=5s").encode())
    except KubectlFailed as failure:
        return failure
    except msgspec.DecodeError:
        return None  # a worker of another version


def _items(tree: Mapping[str, object]) -> Sequence[object]:
    items = tree.get("items")
    return items if isinstance(items, list) else []
