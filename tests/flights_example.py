"""Imports modules of examples/flights, which is no package: its folder is on sys.path only for workers and scripts."""

from __future__ import annotations

import importlib
import sys
from pathlib import Path
from types import ModuleType
from unittest import mock

FOLDER = Path(__file__).parents[1] / "examples" / "flights"


def example(name: str) -> ModuleType:
    with mock.patch.object(sys, "path", [str(FOLDER), *sys.path]):
        return importlib.import_module(name)
