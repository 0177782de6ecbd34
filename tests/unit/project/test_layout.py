"""The repository keeps the shape that its documents promise."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.unit

ROOT = Path(__file__).parents[3]
MAKEFILE = (ROOT / "Makefile").read_text()


def test_operator_is_no_package_for_it_would_shadow_the_standard_library() -> None:
    assert not (ROOT / "operator" / "__init__.py").exists()


@pytest.mark.parametrize(
    "package", sorted((ROOT / "worker" / "millrace").glob("*/__init__.py")), ids=lambda p: p.parent.name
)
def test_each_room_says_what_lives_in_it(package: Path) -> None:
    assert package.read_text().lstrip().startswith('"""'), f"{package} has no docstring"


def test_every_make_target_is_explained_by_make_help() -> None:
    phony = next(line for line in MAKEFILE.splitlines() if line.startswith(".PHONY:")).split()[1:]
    listed = subprocess.run(
        ["make", "-s", "help"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout
    explained = {line.split()[0] for line in listed.splitlines() if line.strip()}
    assert set(phony) == explained


def test_no_registry_host_and_no_path_of_one_machine_is_named() -> None:
    hosts = (
        "repo1." + "maven",
        "registry.npm" + "js",
        "files." + "pythonhosted",
        "/work" + "/main",
        "/work" + "/shared",
    )
    tracked = subprocess.run(
        ["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    for name in tracked:
        path = ROOT / name
        if path.suffix in {".png", ".svg", ".gz"} or not path.is_file():
            continue
        text = path.read_text(errors="replace")
        for host in hosts:
            assert host not in text, f"{name} names {host}"
