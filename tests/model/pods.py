"""Pods and processes: how workers come and go."""

from __future__ import annotations

from collections.abc import Iterator

from model.broker import Step
from model.state import Config, Process, State, put, spend


def fresh(c: Config, view: int) -> Process:
    """A process that has just started. Without the fence there is nothing to initialise."""
    return Process(initialised=not c.fenced, view=view, partitions=(None,) * c.partitions)


def steps(c: Config, s: State) -> Iterator[Step]:
    for i in range(c.workers):
        running = s.processes[i] is not None
        if not running and not s.crash_looping[i] and (s.pods[i] or i < s.scale):
            for view in {s.published, max(s.published - 1, 0)}:  # the mounted file may lag
                after = s._replace(pods=put(s.pods, i, True), processes=put(s.processes, i, fresh(c, view)))
                yield f"worker {i} starts, sees e{view}", "normal", after, ()
        if s.pods[i] and i >= s.scale:
            after = s._replace(
                pods=put(s.pods, i, False),
                processes=put(s.processes, i, None),
                crash_looping=put(s.crash_looping, i, False),
            )
            yield f"pod {i} is deleted, its process is dead", "normal", after, ()
        if running:
            yield from _faults(c, s, i)
        if s.zombies[i] is not None:
            yield f"zombie {i} dies", "normal", s._replace(zombies=put(s.zombies, i, None)), ()
            if spent := spend(s, "zombie restarts"):
                again = fresh(c, s.zombies[i].view)
                after = spent._replace(zombies=put(spent.zombies, i, again))
                yield f"FAULT the container of zombie {i} restarts", "fault", after, ()


def _faults(c: Config, s: State, i: int) -> Iterator[Step]:
    dead = put(s.processes, i, None)
    if spent := spend(s, "crash"):
        yield f"FAULT worker {i} crashes", "fault", spent._replace(processes=dead), ()
    if spent := spend(s, "crash loop"):
        after = spent._replace(processes=dead, crash_looping=put(s.crash_looping, i, True))
        yield f"FAULT worker {i} crashes again and again", "fault", after, ()
    if s.zombies[i] is None and (spent := spend(s, "node lost")):
        zombie = c.workers + i
        after = spent._replace(
            pods=put(s.pods, i, False),
            processes=dead,
            zombies=put(s.zombies, i, s.processes[i]),
            # it keeps its producer: what was current as process i is current as the zombie
            current=tuple(zombie if process == i else process for process in s.current),
            transactions=tuple(
                t._replace(process=zombie) if t and t.process == i else t for t in s.transactions
            ),
        )
        yield f"FAULT the node of worker {i} is lost: it lives on as a zombie", "fault", after, ()
