"""The texts a manifest is made of: names, addresses, times. Each form has one pattern, valid in all three places that
check it (pydantic, the API server's RE2, editors), and the words that explain it to the one who got it wrong.

Patterns are ASCII, anchored, without look-around and without \\d or \\w, whose meaning differs between the three.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Final

from pydantic import Field


@dataclass(frozen=True, slots=True)
class Form:
    """A kind of text. `noun` follows "is not ..."; `allowed` follows "use ..."."""

    noun: str
    pattern: str
    max_length: int
    allowed: str


_LABEL: Final = r"[a-z0-9]([a-z0-9-]*[a-z0-9])?"
_PORT: Final = r"([1-9][0-9]{0,3}|[1-5][0-9]{4}|6[0-4][0-9]{3}|65[0-4][0-9]{2}|655[0-2][0-9]|6553[0-5])"
_HOST_PORT: Final = rf"([A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?|\[[0-9A-Fa-f:.]+\]):{_PORT}"
_IDENTIFIER: Final = r"[A-Za-z_][A-Za-z0-9_]*"
_DATE: Final = r"[0-9]{4}-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])"
_TIME: Final = r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]{1,9})?"
_ZONE: Final = r"(Z|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"

# A StatefulSet's pods carry a label `<name>-<hash of 10>`, and a label's value ends at 63; Services begin with a letter.
PIPELINE_NAME: Final = Form(
    "a name for a pipeline",
    r"^[a-z]([a-z0-9-]*[a-z0-9])?$",
    52,
    "lower-case letters, digits and '-', beginning with a letter, not ending in '-', at most 52 characters",
)
DNS_LABEL: Final = Form(
    "a DNS label",
    f"^{_LABEL}$",
    63,
    "lower-case letters, digits and '-', beginning and ending with a letter or digit, at most 63 characters",
)
DNS_SUBDOMAIN: Final = Form(
    "the name of a Kubernetes object",
    rf"^{_LABEL}(\.{_LABEL})*$",
    253,
    "lower-case letters, digits, '-' and '.', beginning and ending with a letter or digit, at most 253 characters",
)
# "." and ".." are directories to the broker, which refuses them as topics.
TOPIC: Final = Form(
    "a Kafka topic name",
    r"^([a-zA-Z0-9_-]|[a-zA-Z0-9._-][a-zA-Z0-9_-]|[a-zA-Z0-9_-]\.|[a-zA-Z0-9._-]{3,})$",
    249,
    "letters, digits, '.', '_' and '-', at most 249 characters",
)
# A channel is a topic named <groupId>.<stage>.channel: 249 - 63 - len("..channel") are left.
GROUP_ID: Final = Form(
    "a consumer group id",
    r"^[a-zA-Z0-9._-]{1,177}$",
    177,
    "letters, digits, '.', '_' and '-', at most 177 characters",
)
FUNCTION: Final = Form(
    "a function reference",
    rf"^{_IDENTIFIER}(\.{_IDENTIFIER})*:{_IDENTIFIER}$",
    253,
    "module:name, for example flights:score",
)
TAKEN: Final = Form(
    "a field or a function",
    rf"^{_IDENTIFIER}(\.{_IDENTIFIER})*(:{_IDENTIFIER})?$",
    253,
    "the name of a field, with dots into fields of fields, for example order.customer; or module:name, for example "
    "flights:route",
)
HEADER_NAME: Final = Form(
    "the name of a header",
    r"^[A-Za-z0-9._-]+$",
    128,
    "letters, digits, '.', '_' and '-', at most 128 characters",
)
EXCEPTION: Final = Form(
    "the name of an exception",
    rf"^({_IDENTIFIER}(\.{_IDENTIFIER})*:)?{_IDENTIFIER}$",
    253,
    "a name such as TimeoutError, or module:name, for example requests:ConnectionError",
)
BOOTSTRAP_SERVERS: Final = Form(
    "a list of broker addresses",
    rf"^{_HOST_PORT}(, ?{_HOST_PORT})*$",
    2048,
    "HOST:PORT, or several with commas between them, for example kafka-0:9092,kafka-1:9092",
)
START_FROM: Final = Form(
    "a place to start from",
    rf"^(Earliest|Latest|{_DATE}T{_TIME}{_ZONE})$",
    40,
    "Earliest, Latest, or a time with its zone, for example 2026-01-31T00:00:00Z",
)
DURATION: Final = Form(
    "a duration",
    r"^([0-9]+(\.[0-9]+)?(ns|us|ms|s|m|h))+$",
    32,
    "a number with a unit (ms, s, m, h), for example 500ms or 1.5s",
)
ENV_NAME: Final = Form(
    "a name of an environment variable",
    r"^[A-Za-z_][A-Za-z0-9_.-]*$",
    253,
    "letters, digits, '_', '-' and '.', not beginning with a digit",
)
PROPERTY_NAME: Final = Form(
    "the name of a librdkafka property",
    r"^[a-z0-9][a-z0-9._-]{0,127}$",
    128,
    "lower-case letters, digits, '.', '_' and '-', at most 128, for example client.rack",
)
COLUMN: Final = Form(
    "the name of a column",
    rf"^{_IDENTIFIER}$",
    128,
    "letters, digits and '_', not beginning with a digit, at most 128 characters",
)
PARTITION_COLUMN: Final = Form(
    "a column to make folders by",
    rf"^({_IDENTIFIER}|(year|month|date|hour)\({_IDENTIFIER}\))$",
    136,
    "the name of a column, or year(...), month(...), date(...) or hour(...) of one, for example date(window_start)",
)
SPARK_PROPERTY: Final = Form(
    "the name of a Spark property",
    r"^spark\.[a-zA-Z0-9._-]{1,122}$",
    128,
    "a name that begins with spark., at most 128 characters, for example spark.driver.memory",
)

QUANTITY: Final = Form(
    "a quantity",
    r"^([0-9]+(\.[0-9]*)?|\.[0-9]+)([EPTGM]i?|Ki|k|m|u|n|[eE][+-]?[0-9]{1,3})?$",
    32,
    'a number with a unit, in quotes where it has none, for example 500m, "2", 512Mi or 1Gi',
)
IMAGE: Final = Form(
    "an image",
    r"^[a-zA-Z0-9][a-zA-Z0-9._:/@-]*$",
    512,
    "the name of an image with its tag or digest, for example registry.example.com/team/flights:1.4",
)

_WORD: Final = r"[A-Za-z0-9]([A-Za-z0-9_.-]*[A-Za-z0-9])?"
LABEL_KEY: Final = Form(
    "the key of a label or annotation",
    rf"^([a-z0-9]([a-z0-9.-]*[a-z0-9])?/)?{_WORD}$",
    317,
    "letters, digits, '-', '_' and '.', beginning and ending with a letter or digit; a domain and '/' may stand before",
)
LABEL_VALUE: Final = Form(
    "the value of a label",
    rf"^({_WORD})?$",
    63,
    "letters, digits, '-', '_' and '.', beginning and ending with a letter or digit, at most 63 characters",
)

FORMS: Final = {
    form.pattern: form
    for form in (
        PIPELINE_NAME,
        DNS_LABEL,
        DNS_SUBDOMAIN,
        TOPIC,
        GROUP_ID,
        FUNCTION,
        TAKEN,
        HEADER_NAME,
        EXCEPTION,
        BOOTSTRAP_SERVERS,
        START_FROM,
        DURATION,
        ENV_NAME,
        PROPERTY_NAME,
        COLUMN,
        PARTITION_COLUMN,
        SPARK_PROPERTY,
        QUANTITY,
        IMAGE,
        LABEL_KEY,
        LABEL_VALUE,
    )
}

PipelineName = Annotated[
    str, Field(pattern=PIPELINE_NAME.pattern, max_length=PIPELINE_NAME.max_length, min_length=1)
]
DnsLabel = Annotated[str, Field(pattern=DNS_LABEL.pattern, max_length=DNS_LABEL.max_length, min_length=1)]
DnsSubdomain = Annotated[
    str, Field(pattern=DNS_SUBDOMAIN.pattern, max_length=DNS_SUBDOMAIN.max_length, min_length=1)
]
TopicName = Annotated[str, Field(pattern=TOPIC.pattern, max_length=TOPIC.max_length, min_length=1)]
GroupId = Annotated[str, Field(pattern=GROUP_ID.pattern, max_length=GROUP_ID.max_length, min_length=1)]
FunctionRef = Annotated[str, Field(pattern=FUNCTION.pattern, max_length=FUNCTION.max_length, min_length=3)]
Taken = Annotated[str, Field(pattern=TAKEN.pattern, max_length=TAKEN.max_length, min_length=1)]
HeaderName = Annotated[
    str, Field(pattern=HEADER_NAME.pattern, max_length=HEADER_NAME.max_length, min_length=1)
]
ExceptionRef = Annotated[str, Field(pattern=EXCEPTION.pattern, max_length=EXCEPTION.max_length, min_length=1)]
BootstrapServers = Annotated[
    str, Field(pattern=BOOTSTRAP_SERVERS.pattern, max_length=BOOTSTRAP_SERVERS.max_length, min_length=3)
]
StartFrom = Annotated[str, Field(pattern=START_FROM.pattern, max_length=START_FROM.max_length, min_length=1)]
Duration = Annotated[str, Field(pattern=DURATION.pattern, max_length=DURATION.max_length, min_length=2)]
EnvName = Annotated[str, Field(pattern=ENV_NAME.pattern, max_length=ENV_NAME.max_length, min_length=1)]
PropertyName = Annotated[
    str, Field(pattern=PROPERTY_NAME.pattern, max_length=PROPERTY_NAME.max_length, min_length=1)
]
ColumnName = Annotated[str, Field(pattern=COLUMN.pattern, max_length=COLUMN.max_length, min_length=1)]
PartitionColumn = Annotated[
    str, Field(pattern=PARTITION_COLUMN.pattern, max_length=PARTITION_COLUMN.max_length, min_length=1)
]
SparkProperty = Annotated[
    str, Field(pattern=SPARK_PROPERTY.pattern, max_length=SPARK_PROPERTY.max_length, min_length=1)
]
Quantity = Annotated[str, Field(pattern=QUANTITY.pattern, max_length=QUANTITY.max_length, min_length=1)]
Image = Annotated[str, Field(pattern=IMAGE.pattern, max_length=IMAGE.max_length, min_length=1)]
LabelKey = Annotated[str, Field(pattern=LABEL_KEY.pattern, max_length=LABEL_KEY.max_length, min_length=1)]
LabelValue = Annotated[str, Field(pattern=LABEL_VALUE.pattern, max_length=LABEL_VALUE.max_length)]
