"""`millrace-operator`: from its options to the parts at work, and an orderly end.

Order of the start: health answers; leadership is waited for; the cache is filled; only then pipelines are worked on, or
children that are there would be taken for missing. The order of the end is the reverse.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
import uuid
from dataclasses import dataclass
from pathlib import Path
from typing import Annotated

import kopf
import structlog
import typer

from millrace.clock import SystemClock
from millrace_operator import handlers, seal
from millrace_operator.cache import Cache
from millrace_operator.cluster.real import RealCluster
from millrace_operator.code_watch import watch_code
from millrace_operator.connecting import connect
from millrace_operator.controller import Controller
from millrace_operator.health import Health, serve
from millrace_operator.kafka import Threads
from millrace_operator.leader import Leadership
from millrace_operator.logs import configure
from millrace_operator.observed import Settings
from millrace_operator.selector import Selector
from millrace_operator.work_queue import WorkQueue


@dataclass(frozen=True, slots=True)
class Options:
    """None and "": all namespaces, the pod's service account, no default image."""

    kubeconfig: Path | None = None
    namespace: str = ""
    selector: Selector = handlers.EVERYTHING
    image: str = ""
    spark_image: str = ""
    lease_namespace: str = "default"
    lease: str = "millrace-operator"
    http: str = ":8080"
    concurrency: int = 16
    drain_deadline: float = 180.0


def main() -> None:
    typer.run(_command)


def _command(
    kubeconfig: Annotated[
        Path | None, typer.Option(envvar="KUBECONFIG", help="To reach the API server from outside a pod.")
    ] = None,
    namespace: Annotated[str, typer.Option(help="Work in this namespace only.", show_default="all")] = "",
    selector: Annotated[
        str,
        typer.Option(help="Work on pipelines with these labels only: team=air,!legacy.", show_default="all"),
    ] = "",
    worker_image: Annotated[
        str, typer.Option(envvar="MILLRACE_WORKER_IMAGE", help="Image of workers whose manifest names none.")
    ] = "",
    spark_image: Annotated[
        str,
        typer.Option(envvar="MILLRACE_SPARK_IMAGE", help="Image of collectors whose manifest names none."),
    ] = "",
    lease_namespace: Annotated[
        str, typer.Option(envvar="POD_NAMESPACE", help="Where the Lease for the leadership is.")
    ] = "default",
    lease: Annotated[str, typer.Option(help="Name of that Lease.")] = "millrace-operator",
    http: Annotated[str, typer.Option(help="Serve /livez /readyz /metrics here.")] = ":8080",
    concurrency: Annotated[int, typer.Option(min=1, help="Pipelines that are worked on at once.")] = 16,
    drain_deadline: Annotated[
        float,
        typer.Option(
            envvar="MILLRACE_DRAIN_DEADLINE",
            min=1,
            help="Seconds that a deletion waits for workers and broker before it goes on without.",
        ),
    ] = 180.0,
) -> None:
    """Make the ConsumerPipelines of a cluster run."""
    try:
        mine = Selector.parse(selector)
    except ValueError as error:
        raise typer.BadParameter(str(error), param_hint="--selector") from error
    configure()
    options = Options(
        kubeconfig,
        namespace,
        mine,
        worker_image,
        spark_image,
        lease_namespace,
        lease,
        http,
        concurrency,
        drain_deadline,
    )
    sys.exit(asyncio.run(run(options)))


async def run(options: Options) -> int:
    """Until SIGTERM or SIGINT (0), or until something ends that must not (1)."""
    stop = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    log = structlog.get_logger("millrace.operator")
    cluster = await RealCluster.connect(options.kubeconfig)
    health = Health()
    server = serve(options.http, health)
    work = asyncio.create_task(_work(options, cluster, health, stop))
    stopping = asyncio.create_task(stop.wait())
    done, _ = await asyncio.wait({work, stopping}, return_when=asyncio.FIRST_COMPLETED)
    code = 0
    if work in done:
        code = 1
        log.error("ended", what=repr(work.exception()))
    work.cancel()
    stopping.cancel()
    with contextlib.suppress(asyncio.CancelledError, Exception):
        await work
    await cluster.close()
    server.shutdown()
    server.server_close()
    log.info("stopped")
    return code


async def _work(options: Options, cluster: RealCluster, health: Health, stop: asyncio.Event) -> None:
    clock, threads = SystemClock(), Threads()
    identity = f"{os.environ.get('POD_NAME') or socket.gethostname()}-{uuid.uuid4().hex[:8]}"
    leadership = Leadership(
        cluster, clock, namespace=options.lease_namespace, name=options.lease, identity=identity
    )
    health.alive = True
    await leadership.acquire()
    pipelines = handlers.Pipelines()
    cache = Cache(cluster, namespace=options.namespace)
    filling = asyncio.create_task(cache.run())
    controllers: list[Controller] = []
    try:
        await asyncio.wait(
            {filling, ready := asyncio.create_task(cache.ready())}, return_when="FIRST_COMPLETED"
        )
        if not ready.done():
            await filling  # raises what ended it
        settings = Settings(
            image=options.image,
            spark_image=options.spark_image,
            service_monitors=cache.service_monitors,
            drain_deadline=options.drain_deadline,
        )
        sealed = await seal.load(cluster, options.lease_namespace, f"{options.lease}-seal")
        controller = Controller(cluster, cache, pipelines, connect, clock, settings, threads, sealed)
        controllers.append(controller)
        queue = WorkQueue(controller.reconcile_one, concurrency=options.concurrency)
        cache.tell(queue.add)
        health.queue = queue
        registry = handlers.registry(pipelines, queue.add, options.kubeconfig, options.selector)
        async with asyncio.TaskGroup() as group:
            group.create_task(leadership.keep())
            group.create_task(_never_ends(filling))
            group.create_task(queue.run())
            group.create_task(watch_code(cluster, pipelines, queue.add, namespace=options.namespace))
            group.create_task(_watch(registry, options.namespace, stop))
            health.ready = True
    finally:
        health.ready = False
        filling.cancel()
        for controller in controllers:
            controller.close()
        threads.shutdown()
        with contextlib.suppress(Exception):
            await leadership.release()


async def _watch(registry: kopf.OperatorRegistry, namespace: str, stop: asyncio.Event) -> None:
    """kopf takes the signals to itself: when it ends without an error, it was told to stop."""
    await kopf.operator(
        registry=registry,
        standalone=True,
        clusterwide=not namespace,
        namespaces=[namespace] if namespace else [],
        stop_flag=stop,
    )
    stop.set()
    await asyncio.Event().wait()  # until cancelled


async def _never_ends(task: asyncio.Task[None]) -> None:
    await task


if __name__ == "__main__":
    main()
