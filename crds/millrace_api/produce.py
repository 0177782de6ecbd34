"""The stage that writes to a topic."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field

from millrace_api.forms import HeaderName, Taken, TopicName
from millrace_api.model import Model
from millrace_api.topic import NewTopic

Format = Literal["json", "string", "bytes"]
OnError = Literal["Stop", "DeadLetter"]


class HeaderFrom(Model):
    """A header, and what it is taken from."""

    name: HeaderName = Field(description="Name of the header.")
    from_: Taken = Field(
        alias="from",
        description="Its value: a field of the value, or a function of it, as for key. A header whose value is None is left "
        "out.",
    )


class ProduceStage(Model):
    """A stage that writes each message to a topic."""

    topic: TopicName = Field(description="The topic to write to. It can't be the source's.")
    create: NewTopic | None = Field(
        default=None,
        description="Make the topic if it is not there. Without this a topic that is missing is an error.",
    )
    format: Format = Field(
        default="json",
        description="How a value is written: json (default; NaN and infinities become null), string (UTF-8 of a str) or "
        "bytes (as it is). None is written as a record without a value. The timestamp is kept.",
    )
    key: Taken | None = Field(
        default=None,
        description="The record's key: a field of the value, with dots into fields of fields, or a function of the value "
        "(with a second parameter also of the message), as module:name. Bytes are written as they are, text as UTF-8, None as "
        "no key, anything else as JSON. Default: the source record's key.",
    )
    headers: Annotated[
        tuple[HeaderFrom, ...],
        Field(
            strict=False,
            json_schema_extra={"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"]},
        ),
    ] = Field(
        default=(),
        max_length=32,
        description="Headers to add to those of the source record, in the place of ones of the same name. Names are unique.",
    )
    partitioner: Taken | None = Field(
        default=None,
        description="The number of the partition to write to, 0 for the first: a field of the value, or a function of the "
        "value. One that the topic does not have stops the worker. Default: murmur2 of the key, as Java's clients have it.",
    )
    on_error: OnError = Field(
        default="Stop",
        description="What an exception other than millrace.Invalid in the functions of key, headers and partitioner does: "
        "Stop (default) stops the worker; DeadLetter sends the message to the dead letters, and needs spec.deadLetter.",
    )
