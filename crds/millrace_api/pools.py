"""How a stage's function is executed: where, how many at a time, in which order, for how long, how often."""

from __future__ import annotations

from typing import Annotated, Final, Literal

from pydantic import Field

from millrace_api.forms import Duration, ExceptionRef
from millrace_api.model import Model
from millrace_api.times import duration_seconds

Ordering = Literal["Partition", "Key", "None"]
PoolKind = Literal["threads", "processes", "asyncio"]

POOL_KINDS: Final[tuple[PoolKind, ...]] = ("threads", "processes", "asyncio")
SHORTEST_TIMEOUT: Final = "1ms"
LONGEST_TIMEOUT: Final = "1h"
SHORTEST_BACKOFF: Final = "1ms"
LONGEST_BACKOFF: Final = "10m"
DEFAULT_BACKOFF: Final = "100ms"
DEFAULT_LONGEST_BACKOFF: Final = "10s"


class Pool(Model):
    """What executes a stage's function inside a worker: exactly one of its fields."""

    threads: int | None = Field(
        default=None,
        ge=1,
        le=1_000,
        description="Number of threads (1 to 1000), for functions that wait: for a database, for HTTP. Python runs one "
        "of them at a time.",
    )
    processes: int | None = Field(
        default=None,
        ge=1,
        le=256,
        description="Number of processes (1 to 256), for functions that need the CPU. Each calls setup() of the function's "
        "module. Stages next to each other with as many processes, and the same ordering, share them.",
    )
    asyncio: int | None = Field(
        default=None,
        ge=1,
        le=100_000,
        description="How many calls of an async function may be under way at a time (1 to 100000), in an event loop on a "
        "thread of its own.",
    )

    @property
    def kind(self) -> PoolKind:
        return next(kind for kind in POOL_KINDS if getattr(self, kind) is not None)

    @property
    def size(self) -> int:
        return int(getattr(self, self.kind))


class Retry(Model):
    """How often, and when, a function that has failed is called again for the same message."""

    attempts: int = Field(
        ge=1,
        le=100,
        description="Calls in all for a message, the first one included (1 to 100). After the last one onError applies.",
    )
    backoff: Duration = Field(
        default=DEFAULT_BACKOFF,
        description="Wait before the second call, a duration with its unit (1ms to 10m; default 100ms). It doubles with "
        "each further call; of each wait a random part, up to a half, is left out, so that many do not come back at once.",
    )
    max_backoff: Duration = Field(
        default=DEFAULT_LONGEST_BACKOFF,
        description="The longest wait, a duration with its unit (1ms to 10m; default 10s).",
    )
    exceptions: Annotated[tuple[ExceptionRef, ...], Field(strict=False)] = Field(
        default=(),
        max_length=32,
        description="Those after which to call again, with those derived from them: names of Python's own "
        "(TimeoutError, which is also what `timeout` raises), of the function's module, or module:name. Default: all but "
        "millrace.Invalid, after which it is never called again.",
    )

    @property
    def backoff_seconds(self) -> float:
        return duration_seconds(self.backoff)

    @property
    def max_backoff_seconds(self) -> float:
        return duration_seconds(self.max_backoff)
