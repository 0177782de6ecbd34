"""From what the user asked for to a `LocalRun`: manifest, state directory, broker, commands of the workers."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import msgspec

from millrace.channel import backlog as channel_backlog
from millrace.clock import SystemClock
from millrace.collector import properties
from millrace.collector.stage import check_collector, check_output, collector_job
from millrace.connectivity.ports import Admin, Span
from millrace.errors import ExitCode, MillraceError
from millrace.local.broker.embedded import EmbeddedBroker
from millrace.local.broker.keeper import BrokerKeeper
from millrace.local.collector.keeper import keeper_of
from millrace.local.run import LocalRun, Plan
from millrace.local.state import StateDirectory
from millrace.local.stewardship import Steward
from millrace.local.supervisor import Supervisor
from millrace.local.view.display import display
from millrace.local.view.snapshot import RunSnapshot
from millrace.ownership.control_plane import ControlPlane
from millrace.ownership.epoch_store import EpochFile
from millrace.worker.cluster import connect
from millrace.worker.files import write_whole
from millrace.worker.manifest import config_map, read, start_from, unpack
from millrace_api import ConsumerPipeline, LoadedManifest, cluster_only
from millrace_api.needed import needed, transactional

STATE_ROOT = Path(".millrace")


@dataclass(frozen=True, slots=True)
class Request:
    """What `millrace run` was asked for; None: what the manifest says."""

    manifest: Path
    replicas: int | None = None
    kafka: str | None = None
    until_end: bool = False
    state: Path | None = None
    secrets: Path | None = None
    plain: bool = False
    picture: Path | None = None
    debug: bool = False
    spark_ui: bool = False


@dataclass(frozen=True, slots=True)
class KafkaChoice:
    """Which broker is meant. `bootstrap` None: the manifest's. `port`: of an embedded one, None: any."""

    embedded: bool
    bootstrap: str | None = None
    port: int | None = None

    @classmethod
    def parse(cls, text: str | None) -> KafkaChoice:
        """`embedded`, `embedded:PORT`, HOST:PORT[,HOST:PORT ...] or nothing. Raises MillraceError (USAGE)."""
        if text is None:
            return cls(embedded=False)
        head, _, port = text.rpartition(":")
        if text == "embedded":
            return cls(embedded=True)
        if head == "embedded" and port.isdigit() and 0 < int(port) < 65536:
            return cls(embedded=True, port=int(port))
        addresses = [address.strip().rpartition(":") for address in text.split(",")]
        if all(host and port.isdigit() and 0 < int(port) < 65536 for host, _, port in addresses):
            return cls(embedded=False, bootstrap=text)
        raise MillraceError(
            f"{text!r} names no Kafka",
            where="--kafka",
            remedy="give `embedded`, `embedded:PORT`, or HOST:PORT of a broker",
            code=ExitCode.USAGE,
        )


def state_of(pipeline: ConsumerPipeline, given: Path | None) -> StateDirectory:
    return StateDirectory((given or STATE_ROOT / pipeline.metadata.name).absolute())


