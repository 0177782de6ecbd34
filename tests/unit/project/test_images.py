"""What images/ promises is held by its Dockerfiles and its locks."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Sequence
from fnmatch import fnmatch
from pathlib import Path

import pytest
from packaging.markers import Marker
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[3]
DOCKERFILES = sorted((ROOT / "images").glob("*.Dockerfile"))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
EXTRAS = {"worker": ["otel"], "operator": ["operator"], "spark": ["spark"]}
IN_IMAGES = {"python_version": "3.11", "python_full_version": "3.11.9", "sys_platform": "linux"}
PIN = re.compile(r"^([a-z0-9-]+)==(\S+)(?: ; (.*?))? \\$", re.MULTILINE)


def lock(name: str) -> str:
    return (ROOT / "images" / "requirements" / f"{name}.txt").read_text()


def wanted(extras: Sequence[str]) -> list[Requirement]:
    project = PROJECT["project"]
    texts = project["dependencies"] + [
        text for extra in extras for text in project["optional-dependencies"][extra]
    ]
    return [Requirement(text) for text in texts]


@pytest.mark.parametrize("image", EXTRAS)
def test_each_package_that_the_project_asks_for_is_pinned_within_its_bounds(image: str) -> None:
    pinned = {name: version for name, version, _ in PIN.findall(lock(image))}

    for requirement in wanted(EXTRAS[image]):
        version = pinned.get(canonicalize_name(requirement.name))
        assert version is not None, f"{requirement.name} is not in it: `make locks`"
        assert requirement.specifier.contains(version), f"{requirement} is not {version}: `make locks`"


@pytest.mark.parametrize("name", [*EXTRAS, "build"])
def test_each_pinned_package_has_its_checksums(name: str) -> None:
    lines = [line for line in lock(name).splitlines() if line and not line.startswith("#")]
    heads = [number for number, line in enumerate(lines) if not line.startswith(" ")]

    assert heads
    for head in heads:
        assert PIN.match(lines[head]), lines[head]
        assert lines[head + 1].lstrip().startswith("--hash=sha256:"), lines[head]


def test_a_package_that_several_images_have_is_of_one_version() -> None:
    found: dict[str, set[str]] = {}
    for image in EXTRAS:
        for name, version, where in PIN.findall(lock(image)):
            if not where or Marker(where).evaluate(IN_IMAGES):  # numpy is another one on newer Pythons
                found.setdefault(name, set()).add(version)

    assert {name: versions for name, versions in found.items() if len(versions) > 1} == {}


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_an_image_is_made_in_stages_and_runs_as_a_user_by_number(path: Path) -> None:
    text = path.read_text()
    last = text[text.rindex("\nFROM ") :]

    assert text.startswith("# ")
    assert re.search(r"^ARG BASE_IMAGE=\S+$", text, re.MULTILINE)
    assert re.findall(r"^USER (.+)$", last, re.MULTILINE)[-1] == "65532:65532"  # what runAsNonRoot can check
    assert re.search(r"^ENTRYPOINT \[", last, re.MULTILINE)  # no shell between the program and its signals
    assert not re.search(r"^RUN .*pip", last, re.MULTILINE)


@pytest.mark.parametrize("path", DOCKERFILES, ids=lambda path: path.name)
def test_an_image_takes_nothing_that_is_not_pinned(path: Path) -> None:
    for command in re.findall(r"pip .*install.*", path.read_text()):
        assert "--require-hashes" in command or "/wheels/" in command, command


def test_images_run_as_the_user_that_the_chart_and_their_readme_say() -> None:
    chart = (ROOT / "charts" / "millrace" / "templates" / "deployment.yaml").read_text()

    assert "runAsUser: 65532" in chart
    assert "user 65532" in (ROOT / "images" / "README.md").read_text()


def test_what_spark_is_left_without_is_named_and_not_what_it_needs() -> None:
    lines = (ROOT / "images" / "spark" / "unneeded").read_text().splitlines()
    patterns = [line for line in lines if line and not line.startswith("#")]
    needed = (
        "hive-storage-api-2.8.1",
        "spark-kubernetes_2.13-4.2.0",
        "rocksdbjni-9.8.4",
        "kubernetes-client-7.6.1",
    )

    known = ("pyspark/", "pyarrow/", "pandas/", "numpy/")
    assert all(pattern.startswith(known) and ".." not in pattern for pattern in patterns)
    for jar in needed:
        assert not [pattern for pattern in patterns if fnmatch(f"pyspark/jars/{jar}.jar", pattern)]


def test_what_a_dockerfile_copies_is_not_kept_from_docker() -> None:
    allowed = {
        line.removeprefix("!")
        for line in (ROOT / ".dockerignore").read_text().splitlines()
        if line[:1] == "!"
    }
    for path in DOCKERFILES:
        for sources in re.findall(r"^COPY (?!--from)(.+) \S+$", path.read_text(), re.MULTILINE):
            for source in sources.split():
                assert source.split("/")[0] in allowed, f"{path.name} copies {source}"
