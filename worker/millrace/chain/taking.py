"""What the fields of a stage say is taken from each value: a field of it, or what a function makes of it."""

from __future__ import annotations

from millrace.chain.functions import Functions
from millrace.chain.roles import header_field, is_function, role_name
from millrace.strategies.addressing import Address
from millrace.strategies.keys import Taking, as_key, by_field, by_function
from millrace_api import Stage


def taking_of(stage: Stage, field: str, taken: str | None, functions: Functions) -> Taking | None:
    """`taken` is what the stage's `field` says; None if it says nothing."""
    if taken is None:
        return None
    return by_function(functions[role_name(stage.name, field)]) if is_function(taken) else by_field(taken)


def address_of(stage: Stage, functions: Functions) -> Address | None:
    """Where a produce stage's outputs go; None: as their source records say."""
    produce = stage.produce
    if produce is None or (produce.key, produce.partitioner, produce.headers) == (None, None, ()):
        return None
    key = taking_of(stage, "key", produce.key, functions)
    headers = [
        (header.name, taking)
        for index, header in enumerate(produce.headers)
        if (taking := taking_of(stage, header_field(index), header.from_, functions)) is not None
    ]
    partition = taking_of(stage, "partitioner", produce.partitioner, functions)
    return Address(None if key is None else as_key(key), headers, partition)
