"""The manifest as a file, and where the code it names is found: the same for a worker, a local run and `validate`."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from millrace.connectivity.settings import refused
from millrace.errors import ManifestError
from millrace.ownership.seeding import StartFrom
from millrace.worker.files import write_whole
from millrace_api import ConsumerPipeline, LoadedManifest, load


def read(path: Path) -> LoadedManifest:
    """Raises: ManifestError if the file can't be read, millrace_api.InvalidManifest if its content is not valid."""
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise ManifestError(
            f"{path} is not text in UTF-8: {error.reason} at byte {error.start}",
            where=str(path),
            remedy="give a manifest written in YAML",
        ) from error
    except OSError as error:
        raise ManifestError(
            f"can't read the manifest {path}: {os.strerror(error.errno or 0)}",
            where=str(path),
            remedy="give the path of a ConsumerPipeline in YAML that this user may read",
        ) from error
    loaded = load(text, source=str(path))
    refuse_owned(loaded.pipeline)
    return loaded


def refuse_owned(pipeline: ConsumerPipeline) -> None:
    """Raises ManifestError for a setting of Kafka's clients that is the engine's."""
    for key, reason in refused(pipeline.spec.kafka.properties).items():
        raise ManifestError(
            f"{key} can't be set in kafka.properties",
            where=f"spec.kafka.properties.{key}",
            remedy=reason,
        )


def start_from(pipeline: ConsumerPipeline) -> StartFrom:
    """Where a new pipeline begins, as the control plane wants it told."""
    at = pipeline.spec.source.start_timestamp_ms
    if at is not None:
        return at
    return "Latest" if pipeline.spec.source.start_from == "Latest" else "Earliest"


def config_map(loaded: LoadedManifest) -> Mapping[str, str] | None:
    """The files of the ConfigMap with the pipeline's code, if it is in the same multi-document file."""
    worker = loaded.pipeline.spec.worker
    code = worker.code if worker is not None else None
    return loaded.config_maps.get(code.config_map_ref.name) if code is not None else None


def unpack(files: Mapping[str, str], directory: Path) -> Path:
    """Write the ConfigMap's files into the directory, and remove what else is there. Raises MillraceError (DISK)."""
    directory.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        if name != os.path.basename(name) or name in ("", ".", ".."):
            raise ManifestError(
                f"{name!r} can't be a key of a ConfigMap",
                where="data",
                remedy="use a plain file name such as flights.py",
            )
        write_whole(directory / name, content.encode())
    for stale in directory.iterdir():
        if stale.name not in files and stale.is_file():
            stale.unlink()
    return directory


@contextmanager
def code_of(loaded: LoadedManifest, manifest: Path, given: Path | None) -> Iterator[Path]:
    """The directory with the functions' modules: the one given, else the ConfigMap's files in a temporary one, else
    the manifest's folder.
    """
    files = config_map(loaded)
    if given is not None:
        yield given.resolve()
    elif files is not None:
        with tempfile.TemporaryDirectory(prefix="millrace-code-") as directory:
            yield unpack(files, Path(directory))
    else:
        yield manifest.resolve().parent
