"""The processes of a run, found among the descendants of `millrace run` by their command lines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import psutil

SPARK, LAUNCHER = "org.apache.spark.deploy.SparkSubmit", "org.apache.spark.launcher.Main"


class Victims:
    """Only what lives is found: a process that was killed may be there for a moment longer, as a zombie."""

    def __init__(self, run: int) -> None:
        self._run = psutil.Process(run)

    def workers(self) -> Mapping[int, psutil.Process]:
        """By index."""
        return {
            int(words[words.index("--index") + 1]): process
            for process, words in self._living()
            if "worker" in words and "--index" in words
        }

    def broker(self) -> psutil.Process | None:
        return next((process for process, words in self._living() if "kafka.Kafka" in words), None)

    def collector(self) -> tuple[psutil.Process, psutil.Process | None] | None:
        """The Python of the attempt under way, and its JVM once that has started."""
        living = list(self._living())
        python = next((process for process, words in living if "millrace.collector.job" in words), None)
        jvm = next((process for process, words in living if SPARK in words and LAUNCHER not in words), None)
        return (python, jvm) if python is not None else None

    def _living(self) -> Iterator[tuple[psutil.Process, list[str]]]:
        try:
            children = self._run.children(recursive=True)
        except psutil.Error:
            return
        for child in children:
            try:
                yield child, child.cmdline()
            except psutil.Error:  # it ended just now
                continue
