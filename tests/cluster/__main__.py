"""`python -m cluster COMMAND`: what the make targets of a cluster call."""

from __future__ import annotations

import argparse
import sys
import time

from cluster import binaries, docker, kafka, kind, node, plane, products, release
from millrace.errors import MillraceError


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m cluster", description=__doc__)
    parser.add_argument("--name", default="millrace", help="of the kind cluster")
    commands = parser.add_subparsers(dest="command", required=True)
    commands.add_parser("plane", help="fetch or build the programs of a control plane")
    up = commands.add_parser("up", help="a kind cluster with Kafka in it; quick if it is there")
    up.add_argument("--workers", type=int, default=0, help="nodes beside the control plane's")
    commands.add_parser("install", help="Millrace into it: the images, and both charts by Helm")
    commands.add_parser("down", help="remove that cluster")
    commands.add_parser("images", help="the images of Millrace itself, with the tag dev")
    chosen = parser.parse_args()
    cluster = kind.Cluster(chosen.name)
    try:
        if chosen.command == "plane":
            binaries.ensure(plane.needed(pods=True), say=say)
        elif chosen.command == "up":
            make(cluster, chosen.workers)
        elif chosen.command == "install":
            release.install(cluster, say)
        elif chosen.command == "images":
            docker.ensure(say)
            for name in products.NAMES:
                say(f"{products.tagged(name, say)} is there")
        else:
            cluster.down(say)
    except MillraceError as error:
        say(str(error))
        return int(error.code)
    return 0


def make(cluster: kind.Cluster, workers: int) -> None:
    programs = binaries.folder(kind.PROGRAMS, cluster.directory / "bin", say=say)
    docker.ensure(say)
    broker = kafka.image(say)
    nodes = node.node_image([broker], say)
    cluster.up(nodes, say, workers=workers)
    if broker not in nodes.preloaded:
        cluster.load([broker], say)
    kafka.deploy(cluster, broker, say)
    say("ready; to use it:")
    sys.stdout.write(
        f"export KUBECONFIG={cluster.kubeconfig} PATH={programs}:$PATH KAFKA={kafka.outside(cluster)}\n"
    )


_BEGUN = time.monotonic()


def say(text: str) -> None:
    """One line of progress, with the seconds since the start."""
    sys.stderr.write(f"cluster: {time.monotonic() - _BEGUN:5.0f} s  {text}\n")


if __name__ == "__main__":
    sys.exit(main())
