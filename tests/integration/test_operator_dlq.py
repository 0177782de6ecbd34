"""`kubectl millrace dlq` on a pipeline under the operator: real kubectl, API server, operator and broker; the pods that ask
the broker really do their work (`kubelet_double`), and their user has no more than the rights of an editor.
"""

from __future__ import annotations

import base64
import signal
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import pytest

from cluster.plane import ControlPlane
from editor import Editor
from kubelet_double import KubeletDouble
from millrace.cli.dlq.letters import REPLAYED, scan, spans
from millrace.clock import SystemClock
from millrace.connectivity.confluent import ConfluentCluster
from millrace.connectivity.ports import OffsetAndMetadata, Record
from millrace.errors import ExitCode
from millrace.local.broker.embedded import EmbeddedBroker
from operator_process import NAMESPACE, PIPELINE, PODS, STATEFUL, Operator, manifest, prepare

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

DEAD = "air.dead"
BINARY = bytes(range(256)) * 40  # with line ends, and no UTF-8


def records(broker: ConfluentCluster, topic: str) -> list[Record]:
    return list(scan(broker, topic, spans(broker, topic, SystemClock()), SystemClock()))


def die(broker: ConfluentCluster, source: str, *values: bytes) -> None:
    """Messages of the source's partition 3, that died in stage `score`."""
    with closing(broker.transactional_producer("dies")) as writer:
        writer.init(60.0)
        writer.begin()
        for offset, value in enumerate(values):
            headers = [
                ("millrace-reason", b"no such carrier"),
                ("millrace-stage", b"score"),
                ("millrace-topic", source.encode()),
                ("millrace-partition", b"3"),
                ("millrace-offset", b"%d" % offset),
                ("trace", b"\xff\n"),
            ]
            writer.produce(DEAD, value, b"k\x00", headers, 0)
        writer.commit(60.0)


def interrupt_one(editor: Editor, operator: Operator, broker: ConfluentCluster) -> None:
    """Ctrl-C in a replay that can't have gone far: whether some were sent already is pending."""

    def pods() -> list[str]:
        return [pod["metadata"]["name"] for pod in operator.get(PODS)["items"]]

    with closing(broker.transactional_producer("another")) as another:
        another.init(60.0)
        another.begin()
        another.send_offsets("air.flights.dlq.replay", DEAD, {0: OffsetAndMetadata(0)}, 60.0)
        with editor.start("dlq", "replay", "flights") as process:
            try:
                operator.eventually(lambda: "flights.dlq" in pods())
                process.send_signal(signal.SIGINT)
                process.communicate(timeout=240)
            finally:
                process.kill()
        assert process.returncode == ExitCode.INTERRUPTED
        operator.eventually(lambda: "flights.dlq" not in pods())
        another.abort(60.0)


def test_letters_are_listed_shown_sent_again_and_deleted_with_the_rights_of_an_editor(
    start_plane: Callable[..., ControlPlane],
    kafka: EmbeddedBroker,
    make_topic: Callable[[int], str],
    tmp_path: Path,
) -> None:
    plane, source = start_plane(pods=True), make_topic(12)
    broker = ConfluentCluster(kafka.bootstrap, client_id="looks")
    prepare(plane, kafka)
    operator = Operator(plane, kafka, tmp_path)
    with closing(operator), KubeletDouble(plane, NAMESPACE, tmp_path):
        editor = Editor(plane, tmp_path)
        operator.start()
        dead_letter = {"topic": DEAD, "create": {"partitions": 1}}
        wanted = manifest(kafka, source={"topic": source, "format": "json"}, deadLetter=dead_letter)
        assert plane.request("PATCH", f"{PIPELINE}?force=true", wanted).status == 201
        operator.eventually(lambda: "spec" in operator.get(STATEFUL))
        die(broker, source, b"1", BINARY, b"3")

        listed = editor.told("dlq", "list", "flights", "--stage", "score")
        assert [(one["offset"], one["sourcePartition"]) for one in listed] == [(0, 3), (1, 3), (2, 3)]
        shown = editor.told("dlq", "show", "flights", "0:1")
        assert base64.b64decode(shown["valueBase64"]) == BINARY
        assert shown["headers"][-1] == {"name": "trace", "valueBase64": "/wo="}

        # before, and then to where they came from, each once
        planned = editor.told("dlq", "replay", "flights", "--limit", 2, "--dry-run")
        assert (planned["replayed"], records(broker, source)) == (2, [])
        interrupt_one(editor, operator, broker)
        assert records(broker, source) == []
        assert editor.told("dlq", "replay", "flights", "--limit", 2)["topics"] == {source: 2}
        again = editor.told("dlq", "replay", "flights", "--limit", 2)
        assert (again["replayed"], again["replayedBefore"]) == (1, 0)
        sent = records(broker, source)
        assert [(one.partition(), one.key(), one.value()) for one in sent] == [
            (3, b"k\x00", value) for value in (b"1", BINARY, b"3")
        ]
        assert sent[1].headers() == [("trace", b"\xff\n"), (REPLAYED, f"{DEAD}/0:1".encode())]

        # deleting: asked for, here; one at a time, but looking goes on
        unasked = editor.run("dlq", "purge", "flights", "--all")
        assert (unasked.returncode, "add --yes" in unasked.stderr) == (ExitCode.USAGE, True)
        other = {"metadata": {"name": "flights.dlq"}, "spec": waiting()}
        assert plane.request("POST", PODS, other).status == 201
        busy = editor.run("dlq", "purge", "flights", "--all", "--yes")
        assert (busy.returncode, "another `kubectl millrace dlq`" in busy.stderr) == (ExitCode.BUSY, True)
        assert plane.request("DELETE", f"{PODS}/flights.dlq?gracePeriodSeconds=0").status == 200
        purged = editor.told("dlq", "purge", "flights", "--replayed", "--yes")
        assert purged == {"topic": DEAD, "deletedBelow": {"0": 3}}
        assert records(broker, DEAD) == []
        left = [pod["metadata"]["name"] for pod in operator.get(PODS)["items"]]
        assert not any(name.startswith("flights.") for name in left)

        # who may not make pods can't have one made for her
        viewer = Editor(plane, tmp_path, "viewer", "view").run("dlq", "list", "flights")
        assert (viewer.returncode, "forbidden" in viewer.stderr) == (ExitCode.CREDENTIALS, True)


def waiting() -> dict[str, object]:
    """A pod that never ends."""
    container = {
        "name": "waits",
        "image": "waits",
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    profile = {"type": "RuntimeDefault"}
    return {"securityContext": {"runAsNonRoot": True, "seccompProfile": profile}, "containers": [container]}