def carry_out(request: Request) -> tuple[ExitCode, RunSnapshot | None]:
    """Run the pipeline to its end. Raises MillraceError and millrace_api.InvalidManifest."""
    loaded = read(request.manifest)
    pipeline, choice = loaded.pipeline, KafkaChoice.parse(request.kafka)
    state, clock = state_of(pipeline, request.state), SystemClock()
    if not choice.embedded:  # wrong credentials are told before anything is touched
        connect(pipeline, bootstrap=choice.bootstrap, secrets=request.secrets, client_id="millrace")
    connector = check_collector(pipeline, request.secrets)
    check_output(pipeline, state.path)
    state.create()
    with ExitStack() as stack:
        stack.enter_context(state.locked())
        record = state.belong_to(
            pipeline=pipeline.metadata.name,
            group_id=pipeline.group_id,
            topic=pipeline.spec.source.topic,
            kafka="embedded" if choice.embedded else "external",
            manifest=str(request.manifest.absolute()),
        )
        broker = EmbeddedBroker(state.broker, port=choice.port) if choice.embedded else None
        bootstrap = broker.bootstrap if broker else choice.bootstrap
        reached = bootstrap or pipeline.spec.kafka.bootstrap_servers
        state.write_record(msgspec.structs.replace(record, bootstrap=reached))
        code_dir = _code(loaded, request.manifest, state)
        job = (
            collector_job(
                pipeline,
                connector,
                storage=state.path,
                notes=state.collector,
                bootstrap=reached,
                secrets=request.secrets,
                until_end=request.until_end,
                spark_ui=request.spark_ui,
                code=code_dir,
            )
            if connector is not None
            else None
        )
        replicas = request.replicas or pipeline.spec.replicas
        plan = Plan(
            pipeline=pipeline.metadata.name,
            manifest=request.manifest.name,
            delivery=pipeline.spec.delivery,
            replicas=replicas,
            until_end=request.until_end,
            bootstrap=reached,
            picture=request.picture,
        )
        shown = stack.enter_context(display(plain=request.plain))
        run = LocalRun(plan, state, clock, shown)
        collector = keeper_of(job, _environment(pipeline), clock, run.notice) if job else None
        if job and (unheeded := properties.notice(pipeline.spec.kafka.properties)):
            run.notice(unheeded, "warning")
        if unused := cluster_only(pipeline):
            run.notice(f"of use on a cluster only, and left alone here: {', '.join(unused)}", "info")
        keeper = BrokerKeeper(broker, clock, run.notice) if broker else None
        command = _WorkerCommand(request, state, bootstrap, code_dir)
        supervisor = Supervisor(state, clock, command, _environment(pipeline), run.notice)

        def open_plane() -> tuple[ControlPlane, Admin]:
            cluster = connect(
                pipeline, bootstrap=bootstrap, secrets=request.secrets, client_id=f"{pipeline.group_id}-op"
            )
            plane = ControlPlane(
                cluster,
                EpochFile(state.epoch_file),
                clock,
                uid=record.uid,
                topic=pipeline.spec.source.topic,
                group=pipeline.group_id,
                claims_group=pipeline.claims_group,
                start_from=start_from(pipeline),
                outputs=transactional(pipeline),
                timeout=10.0,  # a broker that does not answer is asked anew, by new clients
            )
            return plane, cluster.admin()

        def open_steward() -> Steward:
            return Steward(
                open_plane,
                clock,
                run.notice,
                topic=pipeline.spec.source.topic,
                topics=needed(pipeline),
                replicas=replicas,
                channel=job.channel if job else None,
                bounds_file=state.bounds_file if request.until_end else None,
                backlog=backlog if job else None,
            )

        def backlog(admin: Admin, spans: Mapping[int, Span]) -> channel_backlog.Backlog:
            assert job is not None
            return channel_backlog.look(
                admin,
                job.on_lag or channel_backlog.OnLag(),
                channel=job.channel,
                group=job.group,
                spans=spans,
                now=clock.time(),
                timeout=10.0,
            )

        code = run.carry_out(supervisor, open_steward, keeper, collector)
    return code, run.snapshot


class _WorkerCommand:
    """The command line of each worker. The manifest is the one read at the start, whatever becomes of its file."""

    def __init__(self, request: Request, state: StateDirectory, bootstrap: str | None, code: Path) -> None:
        manifest = state.path / "manifest.yaml"
        write_whole(manifest, request.manifest.read_bytes())
        options: dict[str, object] = {
            "--manifest": manifest,
            "--epoch-file": state.epoch_file,
            "--code": code,
            "--parent": os.getpid(),
            "--http": "127.0.0.1:0",
            "--kafka": bootstrap,
            "--secrets": request.secrets.absolute() if request.secrets else None,
            "--until": state.bounds_file if request.until_end else None,
        }
        self._state = state
        # -P: a module in the current directory must not stand in for one of Python's own
        self._command = [sys.executable, "-P", "-m", "millrace.cli", "worker"]
        self._command += [
            str(word) for name, value in options.items() if value is not None for word in (name, value)
        ]
        self._command += ["--debug"] if request.debug else []

    def __call__(self, index: int) -> Sequence[str]:
        return [*self._command, "--index", str(index), "--status-file", str(self._state.worker_status(index))]


def _code(loaded: LoadedManifest, manifest: Path, state: StateDirectory) -> Path:
    files = config_map(loaded)
    return manifest.resolve().parent if files is None else unpack(files, state.code)


def _environment(pipeline: ConsumerPipeline) -> dict[str, str]:
    worker = pipeline.spec.worker
    return dict(os.environ) | ({variable.name: variable.value for variable in worker.env} if worker else {})
