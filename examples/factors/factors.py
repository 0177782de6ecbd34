"""The function of pipeline.yaml. It runs in processes, each of which calls setup() first."""

from __future__ import annotations

import millrace

LIMIT = 200_000
primes: list[int] = []


def setup() -> None:
    """All primes below LIMIT: once in each process, not for each message."""
    sieve = bytearray([1]) * LIMIT
    for n in range(2, LIMIT):
        if sieve[n]:
            primes.append(n)
            sieve[n * n :: n] = bytes(len(range(n * n, LIMIT, n)))


def factors(order: dict[str, int]) -> dict[str, object]:
    """{"n": 84} becomes {"n": 84, "factors": [2, 2, 3, 7]}."""
    n = order["n"]
    if not 1 <= n < LIMIT**2:
        raise millrace.Invalid(f"{n} is not from 1 to {LIMIT**2 - 1}")
    found, rest = [], n
    for prime in primes:
        if prime * prime > rest:
            break
        while rest % prime == 0:
            found.append(prime)
            rest //= prime
    if rest > 1:
        found.append(rest)
    return {"n": n, "factors": found}
