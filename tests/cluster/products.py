"""The images of Millrace itself (images/), as they are shipped."""

from __future__ import annotations

import re
from pathlib import Path

from cluster import images
from cluster.binaries import Say
from cluster.docker import docker
from cluster.images import Image
from millrace.collector.jars import CONNECTOR
from millrace.host import jars

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "images"
NAMES = ("worker", "operator", "spark")
_COPIES = re.compile(r"^COPY (?!--from)(.+) \S+$", re.MULTILINE)
_JARS = "images/jar[s]"  # those of this machine, so that the image's build need not fetch them


def image(name: str, say: Say) -> str:
    """An image of Millrace, with its tag by content, built if need be.

    Args:
        name: one of NAMES.
    """
    recipe = FOLDER / f"{name}.Dockerfile"
    copied = [place for match in _COPIES.finditer(recipe.read_text()) for place in match[1].split()]
    context = {place: ROOT / place for place in copied if place != _JARS}
    if _JARS in copied:
        folder = jars.ensure(CONNECTOR)
        for path in (folder, folder.with_name("jars.lock")):
            if path.exists():
                context[f"images/jars/{folder.parent.name}/{path.name}"] = path
    return images.build(Image(name, recipe, context), say)


def tagged(name: str, say: Say) -> str:
    """The same under the name that manifests of a checkout use, for `make images`."""
    tag = f"millrace/{name}:dev"
    docker("tag", image(name, say), tag)
    return tag
