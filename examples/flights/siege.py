"""All of chaos put together, for the two runs of `make demo CHAOS=1`: one without an end, one that closes the last windows."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import ambush
import chaos
import load
from collecting import Collecting
from progress import Progress
from striking import Strikes, rest
from victims import Victims

from millrace.ownership.plan import plan as plan_of_partitions

GROUP, PIPELINE, STAGE, RESULTS, WORKERS = "flight-delays", "flight-delays", "by-carrier", "results", 3

Watch = Callable[[], None]


class Siege:
    """
    Args:
        state: the runs' state directory.
        say: told of each blow.
    """

    def __init__(
        self, bootstrap: str, state: Path, seed: int, feed: load.Feed, say: Callable[[str], None]
    ) -> None:
        self._bootstrap, self._seed, self._feed = bootstrap, seed, feed
        self._collecting = Collecting(
            state / RESULTS, state / PIPELINE / STAGE / "v1", state / "collector" / f"{STAGE}.json"
        )
        self._live, self._last = ambush.plan(seed)
        self.strikes = Strikes(lambda: feed.fed / feed.total, say)

    def live(self, run: int, watch: Watch) -> None:
        """Of this process. When it returns all has been struck, and all flights are in the topic. Raises Over, if
        `watch` does.
        """
        victims, progress = Victims(run), Progress(self._bootstrap, GROUP, load.TOPIC, load.PARTITIONS)
        ambushes = self._ambushes(self._live, victims, watch)
        striking = chaos.Chaos(
            chaos.plan(self._seed, WORKERS),
            plan_of_partitions(load.PARTITIONS, WORKERS),
            self._feed,
            victims,
            progress.committed,
            ambushes,
            watch,
            self.strikes,
        )
        ambushes.start()
        striking.carry_out()
        striking.feed_until(ambushes.done)
        progress.close()

    def last(self, run: int, watch: Watch) -> None:
        """Of this process: the collector once more, as the last windows are written. Raises Over if the run ends before."""
        ambushes = self._ambushes(self._last, Victims(run), watch)
        ambushes.start()
        while not ambushes.done():
            rest(0.1, watch)

    def _ambushes(self, todo: Sequence[ambush.Ambush], victims: Victims, watch: Watch) -> ambush.Ambushes:
        return ambush.Ambushes(todo, victims, self._collecting, watch, self.strikes)
