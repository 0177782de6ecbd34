"""Options that several commands of `kubectl millrace` have."""

from __future__ import annotations

from typing import Annotated

import typer

from millrace.cli.kubectl.client import Kubectl, Scope

Name = Annotated[str, typer.Argument(help="The ConsumerPipeline.", show_default=False)]
Namespace = Annotated[
    str | None, typer.Option("--namespace", "-n", help="As kubectl has it.", show_default="the context's")
]
Context = Annotated[str | None, typer.Option(help="As kubectl has it.", show_default="the current one")]
Kubeconfig = Annotated[
    str | None,
    typer.Option(metavar="FILE", help="As kubectl has it.", show_default="$KUBECONFIG, ~/.kube/config"),
]


def kubectl_of(namespace: str | None, context: str | None, kubeconfig: str | None) -> Kubectl:
    return Kubectl(Scope(namespace, context, kubeconfig))
